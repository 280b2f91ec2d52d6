//! The memtable: the newest changes, as sorted hashes in RAM, until they become a run.

use super::ordered::{Ordered, PIECE_MAX};
use crate::{
    error::Result,
    filter::{Mode, merge::ascends},
    fingerprints::{FingerprintBatch, Fingerprints, Universe},
    key::Seed,
};
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    iter::Peekable,
    sync::Arc,
    vec,
};

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Insert,
    Remove,
}

/// Insertions and removals in memory. The memtable stores whole hashes, not fingerprints.
///
/// A hash in `table` was inserted or, if it is marked, removed. In a set, this is its last change.
/// In a multiset, it is a count of 1 or -1, to which the count in `more` is added.
#[derive(Debug)]
pub(super) struct Memtable {
    mode: Mode,
    table: Ordered,
    more: Counts,
}

type Counts = HashMap<u64, i64, BuildHasherDefault<Itself>>;

/// The hashes in `more` are at most one part in N of the slots.
const MORE_PART: usize = 8;

impl Memtable {
    /// Returns a memtable with `slots` slots, a power of two.
    pub(super) fn new(mode: Mode, slots: usize) -> Memtable {
        Memtable { mode, table: Ordered::new(slots), more: Counts::default() }
    }

    /// Returns the maximum memory of a memtable with `slots` slots, in bytes.
    pub(super) fn bytes_max(mode: Mode, slots: usize) -> usize {
        let more = if mode == Mode::Multiset { 32 * slots / MORE_PART } else { 0 };
        slots * size_of::<u64>() + slots / 8 + more
    }

    /// Returns the maximum number of hashes in a memtable with `slots` slots, if few of them are
    /// repeated.
    pub(super) fn len_max(slots: usize) -> u64 {
        Ordered::len_max(slots) as u64
    }

    /// Returns the number of changes that the memtable can take before this must be called again.
    pub(super) fn free(&self) -> usize {
        let more = (self.table.capacity() / MORE_PART).saturating_sub(self.more.len());
        let free = self.table.free().min(PIECE_MAX);
        if self.mode == Mode::Multiset { free.min(more) } else { free }
    }

    /// Whether the memtable should be packed, although it can take more changes.
    pub(super) fn is_due(&self) -> bool {
        self.table.is_due()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of hashes.
    pub(super) fn len(&self) -> usize {
        self.table.len() + self.more.len()
    }

    /// Applies changes, at most [`Memtable::free`].
    pub(super) fn apply(&mut self, change: Change, hashes: &[u64]) {
        let mark = change == Change::Remove;
        match self.mode {
            Mode::Set => self.table.each(hashes, |table, hash| {
                if let Some(slot) = table.insert(hash, mark) {
                    table.mark(slot, mark);
                }
            }),
            Mode::Multiset => self.table.each(hashes, |table, hash| {
                match table.insert(hash, mark) {
                    None => {}
                    Some(slot) if table.is_marked(slot) == mark => {
                        change_count(&mut self.more, hash, if mark { -1 } else { 1 });
                    }
                    // The insertion and the removal cancel out.
                    Some(slot) => table.remove(slot),
                }
            }),
        }
    }

    /// Returns the count of a hash: in a set 1 for an insertion and -1 for a removal, in a multiset
    /// the sum of the changes; 0 if there are no changes.
    #[inline]
    pub(super) fn count(&self, hash: u64) -> i64 {
        let slot = self.table.find(hash);
        let mut count = slot.map_or(0, |slot| if self.table.is_marked(slot) { -1 } else { 1 });
        if !self.more.is_empty() {
            count += self.more.get(&hash).copied().unwrap_or(0);
        }
        count
    }

    /// Prefetches the slots of a hash.
    #[inline]
    pub(super) fn fetch(&self, hash: u64) {
        self.table.fetch(hash);
    }

    /// Removes all changes and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.table.clear();
        self.more.clear();
    }

    /// Returns all changes as fingerprints.
    pub(super) fn scan(self: &Arc<Self>, seed: Seed, universe: Universe) -> MemtableScan {
        let mut more: Vec<_> = self.more.iter().map(|(&hash, &count)| (hash, count)).collect();
        more.sort_unstable();
        MemtableScan {
            memtable: self.clone(),
            seed,
            universe,
            slot: Some(0),
            read: FingerprintBatch::new(),
            more: more.into_iter().peekable(),
            counted: Vec::new(),
        }
    }
}

fn change_count(more: &mut Counts, hash: u64, change: i64) {
    let count = more.entry(hash).or_default();
    *count += change;
    if *count == 0 {
        more.remove(&hash);
    }
}

