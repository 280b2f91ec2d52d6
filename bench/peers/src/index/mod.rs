//! Indexes in memory: from a hash to its number among all hashes, or to its block.
//!
//! Hashfold numbers the hashes in their order, so that two sorted runs merge without a lookup.
//! Minimal perfect hash functions number them in an arbitrary order.

#[cfg(feature = "cmph")]
mod cmph;
mod hashfold;
mod phast;
mod ptr_hash;

use crate::{
    Common, Result,
    data::{Data, Key, mix},
    measure::{TemporaryFolder, cpu_time, measure},
    report::Report,
    row::{Column, Row},
};
use ::hashfold::{KeyHash, Seed};
use record::count;
use std::hint::black_box;

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Number of keys.
    #[arg(long, default_value_t = 16_000_000)]
    pub keys: u64,
    /// Number of timed gets.
    #[arg(long, default_value_t = 1_000_000)]
    pub gets: u64,
    #[command(flatten)]
    pub common: Common,
}

const COLUMNS: &[Column] = &[
    Column::drawn("bits_per_key", 3, "Memory, bits per key; less is better"),
    Column::drawn("build_ns", 1, "Builds, ns of CPU time per key; less is better"),
    Column::drawn("get_ns", 1, "Lookups one by one, ns; less is better"),
    Column::drawn("batched_get_ns", 1, "Lookups in batches, ns; less is better"),
    Column::new("second_reads_percent", 2),
];

/// The keys in all forms that indexes take.
struct Keys {
    keys: Vec<Key>,
    /// The high halves of the hashes, in the order of the keys: no two are equal.
    highs: Vec<u64>,
    sorted: Vec<KeyHash>,
    queries: Queries,
}

/// Present keys in random order, in all forms.
struct Queries {
    keys: Vec<Key>,
    highs: Vec<u64>,
    hashes: Vec<KeyHash>,
    ranks: Vec<u64>,
}

impl Keys {
    fn new(options: &Options) -> Keys {
        let count = options.keys;
        let data = Data::new(options.common.seed, count, 0);
        let keys: Vec<Key> = (0..count).map(|i| data.key(i)).collect();
        let hash = |key: &Key| KeyHash::of(key, Seed(options.common.seed));
        let highs = keys.iter().map(|key| hash(key).high()).collect();
        let mut sorted: Vec<KeyHash> = keys.iter().map(hash).collect();
        sorted.sort_unstable();
        assert!(
            sorted.windows(2).all(|pair| pair[0].high() < pair[1].high()),
            "two hashes have one high half: choose another seed"
        );
        let chosen = (0..options.gets).map(|i| mix(i ^ mix(options.common.seed)) % count);
        let queried: Vec<Key> = chosen.map(|i| keys[i as usize]).collect();
        let hashes: Vec<KeyHash> = queried.iter().map(hash).collect();
        let rank = |hash: &KeyHash| sorted.partition_point(|other| other < hash) as u64;
        let queries = Queries {
            highs: hashes.iter().map(|hash| hash.high()).collect(),
            ranks: hashes.iter().map(rank).collect(),
            keys: queried,
            hashes,
        };
        Keys { keys, highs, sorted, queries }
    }

    fn count(&self) -> u64 {
        self.sorted.len() as u64
    }
}

/// The results of one peer in one round.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    bits_per_key: f64,
    build_ns: f64,
    get_ns: f64,
    batched_get_ns: Option<f64>,
    second_reads_percent: Option<f64>,
}

/// An index to measure.
trait Peer {
    fn name(&self) -> String;

    fn note(&self) -> String;

    /// Builds the index, checks its answers, and times it.
    fn round(&self, keys: &Keys, folder: &TemporaryFolder) -> Result<Measured>;
}

fn peers() -> Vec<Box<dyn Peer>> {
    let mut peers = hashfold::peers();
    peers.extend(ptr_hash::peers());
    peers.push(Box::new(phast::Phast));
    #[cfg(feature = "cmph")]
    peers.extend(cmph::peers());
    peers
}

/// Returns a report without rows.
pub fn report(options: &Options) -> Report {
    let facts = vec![
        ("keys", format!("{} random keys of 16 bytes", options.keys)),
        ("gets", format!("{}, of keys that are there, in random order", options.gets)),
        ("seed", options.common.seed.to_string()),
        ("rounds", options.common.rounds.to_string()),
        ("threads", "1; times are CPU time of the process".to_owned()),
    ];
    Report::new(COLUMNS, &["index"], facts)
}

pub fn run(options: &Options) -> Result<Report> {
    let mut report = report(options);
    let folder = TemporaryFolder::create(&options.common.dir, "peers-index")?;
    let keys = Keys::new(options);
    let mut peers = peers();
    peers.retain(|peer| options.common.wants(&peer.name()));
    let mut rounds = vec![Vec::new(); peers.len()];
    for round in 1..=options.common.rounds {
        for (peer, rounds) in peers.iter().zip(&mut rounds) {
            eprintln!("round {round}: {}", peer.name());
            rounds.push(figures(&peer.round(&keys, &folder)?));
        }
    }
    for (peer, rounds) in peers.iter().zip(&rounds) {
        let data = format!("{} keys", count(options.keys));
        report.rows.push(Row::new(&data, &peer.name(), &peer.note(), rounds));
    }
    Ok(report)
}

/// Returns the figures in the order of [`COLUMNS`].
fn figures(measured: &Measured) -> Vec<Option<f64>> {
    vec![
        Some(measured.bits_per_key),
        Some(measured.build_ns),
        Some(measured.get_ns),
        measured.batched_get_ns,
        measured.second_reads_percent,
    ]
}

/// Builds an index of `count` keys. Returns it with the nanoseconds per key.
fn build<T>(count: u64, build: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let (index, cost) = measure(build)?;
    Ok((index, cost.cpu.as_nanos() as f64 / count as f64))
}

/// Returns the nanoseconds per item of `work` over all of `items`: the best of a few passes.
fn time<Q>(items: &[Q], mut work: impl FnMut(&[Q])) -> f64 {
    const PASSES: usize = 3;
    let mut best = f64::INFINITY;
    for _ in 0..PASSES {
        let start = cpu_time();
        work(black_box(items));
        best = best.min((cpu_time() - start).as_nanos() as f64);
    }
    best / items.len() as f64
}

/// Returns the nanoseconds per get, for gets one after the other.
fn time_gets<Q, A>(queries: &[Q], get: impl Fn(&Q) -> A) -> f64 {
    time(queries, |queries| {
        for query in queries {
            black_box(get(query));
        }
    })
}

/// Refuses a function that does not map the keys one to one to the numbers below their count.
fn check_minimal_perfect<Q>(keys: &[Q], get: impl Fn(&Q) -> usize) -> Result<()> {
    let mut seen = vec![false; keys.len()];
    for key in keys {
        let number = get(key);
        match seen.get_mut(number) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(format!("{number} is out of range or comes twice").into()),
        }
    }
    Ok(())
}
