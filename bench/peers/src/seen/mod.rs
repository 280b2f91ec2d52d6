//! Sets of keys on the device, larger than their memory: has this key been seen?
//!
//! Keys of eight bytes in random order are inserted in batches; then some present and some absent
//! keys are looked up.

mod bloom;
mod hashfold;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use crate::{
    Common, Result,
    data::{coprime, mix},
    measure::{
        Cost, TemporaryFolder, disk_bytes_below, measure, peak_memory, reset_peak_memory, settle,
    },
    report::Report,
    row::{Column, Row},
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::{self, available_parallelism},
    time::{Duration, Instant},
};

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Keys for Hashfold.
    #[arg(long, default_value_t = 1_000_000_000)]
    pub keys: u64,
    /// Keys for RocksDB.
    #[arg(long, default_value_t = 20_000_000)]
    pub keys_rocksdb: u64,
    /// Keys inserted into the Bloom filter in a file, in addition to its initial keys.
    #[arg(long, default_value_t = 1_000_000)]
    pub keys_bloom: u64,
    /// Size of the Bloom filter's file, in mebibytes.
    #[arg(long, default_value_t = 2048)]
    pub bloom_mib: u64,
    /// Memory of each peer, in mebibytes.
    #[arg(long, default_value_t = 256)]
    pub memory: usize,
    /// Maximum number of timed lookups of each kind.
    #[arg(long, default_value_t = 1_000_000)]
    pub lookups: u64,
    /// Maximum time for insertions, and for lookups of each kind, in seconds; Hashfold inserts all
    /// of its keys.
    #[arg(long, default_value_t = 60.0)]
    pub seconds: f64,
    /// Threads that look up, for peers without lookup threads of their own.
    #[arg(long, default_value_t = 32)]
    pub get_threads: usize,
    /// Measure one round of this peer, and print its figures as one line of JSON.
    #[arg(long, hide = true, requires = "within")]
    pub alone: Option<String>,
    /// Empty folder for the files of the peer that is measured alone.
    #[arg(long, hide = true)]
    pub within: Option<PathBuf>,
    #[command(flatten)]
    pub common: Common,
}

/// Number of keys in a batch of insertions.
const BATCH: u64 = 4096;
/// Number of keys in a batch of lookups.
const LOOKUP_BATCH: u64 = 16_384;

const COLUMNS: &[Column] = &[
    Column::new("million_keys", 2),
    Column::drawn("insert_keys_per_s", 0, "Insertions, keys/s; more is better"),
    Column::drawn(
        "insert_keys_per_cpu_s",
        0,
        "Insertions, keys per second of CPU time; more is better",
    ),
    Column::drawn("longest_stall_ms", 1, "Longest stall of 4096 insertions, ms; less is better"),
    Column::drawn("absent_lookups_per_s", 0, "Lookups of absent keys, per second; more is better"),
    Column::drawn(
        "present_lookups_per_s",
        0,
        "Lookups of present keys, per second; more is better",
    ),
    Column::drawn("bytes_per_key", 2, "Size on disk, bytes per key; less is better"),
    Column::new("error_percent", 4),
    Column::new("peak_memory_mib", 0),
];

/// A kind of set.
trait Peer {
    fn name(&self) -> String;

    fn note(&self) -> String;

    /// Returns the number of keys that the set gets.
    fn keys(&self, options: &Options) -> u64;

    /// Whether the set takes all keys, without a time limit.
    fn takes_all(&self) -> bool {
        false
    }

    /// Returns the number of threads that look up.
    fn get_threads(&self, options: &Options) -> usize {
        options.get_threads
    }

    /// Returns the maximum false-positive rate.
    fn error_max(&self) -> f64;

    fn create(&self, options: &Options, folder: &Path) -> Result<Box<dyn Set>>;
}

/// An open set. Several threads may look up keys.
trait Set: Sync {
    fn insert(&mut self, keys: &[u64]) -> Result<()>;

    /// Waits until all inserted keys are in files and not in the page cache.
    fn flush(&mut self) -> Result<()>;

    /// Waits until no background job is left.
    fn finish_work(&mut self) -> Result<()>;

    fn look_up(&self, keys: &[u64], found: &mut [bool]) -> Result<()>;

    /// Returns the capacity of its files, in keys; `None` means the number of inserted keys.
    fn room(&self) -> Option<u64> {
        None
    }
}

