//! `hashfold bench`: measures Hashfold on this machine. Answers are checked before a time is reported.

mod core;
mod device;
mod filter;
mod hot;
mod input;
mod map;
mod measure;
mod memory;
mod pairs;
#[cfg(feature = "columnar")]
mod parquet;
#[cfg(feature = "summarize")]
mod pipeline;
mod random;
mod rows;
#[cfg(all(feature = "deploy", feature = "serve"))]
mod serve;
mod sketch;
mod store;
mod table;
mod times;

use self::{measure::Report, pairs::remove_all};
use crate::{
    failure::{Exit, Failure, Result},
    units,
};
use clap::{Args, Subcommand};
use hashfold::io::{Disk as _, OsDisk};
use std::path::{Path, PathBuf};

/// Measure speeds and sizes of Hashfold on this machine
///
/// Every answer is checked before a time is printed.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Measure the write-ahead log: durable appends from several threads
    Core(CoreBench),
    /// Measure tables: indexes in RAM, whole builds, lookups with and without the page cache
    Table(TableBench),
    /// Measure stores: updates, deltas, publishing under readers
    Store(StoreBench),
    /// Measure filters: the cascade on flash, runs and the quotient filter in RAM
    Filter(FilterBench),
    /// Measure maps: load, updates, lookups, durable commits, space, recovery
    Map(MapBench),
    /// Measure sketches: inserts, intersections, a sketch for each group of rows
    Sketch(SketchBench),
    /// Measure tables in RAM: puts, lookups, appends, their pauses and their memory
    Memory(MemoryBench),
    /// Measure event streams: CSV and JSON, from a file and over TCP, to windows of counts, sums and sketches
    #[cfg(feature = "summarize")]
    Pipeline(PipelineBench),
    /// Measure servers: lookups, overload, publishing and transfers under readers
    #[cfg(all(feature = "deploy", feature = "serve"))]
    Serve(ServeBench),
}

/// Options for measuring the core.
#[derive(Debug, Args)]
pub(crate) struct CoreBench {
    /// Number of commits of one thread in a round; 8 threads together make 4 times as many, 64 threads 16 times
    #[arg(long, default_value_t = 500, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) commits: u64,

    /// Number of rounds: commits, then bare writes; medians are printed
    #[arg(long, default_value_t = 21, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rounds: u64,

    /// Folder for the data, on the device to measure; needs 256 MiB of free space
    #[arg(long, default_value = "hashfold-bench", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Measure only this; may be repeated
    #[arg(long, value_name = "GROUP", value_parser = ["wal"])]
    pub(crate) only: Vec<String>,

    /// Seed and id of the log
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Print one JSON object per measurement
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options for measuring tables.
#[derive(Debug, Args)]
pub(crate) struct TableBench {
    /// Keys in the indexes that are measured in RAM
    #[arg(long, default_value_t = 16_000_000, value_name = "N")]
    pub(crate) keys: u64,

    /// Bytes of keys and values in each whole build
    #[arg(long, default_value = "2GiB", value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) data: usize,

    /// Memory budget of the builds that exceed memory
    #[arg(long, default_value = "256MiB", value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) memory: usize,

    /// Folder for the data, on the device to be measured; needs three times --data of free space
    #[arg(long, default_value = "hashfold-bench", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Also measure a range of bucket sizes and coding limits
    #[arg(long)]
    pub(crate) sweep: bool,

    /// Group to measure; may be repeated [default: all]
    #[arg(long, value_name = "GROUP", value_parser = ["trie", "fence", "sparse", "locations", "input", "build", "cold", "hot", "without-index"])]
    pub(crate) only: Vec<String>,

    /// Number of rounds; more than one print medians and ranges, at the end
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Seed of the generated keys
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Threads besides the main one
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = units::parse_threads)]
    pub(crate) threads: usize,

    /// Print one JSON object per measurement
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options for measuring stores.
#[derive(Debug, Args)]
pub(crate) struct StoreBench {
    /// Bytes of keys and values in the version that is updated
    #[arg(long, default_value = "1GiB", value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) data: usize,

    /// Items after five updates of a sixth each, as in Figure 9 of the paper
    #[arg(long, default_value_t = 1_500_000, value_name = "N")]
    pub(crate) items: u64,

    /// Number of publishes and rollbacks under readers
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub(crate) publishes: u64,

