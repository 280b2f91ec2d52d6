//! Data that change every night, under a reader.
//!
//! ```text
//! quiet   prepare             switch   settle
//! ├───────┼───────────────────┼────────┼──────────┤
//!         │◄─ seconds_until_live ─────►│          │
//!         │◄─ seconds_until_settled ─────────────►│
//! ```
//!
//! One thread looks up keys all the time, and compares every answer with the states before and
//! after. After the last night of each kind, the data are rolled back to the night before.

mod book;
mod hashfold;
#[cfg(feature = "lmdb")]
mod lmdb;
mod reader;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod voldemort;

#[cfg(test)]
pub use self::book::check;
pub use self::voldemort::read as read_lines;
use self::{
    book::{DELETED, Night, State},
    reader::{Ending, Expected, Phase, Seen, Signals},
};
pub use crate::dictionary::Size;
use crate::{
    Common, Result,
    data::{Data, Key},
    measure::{TemporaryFolder, disk_bytes_below, settle, written_bytes},
    report::Report,
    row::{Column, Row},
};
use ::hashfold::io::Access;
use clap::ValueEnum;
use record::count;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, RwLock},
    thread::{self, available_parallelism},
    time::{Duration, Instant},
};

#[derive(clap::Args, Clone, Debug)]
pub struct Options {
    /// Data sets: entries x bytes per value.
    #[arg(long, value_delimiter = ',', default_values_t = [Size { count: 5_000_000, value: 100 }])]
    pub sizes: Vec<Size>,
    /// Percentage of the entries that a night changes; a tenth of these are deletions.
    #[arg(long, value_delimiter = ',', default_values_t = [1.0, 10.0])]
    pub changes: Vec<f64>,
    /// Number of nights for each percentage, one after the other.
    #[arg(long, default_value_t = 5)]
    pub nights: usize,
    /// Chunks of Hashfold's store.
    #[arg(long, default_value_t = 16)]
    pub chunks: u32,
    /// Memory for sorting, in mebibytes.
    #[arg(long, default_value_t = 1024)]
    pub memory: usize,
    /// Threads that update.
    #[arg(long, default_value_t = available_parallelism().map_or(1, |cores| cores.get()))]
    pub threads: usize,
    /// Access mode of Hashfold and RocksDB.
    #[arg(long, value_enum, default_value_t = Reads::Cached)]
    pub reads: Reads,
    /// Milliseconds of reading before each night, for comparison.
    #[arg(long, default_value_t = 1000)]
    pub quiet_ms: u64,
    /// File with the output of `voldemort/run.sh nightly`.
    #[arg(long)]
    pub voldemort: Option<PathBuf>,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Reads {
    /// Reads through the page cache.
    Cached,
    /// Reads with `O_DIRECT`.
    Direct,
}

impl From<Reads> for Access {
    fn from(reads: Reads) -> Access {
        match reads {
            Reads::Cached => Access::Cached,
            Reads::Direct => Access::Direct,
        }
    }
}

const COLUMNS: &[Column] = &[
    Column::drawn("seconds_until_live", 3, "Time until readers see the night, s; less is better"),
    Column::drawn("seconds_until_settled", 3, "Time until no work is left, s; less is better"),
    Column::new("written_per_changed_byte", 2),
    Column::drawn(
        "written_per_changed_byte_all_nights",
        2,
        "Bytes written for each changed byte, all nights; less is better",
    ),
    Column::new("switch_ms", 2),
    Column::new("stall_ms_switch", 2),
    Column::drawn(
        "stall_ms_update",
        2,
        "Longest stall of a reader in the night, ms; less is better",
    ),
    Column::new("stall_ms_quiet", 2),
    Column::drawn(
        "lookups_per_s_update",
        0,
        "Lookups of one reader in the night, per second; more is better",
    ),
    Column::new("lookups_per_s_quiet", 0),
    Column::drawn("seconds_to_roll_back", 6, "Time to roll back, ms; less is better").times(1e3),
    Column::new("stall_ms_roll_back", 2),
    Column::drawn(
        "disk_per_payload",
        3,
        "Size on disk, divided by that of keys and values; less is better",
    ),
];

/// The figures of a night, in the order of [`COLUMNS`].
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    live_s: f64,
    settled_s: f64,
    written_bytes: f64,
    changed_bytes: f64,
    switch: Duration,
    seen_quiet: Seen,
    seen_switch: Seen,
    seen_update: Seen,
    disk_per_payload: f64,
    /// The rollback after the last night.
    roll_back: Option<(Duration, Seen)>,
    /// Bytes written in all nights; set after the last night.
    written_all: Option<f64>,
}

impl Figures {
    fn numbers(self) -> Vec<Option<f64>> {
        vec![
            Some(self.live_s),
            Some(self.settled_s),
            Some(self.written_bytes / self.changed_bytes),
            self.written_all,
            Some(self.switch.as_secs_f64() * 1000.0),
            Some(self.seen_switch.longest_ms()),
            Some(self.seen_update.longest_ms()),
            Some(self.seen_quiet.longest_ms()),
            self.seen_update.per_second(),
            self.seen_quiet.per_second(),
            self.roll_back.map(|(time, _)| time.as_secs_f64()),
            self.roll_back.map(|(_, seen)| seen.longest_ms()),
            Some(self.disk_per_payload),
        ]
    }
}