/// Returns the number of threads that each peer may use in the background: four for its jobs, and one
/// for each core for transfers.
fn background_threads() -> usize {
    4 + available_parallelism().map_or(1, usize::from)
}

/// Returns the key with this number. Different numbers have different keys.
fn key(i: u64, options: &Options) -> u64 {
    mix(i.wrapping_add(mix(options.common.seed)))
}

fn peers() -> Vec<Box<dyn Peer>> {
    let mut peers = hashfold::peers();
    #[cfg(feature = "rocksdb")]
    peers.extend(rocksdb::peers());
    peers.extend(bloom::peers());
    peers
}

/// Returns a report without rows.
pub fn report(options: &Options) -> Report {
    Report::new(COLUMNS, &["seen"], facts(options))
}

pub fn run(options: &Options) -> Result<Report> {
    let mut report = report(options);
    let folder = TemporaryFolder::create(&options.common.dir, "peers-seen")?;
    let mut peers = peers();
    peers.retain(|peer| options.common.wants(&peer.name()));
    let mut rounds = vec![Vec::new(); peers.len()];
    for round in 1..=options.common.rounds {
        for (peer, rounds) in peers.iter().zip(&mut rounds) {
            eprintln!("round {round}: {}", peer.name());
            let folder = folder.path.join("set");
            fs::create_dir_all(&folder)?;
            settle(&folder)?;
            rounds.push(measure_alone(peer.as_ref(), options, &folder)?);
            fs::remove_dir_all(&folder)?;
        }
    }
    for (peer, rounds) in peers.iter().zip(&rounds) {
        let data = format!("keys of 8 bytes, {} MiB of memory", options.memory);
        report.rows.push(Row::new(&data, &peer.name(), &peer.note(), rounds));
    }
    Ok(report)
}

fn facts(options: &Options) -> Vec<(&'static str, String)> {
    let lookups = format!(
        "at most {} or {} s of each kind, in batches of {LOOKUP_BATCH}; {} threads but for \
         Hashfold, which has one",
        options.lookups, options.seconds, options.get_threads
    );
    let insertions = format!(
        "batches of {BATCH}, one thread, {} threads in the background; until all is in files and no \
         work is left, all threads; at most {} s, but Hashfold takes all keys",
        background_threads(),
        options.seconds
    );
    vec![
        ("memory_of_a_set", format!("{} MiB", options.memory)),
        ("insertions", insertions),
        ("lookups", lookups),
        ("seed", options.common.seed.to_string()),
        ("rounds", options.common.rounds.to_string()),
    ]
}

