//! Numbered keys, the value that each should have, and random choices among them.

use super::engine::{Key, Value};
use crate::{
    Result,
    data::{coprime, mix},
};

/// Generation of a key that is not in the map.
const ABSENT: u8 = 0;
/// Number of bits of a value that are the key's number; the others are its generation.
const NUMBER_BITS: u32 = 56;
/// First number of keys that are never put.
const NEVER: u64 = 1 << 54;
/// First number of keys that are put by threads that commit.
const COMMITTED: u64 = 1 << 55;

/// What the map should answer. Takes one byte per key.
#[derive(Debug)]
pub(super) struct Entries {
    seed: u64,
    /// Number of times that each key was put, modulo 255, or [`ABSENT`].
    generations: Vec<u8>,
}

impl Entries {
    /// Returns keys that are all absent.
    pub(super) fn new(count: u64, seed: u64) -> Entries {
        Entries { seed: mix(seed), generations: vec![ABSENT; count as usize] }
    }

    pub(super) fn count(&self) -> u64 {
        self.generations.len() as u64
    }

    /// Returns the number of keys that are present.
    pub(super) fn present(&self) -> u64 {
        self.generations.iter().filter(|generation| **generation != ABSENT).count() as u64
    }

    /// Returns the key with this number; keys of different numbers differ.
    pub(super) fn key(&self, number: u64) -> Key {
        mix(number ^ self.seed).to_be_bytes()
    }

    /// Returns a key for the i-th lookup of an absent key.
    pub(super) fn absent_key(&self, i: u64) -> Key {
        self.key(NEVER + i)
    }

    /// Returns the next value of a key, which the map should have from now on.
    pub(super) fn change(&mut self, number: u64) -> Value {
        let generation = &mut self.generations[number as usize];
        *generation = *generation % u8::MAX + 1;
        value(number, *generation)
    }

    /// Notes that a key is deleted.
    pub(super) fn delete(&mut self, number: u64) {
        self.generations[number as usize] = ABSENT;
    }

    /// Checks an answer.
    pub(super) fn check(&self, number: u64, answer: Option<Value>) -> Result<()> {
        let expected = match self.generations[number as usize] {
            ABSENT => None,
            generation => Some(value(number, generation)),
        };
        if answer == expected {
            return Ok(());
        }
        Err(format!("key {number}: expected the value {expected:?}, got {answer:?}").into())
    }

    /// Returns a uniformly distributed number of a key for `i`.
    pub(super) fn pick(&self, i: u64, stream: u64) -> u64 {
        scale(mix(mix(stream ^ self.seed) ^ i), self.count())
    }
}

/// Returns the entry that a thread commits as its i-th, of a run with this number of threads.
pub(super) fn committed(entries: &Entries, threads: u64, thread: u64, i: u64) -> (Key, Value) {
    let number = COMMITTED | threads << 40 | thread << 32 | i;
    (entries.key(number), value(number, 1))
}

fn value(number: u64, generation: u8) -> Value {
    (number | u64::from(generation) << NUMBER_BITS).to_le_bytes()
}

/// Maps a uniformly distributed number to one below `count`.
fn scale(random: u64, count: u64) -> u64 {
    ((u128::from(random) * u128::from(count)) >> 64) as u64
}

/// Zipf's distribution: the key of rank `r` is chosen with a probability that is proportional to
/// `1 / r^0.99`.
///
/// The ranks are computed as by Gray and others, *Quickly Generating Billion-Record Synthetic
/// Databases* (1994): exact for the first two, close for the others.
#[derive(Debug)]
pub(super) struct Zipf {
    count: u64,
    sum: f64,
    power: f64,
    correction: f64,
    /// Step from one rank to the next among the numbers, which are in the order of the load.
    step: u64,
}

impl Zipf {
    const EXPONENT: f64 = 0.99;

    /// Returns the distribution among `count` numbers, two or more.
    pub(super) fn new(count: u64) -> Zipf {
        assert!(count >= 2);
        let power = 1.0 / (1.0 - Zipf::EXPONENT);
        let sum: f64 = (1..=count).map(|rank| (rank as f64).powf(-Zipf::EXPONENT)).sum();
        let first_two = 1.0 + 0.5_f64.powf(Zipf::EXPONENT);
        let rest = 1.0 - (2.0 / count as f64).powf(1.0 - Zipf::EXPONENT);
        let correction = rest / (1.0 - first_two / sum);
        Zipf { count, sum, power, correction, step: coprime(count) }
    }

    /// Returns a number for a uniformly distributed one.
    pub(super) fn pick(&self, random: u64) -> u64 {
        let rank = self.rank(random as f64 / 2_f64.powi(64)).min(self.count - 1);
        (u128::from(rank) * u128::from(self.step) % u128::from(self.count)) as u64
    }

    /// Returns a rank from 0 for a number from 0 to 1.
    fn rank(&self, part: f64) -> u64 {
        let passed = part * self.sum;
        if passed < 1.0 {
            return 0;
        }
        if passed < 1.0 + 0.5_f64.powf(Zipf::EXPONENT) {
            return 1;
        }
        let base = self.correction * part - self.correction + 1.0;
        (self.count as f64 * base.powf(self.power)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_value_and_only_while_it_is_there() {
        let mut entries = Entries::new(3, 7);
        assert!(entries.check(1, None).is_ok() && entries.present() == 0);
        let old = entries.change(1);
        let new = entries.change(1);
        assert!(entries.check(1, Some(new)).is_ok() && entries.present() == 1);
        for wrong in [None, Some(old), Some(entries.change(2))] {
            assert!(entries.check(1, wrong).is_err(), "{wrong:?}");
        }
        (0..1000).for_each(|_| _ = entries.change(1));
        assert_eq!(entries.present(), 2, "no number of changes makes a key absent");
        entries.delete(1);
        assert!(entries.check(1, None).is_ok() && entries.check(1, Some(new)).is_err());
    }

    #[test]
    fn committed_keys_are_keys_of_their_own() {
        let entries = Entries::new(10, 1);
        let mut keys: Vec<Key> = (0..10).map(|number| entries.key(number)).collect();
        keys.extend((0..10).map(|i| entries.absent_key(i)));
        for threads in [1, 8, 64] {
            for thread in 0..threads {
                keys.extend((0..10).map(|i| committed(&entries, threads, thread, i).0));
            }
        }
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn ranks_are_as_frequent_as_zipf_says() {
        const COUNT: u64 = 1000;
        const PICKS: u64 = 200_000;
        let zipf = Zipf::new(COUNT);
        let mut counts = vec![0_u64; COUNT as usize];
        (0..PICKS).for_each(|i| counts[zipf.pick(mix(i)) as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let expected = |rank: u64| PICKS as f64 / zipf.sum / (rank as f64).powf(Zipf::EXPONENT);
        for rank in [1, 2] {
            let got = counts[rank as usize - 1] as f64;
            assert!((got / expected(rank) - 1.0).abs() < 0.05, "rank {rank}: {got}");
        }
        let top: u64 = counts[..100].iter().sum();
        let expected: f64 = (1..=100).map(expected).sum();
        assert!((top as f64 / expected - 1.0).abs() < 0.05, "{top} instead of {expected}");
    }
}
