//! Hashes in RAM, in order, with gaps: linear probing that keeps what it probes sorted.
//!
//! ```text
//! home = first bits of the hash     0   1   2   3   4   5   6   7  …
//!                                  0a  0c  1f   ·  42  47  5b   ·       (3 homes to 5b: pushed on)
//! ```
//!
//! A hash stands at its home or behind it, and all stand in ascending order. One pass over the
//! memory gives them sorted; a lookup walks from the home to the first hash that is not smaller.
//! The full hash is kept, so nothing here is found by mistake, and what is taken away is what was
//! put in.

use crate::{io::Words, run::prefetch::prefetch};
use std::{fmt, mem};

/// Marks a free slot. The largest hash is taken for the one before it.
const FREE: u64 = u64::MAX;
/// How far ahead of its turn the home of a hash is brought into the cache, in hashes.
const AHEAD: usize = 24;
/// Slots behind the last home, for the hashes that are pushed over it.
const TAIL: usize = 2 * PIECE_MAX + 1;
/// Hashes that are put in between two looks at [`Ordered::room`], at most.
pub(super) const PIECE_MAX: usize = 1 << 12;
/// Slots of the smallest table.
pub(super) const SLOTS_MIN: usize = 1 << 10;
/// A hash that ends up so far from its home makes the table a full one: hashes are not spread there.
const WALK_MAX: usize = 1 << 12;
/// Beyond this part of the slots, walks get long.
const LOAD: f64 = 0.7;
/// And beyond this one much longer: a table is used up to it only while somebody waits.
const LOAD_MAX: f64 = 0.85;

/// A sorted set of 64-bit hashes. Hashes that come one by one should be evenly spread: crowded ones
/// make it slow, never wrong.
pub(super) struct Ordered {
    slots: Words,
    /// From a hash to its home.
    shift: u32,
    len: usize,
    /// With so many it is full.
    len_max: usize,
    /// Hashes crowd somewhere.
    is_crowded: bool,
}

impl Ordered {
    /// Of so many slots: a power of two, [`SLOTS_MIN`] or more.
    pub(super) fn new(slots: usize) -> Ordered {
        assert!(slots.is_power_of_two());
        assert!(slots >= SLOTS_MIN);
        Ordered {
            slots: Words::filled(slots + TAIL, FREE),
            shift: 64 - slots.trailing_zeros(),
            len: 0,
            len_max: Ordered::len_max(slots),
            is_crowded: false,
        }
    }

    /// How many hashes one with so many slots takes.
    pub(super) fn len_max(slots: usize) -> usize {
        (slots as f64 * LOAD_MAX) as usize
    }

    /// How many more it takes: up to [`PIECE_MAX`] of them, whatever they are.
    pub(super) fn room(&self) -> usize {
        let end_is_near = self.slots[self.slots.len() - 1 - PIECE_MAX] != FREE;
        if end_is_near || self.is_crowded {
            return 0;
        }
        self.len_max - self.len.min(self.len_max)
    }

    /// Whether it should be emptied soon, though it has room.
    pub(super) fn is_due(&self) -> bool {
        self.len as f64 >= self.len_max as f64 * (LOAD / LOAD_MAX)
    }

    /// How many it takes when it is empty.
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

    /// Brings the home of a hash into the cache.
    #[inline]
    pub(super) fn fetch(&self, hash: u64) {
        prefetch(&self.slots, self.home(hash));
    }

    /// Calls `act` with each hash, whose home was brought into the cache in time.
    #[inline]
    pub(super) fn each(&mut self, hashes: &[u64], mut act: impl FnMut(&mut Ordered, u64)) {
        for (i, &hash) in hashes.iter().enumerate() {
            if let Some(&ahead) = hashes.get(i + AHEAD) {
                self.fetch(ahead);
            }
            act(self, hash);
        }
    }

    /// The first slot whose hash is not smaller.
    #[inline]
    fn lower_bound(slots: &[u64], home: usize, hash: u64) -> usize {
        // The last slots are free: `room` sees to it.
        let mut i = home;
        while slots[i] < hash {
            i += 1;
        }
        i
    }

