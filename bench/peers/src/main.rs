//! Benchmarks of Hashfold and its peers, side by side: same keys, one process, interleaved rounds,
//! and every answer checked before a time is reported.
//!
//! `peers index` compares structures in memory, `peers dictionary` dictionaries on the device,
//! `peers nightly` data sets that change under a reader, and `peers damage` the reactions of
//! readers to damaged files. `peers filter` compares filters in memory, and `peers seen` sets of
//! keys on the device that are larger than memory. Standard output is JSON Lines, standard error a
//! table for people; CSV and SVG are written to a folder. `bench/README.md` explains the columns.

mod chart;
mod damage;
mod data;
mod dictionary;
mod filter;
mod index;
#[cfg(feature = "rocksdb")]
mod librocksdb;
mod machine;
mod measure;
mod nightly;
mod report;
mod row;
mod seen;
#[cfg(test)]
mod tests;

use clap::{Args, Parser, Subcommand};
use std::{error::Error, path::PathBuf, process::ExitCode};

/// The result type: any error ends the program.
type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Parser)]
#[command(version, about = "The same work done by Hashfold and by its peers, side by side")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Indexes in memory: bits and nanoseconds per key.
    Index(index::Options),
    /// Whole dictionaries: build and cold gets.
    Dictionary(dictionary::Options),
    /// Data that change every night under a reader, and are rolled back once.
    Nightly(nightly::Options),
    /// Lookups in a store with a missing chunk, and with flipped bytes.
    Damage(damage::Options),
    /// Filters in memory: bits per key and operations per second.
    Filter(filter::Options),
    /// Sets of keys on the device: insertions, stalls, lookups.
    Seen(seen::Options),
}

/// The options of all commands.
#[derive(Args, Clone, Debug)]
struct Common {
    /// Seed of keys, values and queries.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of rounds, each of which runs every peer once.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measure only peers whose name contains this; may be repeated.
    #[arg(long)]
    only: Vec<String>,
    /// Folder for CSV and SVG.
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Folder for temporary files; a new folder in it is removed at the end.
    #[arg(long, default_value = "target")]
    dir: PathBuf,
}

impl Common {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }
}

fn main() -> ExitCode {
    let (report, out, name) = match Cli::parse().command {
        Command::Index(options) => (index::run(&options), options.common.out, "index"),
        Command::Dictionary(options) => {
            (dictionary::run(&options), options.common.out, "dictionary")
        }
        Command::Nightly(options) => (nightly::run(&options), options.common.out, "nightly"),
        Command::Damage(options) => (damage::run(&options), options.common.out, "damage"),
        Command::Filter(options) => (filter::run(&options), options.common.out, "filter"),
        Command::Seen(options) => (seen::run(&options), options.common.out, "seen"),
    };
    let result = report.and_then(|report| {
        report.print();
        report.save(&out, name)
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}
