//! `hashfold bench`: our own speed, measured where the command runs. Answers are checked before a
//! time is reported.

mod device;
mod filter;
mod input;
mod measure;
mod pairs;
#[cfg(feature = "columnar")]
mod parquet;
mod store;
mod table;

use crate::{
    failure::{Exit, Failure, Result},
    units,
};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Measure this machine: speeds and sizes of Hashfold's parts
///
/// Answers are checked before a time is printed.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// The static table: its indexes in memory, whole builds, cold lookups.
    Table(TableBench),
    /// The store: updates, deltas, publishing under readers.
    Store(StoreBench),
    /// The filters: runs merged in memory, the cascade on the device.
    Filter(FilterBench),
}

/// Sizes of the table's measurements.
#[derive(Debug, Args)]
pub(crate) struct TableBench {
    /// Keys in the indexes that are measured in memory.
    #[arg(long, default_value_t = 16_000_000, value_name = "N")]
    pub(crate) keys: u64,

    /// Key and value bytes of each whole build.
    #[arg(long, default_value = "2GiB", value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) data: usize,

    /// Memory of the builds that are to be larger than memory.
    #[arg(long, default_value = "256MiB", value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) memory: usize,

    /// Folder for the data, on the device to be measured; three times --data must be free there.
    #[arg(long, default_value = "hashfold-bench", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Also sweep the bucket size and the coding limit.
    #[arg(long)]
    pub(crate) sweep: bool,

    /// Measure only this; may be repeated
    #[arg(long, value_name = "GROUP", value_parser = ["trie", "fence", "sparse", "locations", "input", "build", "cold"])]
    pub(crate) only: Vec<String>,

    /// Seed of the generated keys.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Threads besides the main one.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = units::parse_threads)]
    pub(crate) threads: usize,

    /// One JSON object a measurement.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Sizes of the store's measurements.
#[derive(Debug, Args)]
pub(crate) struct StoreBench {
    /// Key and value bytes of the version that is updated.
    #[arg(long, default_value = "1GiB", value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) data: usize,

    /// Items at the end of five updates, a sixth of them in each, as in the paper's Figure 9.
    #[arg(long, default_value_t = 1_500_000, value_name = "N")]
    pub(crate) items: u64,

    /// Publishes and rollbacks together, under readers.
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub(crate) publishes: u64,

    /// Memory in which an input is sorted.
    #[arg(long, default_value = "256MiB", value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) memory: usize,

    /// Chunks of the stores.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) chunks: u32,

    /// Folder for the data, on the device to be measured; five times --data must be free there.
    #[arg(long, default_value = "hashfold-bench", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Measure only this; may be repeated
    #[arg(long, value_name = "GROUP", value_parser = ["update", "sweep", "growth", "delta", "publish"])]
    pub(crate) only: Vec<String>,

    /// Seed of the generated keys.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Threads besides the main one.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = units::parse_threads)]
    pub(crate) threads: usize,

    /// One JSON object a measurement.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Sizes of the filters' measurements.
#[derive(Debug, Args)]
pub(crate) struct FilterBench {
    /// Keys that go into the cascade.
    #[arg(long, default_value = "1e9", value_parser = units::parse_count, value_name = "N")]
    pub(crate) keys: u64,

    /// Memory of the cascade.
    #[arg(long, default_value = "256MiB", value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) memory: usize,

    /// Keys in the runs that are merged in memory.
    #[arg(long, default_value = "16e6", value_parser = units::parse_count, value_name = "N")]
    pub(crate) run_keys: u64,

    /// Slots of the quotient filter in memory.
    #[arg(long, default_value_t = 1 << 26, value_name = "N")]
    pub(crate) slots: u64,

    /// Folder for the data, on the device to be measured; 6 bytes a key must be free there.
    #[arg(long, default_value = "hashfold-bench", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Measure only this; may be repeated
    #[arg(long, value_name = "GROUP", value_parser = ["cascade", "lookup", "variants", "run", "quotient"])]
    pub(crate) only: Vec<String>,

    /// Seed of the generated keys.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Threads for single reads and writes, besides the main one and four in the background.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = units::parse_threads)]
    pub(crate) threads: usize,

    /// One JSON object a measurement.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the measurements and prints each as it is done.
pub(crate) fn run(args: &BenchArgs) -> Result<Exit> {
    match &args.part {
        Part::Table(bench) => table::run(bench)?,
        Part::Store(bench) => store::run(bench)?,
        Part::Filter(bench) => filter::run(bench)?,
    }
    Ok(Exit::Done)
}

/// A benchmark's answers must be right.
fn ensure(right: bool, wrong: impl FnOnce() -> String) -> Result<()> {
    if right {
        return Ok(());
    }
    Err(Failure { exit: Exit::Damage, message: wrong() })
}