/// A way to store changing data.
trait Peer {
    fn name(&self) -> String;

    fn note(&self) -> String;

    /// Writes the initial state into an empty folder, for readers.
    fn create(&self, data: &Data, options: &Options, folder: &Path) -> Result<Box<dyn Store>>;
}

/// A store that one thread changes and another reads.
trait Store: Sync {
    /// Returns a reader for the calling thread. It sees each new state from its switch on.
    fn reader(&self) -> Result<Box<dyn Reader + '_>>;

    /// Does all work that is possible before a reader sees the new state.
    fn prepare(&self, data: &Data, night: &Night) -> Result<()>;

    /// Makes the new state visible to all readers, and durable.
    fn switch(&self) -> Result<()>;

    /// Finishes all remaining work. Only the current state and the data for a rollback are kept.
    fn settle(&self) -> Result<()>;

    /// Makes the state before the last night visible to all readers.
    fn roll_back(&self) -> Result<()>;
}

trait Reader {
    fn get(&mut self, key: &Key, visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()>;
}

/// The current state of readers, and replaced states that they may still use.
struct Current<T> {
    now: RwLock<Arc<T>>,
    old: RwLock<Vec<Arc<T>>>,
}

impl<T> Current<T> {
    fn new(first: T) -> Current<T> {
        Current { now: RwLock::new(Arc::new(first)), old: RwLock::default() }
    }

    fn get(&self) -> Arc<T> {
        self.now.read().expect("nothing panics under this lock").clone()
    }

    fn replace(&self, new: T) {
        let mut new = Arc::new(new);
        std::mem::swap(&mut *self.now.write().expect("nothing panics under this lock"), &mut new);
        self.old.write().expect("nothing panics under this lock").push(new);
    }

