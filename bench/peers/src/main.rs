//! Benchmarks of Hashfold and its peers, side by side: same keys, one program, interleaved rounds,
//! and every answer checked before a time is reported.
//!
//! `peers index` compares structures in memory, `peers dictionary` dictionaries on the device,
//! `peers nightly` data sets that change under a reader, and `peers damage` the reactions of
//! readers to damaged files. `peers filter` compares filters in memory, and `peers seen` sets of
//! keys on the device that are larger than memory, `peers map` maps that change key by key, `peers serve`
//! servers that answer from memory, `peers failover` clusters that lose a server, `peers sketch` sketches
//! that count distinct keys, and `peers memory` tables in memory. Standard output is JSON Lines, standard error a
//! table for people; the same lines and charts (SVG) are written to a folder. `bench/README.md`
//! explains the columns.

mod curves;
mod damage;
mod data;
mod dictionary;
mod failover;
mod filter;
mod hot;
mod index;
#[cfg(feature = "rocksdb")]
mod librocksdb;
mod limit;
mod map;
mod measure;
mod memory;
mod nightly;
mod report;
mod row;
mod seen;
mod serve;
mod sketch;
#[cfg(test)]
mod tests;

use crate::report::Report;
use clap::{Args, Parser, Subcommand};
use record::Run;
use std::{path::PathBuf, process::ExitCode};

type Result<T> = record::Result<T>;

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
    /// Lookups of data that are in memory, by threads and batch size.
    Hot(hot::Options),
    /// Filters in memory: bits per key and operations per second.
    Filter(filter::Options),
    /// Sets of keys on the device: insertions, stalls, lookups.
    Seen(seen::Options),
    /// Maps on the device that change key by key: load, updates, lookups, durable commits, space.
    Map(map::Options),
    /// Servers that answer lookups from memory: requests per second of CPU time, latencies.
    Serve(serve::Options),
    /// Clusters that lose a server: the time until its keys are answered again.
    Failover(failover::Options),
    /// Sketches that count distinct keys: time per insert, bytes, errors of counts and intersections.
    Sketch(sketch::Options),
    /// Tables in memory: puts, lookups, appends, bytes per key, the slowest million.
    Memory(memory::Options),
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
    /// Folder for results and charts. Only results of a commit, in 3 rounds or more, go to `results`.
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Folder for temporary files; a new folder in it is removed at the end.
    #[arg(long, default_value = "target")]
    dir: PathBuf,
    /// Draw the charts again from the results in the folder --out, and measure nothing.
    #[arg(long)]
    draw: bool,
}

impl Common {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }
}

impl Command {
    /// Returns the name of its results, and the options of all commands.
    fn common(&self) -> (&'static str, &Common) {
        match self {
            Command::Index(options) => ("index", &options.common),
            Command::Dictionary(options) => ("dictionary", &options.common),
            Command::Nightly(options) => ("nightly", &options.common),
            Command::Damage(options) => ("damage", &options.common),
            Command::Hot(options) => ("hot", &options.common),
            Command::Filter(options) => ("filter", &options.common),
            Command::Seen(options) => ("seen", &options.common),
            Command::Map(options) => ("map", &options.common),
            Command::Serve(options) => ("serve", &options.common),
            Command::Failover(options) => ("failover", &options.common),
            Command::Sketch(options) => ("sketch", &options.common),
            Command::Memory(options) => ("memory", &options.common),
        }
    }

    fn run(&self) -> Result<Report> {
        match self {
            Command::Index(options) => index::run(options),
            Command::Dictionary(options) => dictionary::run(options),
            Command::Nightly(options) => nightly::run(options),
            Command::Damage(options) => damage::run(options),
            Command::Hot(options) => hot::run(options),
            Command::Filter(options) => filter::run(options),
            Command::Seen(options) => seen::run(options),
            Command::Map(options) => map::run(options),
            Command::Serve(options) => serve::run(options),
            Command::Failover(options) => failover::run(options),
            Command::Sketch(options) => sketch::run(options),
            Command::Memory(options) => memory::run(options),
        }
    }

    /// Returns a report without rows.
    fn empty_report(&self) -> Result<Report> {
        Ok(match self {
            Command::Index(options) => index::report(options),
            Command::Dictionary(options) => dictionary::report(options),
            Command::Nightly(options) => nightly::report(options),
            Command::Damage(options) => damage::report(options),
            // Without data sets, nothing is measured.
            Command::Hot(options) => {
                hot::run(&hot::Options { sizes: Vec::new(), ..options.clone() })?
            }
            Command::Filter(options) => filter::report(options),
            Command::Seen(options) => seen::report(options),
            Command::Map(options) => map::report(options),
            Command::Serve(options) => serve::report(options),
            Command::Failover(options) => failover::report(options),
            Command::Sketch(options) => sketch::report(options),
            Command::Memory(options) => memory::report(options),
        })
    }

    /// Draws the charts of the results in a folder.
    fn draw(&self) -> Result<()> {
        let (name, common) = self.common();
        let mut report = self.empty_report()?;
        report.load(&common.out, name)?;
        report.draw(&common.out, name)
    }
}

fn run(command: &Command) -> Result<()> {
    let (name, common) = command.common();
    if common.draw {
        return command.draw();
    }
    if let Command::Seen(options) = command
        && options.alone.is_some()
    {
        return seen::run_alone(options);
    }
    if let Command::Map(options) = command
        && options.alone.is_some()
    {
        return map::run_alone(options);
    }
    if let Command::Memory(options) = command
        && options.alone.is_some()
    {
        return memory::run_alone(options);
    }
    if let Command::Serve(serve::Options { alone: Some(folder), .. }) = command {
        return serve::run_alone(folder);
    }
    Run::check(&common.out, common.rounds)?;
    record::check_alike()?;
    let report = command.run()?;
    report.print();
    report.save(&common.out, name)
}

fn main() -> ExitCode {
    record::with_huge_pages("peers", || run(&Cli::parse().command))
}
