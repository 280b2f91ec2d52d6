//! What a cascade filter is, and what it works with.

use super::{memtable::Memtable, resident::Resident, wal};
use crate::{
    error::{Error, Result},
    filter::Mode,
    fingerprints::Universe,
    io::{Access, WRITER_BYTES_MAX},
    key::Seed,
    work::{Clock, Executor, Inline, SystemClock},
};
use std::sync::Arc;

/// The least memory that a cascade filter works in, in bytes: 16 MiB.
pub const CASCADE_MEMORY_MIN: usize = 16 << 20;

/// The memory that a cascade filter works in unless told otherwise, in bytes: 256 MiB.
pub const CASCADE_MEMORY_DEFAULT: usize = 256 << 20;

/// More slots than this cost in cache misses what they save in merges.
const SLOTS_MAX: usize = if cfg!(test) { 1 << 10 } else { 1 << 21 };
const SLOTS_MIN: usize = 1 << 10;
/// Reads of merges, in bytes.
const READ_UNIT_MIN: usize = 16 << 10;
const READ_UNIT_MAX: usize = 256 << 10;
/// The minimum and the maximum of merges that run at the same time, beside a flush.
const MERGES_MIN: usize = 2;
const MERGES_MAX: usize = 16;
/// The memory that each merge should have if there are more than [`MERGES_MIN`], in bytes.
const MERGE_SHARE: usize = 8 << 20;
/// Threads of an executor that merges leave to packing and flushing.
const OTHER_THREADS: usize = 2;
/// The minimum and the maximum of runs in RAM. Half of them are flushed together.
const RAM_RUNS_MIN: usize = 4;
const RAM_RUNS_MAX: usize = if cfg!(test) { 4 } else { 16 };

/// What a new filter is, for all its life.
#[derive(Clone, Debug)]
pub struct CascadeOptions {
    /// Of the hashes; drawn at random, so that nobody can choose keys that collide.
    pub seed: Seed,
    /// A random number, which tells the files of this filter from those of others.
    pub id: u64,
    /// A set or a multiset.
    pub mode: Mode,
    /// The keys that it is made for. It takes more, and the rate of errors grows with them.
    pub capacity: u64,
    /// Its fingerprints: with [`Universe::EXACT`] a filter is in effect a set of keys.
    pub universe: Universe,
}

impl CascadeOptions {
    /// A set for so many keys; once they are in it, a key that is not is found at this rate.
    pub fn new(seed: Seed, id: u64, capacity: u64, error_rate: f64) -> Result<CascadeOptions> {
        let universe = Universe::for_capacity(capacity, error_rate)?;
        Ok(CascadeOptions { seed, id, mode: Mode::Set, capacity, universe })
    }

    /// The same with fingerprints of 64 bits.
    pub fn exact(seed: Seed, id: u64) -> CascadeOptions {
        let (mode, universe) = (Mode::Set, Universe::EXACT);
        CascadeOptions { seed, id, mode, capacity: u64::MAX, universe }
    }
}

/// What an open filter works with.
#[derive(Clone, Debug)]
pub struct CascadeSettings {
    /// Memory for all it does, in bytes: [`CASCADE_MEMORY_MIN`] at least. Tables for what comes in
    /// get half, merges in the background a quarter. What is left holds the indexes of runs, 4 bytes
    /// for each 4096 bytes of them, and as much of the runs that are written while the filter is
    /// open as there is room for, so that lookups need not read them. Where indexes take too much
    /// of that, those of large runs are made smaller, and a lookup reads up to 32 blocks of such a
    /// run instead of one: so 16 MiB are enough for 40 GB of runs, and larger filters need more.
    /// On top come what the device has in flight, 28 MiB at most, and for lookups and unique
    /// insertions of many keys, while they run, 3 MiB and 24 bytes a key.
    pub memory_bytes: usize,
    /// Keys are merged into the last level when those above it are more than this part of it, in
    /// percent. A smaller one costs more merging and leaves less to look up in memory.
    pub upper_percent: u32,
    /// Write what is told to a log at once, so that [`sync`](super::CascadeFilter::sync) makes it
    /// durable without a flush.
    pub wal: bool,
    /// How runs are read.
    pub access: Access,
    /// The executor of all background work: packing, flushes and merges, up to four at a time, and
    /// their reads and writes. With fewer than six threads these wait for each other.
    pub executor: Arc<dyn Executor>,
    /// The clock by which insertions are slowed down while background work is behind.
    pub clock: Arc<dyn Clock>,
}

