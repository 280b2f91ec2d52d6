//! Lookups of data that are in memory: mapped files, or the peer's cache. Every reader has its own loop,
//! so that no call through a table of functions is measured.

mod entries;
mod hashfold;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use self::entries::{Entries, Keys, Kind, Lookups, Size};
use crate::{
    Common, Result,
    data::mix,
    measure::{TemporaryFolder, disk_bytes, settle},
    report::Report,
    row::{Column, Row},
};
use std::{fs, path::Path, thread, time::Instant};

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Data sets: entries x bytes per value, or x paths.
    #[arg(long, value_delimiter = ',', default_values_t = [
        Size { count: 10_000_000, kind: Kind::Fixed { value: 84 } },
        Size { count: 2_000_000, kind: Kind::Fixed { value: 1008 } },
        Size { count: 5_000_000, kind: Kind::Paths },
    ])]
    pub sizes: Vec<Size>,
    /// Lookups of each thread and way.
    #[arg(long, default_value_t = 1_000_000)]
    pub lookups: u64,
    #[command(flatten)]
    pub common: Common,
}

/// Numbers of keys in a batch; 1 is a lookup by itself.
const BATCHES: [usize; 3] = [1, 64, 1024];

/// Numbers of threads, the slow index of the columns.
const THREADS: [usize; 2] = [1, 2];

/// Number of passes of each way in a round; the best one counts.
const PASSES: usize = 2;

const COLUMNS: &[Column] = &[
    Column::drawn("gets_per_s", 0, "One thread, one at a time, lookups/s; more is better"),
    Column::drawn(
        "gets_per_s_batches_of_64",
        0,
        "One thread, batches of 64, lookups/s; more is better",
    ),
    Column::new("gets_per_s_batches_of_1024", 0),
    Column::drawn(
        "gets_per_s_2_threads",
        0,
        "Two threads, one at a time, lookups/s; more is better",
    ),
    Column::drawn(
        "gets_per_s_2_threads_batches_of_64",
        0,
        "Two threads, batches of 64, lookups/s; more is better",
    ),
    Column::new("gets_per_s_2_threads_batches_of_1024", 0),
    Column::new("disk_per_payload", 3),
];

/// A dictionary to measure.
trait Peer {
    fn name(&self) -> String;

    fn note(&self) -> String;

    /// Builds the dictionary in an empty folder.
    fn build(&self, entries: &Entries, folder: &Path) -> Result<()>;

    /// Opens the dictionary; `bytes` is the size of its files.
    fn open(&self, folder: &Path, bytes: u64) -> Result<Box<dyn Reader>>;
}

/// An open dictionary.
trait Reader: Sync {
    /// Looks up all keys, one at a time, and returns the number of wrong answers.
    fn one_by_one(&self, lookups: &Lookups<'_>) -> Result<u64>;

    /// Looks up all keys in batches, and returns the number of wrong answers.
    fn in_batches(&self, lookups: &Lookups<'_>, batch: usize) -> Result<u64>;
}

fn peers() -> Vec<Box<dyn Peer>> {
    let mut all = hashfold::peers();
    #[cfg(feature = "lmdb")]
    all.push(Box::new(lmdb::Lmdb));
    #[cfg(feature = "rocksdb")]
    all.push(Box::new(rocksdb::Cached));
    all
}

pub fn run(options: &Options) -> Result<Report> {
    let facts = vec![
        (
            "lookups",
            format!("{} random present keys a thread, each looked up before", options.lookups),
        ),
        ("passes", format!("best of {PASSES} in each round")),
        ("answers", "the first 8 bytes of each value are compared while the clock runs".to_owned()),
        ("seed", options.common.seed.to_string()),
        ("rounds", options.common.rounds.to_string()),
    ];
    let mut report = Report::new(COLUMNS, &["hot-small", "hot-large", "hot-paths"], facts);
    let folder = TemporaryFolder::create(&options.common.dir, "peers-hot")?;
    for &size in &options.sizes {
        if size.count == 0 || u32::try_from(size.count).is_err() {
            return Err(format!("{size}: expected 1 to {} entries", u32::MAX).into());
        }
        let entries = Entries::new(options.common.seed, size);
        let numbers = THREADS.map(|thread| random_numbers(options, &entries, thread as u64));
        let keys = numbers.each_ref().map(|numbers| Keys::new(&entries, numbers.iter().copied()));
        let lookups = [0, 1].map(|i| Lookups::new(&entries, &keys[i], &numbers[i]));
        let mut peers = peers();
        peers.retain(|peer| options.common.wants(&peer.name()));
        let payload = entries.payload();
        let mut rounds = vec![Vec::new(); peers.len()];
        for (number, peer) in peers.iter().enumerate() {
            let folder = folder.path.join(number.to_string());
            fs::create_dir_all(&folder)?;
            eprintln!("{size}: build {}", peer.name());
            peer.build(&entries, &folder)?;
            settle(&folder)?;
        }
        for round in 1..=options.common.rounds {
            for (number, (peer, rounds)) in peers.iter().zip(&mut rounds).enumerate() {
                eprintln!("{size}, round {round}: {}", peer.name());
                let folder = folder.path.join(number.to_string());
                rounds.push(self::round(peer.as_ref(), &lookups, payload, &folder)?);
            }
        }
        for (number, (peer, rounds)) in peers.iter().zip(&rounds).enumerate() {
            report.rows.push(Row::new(&entries.name(), &peer.name(), &peer.note(), rounds));
            fs::remove_dir_all(folder.path.join(number.to_string()))?;
        }
    }
    Ok(report)
}

/// Returns the numbers of the keys that one thread looks up.
fn random_numbers(options: &Options, entries: &Entries, thread: u64) -> Vec<u64> {
    let salt = mix(options.common.seed ^ thread);
    (0..options.lookups).map(|i| mix(i ^ salt) % entries.size.count).collect()
}

/// Measures one round of one peer, in the order of [`COLUMNS`].
fn round(
    peer: &dyn Peer,
    lookups: &[Lookups<'_>],
    payload: u64,
    folder: &Path,
) -> Result<Vec<Option<f64>>> {
    let bytes = disk_bytes(folder)?;
    let reader = peer.open(folder, bytes)?;
    // Brings the data into memory, and into the peer's cache.
    rate(peer, reader.as_ref(), lookups, 1)?;
    let mut row = Vec::new();
    for threads in THREADS {
        for batch in BATCHES {
            let mut best: f64 = 0.0;
            for _ in 0..PASSES {
                best = best.max(rate(peer, reader.as_ref(), &lookups[..threads], batch)?);
            }
            row.push(Some(best));
        }
    }
    row.push(Some(bytes as f64 / payload as f64));
    Ok(row)
}

/// Returns the lookups per second of as many threads as there are sets of lookups.
fn rate(
    peer: &dyn Peer,
    reader: &dyn Reader,
    lookups: &[Lookups<'_>],
    batch: usize,
) -> Result<f64> {
    let start = Instant::now();
    let wrong = thread::scope(|scope| {
        let look_up = |lookups| match batch {
            1 => reader.one_by_one(lookups),
            batch => reader.in_batches(lookups, batch),
        };
        let threads: Vec<_> =
            lookups.iter().map(|lookups| scope.spawn(move || look_up(lookups))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"))
            .sum::<Result<u64>>()
    })?;
    let seconds = start.elapsed().as_secs_f64();
    if wrong > 0 {
        return Err(format!("{} has {wrong} wrong values", peer.name()).into());
    }
    let count: usize = lookups.iter().map(|lookups| lookups.keys.len()).sum();
    Ok(count as f64 / seconds)
}
