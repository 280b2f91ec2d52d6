//! Sorted hashes in RAM, with gaps: linear probing that keeps the probed slots sorted.
//!
//! ```text
//! home = first bits of the hash     0   1   2   3   4   5   6   7  …
//!                                  0a  0c  1f   ·  42  47  5b   ·       (3 homes to 5b: pushed on)
//! ```
//!
//! A hash is in its home slot or after it, and all hashes are in ascending order. One pass over the
//! memory yields the hashes sorted. A lookup scans from the home slot to the first hash that is not
//! smaller. Whole hashes are stored, so there are no false positives, and a removal removes exactly
//! the inserted hash.
//!
//! A hash may be marked. The marks are stored separately, one bit per slot, and move with the
//! hashes. Without any mark they cost nothing.

use super::kernel::{self, FREE};
use crate::{fingerprints::FingerprintBatch, io::Words, run::prefetch::prefetch};
use std::{fmt, mem};

/// Number of hashes by which home slots are prefetched.
const AHEAD: usize = 24;
/// Number of slots behind the last home slot, for hashes that are shifted beyond it.
const TAIL: usize = 2 * PIECE_MAX + 1;
/// Maximum number of hashes that are inserted between two calls of [`Ordered::free`].
pub(super) const PIECE_MAX: usize = 1 << 12;
/// Minimum number of slots.
pub(super) const SLOTS_MIN: usize = 1 << 10;
/// Maximum distance of a hash from its home slot. Beyond it, hashes are crowded and the set counts
/// as full.
const WALK_MAX: usize = 1 << 12;
/// Load beyond which scans get long.
const LOAD: f64 = 0.7;
/// Maximum load, at which scans are much longer; only reached while the previous memtable is being
/// packed.
const LOAD_MAX: f64 = 0.85;

/// A sorted set of 64-bit hashes, marked or not. Hashes that are inserted one by one should be
/// uniform: crowded hashes make the set slow, but never wrong.
pub(super) struct Ordered {
    slots: Words,
    /// One bit per slot, never set for a free slot; empty as long as no bit is set.
    marks: Vec<u64>,
    /// Number of bits by which a hash is shifted right to get its home slot.
    shift: u32,
    len: usize,
    /// Maximum number of hashes.
    len_max: usize,
    /// Whether too many hashes crowd in one place.
    is_crowded: bool,
}

impl Ordered {
    /// Returns a set with `slots` slots, a power of two and at least [`SLOTS_MIN`].
    pub(super) fn new(slots: usize) -> Ordered {
        assert!(slots.is_power_of_two());
        assert!(slots >= SLOTS_MIN);
        Ordered {
            slots: Words::filled(slots + TAIL, FREE),
            marks: Vec::new(),
            shift: 64 - slots.trailing_zeros(),
            len: 0,
            len_max: Ordered::len_max(slots),
            is_crowded: false,
        }
    }

    /// Returns the maximum number of hashes in a set with `slots` slots.
    pub(super) fn len_max(slots: usize) -> usize {
        (slots as f64 * LOAD_MAX) as usize
    }

    /// Returns the number of hashes that the set can take. Even if this is larger, call again after
    /// [`PIECE_MAX`] insertions.
    pub(super) fn free(&self) -> usize {
        let end_is_near = self.slots[self.slots.len() - 1 - PIECE_MAX] != FREE;
        if end_is_near || self.is_crowded {
            return 0;
        }
        self.len_max - self.len.min(self.len_max)
    }

    /// Whether the set should be emptied soon, although it can take more hashes.
    pub(super) fn is_due(&self) -> bool {
        self.len as f64 >= self.len_max as f64 * (LOAD / LOAD_MAX)
    }

    /// Returns the maximum number of hashes.
    pub(super) fn capacity(&self) -> usize {
        self.len_max
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize
    }

    /// Prefetches the home slot of a hash.
    #[inline]
    pub(super) fn fetch(&self, hash: u64) {
        prefetch(&self.slots, self.home(hash));
    }