impl Default for CascadeSettings {
    /// In [`CASCADE_MEMORY_DEFAULT`], without a log, and all in the caller's thread.
    fn default() -> CascadeSettings {
        CascadeSettings {
            memory_bytes: CASCADE_MEMORY_DEFAULT,
            upper_percent: 50,
            wal: false,
            access: Access::Direct,
            executor: Arc::new(Inline),
            clock: Arc::new(SystemClock),
        }
    }
}

/// How the memory is shared out, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    /// The number of slots of each of the two memtables.
    pub(super) slots: usize,
    /// The two memtables.
    pub(super) memtables: usize,
    /// Runs in RAM.
    pub(super) ram_runs: usize,
    /// One run in RAM, if few of its keys are counted.
    pub(super) ram_run: usize,
    /// The maximum number of runs in RAM.
    pub(super) ram_runs_max: usize,
    /// What is kept in memory of run files, and the indexes of all.
    pub(super) run_files: usize,
    /// One merge, or the flush that runs beside the merges.
    pub(super) merge: MergeShare,
    /// The maximum number of merges that run at the same time.
    pub(super) merges_max: usize,
}

/// The memory of one merge, in bytes, without the file that it writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergeShare(pub(super) usize);

impl MergeShare {
    /// One read, where so many runs are read at once: each of them has two, one that is being
    /// merged and one ahead of it, and all together half of the memory.
    pub(super) fn read_unit(self, runs: usize) -> usize {
        let unit = self.0 / 2 / (2 * runs.max(1));
        (1 << unit.max(1).ilog2()).clamp(READ_UNIT_MIN, READ_UNIT_MAX)
    }

    /// What is merged: the memory that the reads leave.
    pub(super) fn items(self) -> usize {
        self.0 - self.0 / 2
    }
}

/// Refuses too little memory.
pub(super) fn check_memory(bytes: usize) -> Result<()> {
    if bytes >= CASCADE_MEMORY_MIN {
        return Ok(());
    }
    Err(Error::argument("memory", format!("at least {CASCADE_MEMORY_MIN} bytes"), bytes))
}

impl CascadeSettings {
    pub(super) fn check(&self) -> Result<()> {
        check_memory(self.memory_bytes)?;
        if !(1..=1000).contains(&self.upper_percent) {
            return Err(Error::argument("upper percent", "1 to 1000", self.upper_percent));
        }
        Ok(())
    }

    pub(super) fn shares(&self, mode: Mode, universe: Universe) -> Shares {
        let memory = self.memory_bytes;
        let memtables = |slots| 2 * Memtable::bytes_max(mode, slots);
        let ram_run = |slots| Resident::bytes_of(Memtable::len_max(slots), universe);
        let least = |slots| memtables(slots) + RAM_RUNS_MIN * ram_run(slots);
        let mut slots = SLOTS_MAX;
        while slots > SLOTS_MIN && least(slots) > memory / 2 {
            slots /= 2;
        }
        let (memtables, ram_run) = (memtables(slots), ram_run(slots));
        let ram_runs_max = (memory / 2).saturating_sub(memtables) / ram_run;
        let ram_runs_max = ram_runs_max.clamp(RAM_RUNS_MIN, RAM_RUNS_MAX);
        let ram_runs = ram_runs_max * ram_run;
        let log = if self.wal { wal::WRITER_BYTES_MAX } else { 0 };
        let run_files = (memory - memory / 4 - log).saturating_sub(memtables + ram_runs);
        let (merges_max, merge) = self.merge_shares();
        Shares { slots, memtables, ram_runs, ram_run, ram_runs_max, run_files, merge, merges_max }
    }

