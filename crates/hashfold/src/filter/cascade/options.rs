//! Options of a cascade filter, and the division of its memory.

use super::{memtable::Memtable, resident::Resident, window::Window};
use crate::{
    env::Env,
    error::{Error, Result},
    filter::Mode,
    fingerprints::{Fingerprints, Universe},
    io::{Access, WRITER_BYTES_MAX},
    key::Seed,
    wal::WAL_BYTES_MAX,
};

/// Minimum memory of a cascade filter, in bytes: 16 MiB.
pub const MEMORY_MIN: usize = 16 << 20;

/// Default memory of a cascade filter, in bytes: 256 MiB.
pub const MEMORY_DEFAULT: usize = 256 << 20;

/// Maximum number of slots of a memtable. Larger memtables cost more in cache misses than they save
/// in merges.
const SLOTS_MAX: usize = if cfg!(test) { 1 << 10 } else { 1 << 21 };
const SLOTS_MIN: usize = 1 << 10;
/// Minimum and maximum size of a merge's reads, in bytes.
pub(super) const READ_UNIT_MIN: usize = 16 << 10;
const READ_UNIT_MAX: usize = 256 << 10;
/// Minimum and maximum number of concurrent merges, besides a flush.
const MERGES_MIN: usize = 2;
const MERGES_MAX: usize = 16;
/// Memory that each merge must have if there are more than [`MERGES_MIN`], in bytes.
const MERGE_SHARE: usize = 12 << 20;
/// Number of threads of the executor that merges leave to packing and flushing.
const OTHER_THREADS: usize = 2;
/// Minimum and maximum number of runs in RAM. Half of them are flushed together.
const RAM_RUNS_MIN: usize = 4;
const RAM_RUNS_MAX: usize = if cfg!(test) { 4 } else { 16 };

/// Options of a new filter, which never change.
#[derive(Clone, Debug)]
pub struct CascadeOptions {
    /// Seed that keys are hashed with. Random, so that an attacker cannot choose colliding keys.
    pub seed: Seed,
    /// A random number that no other filter has; all files of the filter carry it.
    pub id: u64,
    /// Set or multiset.
    pub mode: Mode,
    /// Number of keys that the filter is made for. More keys raise the false-positive rate.
    pub capacity: u64,
    /// Universe of the fingerprints. With [`Universe::EXACT`] the filter is, in practice, an exact
    /// set.
    pub universe: Universe,
    /// How long keys are kept; `None` for ever, or until an epoch is
    /// [expired](super::CascadeFilter::expire_before).
    pub window: Option<Window>,
    /// The growth that the caller allows beyond the capacity: the factor between one expansion and the
    /// next, 0 for none. The filter keeps the number for callers that hold to it, such as the server's
    /// `BF.RESERVE`, and does not read it.
    pub expansion: Option<u32>,
}

impl CascadeOptions {
    /// Returns the options of a set that has the false-positive rate `false_positive_rate` once it holds
    /// `capacity` keys.
    pub fn new(
        seed: Seed,
        id: u64,
        capacity: u64,
        false_positive_rate: f64,
    ) -> Result<CascadeOptions> {
        let universe = Universe::for_capacity(capacity, false_positive_rate)?;
        Ok(CascadeOptions {
            seed,
            id,
            mode: Mode::Set,
            capacity,
            universe,
            window: None,
            expansion: None,
        })
    }

    /// Returns the options of a filter that is built from `run`: with its seed and its universe.
    pub fn like(run: &dyn Fingerprints, id: u64, mode: Mode, capacity: u64) -> CascadeOptions {
        let (seed, universe) = (run.seed(), run.universe());
        CascadeOptions { seed, id, mode, capacity, universe, window: None, expansion: None }
    }

    /// Returns the options of a set with 64-bit fingerprints, which has practically no false
    /// positives.
    pub fn exact(seed: Seed, id: u64) -> CascadeOptions {
        let (mode, universe) = (Mode::Set, Universe::EXACT);
        CascadeOptions {
            seed,
            id,
            mode,
            capacity: u64::MAX,
            universe,
            window: None,
            expansion: None,
        }
    }
}