    /// Drops a replaced state in this thread, when no reader uses it any more.
    fn drop_old(&self) {
        for mut old in std::mem::take(&mut *self.old.write().expect("nothing panics under it")) {
            while Arc::get_mut(&mut old).is_none() {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn peers() -> Vec<Box<dyn Peer>> {
    let mut all: Vec<Box<dyn Peer>> = hashfold::peers();
    #[cfg(feature = "rocksdb")]
    all.extend(rocksdb::peers());
    #[cfg(feature = "lmdb")]
    all.push(Box::new(lmdb::Lmdb));
    all
}

/// The figures of nights, in the order of [`COLUMNS`], for each fraction of changes.
type Nights = Vec<Vec<Vec<Option<f64>>>>;

/// Returns a report without rows.
pub fn report(options: &Options) -> Report {
    Report::new(COLUMNS, &["nightly-small", "nightly-large"], facts(options))
}

pub fn run(options: &Options) -> Result<Report> {
    if options.changes.len() * options.nights > book::NIGHTS_MAX {
        return Err(format!("more than {} nights", book::NIGHTS_MAX).into());
    }
    let mut report = report(options);
    let folder = TemporaryFolder::create(&options.common.dir, "peers-nightly")?;
    let voldemort = options.voldemort.as_deref().map(voldemort::read).transpose()?;
    for size in &options.sizes {
        let data = Data::new(options.common.seed, size.count, size.value);
        if data.count == 0 || data.count >= book::COUNT_MAX {
            return Err(format!("{size}: too few entries, or too many").into());
        }
        let mut peers = peers();
        peers.retain(|peer| options.common.wants(&peer.name()));
        let mut all: Vec<Nights> = vec![vec![Vec::new(); options.changes.len()]; peers.len()];
        for round in 1..=options.common.rounds {
            for (peer, rounds) in peers.iter().zip(&mut all) {
                eprintln!("{size}, round {round}: {}", peer.name());
                let folder = folder.path.join("data");
                fs::create_dir_all(&folder)?;
                settle(&folder)?;
                for (nights, more) in
                    rounds.iter_mut().zip(cycle(&**peer, &data, options, &folder)?)
                {
                    nights.extend(more);
                }
                fs::remove_dir_all(&folder)?;
            }
        }
        for (i, change) in options.changes.iter().enumerate() {
            let name = format!(
                "{} entries of 16 + {} bytes, {change} % changed",
                count(size.count),
                size.value
            );
            for (peer, nights) in peers.iter().zip(&all) {
                report.rows.push(Row::new(&name, &peer.name(), &peer.note(), &nights[i]));
            }
            if let Some(lines) = &voldemort {
                report.rows.extend(voldemort::rows(lines, &data, *change, &name)?);
            }
        }
    }
    Ok(report)
}

fn facts(options: &Options) -> Vec<(&'static str, String)> {
    vec![
        ("update", format!("{} threads, {} MiB to sort in", options.threads, options.memory)),
        ("nights", format!("{} for each change, the last one rolled back", options.nights)),
        ("reads", format!("one thread, one at a time, {:?}", options.reads).to_lowercase()),
        ("seed", options.common.seed.to_string()),
        ("rounds", options.common.rounds.to_string()),
    ]
}

/// Runs all nights of one peer.
fn cycle(peer: &dyn Peer, data: &Data, options: &Options, folder: &Path) -> Result<Nights> {
    let store = peer.create(data, options, folder)?;
    let mut states: Vec<State> = vec![0; data.count as usize];
    let mut number = 0;
    let mut all = Vec::new();
    for change in &options.changes {
        let mut nights: Vec<Figures> = Vec::new();
        for nth in 1..=options.nights {
            number += 1;
            let night = Night::new(data, number, change / 100.0);
            let after = night.after(&states);
            let expected = Expected { data, before: &states, after: &after };
            settle(folder)?;
            let mut figures = self::night(&*store, &night, &expected, options)?;
            figures.disk_per_payload = disk_bytes_below(folder)? as f64 / payload(data, &after);
            check_changes(&*store, &night, data, &after)?;
            if nth == options.nights {
                figures.roll_back = Some(roll_back(&*store, &expected, options)?);
                check_changes(&*store, &night, data, &states)?;
                store.settle()?;
            } else {
                states = after;
            }
            nights.push(figures);
        }
        let sum = |number: fn(&Figures) -> f64| nights.iter().map(number).sum::<f64>();
        let written_all = sum(|night| night.written_bytes) / sum(|night| night.changed_bytes);
        if let Some(last) = nights.last_mut() {
            last.written_all = Some(written_all);
        }
        all.push(nights.into_iter().map(Figures::numbers).collect());
    }
    Ok(all)
}

/// Runs one night, without the figures that are known only later.
fn night(
    store: &dyn Store,
    night: &Night,
    expected: &Expected<'_>,
    options: &Options,
) -> Result<Figures> {
    let mut written = 0;
    let ([prepared, live, settled], seen) = read_while(store, expected, options, |signals| {
        written = written_bytes()?;
        let start = Instant::now();
        signals.enter(Phase::Prepare);
        store.prepare(expected.data, night)?;
        let prepared = start.elapsed();
        signals.enter(Phase::Switch);
        store.switch()?;
        let live = start.elapsed();
        signals.enter(Phase::Settle);
        store.settle()?;
        written = written_bytes()? - written;
        Ok([prepared, live, start.elapsed()])
    })?;
    let seen = |phase: Phase| seen[phase as usize];
    Ok(Figures {
        live_s: live.as_secs_f64(),
        settled_s: settled.as_secs_f64(),
        written_bytes: written as f64,
        changed_bytes: night.bytes(expected.data) as f64,
        switch: live - prepared,
        seen_quiet: seen(Phase::Quiet),
        seen_switch: seen(Phase::Switch),
        seen_update: seen(Phase::Prepare).and(seen(Phase::Switch)).and(seen(Phase::Settle)),
        ..Figures::default()
    })
}

/// Rolls back to the night before. Returns the duration, and the records of a reader.
fn roll_back(
    store: &dyn Store,
    expected: &Expected<'_>,
    options: &Options,
) -> Result<(Duration, Seen)> {
    let (time, seen) = read_while(store, expected, options, |signals| {
        let start = Instant::now();
        signals.enter(Phase::RollBack);
        store.roll_back()?;
        Ok(start.elapsed())
    })?;
    Ok((time, seen[Phase::RollBack as usize]))
}

/// Runs `work` while another thread reads; the reader starts some time earlier.
fn read_while<T>(
    store: &dyn Store,
    expected: &Expected<'_>,
    options: &Options,
    work: impl FnOnce(&Signals) -> Result<T>,
) -> Result<(T, [Seen; 5])> {
    let signals = Signals::default();
    let seed = options.common.seed;
    thread::scope(|scope| {
        let read = || reader::read(store.reader(), expected, &signals, seed);
        let reader = scope.spawn(read);
        let ending = Ending(&signals);
        signals.wait_for_reader();
        thread::sleep(Duration::from_millis(options.quiet_ms));
        let result = work(&signals);
        drop(ending);
        let seen = reader.join().expect("the reader does not panic");
        Ok((result?, seen?))
    })
}

/// Looks up the keys that the night changed; all must be as `states` says.
fn check_changes(store: &dyn Store, night: &Night, data: &Data, states: &[State]) -> Result<()> {
    const LOOKUPS_MAX: usize = 10_000;
    let step = night.changes.len().div_ceil(LOOKUPS_MAX).max(1);
    let keys = night.changes.iter().step_by(step).map(|change| change.i);
    reader::check(&mut *store.reader()?, data, states, keys)
}

/// Returns the size of keys and values, in bytes.
fn payload(data: &Data, states: &[State]) -> f64 {
    let there = states.iter().filter(|state| **state != DELETED);
    there.map(|state| book::entry_bytes(data, *state)).sum::<u64>() as f64
}
