//! Filters in memory: has this key been inserted? One thread, the same hashes for all.

mod bloom;
mod fuse;
mod hashfold;
pub mod paper;
mod paper_layout;
mod rank_select;

use crate::{
    Common, Result,
    data::mix,
    measure::cpu_time,
    report::Report,
    row::{Column, Row},
};
use ::hashfold::KeyHash;
use record::count;
use std::{hint::black_box, ops::Range};

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Base-2 logarithms of the numbers of slots of the quotient filters.
    #[arg(long, value_delimiter = ',', default_values_t = [22, 24, 26])]
    pub log_slots: Vec<u32>,
    /// Maximum number of timed lookups of each kind.
    #[arg(long, default_value_t = 1 << 22)]
    pub lookups: usize,
    #[command(flatten)]
    pub common: Common,
}

/// Bits of a remainder: a false-positive rate of about 0.17 %.
const REMAINDER_BITS: u32 = 9;
/// Fraction of the slots that the keys fill.
const LOAD: f64 = 0.88;
/// Fraction of the slots that the keys fill in the paper's filter, whose clusters get long beyond
/// it.
const PAPER_LOAD: f64 = 0.75;
/// Number of keys in a batch.
const BATCH: usize = 4096;

const COLUMNS: &[Column] = &[
    Column::drawn("bits_per_item", 2, "Memory, bits per key; less is better"),
    Column::new("error_percent", 4),
    Column::drawn("insert_m_per_s", 1, "Insertions, million/s; more is better"),
    Column::drawn("present_m_per_s", 1, "Lookups of present keys, million/s; more is better"),
    Column::drawn("absent_m_per_s", 1, "Lookups of absent keys, million/s; more is better"),
    Column::drawn("delete_m_per_s", 1, "Removals, million/s; more is better"),
    Column::new("iterate_m_per_s", 0),
    Column::new("build_m_per_s", 0),
    Column::drawn("merge_m_per_s", 0, "Merges, million keys/s; more is better"),
];

/// The keys to insert and to look up.
struct Keys {
    log_slots: u32,
    all: Vec<KeyHash>,
    /// Some present keys in random order; the next field has absent keys.
    present: Vec<KeyHash>,
    absent: Vec<KeyHash>,
}

impl Keys {
    fn new(log_slots: u32, options: &Options) -> Keys {
        let salt = mix(options.common.seed);
        let hash = |i: u64| KeyHash::from_bits(u128::from(mix(i.wrapping_add(salt))) << 64);
        let count = ((1_u64 << log_slots) as f64 * LOAD) as u64;
        let asked = (count as usize).min(options.lookups) as u64;
        Keys {
            log_slots,
            all: (0..count).map(hash).collect(),
            present: (0..asked).map(|i| hash(mix(i ^ salt) % count)).collect(),
            absent: (count..count + asked).map(hash).collect(),
        }
    }

    /// Returns the false-positive rate of fingerprints with the bits of slots and remainders
    /// together.
    fn error_rate(&self) -> f64 {
        self.all.len() as f64 / 2_f64.powi((self.log_slots + REMAINDER_BITS) as i32)
    }
}

/// The results of one peer in one round; rates in keys or items per second.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    bits_per_item: f64,
    error_rate: f64,
    insert: Option<f64>,
    present: f64,
    absent: f64,
    delete: Option<f64>,
    iterate: Option<f64>,
    /// Rate of building from keys in order, or from all keys at once.
    build: Option<f64>,
    merge: Option<f64>,
}

/// A filter to measure.
trait Peer {
    fn name(&self) -> String;

    fn note(&self) -> String;

    /// Fills filters, checks their answers, and times them.
    fn round(&self, keys: &Keys) -> Result<Measured>;
}

fn peers() -> Vec<Box<dyn Peer>> {
    vec![
        Box::new(hashfold::Quotient::Single),
        Box::new(hashfold::Quotient::Batched),
        Box::new(rank_select::Qfilter),
        Box::new(paper_layout::Paper),
        Box::new(bloom::FastBloom),
        Box::new(fuse::Fuse::Bits8),
        Box::new(fuse::Fuse::Bits16),
    ]
}

/// Returns a report without rows.
pub fn report(options: &Options) -> Report {
    let facts = vec![
        ("slots filled", format!("{LOAD}; of the paper's filter {PAPER_LOAD}")),
        ("lookups", format!("{} of each kind, in random order", options.lookups)),
        ("seed", options.common.seed.to_string()),
        ("rounds", options.common.rounds.to_string()),
        ("threads", "1; times are CPU time, from the empty memory on".to_owned()),
    ];
    Report::new(COLUMNS, &["filter-small", "filter-medium", "filter-large"], facts)
}