/// Measures one round of one peer in a new process, whose peak memory is that of the peer alone: an
/// allocator keeps memory that earlier peers have freed. Tests measure in their own process.
fn measure_alone(peer: &dyn Peer, options: &Options, folder: &Path) -> Result<Vec<Option<f64>>> {
    if cfg!(test) {
        return round(peer, options, folder);
    }
    let mut command = Command::new("/proc/self/exe");
    command.args(env::args_os().skip(1)).args(["--alone", &peer.name()]);
    let output = command.arg("--within").arg(folder).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{}: {}", peer.name(), output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Measures one round of the peer that `alone` names, for [`measure_alone`].
pub fn run_alone(options: &Options) -> Result<()> {
    let (Some(name), Some(folder)) = (&options.alone, &options.within) else {
        return Err("expected --alone NAME --within FOLDER".into());
    };
    let peers = peers();
    let peer = peers.iter().find(|peer| peer.name() == *name);
    let peer = peer.ok_or_else(|| format!("there is no peer {name:?}"))?;
    let figures = round(peer.as_ref(), options, folder)?;
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

/// The cost of all insertions.
struct Inserted {
    count: u64,
    /// Until all keys are in files and no work in the background is left.
    cost: Cost,
    longest: Duration,
}

/// Measures one round of one peer, in the order of [`COLUMNS`].
fn round(peer: &dyn Peer, options: &Options, folder: &Path) -> Result<Vec<Option<f64>>> {
    let mut set = peer.create(options, folder)?;
    reset_peak_memory()?;
    let inserted = insert(peer, set.as_mut(), options)?;
    let count = inserted.count;
    let bytes = disk_bytes_below(folder)? as f64 / set.room().unwrap_or(count) as f64;
    let keys_total = peer.keys(options);
    let absent =
        look_up(peer, set.as_ref(), options, options.lookups, |i| key(keys_total + i, options))?;
    let error_rate = absent.found as f64 / absent.asked as f64;
    let spread = 6.0 * (peer.error_max() / absent.asked as f64).sqrt();
    if error_rate > peer.error_max() * 1.1 + spread {
        return Err(format!("{} finds {error_rate} of the absent keys", peer.name()).into());
    }
    // No key is looked up twice, or it might come from memory.
    let step = coprime(count);
    let present = look_up(peer, set.as_ref(), options, options.lookups.min(count), |i| {
        key((u128::from(i) * u128::from(step) % u128::from(count)) as u64, options)
    })?;
    if present.found != present.asked {
        let Lookups { found, asked, .. } = present;
        return Err(format!("{} finds {found} of {asked} keys", peer.name()).into());
    }
    let peak = peak_memory()?;
    let per_s = |time: Duration| Some(count as f64 / time.as_secs_f64());
    Ok(vec![
        Some(count as f64 / 1e6),
        per_s(inserted.cost.wall),
        per_s(inserted.cost.cpu),
        Some(inserted.longest.as_secs_f64() * 1e3),
        Some(absent.per_s),
        Some(present.per_s),
        Some(bytes),
        Some(error_rate * 100.0),
        Some(peak as f64 / f64::from(1 << 20)),
    ])
}

fn insert(peer: &dyn Peer, set: &mut dyn Set, options: &Options) -> Result<Inserted> {
    let deadline = Instant::now() + Duration::from_secs_f64(options.seconds);
    let mut longest = Duration::ZERO;
    let total = peer.keys(options);
    let (count, cost) = measure(|| {
        let mut keys = Vec::with_capacity(BATCH as usize);
        let mut next = 0;
        while next < total && (peer.takes_all() || Instant::now() < deadline) {
            let end = (next + BATCH).min(total);
            keys.clear();
            keys.extend((next..end).map(|i| key(i, options)));
            let before = Instant::now();
            set.insert(&keys)?;
            longest = longest.max(before.elapsed());
            next = end;
        }
        set.flush()?;
        set.finish_work()?;
        Ok(next)
    })?;
    Ok(Inserted { count, cost, longest })
}

/// The results of lookups.
#[derive(Clone, Copy)]
struct Lookups {
    asked: u64,
    found: u64,
    per_s: f64,
}

/// Looks up keys by number, in all threads.
fn look_up(
    peer: &dyn Peer,
    set: &dyn Set,
    options: &Options,
    lookups: u64,
    key: impl Fn(u64) -> u64 + Sync,
) -> Result<Lookups> {
    let threads = peer.get_threads(options) as u64;
    // Each thread gets some of the keys.
    let batch = LOOKUP_BATCH.min(lookups.div_ceil(threads));
    let deadline = Instant::now() + Duration::from_secs_f64(options.seconds);
    let work = |thread: u64| -> Result<(u64, u64)> {
        let (mut asked, mut found) = (0, 0);
        let mut answers = Vec::new();
        for from in (thread * batch..lookups).step_by((threads * batch) as usize) {
            // The keys are looked up in pieces, so that slow sets stop in time.
            for start in (from..(from + batch).min(lookups)).step_by(piece(threads)) {
                let end = (start + piece(threads) as u64).min((from + batch).min(lookups));
                let keys: Vec<u64> = (start..end).map(&key).collect();
                answers.clear();
                answers.resize(keys.len(), false);
                set.look_up(&keys, &mut answers)?;
                asked += keys.len() as u64;
                found += answers.iter().filter(|answer| **answer).count() as u64;
                if Instant::now() > deadline {
                    return Ok((asked, found));
                }
            }
        }
        Ok((asked, found))
    };
    let begin = Instant::now();
    let all: Result<Vec<(u64, u64)>> = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..threads).map(|i| scope.spawn(move || work(i))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let seconds = begin.elapsed().as_secs_f64();
    let (asked, found) = all?.iter().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    Ok(Lookups { asked, found, per_s: asked as f64 / seconds })
}

/// Returns the number of keys per call: a single thread has many requests in flight, each of many
/// threads a few.
fn piece(threads: u64) -> usize {
    if threads == 1 { LOOKUP_BATCH as usize } else { 256 }
}