    /// Memory budget for sorting
    #[arg(long, default_value = "256MiB", value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) memory: usize,

    /// Chunks of the stores; the group `chunks` compares 1, 16 and 1024
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) chunks: u32,

    /// Folder for the data, on the device to be measured; needs five times --data of free space
    #[arg(long, default_value = "hashfold-bench", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Group to measure; may be repeated [default: all]
    #[arg(long, value_name = "GROUP", value_parser = ["update", "sweep", "growth", "delta", "publish", "chunks"])]
    pub(crate) only: Vec<String>,

    /// Number of rounds; more than one print medians and ranges, at the end
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Seed of the generated keys
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Threads besides the main one
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = units::parse_threads)]
    pub(crate) threads: usize,

    /// Print one JSON object per measurement
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options for measuring filters.
#[derive(Debug, Args)]
pub(crate) struct FilterBench {
    /// Keys that are inserted into the cascade
    #[arg(long, default_value = "1e9", value_parser = units::parse_count, value_name = "N")]
    pub(crate) keys: u64,

    /// Memory budget of the cascade
    #[arg(long, default_value = "256MiB", value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) memory: usize,

    /// Keys in the runs that are merged in RAM
    #[arg(long, default_value = "16e6", value_parser = units::parse_count, value_name = "N")]
    pub(crate) run_keys: u64,

    /// Slots of the quotient filter in RAM
    #[arg(long, default_value_t = 1 << 26, value_name = "N")]
    pub(crate) slots: u64,

    /// Folder for the data, on the device to be measured; needs 6 bytes of free space per key
    #[arg(long, default_value = "hashfold-bench", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Group to measure; may be repeated [default: all]
    #[arg(long, value_name = "GROUP", value_parser = ["cascade", "lookup", "variants", "run", "quotient"])]
    pub(crate) only: Vec<String>,

    /// Number of rounds; more than one print medians and ranges, at the end
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Seed of the generated keys
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Threads for single reads and writes, besides the main one and four for background jobs
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = units::parse_threads)]
    pub(crate) threads: usize,

    /// Print one JSON object per measurement
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options for measuring maps.
#[derive(Debug, Args)]
pub(crate) struct MapBench {
    /// Entries of 8 + 8 bytes that are loaded
    #[arg(long, default_value = "10e6", value_parser = units::parse_count, value_name = "N")]
    pub(crate) keys: u64,

    /// Updates of existing keys
    #[arg(long, default_value = "10e6", value_parser = units::parse_count, value_name = "N")]
    pub(crate) updates: u64,

    /// Lookups of each kind, and operations of each mix
    #[arg(long, default_value = "200e3", value_parser = units::parse_count, value_name = "N")]
    pub(crate) lookups: u64,

    /// Number of durable commits of one thread; 8 threads together make 4 times as many, 64 threads 16 times
    #[arg(long, default_value_t = 5000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) commits: u64,

    /// Memory budget of the map, at least 8MiB
    #[arg(long, default_value = "64MiB", value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) memory: usize,

    /// Folder for the data, on the device to be measured; needs 100 bytes of free space per key, and 512 MiB
    #[arg(long, default_value = "hashfold-bench", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Folder on another device: compares lookups in a map on one device with those in a map on both; needs
    /// 50 bytes of free space per key
    #[arg(long, value_name = "DIR")]
    pub(crate) device: Option<PathBuf>,

    /// Group to measure besides load and updates; may be repeated [default: all]
    #[arg(long, value_name = "GROUP", value_parser = ["import", "get", "commit", "recover", "delete"])]
    pub(crate) only: Vec<String>,

    /// Number of rounds; more than one print medians and ranges, at the end
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Seed of the generated keys
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Threads for background jobs, besides the main one
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = units::parse_threads)]
    pub(crate) threads: usize,

    /// Print one JSON object per measurement
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options for measuring event streams.
#[cfg(feature = "summarize")]
#[derive(Debug, Args)]
pub(crate) struct PipelineBench {
    /// Events of each format in a file, at least
    #[arg(long, default_value = "4e6", value_parser = units::parse_count, value_name = "N")]
    pub(crate) events: u64,

    /// Time for which a sender sends events over TCP, in each measurement
    #[arg(long, default_value = "10s", value_parser = units::parse_duration, value_name = "TIME")]
    pub(crate) time: std::time::Duration,

