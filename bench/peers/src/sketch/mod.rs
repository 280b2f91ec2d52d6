//! Sketches that count distinct keys: time per insert, size, errors. All have 2^14 registers, or what comes
//! next to them.
//!
//! ```text
//! numbers of keys ─mix─→ words ─┬→ hashes, handed to peers that take them   (Local)
//!                               ├→ keys of 8 bytes, hashed by the peer      (Local, Python, Redis)
//!        └──────────────────────┴→ generate_series                          (Postgres)
//! ```

mod crates;
mod datasketches;
mod hashfold;
mod local;
mod peer;
mod postgres;
mod python;
mod redis;

use self::{
    local::Local,
    peer::{Measured, Peer, Sizes},
};
use crate::{
    Common, Result,
    measure::TemporaryFolder,
    report::Report,
    row::{Column, Row},
};
use record::count;
use std::path::{Path, PathBuf};

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Number of keys whose inserts are timed.
    #[arg(long, default_value_t = 16_000_000)]
    pub keys: u64,
    /// Number of keys whose inserts are timed in peers that are processes of their own.
    #[arg(long, default_value_t = 1_000_000)]
    pub keys_served: u64,
    /// Number of sets of each size in a round, whose errors are measured.
    #[arg(long, default_value_t = 32)]
    pub sets: u64,
    /// Largest size of these sets.
    #[arg(long, default_value_t = 10_000_000)]
    pub keys_max: u64,
    /// Python that has the package datasketches 5.2.0.
    #[arg(long, default_value = "../target/sketch-images/bin/python")]
    pub python: PathBuf,
    #[command(flatten)]
    pub common: Common,
}

/// The binary logarithm of the number of registers.
const PRECISION: u8 = 14;
/// Sizes of the sets whose errors are measured. With 40,000 keys, there are 2.4 keys for each register:
/// there linear counting ends, with an error of up to 2 %, in estimators that have two formulas.
const SIZES: [u64; 5] = [1_000, 10_000, 40_000, 1_000_000, 10_000_000];
/// The sets whose intersection is estimated.
const PAIR: Pair = Pair { a: 100_000, b: 1_000_000, both: 10_000 };

/// The sizes of two sets, and of what they share.
#[derive(Clone, Copy, Debug)]
struct Pair {
    a: u64,
    b: u64,
    both: u64,
}

const COLUMNS: &[Column] = &[
    Column::drawn("insert_ns", 2, "Insert, CPU time in ns; less is better"),
    Column::new("insert_wall_ns", 2),
    Column::new("estimate_us", 2),
    Column::new("union_us", 2),
    Column::drawn("memory_bytes", 0, "Memory, bytes; less is better"),
    Column::drawn("stored_bytes", 0, "As bytes; less is better"),
    Column::new("error_percent_1k_keys", 3),
    Column::new("error_percent_10k_keys", 3),
    Column::drawn("error_percent_40k_keys", 3, "Error with 40,000 keys, %; less is better"),
    Column::drawn("error_percent_1m_keys", 3, "Error with 1 million keys, %; less is better"),
    Column::new("error_percent_10m_keys", 3),
    Column::drawn(
        "intersection_error_percent",
        1,
        "Error of an intersection of 10,000 keys, %; less is better",
    ),
];

/// A group of peers, which get the same input.
struct Group {
    data: String,
    peers: Vec<Box<dyn Peer>>,
}

/// Returns a report without rows.
pub fn report(options: &Options) -> Report {
    let Pair { a, b, both } = PAIR;
    let facts = vec![
        ("keys", format!("{}; {} for servers and Python", options.keys, options.keys_served)),
        ("sets", format!("{} of each size in a round, all other keys", options.sets)),
        ("intersections", format!("sets of {a} and {b} keys, {both} in both")),
        (
            "error",
            "root of the mean square, relative to the truth; every estimate is within 8 \
         standard errors of it"
                .to_owned(),
        ),
        ("insert", "the shortest of 3 passes".to_owned()),
        ("seed", options.common.seed.to_string()),
        ("rounds", options.common.rounds.to_string()),
        ("threads", "1".to_owned()),
    ];
    Report::new(COLUMNS, &["sketch-hashes", "sketch-keys"], facts)
}

/// Returns the peers that take hashes.
fn of_hashes(options: &Options) -> Group {
    let peers: Vec<Box<dyn Peer>> = vec![
        Box::new(Local::<hashfold::Batched>::new()),
        Box::new(Local::<hashfold::Single>::new()),
        Box::new(Local::<hashfold::Generalized>::new()),
        Box::new(Local::<hashfold::Smallest>::new()),
        Box::new(Local::<crates::SimpleHll>::new()),
        Box::new(Local::<crates::Lockless>::new()),
        Box::new(Local::<crates::PlusPlus>::new()),
        Box::new(Local::<crates::Cloudflare>::new()),
        Box::new(Local::<crates::Ultra>::new()),
        Box::new(Local::<datasketches::OfCoupons>::new()),
    ];
    Group { data: format!("{} hashes, handed over", count(options.keys)), peers }
}

