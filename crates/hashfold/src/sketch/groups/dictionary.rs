//! The groups of a shard and their numbers.

use crate::run::KEY_BYTES_MAX;

/// Groups, numbered in the order in which they came.
///
/// An open-addressing hash table: a slot has 32 bits of the hash of a group, which also say where the
/// search for it begins, and its number.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    /// `tag << 32 | number + 1`, or 0 for an empty slot; as many as a power of two, or none.
    slots: Vec<u64>,
    /// The groups, one after the other, and the end of each.
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

/// A dictionary has more slots than 3/2 of its groups.
const LOAD: (usize, usize) = (3, 2);
const SLOTS_MIN: usize = 16;
/// Maximum size of all groups together, so that 32 bits suffice for offsets and numbers.
const BYTES_MAX: usize = u32::MAX as usize - 2 * KEY_BYTES_MAX;

impl Dictionary {
    /// Number of groups.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the group of a number.
    pub(super) fn group(&self, number: usize) -> &[u8] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] as usize };
        &self.bytes[start..self.ends[number] as usize]
    }

    /// Returns the memory in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes_with(0, 0).unwrap_or(usize::MAX)
    }

    /// Returns the memory in bytes if `more` groups of `bytes` together are added; `None` if they are too
    /// many for one dictionary.
    pub(super) fn memory_bytes_with(&self, more: usize, bytes: usize) -> Option<usize> {
        let all = self.bytes.len() + bytes;
        let groups = self.len() + more;
        (all.max(groups) <= BYTES_MAX).then(|| {
            self.slots_for(groups) * size_of::<u64>()
                + grown(self.bytes.capacity(), all)
                + grown(self.ends.capacity(), groups) * size_of::<u32>()
        })
    }

    /// Number of slots for a number of groups.
    fn slots_for(&self, groups: usize) -> usize {
        if groups * LOAD.0 <= self.slots.len() * LOAD.1 {
            return self.slots.len();
        }
        (groups * LOAD.0 / LOAD.1 + 1).next_power_of_two().max(SLOTS_MIN)
    }

    /// Makes room for more groups of `bytes` together.
    pub(super) fn reserve(&mut self, more: usize, bytes: usize) {
        let groups = self.len() + more;
        let slots = self.slots_for(groups);
        if slots > self.slots.len() {
            let old = std::mem::replace(&mut self.slots, vec![0; slots]);
            for slot in old.into_iter().filter(|slot| *slot > 0) {
                let mut at = self.start((slot >> 32) as u32);
                while self.slots[at] > 0 {
                    at = (at + 1) & (slots - 1);
                }
                self.slots[at] = slot;
            }
        }
        reserve(&mut self.bytes, bytes);
        reserve(&mut self.ends, more);
    }

    /// Returns the number of a group with this tag, which gets the next number if it is new. There must
    /// be room for it.
    #[inline]
    pub(super) fn number(&mut self, tag: u32, group: &[u8]) -> u32 {
        let mut at = self.start(tag);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return self.insert(at, tag, group);
            }
            let number = slot as u32 - 1;
            if (slot >> 32) as u32 == tag && self.group(number as usize) == group {
                return number;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    fn insert(&mut self, at: usize, tag: u32, group: &[u8]) -> u32 {
        self.bytes.extend_from_slice(group);
        self.ends.push(self.bytes.len() as u32);
        self.slots[at] = u64::from(tag) << 32 | self.ends.len() as u64;
        self.ends.len() as u32 - 1
    }

    fn start(&self, tag: u32) -> usize {
        tag as usize & (self.slots.len() - 1)
    }
}

/// Returns the capacity of a vector that grows to hold `needed` elements.
pub(super) fn grown(capacity: usize, needed: usize) -> usize {
    if needed <= capacity { capacity } else { needed.max(capacity + capacity / 4) }
}

/// Makes room for `more` elements, by steps of a quarter.
pub(super) fn reserve<T>(vector: &mut Vec<T>, more: usize) {
    let needed = vector.len() + more;
    let capacity = grown(vector.capacity(), needed);
    if capacity > vector.capacity() {
        vector.reserve_exact(capacity - vector.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        key::{KeyHash, Seed},
        work::{Random as _, SeededRandom},
    };
    use std::collections::HashMap;

    #[test]
    fn groups_have_the_numbers_of_a_naive_map() {
        let random = SeededRandom::new(1);
        // Few tags, so that many groups have the same one.
        for tags in [1, 7, u32::MAX] {
            let (mut dictionary, mut naive) = (Dictionary::default(), HashMap::new());
            for _ in 0..3000 {
                let group = format!("{}", random.next_u64() % 1000).repeat(3).into_bytes();
                let tag = KeyHash::of(&group, Seed(0)).low() as u32 % tags;
                let expected = dictionary.memory_bytes_with(1, group.len()).unwrap();
                dictionary.reserve(1, group.len());
                assert_eq!(dictionary.memory_bytes(), expected);
                let next = naive.len() as u32;
                let number = *naive.entry(group.clone()).or_insert(next);
                assert_eq!(dictionary.number(tag, &group), number);
                assert_eq!(dictionary.group(number as usize), group);
            }
            assert_eq!(dictionary.len(), naive.len());
        }
    }
}