    /// Calls `act` with each hash, after its home slot was prefetched.
    #[inline]
    pub(super) fn each(&mut self, hashes: &[u64], mut act: impl FnMut(&mut Ordered, u64)) {
        for (i, &hash) in hashes.iter().enumerate() {
            if let Some(&ahead) = hashes.get(i + AHEAD) {
                self.fetch(ahead);
            }
            act(self, hash);
        }
    }

    /// Returns the first slot whose hash is not smaller.
    #[inline]
    fn lower_bound(slots: &[u64], home: usize, hash: u64) -> usize {
        // The last slots are free, because callers observe `free`.
        let mut i = home;
        while slots[i] < hash {
            i += 1;
        }
        i
    }

    /// Inserts a hash, marked or not. If the hash is in the set, returns its slot and changes
    /// nothing.
    ///
    /// # Panics
    ///
    /// May panic if [`Ordered::free`] is 0.
    #[inline(always)]
    pub(super) fn insert(&mut self, hash: u64, mark: bool) -> Option<usize> {
        let hash = hash.min(FREE - 1);
        let home = self.home(hash);
        let slots = &mut *self.slots;
        let place = Self::lower_bound(slots, home, hash);
        if slots[place] == hash {
            return Some(place);
        }
        let (mut i, mut moved) = (place, hash);
        loop {
            moved = mem::replace(&mut slots[i], moved);
            if moved == FREE {
                break;
            }
            i += 1;
        }
        // Usually the slot was free, and no mark moves.
        if mark || i > place && !self.marks.is_empty() {
            self.insert_mark(place, i, mark);
        }
        self.is_crowded |= i - home > WALK_MAX;
        self.len += 1;
        None
    }

    /// Moves the marks from slot `from` to a free slot up by one, and sets the mark of slot `from`.
    #[inline]
    fn insert_mark(&mut self, from: usize, free: usize, mark: bool) {
        if mark && self.marks.is_empty() {
            self.make_marks();
        }
        let (mut word, mut start, mut bit) = (from / 64, from % 64, u64::from(mark));
        while word < free / 64 {
            bit = insert_bit(&mut self.marks[word], start, 63, bit);
            (word, start) = (word + 1, 0);
        }
        insert_bit(&mut self.marks[word], start, free % 64, bit);
    }

    /// Allocates memory for marks.
    #[cold]
    fn make_marks(&mut self) {
        self.marks.resize(self.slots.len().div_ceil(64), 0);
    }

    /// Returns the slot of a hash, if it is in the set.
    #[inline]
    pub(super) fn find(&self, hash: u64) -> Option<usize> {
        let hash = hash.min(FREE - 1);
        let slots = &*self.slots;
        let slot = Self::lower_bound(slots, self.home(hash), hash);
        (slots[slot] == hash).then_some(slot)
    }

