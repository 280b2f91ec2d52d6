//! What a cascade filter is, and what it works with.

use super::{memtable::Memtable, resident::Resident, wal};
use crate::{
    error::{Error, Result},
    filter::Mode,
    fingerprints::Universe,
    io::Access,
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
/// Merges that run at the same time.
const MERGES: usize = 3;
/// Packed tables there is memory for, at least, and at most. Half of them are flushed together.
const PACKED_MIN: usize = 4;
const PACKED_MAX: usize = if cfg!(test) { 4 } else { 16 };

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
    /// The slots of each of the two tables.
    pub(super) slots: usize,
    /// The two tables.
    pub(super) tables: usize,
    /// Tables that were packed.
    pub(super) packed: usize,
    /// One of these, if few of its keys are counted.
    pub(super) packed_one: usize,
    /// So many of them, at most.
    pub(super) packed_max: usize,
    /// Runs kept in memory, and the indexes of all.
    pub(super) runs: usize,
    /// One merge: a flush, one above the last level and one into it run at the same time.
    pub(super) merge: MergeShare,
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
        let tables = |slots| 2 * Memtable::bytes_max(mode, slots);
        let packed_one = |slots| Resident::bytes_of(Memtable::len_max(slots), universe);
        let least = |slots| tables(slots) + PACKED_MIN * packed_one(slots);
        let mut slots = SLOTS_MAX;
        while slots > SLOTS_MIN && least(slots) > memory / 2 {
            slots /= 2;
        }
        let (tables, packed_one) = (tables(slots), packed_one(slots));
        let packed_max = (memory / 2).saturating_sub(tables) / packed_one;
        let packed_max = packed_max.clamp(PACKED_MIN, PACKED_MAX);
        let packed = packed_max * packed_one;
        let merges = memory / 4;
        let log = if self.wal { wal::WRITER_BYTES_MAX } else { 0 };
        let runs = (memory - merges - log).saturating_sub(tables + packed);
        let merge = MergeShare(merges / MERGES);
        Shares { slots, tables, packed, packed_one, packed_max, runs, merge }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 10: the shares of all parts are no more than the memory.
    #[track_caller]
    fn check(memory_bytes: usize, log: bool) {
        let settings = CascadeSettings { memory_bytes, wal: log, ..CascadeSettings::default() };
        for mode in [Mode::Set, Mode::Multiset] {
            for universe in [Universe::EXACT, Universe::for_capacity(1 << 30, 0.0004).unwrap()] {
                let Shares { tables, packed, runs, merge, .. } = settings.shares(mode, universe);
                let log = if log { wal::WRITER_BYTES_MAX } else { 0 };
                let sum = tables + packed + runs + MERGES * merge.0 + log;
                assert!(sum <= memory_bytes, "{sum} {memory_bytes} {mode:?} {universe:?}");
            }
        }
    }

    #[test]
    fn all_shares_fit_in_the_memory() {
        for memory_bytes in [CASCADE_MEMORY_MIN, 20_000_000, 107 << 20, 1 << 30, 1 << 40] {
            check(memory_bytes, false);
            check(memory_bytes, true);
        }
    }

    #[test]
    fn the_reads_of_a_merge_fit_in_half_of_its_share() {
        for memory in [CASCADE_MEMORY_MIN, 107 << 20, 1 << 30] {
            let share = MergeShare(memory / 4 / MERGES);
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
