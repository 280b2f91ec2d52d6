//! Entries of 8 + 8 bytes, and the value that each key should have.

use crate::{
    bench::{ensure, random::pick},
    failure::Result,
};
use hashfold::{map::Map, run::Run};

/// Size of a key and of a value, in bytes.
const SIZE: usize = 8;
/// Size of an entry, in bytes.
pub(super) const ENTRY_SIZE: u64 = 2 * SIZE as u64;
/// Generation of a key that is not in the map.
const ABSENT: u8 = 0;
/// Number of bits of a value that are the key's number; the others are its generation.
const NUMBER_BITS: u32 = 56;

/// Numbered keys, and what the map should answer for each.
#[derive(Debug)]
pub(super) struct Entries {
    seed: u64,
    /// Number of times that each key was put, modulo 255, or [`ABSENT`].
    generations: Vec<u8>,
}

impl Entries {
    /// Returns keys that are all absent.
    pub(super) fn new(count: u64, seed: u64) -> Entries {
        Entries { seed, generations: vec![ABSENT; count as usize] }
    }

    /// Returns the number of keys, absent ones included.
    pub(super) fn count(&self) -> u64 {
        self.generations.len() as u64
    }

    /// Returns the number of keys that are present.
    pub(super) fn present(&self) -> u64 {
        self.generations.iter().filter(|generation| **generation != ABSENT).count() as u64
    }

    /// Returns the key with this number; keys of different numbers differ.
    pub(super) fn key(&self, number: u64) -> [u8; SIZE] {
        // Each step is one to one.
        let mut bits = number ^ self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
            bits = (bits ^ (bits >> 31)).wrapping_mul(factor);
        }
        (bits ^ (bits >> 32)).to_le_bytes()
    }

    /// Returns a key for the i-th lookup of an absent key.
    pub(super) fn absent_key(&self, i: u64) -> [u8; SIZE] {
        self.key((1 << (NUMBER_BITS - 1)) + i)
    }

    /// Returns a pseudorandom number below the number of keys for `i`.
    pub(super) fn pick(&self, i: u64, seed: u64) -> u64 {
        pick(i, self.seed ^ seed, self.count())
    }

    /// Returns the first value of a key.
    pub(super) fn first_value(number: u64) -> [u8; SIZE] {
        value(number, 1)
    }

    /// Adds keys that have their first value.
    pub(super) fn extend(&mut self, count: u64) {
        self.generations.extend((0..count).map(|_| 1));
    }

    /// Returns the next value of a key, which the map should have from now on.
    pub(super) fn change(&mut self, number: u64) -> [u8; SIZE] {
        let generation = &mut self.generations[number as usize];
        *generation = *generation % u8::MAX + 1;
        value(number, *generation)
    }

    /// Notes that a key has its first value again.
    pub(super) fn reset(&mut self, number: u64) {
        self.generations[number as usize] = 1;
    }

    /// Notes that a key is deleted.
    pub(super) fn delete(&mut self, number: u64) {
        self.generations[number as usize] = ABSENT;
    }

    /// Checks the answer of a lookup.
    pub(super) fn check(&self, number: u64, answer: Option<&[u8]>) -> Result<()> {
        let expected = match self.generations[number as usize] {
            ABSENT => None,
            generation => Some(value(number, generation)),
        };
        ensure(answer == expected.as_ref().map(<[u8; SIZE]>::as_slice), || {
            format!("key {number}: expected the value {expected:?}, got {answer:?}")
        })
    }

    /// Checks all entries of the map: no one is missing, too many or old.
    pub(super) fn check_all(&self, map: &Map) -> Result<()> {
        let mut scan = map.snapshot().scan();
        let mut count = 0;
        while scan.advance()? {
            let entry = scan.entry();
            // A run of all changes may have tombstones.
            let Some(value) = entry.value else { continue };
            let bits = value.try_into().map_or(u64::MAX, u64::from_le_bytes);
            let number = bits & ((1 << NUMBER_BITS) - 1);
            let is_known = number < self.count() && entry.key == self.key(number);
            ensure(is_known, || format!("the map has the unknown key {:?}", entry.key))?;
            self.check(number, Some(value))?;
            count += 1;
        }
        let expected = self.present();
        ensure(count == expected, || format!("expected {expected} entries, got {count}"))
    }
}

fn value(number: u64, generation: u8) -> [u8; SIZE] {
    (number | u64::from(generation) << NUMBER_BITS).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_value_and_only_while_it_is_there() {
        let mut entries = Entries::new(3, 7);
        assert!(entries.check(1, None).is_ok() && entries.present() == 0);
        let old = entries.change(1);
        assert_eq!(old, Entries::first_value(1));
        let new = entries.change(1);
        assert!(entries.check(1, Some(&new)).is_ok() && entries.present() == 1);
        for wrong in [None, Some(&old[..]), Some(&new[1..]), Some(&Entries::first_value(2))] {
            assert!(entries.check(1, wrong).is_err(), "{wrong:?}");
        }
        (0..1000).for_each(|_| _ = entries.change(1));
        assert_eq!(entries.present(), 1, "no number of changes makes a key absent");
        entries.delete(1);
        assert!(entries.check(1, None).is_ok() && entries.check(1, Some(&new)).is_err());
    }
}