/// Returns the peers that hash keys; without those that are not installed.
fn of_keys(options: &Options, folder: &Path) -> Result<Group> {
    let mut peers: Vec<Box<dyn Peer>> = vec![
        Box::new(Local::<hashfold::Hashing>::new()),
        Box::new(Local::<hashfold::OfDataSketches>::new()),
        Box::new(Local::<datasketches::Hll<8>>::new()),
        Box::new(Local::<datasketches::Hll<4>>::new()),
        Box::new(Local::<datasketches::Theta>::new()),
    ];
    let wants = |name: &str| options.common.wants(name);
    let served: [(&str, Option<Box<dyn Peer>>); 3] = [
        (
            python::NAME,
            if wants(python::NAME) { python::start(&options.python, folder)? } else { None },
        ),
        (redis::NAME, if wants(redis::NAME) { redis::start()? } else { None }),
        (postgres::NAME, if wants(postgres::NAME) { postgres::start()? } else { None }),
    ];
    for (name, peer) in served {
        match peer {
            Some(peer) => peers.push(peer),
            None if wants(name) => eprintln!("{name}: not found, skipped"),
            None => {}
        }
    }
    Ok(Group { data: format!("{} keys of 8 bytes, hashed by each", count(options.keys)), peers })
}

pub fn run(options: &Options) -> Result<Report> {
    let mut report = report(options);
    let folder = TemporaryFolder::create(&options.common.dir, "peers-sketch")?;
    for mut group in [of_hashes(options), of_keys(options, &folder.path)?] {
        group.peers.retain(|peer| options.common.wants(&peer.name()));
        let mut rounds = vec![Vec::new(); group.peers.len()];
        for round in 1..=options.common.rounds {
            for (peer, rounds) in group.peers.iter_mut().zip(&mut rounds) {
                eprintln!("{}, round {round}: {}", group.data, peer.name());
                rounds.push(figures(&self::round(peer.as_mut(), options, round as u64)?));
            }
        }
        for (peer, rounds) in group.peers.iter().zip(&rounds) {
            report.rows.push(Row::new(&group.data, &peer.name(), &peer.note(), rounds));
        }
    }
    Ok(report)
}

/// Measures one peer in one round. The keys of all sets differ.
fn round(peer: &mut dyn Peer, options: &Options, round: u64) -> Result<Measured> {
    /// More numbers than the largest set has keys.
    const SPACE: u64 = 1 << 32;
    let first =
        (options.common.seed.wrapping_mul(1 << 10) + round) % (1 << 20) * options.sets.max(1);
    let keys = if peer.is_served() { options.keys_served } else { options.keys };
    let mut measured = peer.time(first * SPACE..first * SPACE + keys)?;
    let sizes =
        Sizes::up_to(options.keys_max.min(if peer.is_served() { PAIR.b } else { u64::MAX }));
    let mut errors = vec![Vec::new(); sizes.0.len()];
    let mut of_pairs = Vec::new();
    for set in first..first + options.sets {
        let start = set * SPACE;
        let estimates = peer.growth(start, &sizes.0)?;
        for ((errors, estimate), size) in errors.iter_mut().zip(estimates).zip(&sizes.0) {
            errors.push(peer::error_of(estimate, *size)?);
        }
        let pair = PAIR.within(options.keys_max);
        let sets = [
            start..start + pair.a,
            start + pair.a - pair.both..start + pair.a - pair.both + pair.b,
        ];
        let estimate = peer.intersection(sets)?;
        of_pairs.push(peer::error_of_intersection(estimate, pair)?);
    }
    measured.errors = errors.iter().map(|errors| peer::root_mean_square(errors)).collect();
    measured.intersection = peer::root_mean_square(&of_pairs);
    Ok(measured)
}

impl Pair {
    /// Returns smaller sets of the same proportions, if these are too large.
    fn within(self, keys_max: u64) -> Pair {
        let divisor = self.b.div_ceil(keys_max.max(1)).max(1);
        Pair { a: self.a / divisor, b: self.b / divisor, both: self.both / divisor }
    }
}

/// Returns the figures in the order of [`COLUMNS`].
fn figures(measured: &Measured) -> Vec<Option<f64>> {
    let percent = |part: f64| part * 100.0;
    let mut all = vec![
        Some(measured.insert_ns),
        measured.insert_wall_ns,
        measured.estimate_us,
        measured.union_us,
        measured.memory_bytes,
        measured.stored_bytes,
    ];
    all.extend((0..SIZES.len()).map(|i| measured.errors.get(i).copied().flatten().map(percent)));
    all.push(measured.intersection.map(percent));
    all
}