/// A memtable as a run of fingerprints.
#[derive(Debug)]
pub(super) struct MemtableScan {
    memtable: Arc<Memtable>,
    seed: Seed,
    universe: Universe,
    /// The next slot to read; `None` at the end.
    slot: Option<usize>,
    /// The fingerprints that were read and not returned yet.
    read: FingerprintBatch,
    more: Peekable<vec::IntoIter<(u64, i64)>>,
    counted: Vec<(u64, i64)>,
}

impl Fingerprints for MemtableScan {
    fn seed(&self) -> Seed {
        self.seed
    }

    fn universe(&self) -> Universe {
        self.universe
    }

    fn append_to(&mut self, batch: &mut FingerprintBatch) -> Result<bool> {
        let before = batch.len();
        while batch.len() == before
            && let Some(slot) = self.slot
        {
            let start = self.read.len();
            self.slot = self.memtable.table.read(slot, &mut self.read);
            for hash in &mut self.read.fingerprints[start..] {
                *hash = self.universe.scale(*hash);
            }
            // The next hashes may have the same fingerprint as the last one, so it waits for them.
            let last = self.read.last().unwrap_or(0);
            let end = match self.slot {
                Some(_) => self.read.fingerprints.partition_point(|&it| it < last),
                None => self.read.len(),
            };
            let is_next =
                |&(hash, _): &(u64, i64)| self.slot.is_none() || self.universe.scale(hash) < last;
            let ready = self.read.all().split_at(end).0;
            if ascends(ready.fingerprints) && !self.more.peek().is_some_and(is_next) {
                batch.append(ready);
            } else {
                self.counted.clear();
                self.counted.extend(ready.iter());
                while let Some((hash, count)) = self.more.next_if(is_next) {
                    self.counted.push((self.universe.scale(hash), count));
                }
                join(&mut self.counted, self.memtable.mode, batch);
            }
            self.read.remove_first(end);
        }
        Ok(batch.len() > before)
    }
}

/// Combines the changes of each fingerprint. In a multiset, they are added. In a set, an insertion
/// outweighs a removal: their order is unknown, and no key may be missed.
fn join(counted: &mut [(u64, i64)], mode: Mode, batch: &mut FingerprintBatch) {
    // The items are two sorted runs, which this sort merges.
    counted.sort_by_key(|item| item.0);
    for group in counted.chunk_by(|a, b| a.0 == b.0) {
        let counts = group.iter().map(|item| item.1);
        let count = match mode {
            Mode::Set => counts.fold(i64::MIN, i64::max),
            Mode::Multiset => counts.fold(0, i64::saturating_add),
        };
        if count != 0 {
            batch.push_next(group[0].0, count);
        }
    }
}

/// Uses a hash as its own hash in a hash map.
#[derive(Clone, Copy, Debug, Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers of 64 bits are hashed");
    }

    fn write_u64(&mut self, number: u64) {
        // A hash map uses the high bits and the low bits for different purposes, so both are mixed.
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::ordered::SLOTS_MIN, *};
    use std::collections::BTreeMap;

    /// Compares a memtable with its naive twin after changes of few hashes.
    fn check(mode: Mode, universe: Universe, changes: u64) {
        let mut memtable = Memtable::new(mode, SLOTS_MIN);
        let mut twin: BTreeMap<u64, i64> = BTreeMap::new();
        for i in 0..changes {
            let random = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            let hash = (random % 701).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let change = if random >> 32 & 3 == 0 { Change::Remove } else { Change::Insert };
            if memtable.free() == 0 {
                break;
            }
            memtable.apply(change, &[hash]);
            let sign = if change == Change::Insert { 1 } else { -1 };
            let count = twin.entry(hash).or_default();
            *count = if mode == Mode::Set { sign } else { *count + sign };
            assert_eq!(memtable.count(hash), *count);
        }
        let mut expected: BTreeMap<u64, i64> = BTreeMap::new();
        for (hash, count) in twin.into_iter().filter(|item| item.1 != 0) {
            let slot = expected.entry(universe.scale(hash));
            let sum = |old: &mut i64| match mode {
                Mode::Set => *old = count.max(*old),
                Mode::Multiset => *old += count,
            };
            slot.and_modify(sum).or_insert(count);
        }
        expected.retain(|_, count| *count != 0);
        let memtable = Arc::new(memtable);
        let mut scan = memtable.scan(Seed(1), universe);
        let mut all = FingerprintBatch::new();
        while scan.append_to(&mut all).unwrap() {}
        assert!(all.fingerprints().is_sorted_by(|a, b| a < b));
        assert_eq!(all.iter().collect::<BTreeMap<_, _>>(), expected);
    }

    #[test]
    fn a_memtable_agrees_with_a_map() {
        for universe in [2, 50, 1 << 20, 1 << 64] {
            let universe = Universe::with_size(universe).unwrap();
            for changes in [0, 1, 10, 1000, 10_000] {
                check(Mode::Set, universe, changes);
                check(Mode::Multiset, universe, changes);
            }
        }
    }
}
