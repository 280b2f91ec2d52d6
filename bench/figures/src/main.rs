//! The figures and tables of the papers, measured with Hashfold's own code.
//!
//! - Lim, Andersen and Kaminsky, *Practical Batch-Updatable External Hashing with Sorting* (2013).
//! - The post on Voldemort's read-only stores, *Building a terabyte-scale data cycle at LinkedIn with
//!   Hadoop and Project Voldemort* (2009).
//! - Bender et al., *Don't Thrash: How to Cache your Hash on Flash* (2011).
//! - The posts of Aggregate Knowledge on HyperLogLog (2012 to 2013): counts and intersections; and on their
//!   Summarizer: queues between threads.
//! - Jin et al., *SAL-Hashing: A Self-Adaptive Linear Hashing Index for SSDs* (2020), simulated.
//!
//! Each command writes JSON Lines and an SVG, with the paper's values beside ours. If the paper only draws
//! a curve, its values are not estimated: expected sizes are computed by its formulas, other curves
//! are omitted. Answers are checked before a time is reported.
//!
//! ```text
//! theory ──────────────┐
//! hashes (indexes) ────┤→ one function per figure → sheet (JSON Lines), chart (SVG)
//! items ── builds ─────┤
//!   └───── stores ─────┤
//! cascade (filters) ───┤
//! sal (a simulator) ───┤
//! hll (sketches) ──────┤
//! queues (pipelines) ──┤
//! paper ───────────────┘
//! ```

mod builds;
mod cascade;
mod construction;
mod dice;
mod growth;
mod hashes;
mod hll;
mod items;
mod machine;
mod measure;
mod paper;
mod pictures;
mod queries;
mod queues;
mod sal;
mod sheet;
mod sizes;
mod stores;
#[cfg(test)]
mod tests;
mod theory;
mod tradeoff;
mod updates;
mod urls;
mod voldemort;

use clap::{Args, Parser, Subcommand};
use record::{Run, curves as chart};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// The result type: any error ends the program.
type Result<T> = record::Result<T>;

#[derive(Debug, Parser)]
#[command(version, about = "The figures and tables of the papers that Hashfold is built from")]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Command,
}

/// The options of all commands.
#[derive(Args, Clone, Debug)]
struct Options {
    /// Folder for results and charts; results/ect, results/store, results/voldemort, results/cascade,
    /// results/sal, results/hll or results/queues by default.
    #[arg(long, global = true, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Folder for tables and their inputs, on the device to measure; a temporary folder in it is
    /// removed at the end.
    #[arg(long, global = true, default_value = "target", value_name = "DIR")]
    dir: PathBuf,
    /// Seed of all keys, values and queries.
    #[arg(long, global = true, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Number of rounds of each measurement.
    #[arg(long, global = true, default_value_t = 3, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Draw the charts again from the results in the folder, and measure nothing.
    #[arg(long, global = true)]
    draw: bool,
    /// Use tiny sizes, to test the code and not to measure.
    #[arg(long, global = true)]
    quick: bool,
}

impl Options {
    /// Returns the folder for results and charts.
    fn folder(&self) -> &Path {
        self.out.as_deref().unwrap_or(Path::new("results/ect"))
    }

    /// Returns these options, with another folder as the default.
    fn by_default_in(&self, folder: &str) -> Options {
        Options { out: Some(self.out.clone().unwrap_or_else(|| folder.into())), ..self.clone() }
    }