    /// Parser threads
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = units::parse_threads)]
    pub(crate) parsers: usize,

    /// Numbers of worker threads to measure, for two summaries
    #[arg(long, default_values_t = [1, 2], value_delimiter = ',', value_name = "N", value_parser = units::parse_threads)]
    pub(crate) workers: Vec<usize>,

    /// Folder for the data, on the device to be measured; needs 1 KiB of free space per event in a file
    #[arg(long, default_value = "hashfold-bench", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Number of rounds; more than one print medians and ranges, at the end
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Seed of the generated events
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Print one JSON object per measurement
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options for measuring sketches.
#[derive(Debug, Args)]
pub(crate) struct SketchBench {
    /// Rows that are grouped
    #[arg(long, default_value = "20e6", value_parser = units::parse_count, value_name = "N")]
    pub(crate) rows: u64,

    /// Groups of the rows
    #[arg(long, default_value = "200e3", value_parser = units::parse_count, value_name = "N")]
    pub(crate) groups: u64,

    /// Keys of the larger of two exact filters of which a prefix is read; needs 16 bytes of memory per key
    #[arg(long, default_value = "20e6", value_parser = units::parse_count, value_name = "N")]
    pub(crate) prefix_keys: u64,

    /// Precision of the sketches
    #[arg(long, default_value_t = 14, value_name = "P", value_parser = clap::value_parser!(u8).range(4..=18))]
    pub(crate) precision: u8,

    /// Memory budget of the groups
    #[arg(long, default_value = "256MiB", value_parser = units::parse_memory, value_name = "SIZE")]
    pub(crate) memory: usize,

    /// Folder for the data, on the device to be measured; needs 30 bytes of free space per row
    #[arg(long, default_value = "hashfold-bench", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Group of measurements; may be repeated [default: all]
    #[arg(long, value_name = "GROUP", value_parser = ["insert", "joint", "prefix", "groups"])]
    pub(crate) only: Vec<String>,

    /// Number of rounds; more than one print medians and ranges, at the end
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Seed of the generated rows
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Threads besides the main one
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = units::parse_threads)]
    pub(crate) threads: usize,

    /// Print one JSON object per measurement
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options for measuring tables in RAM.
#[derive(Debug, Args)]
pub(crate) struct MemoryBench {
    /// Keys of the table of numbers; needs 17 bytes of memory per key
    #[arg(long, default_value = "20e6", value_parser = units::parse_count, value_name = "N")]
    pub(crate) keys: u64,

    /// Keys of the table that is appended to; needs 90 bytes of memory per key, or 270 with `day`
    #[arg(long, default_value = "5e6", value_parser = units::parse_count, value_name = "N")]
    pub(crate) chains: u64,

    /// Part of its slots that a group of keys fills before it grows, 0.5 to 0.95; a full chunk lets it grow before
    #[arg(long, default_value_t = 0.87, value_name = "PART")]
    pub(crate) load: f64,

    /// Group of measurements; may be repeated. `day` appends 48 times as much as `append`, and trims [default: group and
    /// append]
    #[arg(long, value_name = "GROUP", value_parser = ["group", "append", "day"])]
    pub(crate) only: Vec<String>,

    /// Number of rounds; more than one print medians and ranges, at the end
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Seed of the generated keys
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Threads that populate memory ahead of its use, besides the main one
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = units::parse_threads)]
    pub(crate) threads: usize,

    /// Print one JSON object per measurement
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options for measuring servers.
#[cfg(all(feature = "deploy", feature = "serve"))]
#[derive(Debug, Args)]
pub(crate) struct ServeBench {
    /// Keys of the table that is read from memory
    #[arg(long, default_value = "1e6", value_parser = units::parse_count, value_name = "N")]
    pub(crate) keys: u64,

    /// Keys of the table and of the map that are read from the device
    #[arg(long, default_value = "20e6", value_parser = units::parse_count, value_name = "N")]
    pub(crate) flash_keys: u64,

    /// Keys of the data set in memory that is appended to; needs 90 bytes of memory per key, and 220 in redis-server
    #[arg(long, default_value = "2e6", value_parser = units::parse_count, value_name = "N")]
    pub(crate) chains: u64,

    /// Keys of the table that a server starts with
    #[arg(long, default_value = "100e6", value_parser = units::parse_count, value_name = "N")]
    pub(crate) start_keys: u64,