    /// Whether the hash in a slot is marked.
    #[inline]
    pub(super) fn is_marked(&self, slot: usize) -> bool {
        self.marks.get(slot / 64).is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    /// Sets or clears the mark of the hash in a slot.
    #[inline]
    pub(super) fn mark(&mut self, slot: usize, mark: bool) {
        if mark && self.marks.is_empty() {
            self.make_marks();
        }
        if let Some(word) = self.marks.get_mut(slot / 64) {
            *word = *word & !(1 << (slot % 64)) | u64::from(mark) << (slot % 64);
        }
    }

    /// Removes the hash in a slot.
    #[inline]
    pub(super) fn remove(&mut self, slot: usize) {
        let mut i = slot;
        // Hashes behind it that are not in their home slots move up by one.
        while let Some(&next) = self.slots.get(i + 1)
            && next != FREE
            && self.home(next) <= i
        {
            self.slots[i] = next;
            self.mark(i, self.is_marked(i + 1));
            i += 1;
        }
        self.slots[i] = FREE;
        self.mark(i, false);
        self.len -= 1;
    }

    /// Appends the hashes from `slot` on to `out`, ascending; marked hashes become tombstones.
    /// Returns the slot at which to continue, or `None` at the end.
    pub(super) fn read(&self, slot: usize, out: &mut FingerprintBatch) -> Option<usize> {
        const { assert!(PIECE_MAX.is_multiple_of(64)) };
        let end = self.slots.len().min(slot + PIECE_MAX);
        let slots = &self.slots[slot..end];
        let marks = self.marks.get(slot / 64..).unwrap_or(&[]);
        kernel::gather(slots, marks, out);
        (end < self.slots.len()).then_some(end)
    }

    /// Removes all hashes.
    pub(super) fn clear(&mut self) {
        self.slots.fill(FREE);
        self.marks.clear();
        (self.len, self.is_crowded) = (0, false);
    }
}

/// Moves the bits of a word from `from` to `to`, which is 0 or the highest bit, up by one, and sets
/// bit `from`. Returns the old highest bit.
#[inline]
fn insert_bit(word: &mut u64, from: usize, to: usize, bit: u64) -> u64 {
    let moving = *word & (2_u64 << to).wrapping_sub(1 << from);
    // A bit that is added twice moves up by one.
    *word = word.wrapping_add(moving).wrapping_add(bit << from);
    moving >> 63
}

impl fmt::Debug for Ordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ordered({} of {})", self.len, self.len_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Runs the same operations on a map from hashes to marks; bits 0 and 1 of a number choose the
    /// operation.
    fn check(slots: usize, operations: impl Iterator<Item = u64>, spread: fn(u64) -> u64) {
        let mut table = Ordered::new(slots);
        let mut map = BTreeMap::new();
        for operation in operations {
            let hash = spread(operation >> 2);
            let key = hash.min(FREE - 1);
            let mark = operation & 2 != 0;
            let found = table.find(hash);
            assert_eq!(found.map(|slot| table.is_marked(slot)), map.get(&key).copied());
            match found {
                Some(slot) if operation & 1 == 0 => {
                    assert_eq!(table.insert(hash, mark), Some(slot));
                    table.mark(slot, mark);
                    map.insert(key, mark);
                }
                Some(slot) => {
                    table.remove(slot);
                    map.remove(&key);
                }
                None if operation & 1 == 0 => {
                    assert_eq!(table.insert(hash, mark), None);
                    map.insert(key, mark);
                }
                None => {}
            }
            assert_eq!(table.len(), map.len());
        }
        let (mut all, mut slot) = (FingerprintBatch::new(), Some(0));
        while let Some(from) = slot {
            slot = table.read(from, &mut all);
        }
        let mut expected = FingerprintBatch::new();
        map.iter().for_each(|(&hash, &mark)| expected.push_next(hash, if mark { -1 } else { 1 }));
        assert_eq!(all, expected);
        table.clear();
        assert_eq!(table.len(), 0);
        assert!(map.keys().all(|&hash| table.find(hash).is_none()));
    }

    fn mixed(i: u64) -> u64 {
        let i = (i ^ i >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (i ^ i >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    #[test]
    fn hashes_come_and_go_as_in_a_set() {
        let operations = || (0..20_000).map(|i| mixed(i) % 2800);
        check(1 << 10, operations().map(|operation| operation & !2), mixed);
        check(1 << 10, operations(), mixed);
        check(1 << 10, operations(), |i| i);
        check(1 << 10, operations(), |i| u64::MAX - i);
        check(1 << 10, operations(), |i| i << 50);
    }

    #[test]
    fn crowded_tables_are_full() {
        let mut table = Ordered::new(1 << 16);
        let mut count = 0;
        while table.free() > 0 {
            for _ in 0..PIECE_MAX {
                count += 1;
                table.insert(count, false);
            }
        }
        assert!(count < 4 * PIECE_MAX as u64);
        let mut table = Ordered::new(1 << 10);
        let mut count = 0;
        while table.free() > 0 {
            for _ in 0..PIECE_MAX.min(table.free()) {
                count += 1;
                table.insert(u64::MAX - count, count % 3 == 0);
            }
        }
        assert_eq!(table.len() as u64, count);
        assert_eq!(table.len(), table.capacity());
    }
}