    /// Returns the given size, or else the default size or the tiny one.
    fn size<T>(&self, asked: Option<T>, default: T, tiny: T) -> T {
        asked.unwrap_or(if self.quick { tiny } else { default })
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Expected bits of one trie, by its number of keys.
    Fig3(Keys),
    /// Expected bits of sparse tries and fences, by the number of items per block.
    Fig6(Keys),
    /// Build throughput by memory: URL-like keys with values of 1000 bytes. Also writes Table 3.
    #[command(visible_alias = "table3")]
    Fig7(Sweep),
    /// Build throughput by the number of items.
    Fig8(Growth),
    /// Updates compared with rebuilding, by the number of updates.
    Fig9(Updates),
    /// Index size and lookup time, by bucket size.
    Fig10(Keys),
    /// Index size and lookup time, by the limit on Huffman coding.
    Fig11(Keys),
    /// Build throughput by memory: keys of 12 bytes with values of 4. Also writes Table 5.
    #[command(visible_alias = "table5")]
    Fig12(Sweep),
    /// Summary: bits per key and lookup time.
    Table1(Keys),
    /// Random lookups on the device.
    Table4(Queries),
    /// Update time by the size of the batch, compared with rebuilding; in no paper.
    Updates(Updates),
    /// The post on Voldemort: latency of requests, with much more data than memory.
    VoldemortLookups(Requests),
    /// The post on Voldemort: build time by the size of the input.
    VoldemortBuilds(StoreBuilds),
    /// The paper on cascade filters: insertions over time, with background jobs and inline.
    CascadeFig3(CascadeRuns),
    /// The paper on cascade filters: a quotient filter and a Bloom filter, in memory.
    CascadeQuotient(CascadeSlots),
    /// The paper on cascade filters: reads and lookups on the device.
    CascadeLookups(CascadeKeys),
    /// The paper on cascade filters: the cost of removals.
    CascadeTombstones(CascadeKeys),
    /// The paper on SAL-hashing: all figures, by a simulator that counts I/O.
    Sal(SalTraces),
    /// The paper on SAL-hashing: copies of hot groups on several devices, by the same simulator; in no figure of the paper.
    SalReplication(SalTraces),
    /// The posts on HyperLogLog: errors of intersections by the sizes of the sets and what they share.
    HllIntersections(HllRuns),
    /// The posts on HyperLogLog: bias and error of counts by the number of keys.
    HllSizes(HllSizes),
    /// The post on the Summarizer: queues between threads, and events from parsers to summaries.
    Queues(QueueRuns),
    /// Every figure and table.
    All,
    /// Write URL-like keys and their values to standard output, for `hashfold build - --format raw`.
    Urls(Urls),
}

#[derive(Args, Clone, Debug, Default)]
struct Keys {
    /// Keys in the indexes that are measured.
    #[arg(long, value_name = "N")]
    keys: Option<u64>,
}

#[derive(Args, Clone, Debug, Default)]
struct Sweep {
    /// Items in the table.
    #[arg(long, value_name = "N")]
    items: Option<u64>,
    /// Memory of the builds in MiB, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    memory: Option<Vec<u64>>,
    /// Cores of the builds, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cores: Option<Vec<usize>>,
}

#[derive(Args, Clone, Debug, Default)]
struct Growth {
    /// Items in the tables, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    items: Option<Vec<u64>>,
    /// Memory of the builds, in MiB.
    #[arg(long, value_name = "N")]
    memory: Option<u64>,
    /// Cores of the builds, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cores: Option<Vec<usize>>,
}

#[derive(Args, Clone, Debug, Default)]
struct Queries {
    /// Items in the table.
    #[arg(long, value_name = "N")]
    items: Option<u64>,
    /// Random lookups of present keys.
    #[arg(long, value_name = "N")]
    queries: Option<u64>,
}

#[derive(Args, Clone, Debug, Default)]
struct Updates {
    /// Items in the store at the end.
    #[arg(long, value_name = "N")]
    items: Option<u64>,
    /// Memory for sorting, in MiB.
    #[arg(long, value_name = "N")]
    memory: Option<u64>,
}

#[derive(Args, Clone, Debug, Default)]
struct Requests {
    /// Items in the store.
    #[arg(long, value_name = "N")]
    items: Option<u64>,
    /// Requests of present keys in each round.
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Threads that look up, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    readers: Option<Vec<usize>>,
}

#[derive(Args, Clone, Debug, Default)]
struct StoreBuilds {
    /// Sizes of the input in MB, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    sizes: Option<Vec<u64>>,
    /// Memory of the builds, in MiB.
    #[arg(long, value_name = "N")]
    memory: Option<u64>,
}

#[derive(Args, Clone, Debug, Default)]
struct CascadeRuns {
    /// Keys of the runs, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    keys: Option<Vec<u64>>,
    /// Memory of a filter, in MiB.
    #[arg(long, value_name = "N")]
    memory: Option<usize>,
}

#[derive(Args, Clone, Debug, Default)]
struct CascadeSlots {
    /// Base-2 logarithm of the number of slots of the paper's filter.
    #[arg(long, value_name = "N")]
    log_slots: Option<u32>,
}

#[derive(Args, Clone, Debug, Default)]
struct CascadeKeys {
    /// Keys in a filter.
    #[arg(long, value_name = "N")]
    keys: Option<u64>,
    /// Memory of a filter, in MiB.
    #[arg(long, value_name = "N")]
    memory: Option<usize>,
    /// Lookups of each kind in a round, for measurements of lookups.
    #[arg(long, value_name = "N")]
    lookups: Option<u64>,
}

#[derive(Args, Clone, Debug, Default)]
struct SalTraces {
    /// Divides the paper's records, operations and memory by this number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=16384))]
    scale: Option<u64>,
}

#[derive(Args, Clone, Debug, Default)]
struct HllRuns {
    /// Keys of the larger set.
    #[arg(long, value_name = "N")]
    keys: Option<u64>,
    /// Pairs of sets of each kind.
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
}

#[derive(Args, Clone, Debug, Default)]
struct HllSizes {
    /// Largest number of keys.
    #[arg(long, value_name = "N")]
    keys: Option<u64>,
    /// Sketches of each precision; as many as the bias needs by default.
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
}

#[derive(Args, Clone, Debug, Default)]
struct QueueRuns {
    /// Items that are passed through each queue.
    #[arg(long, value_name = "N")]
    items: Option<u64>,
    /// Events that are summarised.
    #[arg(long, value_name = "N")]
    events: Option<u64>,
}

#[derive(Args, Clone, Debug)]
struct Urls {
    /// Number of keys.
    #[arg(long, value_name = "N")]
    count: u64,
    /// Size of each value, in bytes.
    #[arg(long, default_value_t = items::URL_VALUE_SIZE, value_name = "N")]
    values: usize,
}

fn run(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    if options.draw {
        return pictures::draw(&cli.command, options);
    }
    if !matches!(cli.command, Command::Urls(_)) {
        let rounds = if options.quick { 0 } else { options.rounds as usize };
        Run::check(options.out.as_deref().unwrap_or(Path::new("results")), rounds)?;
        // Tests measure nothing that is compared.
        if !cfg!(test) {
            record::check_alike()?;
        }
    }
    match &cli.command {
        Command::Fig3(keys) => sizes::figure_3(options, keys),
        Command::Fig6(keys) => sizes::figure_6(options, keys),
        Command::Fig7(sweep) => construction::figure_7(options, sweep),
        Command::Fig8(growth) => construction::figure_8(options, growth),
        Command::Fig9(updates) => growth::figure_9(options, updates),
        Command::Fig10(keys) => tradeoff::figure_10(options, keys),
        Command::Fig11(keys) => tradeoff::figure_11(options, keys),
        Command::Fig12(sweep) => construction::figure_12(options, sweep),
        Command::Table1(keys) => tradeoff::table_1(options, keys),
        Command::Table4(queries) => queries::table_4(options, queries),
        Command::Updates(sizes) => updates::updates(options, sizes),
        Command::VoldemortLookups(requests) => voldemort::lookups(options, requests),
        Command::VoldemortBuilds(builds) => voldemort::builds(options, builds),
        Command::CascadeFig3(runs) => cascade::figure_3(options, runs),
        Command::CascadeQuotient(slots) => cascade::quotient(options, slots),
        Command::CascadeLookups(keys) => cascade::lookups(options, keys),
        Command::CascadeTombstones(keys) => cascade::tombstones(options, keys),
        Command::Sal(traces) => sal::all(options, traces),
        Command::SalReplication(traces) => sal::replication(options, traces),
        Command::HllIntersections(runs) => hll::intersections(options, runs),
        Command::HllSizes(sizes) => hll::sizes(options, sizes),
        Command::Queues(runs) => queues::queues(options, runs),
        Command::All => all(options),
        Command::Urls(urls) => items::write_urls(urls.count, urls.values, options.seed),
    }
}

fn all(options: &Options) -> Result<()> {
    sizes::figure_3(options, &Keys::default())?;
    sizes::figure_6(options, &Keys::default())?;
    tradeoff::figure_10(options, &Keys::default())?;
    tradeoff::figure_11(options, &Keys::default())?;
    tradeoff::table_1(options, &Keys::default())?;
    construction::figure_7(options, &Sweep::default())?;
    construction::figure_8(options, &Growth::default())?;
    construction::figure_12(options, &Sweep::default())?;
    queries::table_4(options, &Queries::default())?;
    growth::figure_9(options, &Updates::default())?;
    updates::updates(options, &Updates::default())?;
    voldemort::lookups(options, &Requests::default())?;
    voldemort::builds(options, &StoreBuilds::default())?;
    cascade::figure_3(options, &CascadeRuns::default())?;
    cascade::quotient(options, &CascadeSlots::default())?;
    cascade::lookups(options, &CascadeKeys::default())?;
    cascade::tombstones(options, &CascadeKeys::default())?;
    sal::all(options, &SalTraces::default())?;
    sal::replication(options, &SalTraces::default())?;
    hll::intersections(options, &HllRuns::default())?;
    hll::sizes(options, &HllSizes::default())?;
    queues::queues(options, &QueueRuns::default())
}

fn main() -> ExitCode {
    record::with_huge_pages("figures", || run(&Cli::parse()))
}