/// Settings of an open filter.
#[derive(Clone, Debug)]
pub struct CascadeSettings {
    /// Memory budget in bytes, at least [`MEMORY_MIN`].
    ///
    /// Memtables and runs in RAM get half of the budget, merges in the background a quarter. The
    /// rest is for the indexes of runs, 4 bytes per block of 4096 bytes, and for blocks of new
    /// runs, which lookups then need not read. If indexes need too much memory, the indexes of
    /// large runs are thinned out, and a lookup reads up to 32 blocks of such a run instead of one.
    /// So 16 MiB suffice for 40 GB of runs; larger filters need more.
    ///
    /// Memory in addition to the budget: at most 28 MiB for requests in flight, and during lookups
    /// and unique insertions of a batch 3 MiB and 24 bytes per key.
    pub memory_bytes: usize,
    /// Maximum size of the runs above the last level, in percent of the last level, before they are
    /// merged into it. A smaller value costs more merging, and leaves fewer runs to look up.
    pub upper_percent: u32,
    /// Whether changes are written to a log at once, so that [`sync`](super::CascadeFilter::sync)
    /// makes them durable without a flush.
    pub wal: bool,
    /// How runs are read.
    pub access: Access,
    /// The disk of the filter, the executor of all background jobs and of their reads and writes,
    /// and the clock of the backpressure that slows down insertions while background jobs are
    /// behind. One job packs, one flushes, and merges use the other threads of the executor: at
    /// least two, and more if each merge gets 12 MiB of memory.
    pub env: Env,
}

impl Default for CascadeSettings {
    /// Returns [`CascadeSettings::new`] for [`Env::system`].
    fn default() -> CascadeSettings {
        CascadeSettings::new(Env::system())
    }
}

impl CascadeSettings {
    /// Returns a budget of [`MEMORY_DEFAULT`] and no log.
    pub fn new(env: Env) -> CascadeSettings {
        CascadeSettings {
            memory_bytes: MEMORY_DEFAULT,
            upper_percent: 50,
            wal: false,
            access: Access::Direct,
            env,
        }
    }
}

/// The division of the memory budget. Sizes are in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    /// Number of slots of each of the two memtables.
    pub(super) slots: usize,
    /// Memory of the two memtables.
    pub(super) memtables: usize,
    /// Memory of all runs in RAM.
    pub(super) ram_runs: usize,
    /// Memory of one run in RAM, if few of its fingerprints have counts.
    pub(super) ram_run: usize,
    /// Maximum number of runs in RAM.
    pub(super) ram_runs_max: usize,
    /// Memory of all indexes and kept blocks of run files.
    pub(super) run_files: usize,
    /// Memory of one merge, or of the flush that runs besides the merges.
    pub(super) merge: MergeShare,
    /// Maximum number of concurrent merges.
    pub(super) merges_max: usize,
}

/// The memory of one merge, in bytes, without the writer of its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergeShare(pub(super) usize);

impl MergeShare {
    /// Returns the size of one read if `runs` runs are merged. Each run has two reads, one that is
    /// being merged and one ahead; all reads together take half of the memory.
    pub(super) fn read_unit(self, runs: usize) -> usize {
        let unit = self.0 / 2 / (2 * runs.max(1));
        (1 << unit.max(1).ilog2()).clamp(READ_UNIT_MIN, READ_UNIT_MAX)
    }

    /// Returns the memory for the fingerprints of a merge, in bytes.
    pub(super) fn items(self) -> usize {
        self.0 - self.0 / 2
    }
}