    /// Requests in each measurement of lookups
    #[arg(long, default_value = "1e6", value_parser = units::parse_count, value_name = "N")]
    pub(crate) requests: u64,

    /// Bytes of keys and values in the version that is transferred
    #[arg(long, default_value = "512MiB", value_parser = units::parse_bytes, value_name = "SIZE")]
    pub(crate) data: usize,

    /// Number of publications under readers
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) publishes: u64,

    /// Number of connections that do nothing
    #[arg(long, default_value_t = 5000, value_name = "N")]
    pub(crate) idle: usize,

    /// Folder for the data, on the device to be measured; needs 8 GiB of free space
    #[arg(long, default_value = "hashfold-bench", value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Group to measure; may be repeated [default: all]
    #[arg(long, value_name = "GROUP", value_parser = ["get", "set", "map", "append", "overload", "filter", "memory", "start", "publish", "fetch", "resume"])]
    pub(crate) only: Vec<String>,

    /// Number of rounds; more than one print medians and ranges, at the end
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,

    /// Seed of the generated keys
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Threads for builds and transfers, besides the main one; each server has one network thread
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = units::parse_threads)]
    pub(crate) threads: usize,

    /// Print one JSON object per measurement
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the measurements and prints each when it is done.
pub(crate) fn run(args: &BenchArgs) -> Result<Exit> {
    match &args.part {
        Part::Core(bench) => core::run(bench)?,
        Part::Table(bench) => {
            let report = Report::new(bench.json, bench.rounds, bench.seed, bench.threads);
            in_rounds(&report, bench.rounds, || table::run(bench, &report))?;
        }
        Part::Store(bench) => {
            let report = Report::new(bench.json, bench.rounds, bench.seed, bench.threads);
            in_rounds(&report, bench.rounds, || store::run(bench, &report))?;
        }
        Part::Filter(bench) => {
            let report = Report::new(bench.json, bench.rounds, bench.seed, bench.threads);
            in_rounds(&report, bench.rounds, || filter::run(bench, &report))?;
        }
        Part::Map(bench) => {
            let report = Report::new(bench.json, bench.rounds, bench.seed, bench.threads);
            in_rounds(&report, bench.rounds, || map::run(bench, &report))?;
        }
        Part::Sketch(bench) => {
            let report = Report::new(bench.json, bench.rounds, bench.seed, bench.threads);
            in_rounds(&report, bench.rounds, || sketch::run(bench, &report))?;
        }
        Part::Memory(bench) => {
            let report = Report::new(bench.json, bench.rounds, bench.seed, bench.threads);
            in_rounds(&report, bench.rounds, || memory::run(bench, &report))?;
        }
        #[cfg(feature = "summarize")]
        Part::Pipeline(bench) => {
            let threads = bench.parsers + bench.workers.iter().max().copied().unwrap_or(1);
            let report = Report::new(bench.json, bench.rounds, bench.seed, threads);
            in_rounds(&report, bench.rounds, || pipeline::run(bench, &report))?;
        }
        #[cfg(all(feature = "deploy", feature = "serve"))]
        Part::Serve(bench) => {
            let report = Report::new(bench.json, bench.rounds, bench.seed, bench.threads);
            in_rounds(&report, bench.rounds, || serve::run(bench, &report))?;
        }
    }
    Ok(Exit::Done)
}

fn in_rounds(report: &Report, rounds: u32, round: impl Fn() -> Result<()>) -> Result<()> {
    (0..rounds).try_for_each(|_| round())?;
    report.finish();
    Ok(())
}

/// Calls `work` with a new folder `name` in `dir`, and removes it afterwards.
fn in_folder(dir: &Path, name: &str, work: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let folder = dir.join(name);
    // What is there already may be the user's.
    if OsDisk.exists(&folder)? {
        return Err(Failure::usage(format!(
            "{}: is there already, as if a benchmark was killed; remove it, or name another folder with \
             --dir",
            folder.display()
        )));
    }
    OsDisk.create_folder(&folder)?;
    let done = work(&folder);
    let removed = remove_all(&folder);
    // The folder stays if it existed before and is not empty.
    let _ = OsDisk.remove_folder(dir);
    done.and(removed)
}

/// Fails unless a benchmark's answer is right.
fn ensure(right: bool, wrong: impl FnOnce() -> String) -> Result<()> {
    if right {
        return Ok(());
    }
    Err(Failure { exit: Exit::Damage, message: wrong() })
}