pub fn run(options: &Options) -> Result<Report> {
    let mut report = report(options);
    for &log_slots in &options.log_slots {
        if !(10..=32).contains(&log_slots) {
            return Err(format!("2^{log_slots} slots: expected 10 to 32").into());
        }
        let keys = Keys::new(log_slots, options);
        let mut peers = peers();
        peers.retain(|peer| options.common.wants(&peer.name()));
        let mut rounds = vec![Vec::new(); peers.len()];
        for round in 1..=options.common.rounds {
            for (peer, rounds) in peers.iter().zip(&mut rounds) {
                eprintln!("2^{log_slots} slots, round {round}: {}", peer.name());
                rounds.push(figures(&peer.round(&keys)?));
            }
        }
        let data = format!("{} keys: 2^{log_slots} slots", count(keys.all.len() as u64));
        for (peer, rounds) in peers.iter().zip(&rounds) {
            report.rows.push(Row::new(&data, &peer.name(), &peer.note(), rounds));
        }
    }
    Ok(report)
}

/// Returns the figures in the order of [`COLUMNS`].
fn figures(measured: &Measured) -> Vec<Option<f64>> {
    let millions = |rate: Option<f64>| rate.map(|rate| rate / 1e6);
    let rates = [
        measured.insert,
        Some(measured.present),
        Some(measured.absent),
        measured.delete,
        measured.iterate,
        measured.build,
        measured.merge,
    ];
    let mut all = vec![Some(measured.bits_per_item), Some(measured.error_rate * 100.0)];
    all.extend(rates.map(millions));
    all
}

/// Runs `work` on `items` items. Returns its result, and items per second of CPU time.
fn rate<T>(items: usize, work: impl FnOnce() -> T) -> (T, f64) {
    let start = cpu_time();
    let result = black_box(work());
    (result, items as f64 / (cpu_time() - start).as_secs_f64())
}

/// Looks up keys one after the other. Returns the number found, and keys per second: the best of a
/// few passes.
fn ask(hashes: &[KeyHash], contains: impl Fn(KeyHash) -> bool) -> (u64, f64) {
    const PASSES: usize = 3;
    let mut best = (0, 0.0_f64);
    for _ in 0..PASSES {
        let (found, per_s) = rate(hashes.len(), || {
            hashes.iter().map(|&hash| u64::from(contains(hash))).sum::<u64>()
        });
        best = (found, best.1.max(per_s));
    }
    best
}

/// The results of lookups of present and absent keys.
struct Lookups {
    present: f64,
    absent: f64,
    error_rate: f64,
}

/// Looks up all keys, and checks the answers.
fn ask_all(
    keys: &Keys,
    expected_error: f64,
    contains: impl Fn(KeyHash) -> bool,
) -> Result<Lookups> {
    let (found, present) = ask(&keys.present, &contains);
    check(found == keys.present.len() as u64, || "a key was lost")?;
    let (errors, absent) = ask(&keys.absent, contains);
    let error_rate = errors as f64 / keys.absent.len() as f64;
    let spread = 6.0 * (expected_error / keys.absent.len() as f64).sqrt();
    check(
        (error_rate - expected_error).abs() < 0.15 * expected_error + spread,
        || "the error rate is not the expected one",
    )?;
    Ok(Lookups { present, absent, error_rate })
}

/// Fails unless the answers of a measurement are right.
fn check(right: bool, wrong: impl FnOnce() -> &'static str) -> Result<()> {
    if right { Ok(()) } else { Err(wrong().into()) }
}

/// Returns the first quarter of the keys, which is removed.
fn quarter(keys: &Keys) -> &[KeyHash] {
    &keys.all[..keys.all.len() / 4]
}

/// Returns about the number of pairs of equal fingerprints among `count` of the keys.
fn equal_pairs(count: usize, keys: &Keys) -> f64 {
    let fingerprints = keys.all.len() as f64 / keys.error_rate();
    (count as f64).powi(2) / (2.0 * fingerprints)
}

/// A quarter of the keys must have been present: of two keys with one fingerprint, only the first.
/// Fails if many more were absent than have a twin among the removed keys.
fn check_removed(removed: u64, keys: &Keys) -> Result<()> {
    let count = quarter(keys).len();
    let pairs = equal_pairs(count, keys);
    let absent_max = 1.5 * pairs + 6.0 * pairs.sqrt() + 1.0;
    check(
        removed as f64 >= count as f64 - absent_max && removed <= count as u64,
        || "wrong number of keys was removed",
    )
}

/// Returns the keys in batches.
fn batches(count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(BATCH).map(move |start| start..(start + BATCH).min(count))
}