/// Refuses too little memory.
pub(super) fn check_memory(bytes: usize) -> Result<()> {
    if bytes >= MEMORY_MIN {
        return Ok(());
    }
    Err(Error::argument("memory", format!("at least {MEMORY_MIN} bytes"), bytes))
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
        let log = if self.wal { WAL_BYTES_MAX } else { 0 };
        let run_files = (memory - memory / 4 - log).saturating_sub(memtables + ram_runs);
        let (merges_max, merge) = self.merge_shares();
        Shares { slots, memtables, ram_runs, ram_run, ram_runs_max, run_files, merge, merges_max }
    }

    /// Returns the maximum number of concurrent merges, limited by threads and memory, and the
    /// share of each in a quarter of the memory budget. For each merge beyond [`MERGES_MIN`], the
    /// writer of its file is paid from the quarter.
    fn merge_shares(&self) -> (usize, MergeShare) {
        let merges = self.memory_bytes / 4;
        let share = |count: usize| {
            let files = count.saturating_sub(MERGES_MIN) * WRITER_BYTES_MAX;
            merges.saturating_sub(files) / (count + 1)
        };
        let width = self.env.executor.width();
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
    use crate::{
        io::Disk,
        work::{Executor, Inline, Threads},
    };
    use std::sync::Arc;

    impl CascadeSettings {
        /// Returns the settings with another disk.
        pub(in super::super) fn on(self, disk: Arc<dyn Disk>) -> CascadeSettings {
            CascadeSettings { env: Env { disk, ..self.env }, ..self }
        }
    }

    /// Checks the number of concurrent merges for this memory and this number of threads.
    #[track_caller]
    fn check_merges(memory_bytes: usize, threads: usize, expected: usize) {
        let env = Env { executor: Arc::new(Threads::new(threads)), ..Env::simulated(1) };
        let settings = CascadeSettings { memory_bytes, ..CascadeSettings::new(env) };
        assert_eq!(settings.merge_shares().0, expected);
    }

    #[test]
    fn merges_are_as_many_as_threads_and_memory_allow() {
        check_merges(MEMORY_MIN, 40, 2);
        check_merges(256 << 20, 1, 2);
        check_merges(256 << 20, 6, 3);
        check_merges(512 << 20, 6, 4);
        check_merges(1 << 30, 12, 10);
        check_merges(1 << 40, 40, 16);
        assert_eq!(CascadeSettings::new(Env::simulated(1)).merge_shares().0, 1);
    }

    /// Issue 10: the shares of all parts together do not exceed the budget.
    #[track_caller]
    fn check(memory_bytes: usize, log: bool, threads: usize) {
        let executor: Arc<dyn Executor> = match threads {
            0 => Arc::new(Inline),
            _ => Arc::new(Threads::new(threads)),
        };
        let env = Env { executor, ..Env::simulated(1) };
        let settings = CascadeSettings { memory_bytes, wal: log, ..CascadeSettings::new(env) };
        for mode in [Mode::Set, Mode::Multiset] {
            for universe in [Universe::EXACT, Universe::for_capacity(1 << 30, 0.0004).unwrap()] {
                let shares = settings.shares(mode, universe);
                let log = if log { WAL_BYTES_MAX } else { 0 };
                let files = shares.merges_max.saturating_sub(MERGES_MIN) * WRITER_BYTES_MAX;
                let merges = (shares.merges_max + 1) * shares.merge.0 + files;
                let sum = shares.memtables + shares.ram_runs + shares.run_files + merges + log;
                assert!(sum <= memory_bytes, "{sum} {memory_bytes} {mode:?} {universe:?}");
            }
        }
    }

    #[test]
    fn all_shares_fit_in_the_memory() {
        for memory_bytes in [MEMORY_MIN, 20_000_000, 107 << 20, 1 << 30, 1 << 40] {
            for threads in [0, 1, 6, 40] {
                check(memory_bytes, false, threads);
                check(memory_bytes, true, threads);
            }
        }
    }

    #[test]
    fn the_reads_of_a_merge_fit_in_half_of_its_share() {
        for memory in [MEMORY_MIN, 107 << 20, 1 << 30] {
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