    /// Puts a hash in; whether it was not there.
    ///
    /// # Panics
    /// Perhaps, if it has no [`Ordered::room`].
    #[inline]
    pub(super) fn insert(&mut self, hash: u64) -> bool {
        let hash = hash.min(FREE - 1);
        let home = self.home(hash);
        let slots = &mut *self.slots;
        let mut i = Self::lower_bound(slots, home, hash);
        if slots[i] == hash {
            return false;
        }
        let mut moved = hash;
        loop {
            moved = mem::replace(&mut slots[i], moved);
            if moved == FREE {
                break;
            }
            i += 1;
        }
        self.is_crowded |= i - home > WALK_MAX;
        self.len += 1;
        true
    }

    #[inline]
    pub(super) fn contains(&self, hash: u64) -> bool {
        let hash = hash.min(FREE - 1);
        let slots = &*self.slots;
        slots[Self::lower_bound(slots, self.home(hash), hash)] == hash
    }

    /// Takes a hash out; whether it was there.
    #[inline]
    pub(super) fn remove(&mut self, hash: u64) -> bool {
        let hash = hash.min(FREE - 1);
        let (shift, slots) = (self.shift, &mut *self.slots);
        let mut i = Self::lower_bound(slots, (hash >> shift) as usize, hash);
        if slots[i] != hash {
            return false;
        }
        // Those behind it that are not at home move up by one.
        while let Some(&next) = slots.get(i + 1)
            && next != FREE
            && (next >> shift) as usize <= i
        {
            slots[i] = next;
            i += 1;
        }
        slots[i] = FREE;
        self.len -= 1;
        true
    }

    /// Appends the hashes of the next slots from `slot` on to `out`, ascending; returns where to
    /// go on, or `None` at the end.
    pub(super) fn read(&self, slot: usize, out: &mut Vec<u64>) -> Option<usize> {
        let end = self.slots.len().min(slot + PIECE_MAX);
        let slots = &self.slots[slot..end];
        let start = out.len();
        out.resize(start + slots.len(), 0);
        let room = &mut out[start..];
        let mut len = 0;
        for &hash in slots {
            room[len] = hash;
            len += usize::from(hash != FREE);
        }
        out.truncate(start + len);
        (end < self.slots.len()).then_some(end)
    }

    /// Takes all out.
    pub(super) fn clear(&mut self) {
        self.slots.fill(FREE);
        (self.len, self.is_crowded) = (0, false);
    }
}

impl fmt::Debug for Ordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ordered({} of {})", self.len, self.len_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The same operations on a set: bit 0 of a number chooses insertion or removal.
    fn check(slots: usize, operations: impl Iterator<Item = u64>, spread: fn(u64) -> u64) {
        let mut table = Ordered::new(slots);
        let mut set = BTreeSet::new();
        for operation in operations {
            let hash = spread(operation >> 1);
            if operation & 1 == 0 {
                assert_eq!(table.insert(hash), set.insert(hash.min(FREE - 1)));
            } else {
                assert_eq!(table.remove(hash), set.remove(&hash.min(FREE - 1)));
            }
            assert_eq!(table.contains(hash), set.contains(&hash.min(FREE - 1)));
            assert_eq!(table.len(), set.len());
        }
        let mut all = Vec::new();
        let mut slot = Some(0);
        while let Some(from) = slot {
            slot = table.read(from, &mut all);
        }
        assert!(all.iter().eq(&set));
        table.clear();
        assert_eq!(table.len(), 0);
        assert!(!all.iter().any(|&hash| table.contains(hash)));
    }

    fn mixed(i: u64) -> u64 {
        let i = (i ^ i >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (i ^ i >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    #[test]
    fn hashes_come_and_go_as_in_a_set() {
        let operations = || (0..20_000).map(|i| mixed(i) % 1400);
        check(1 << 10, operations(), mixed);
        check(1 << 10, operations(), |i| i);
        check(1 << 10, operations(), |i| u64::MAX - i);
        check(1 << 10, operations(), |i| i << 50);
    }

    #[test]
    fn crowded_tables_are_full() {
        let mut table = Ordered::new(1 << 16);
        let mut count = 0;
        while table.room() > 0 {
            for _ in 0..PIECE_MAX {
                count += 1;
                table.insert(count);
            }
        }
        assert!(count < 4 * PIECE_MAX as u64);
        let mut table = Ordered::new(1 << 10);
        let mut count = 0;
        while table.room() > 0 {
            for _ in 0..PIECE_MAX.min(table.room()) {
                count += 1;
                table.insert(u64::MAX - count);
            }
        }
        assert_eq!(table.len() as u64, count);
        assert_eq!(table.len(), table.capacity());
    }
}