    /// The maximum number of merges, as many as there are threads and memory for, and what each of
    /// them has of a quarter of the memory. Each merge beyond [`MERGES_MIN`] pays for the file that
    /// it writes.
    fn merge_shares(&self) -> (usize, MergeShare) {
        let merges = self.memory_bytes / 4;
        let share = |count: usize| {
            let files = count.saturating_sub(MERGES_MIN) * WRITER_BYTES_MAX;
            merges.saturating_sub(files) / (count + 1)
        };
        let width = self.executor.width();
        let most = match width {
            0 => 1,
            _ => width.saturating_sub(OTHER_THREADS).clamp(MERGES_MIN, MERGES_MAX),
        };
        let count = (MERGES_MIN + 1..=most).rev().find(|&count| share(count) >= MERGE_SHARE);
        let count = count.unwrap_or(most.min(MERGES_MIN));
        (count, MergeShare(share(count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Threads;

    /// The number of merges at once, with so much memory and so many threads.
    #[track_caller]
    fn check_merges(memory_bytes: usize, threads: usize, expected: usize) {
        let executor: Arc<dyn Executor> = Arc::new(Threads::new(threads));
        let settings = CascadeSettings { memory_bytes, executor, ..CascadeSettings::default() };
        assert_eq!(settings.merge_shares().0, expected);
    }

    #[test]
    fn merges_are_as_many_as_threads_and_memory_allow() {
        check_merges(CASCADE_MEMORY_MIN, 40, 2);
        check_merges(256 << 20, 1, 2);
        check_merges(256 << 20, 6, 4);
        check_merges(1 << 30, 12, 10);
        check_merges(1 << 40, 40, 16);
        assert_eq!(CascadeSettings::default().merge_shares().0, 1);
    }

    /// Issue 10: the shares of all parts are no more than the memory.
    #[track_caller]
    fn check(memory_bytes: usize, log: bool, threads: usize) {
        let executor: Arc<dyn Executor> = match threads {
            0 => Arc::new(Inline),
            _ => Arc::new(Threads::new(threads)),
        };
        let settings = CascadeSettings { executor, ..CascadeSettings::default() };
        let settings = CascadeSettings { memory_bytes, wal: log, ..settings };
        for mode in [Mode::Set, Mode::Multiset] {
            for universe in [Universe::EXACT, Universe::for_capacity(1 << 30, 0.0004).unwrap()] {
                let shares = settings.shares(mode, universe);
                let log = if log { wal::WRITER_BYTES_MAX } else { 0 };
                let files = shares.merges_max.saturating_sub(MERGES_MIN) * WRITER_BYTES_MAX;
                let merges = (shares.merges_max + 1) * shares.merge.0 + files;
                let sum = shares.memtables + shares.ram_runs + shares.run_files + merges + log;
                assert!(sum <= memory_bytes, "{sum} {memory_bytes} {mode:?} {universe:?}");
            }
        }
    }

    #[test]
    fn all_shares_fit_in_the_memory() {
        for memory_bytes in [CASCADE_MEMORY_MIN, 20_000_000, 107 << 20, 1 << 30, 1 << 40] {
            for threads in [0, 1, 6, 40] {
                check(memory_bytes, false, threads);
                check(memory_bytes, true, threads);
            }
        }
    }

    #[test]
    fn the_reads_of_a_merge_fit_in_half_of_its_share() {
        for memory in [CASCADE_MEMORY_MIN, 107 << 20, 1 << 30] {
            let share = MergeShare(memory / 4 / (MERGES_MIN + 1));
            for runs in 0..=64 {
                let unit = share.read_unit(runs);
                assert!((READ_UNIT_MIN..=READ_UNIT_MAX).contains(&unit));
                assert!(unit.is_power_of_two());
                assert!(unit == READ_UNIT_MIN || 2 * runs * unit + share.items() <= share.0);
            }
        }
        assert_eq!(MergeShare(usize::MAX).read_unit(3), READ_UNIT_MAX);
    }
}
