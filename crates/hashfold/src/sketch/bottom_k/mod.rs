//! The sketch of the k smallest hashes (KMV, bottom-k), and its bytes.

mod format;
mod rice;
#[cfg(test)]
mod tests;

pub(super) use self::format::MAGIC;

use super::{Expression, Precision, PrefixEstimate, PrefixSample, PrefixSet};
use crate::{
    error::{Error, Result, check_seed},
    key::{KeyHash, Seed},
    run::Run,
};
use std::fmt;

/// The least capacity of a sketch, in hashes.
pub const CAPACITY_MIN: usize = 16;
/// The largest capacity of a sketch, in hashes.
pub const CAPACITY_MAX: usize = 1 << 24;
/// Number of first bits of a hash that a sketch keeps.
const HASH_BITS: u32 = 40;
/// Least number of hashes that wait to be sorted in.
const WAITING_MIN: usize = 256;

/// A bottom-k sketch: the k smallest hashes of a set, which are a uniform sample of its keys.
///
/// Like [`Hll`](super::Hll), it estimates the number of distinct keys, with a relative standard error of
/// 1/√(k − 2), and has lossless unions. It needs more bytes for that, but keeps far better what sets share:
/// any [`Expression`] over any number of sketches is estimated as from the sets themselves.
///
/// A hash takes 8 bytes in RAM, and 16 bits as bytes if there are 100 million keys (22 bits for a million):
/// the first 40 bits of each hash, as Rice codes of their gaps. A key of another set has the first 40 bits of
/// one in the sketch with a probability of n/2^40 among n keys.
///
/// ```
/// use hashfold::{Seed, sketch::{BottomK, Expression, Precision, PrefixSample}};
/// let [mut monday, mut tuesday] = [BottomK::new(4096, Seed(0))?, BottomK::new(4096, Seed(0))?];
/// for visitor in 0..50_000_u32 {
///     monday.insert(&visitor.to_le_bytes());
///     tuesday.insert(&(visitor + 48_000).to_le_bytes());
/// }
/// let sets = vec![monday.to_set(), tuesday.to_set()];
/// let both = Expression::all(2);
/// let shared = PrefixSample::read(sets, &both, &Precision::new(0.01, 0.99)?)?.estimate(&both);
/// assert!(shared.low < 2000.0 && 2000.0 < shared.high);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Clone)]
pub struct BottomK {
    seed: Seed,
    capacity: usize,
    /// The smallest hashes that were sorted in, ascending: the first bits as numbers.
    smallest: Vec<u64>,
    /// Hashes that are below the last of a full list, in any order.
    waiting: Vec<u64>,
    /// Whether all hashes are here.
    is_complete: bool,
}

impl BottomK {
    /// Makes an empty sketch of `capacity` hashes for keys that are hashed with `seed`.
    ///
    /// # Errors
    /// `Argument` if the capacity is not between [`CAPACITY_MIN`] and [`CAPACITY_MAX`].
    pub fn new(capacity: usize, seed: Seed) -> Result<BottomK> {
        if !(CAPACITY_MIN..=CAPACITY_MAX).contains(&capacity) {
            let expected = format!("{CAPACITY_MIN} to {CAPACITY_MAX}");
            return Err(Error::argument("capacity of a sketch", expected, capacity));
        }
        let (smallest, waiting) = (Vec::new(), Vec::new());
        Ok(BottomK { seed, capacity, smallest, waiting, is_complete: true })
    }

    /// Makes the sketch of a run's keys, without those that are deleted, with the run's seed. Reads the
    /// first `capacity` + 1 of them.
    ///
    /// # Errors
    /// The errors of [`BottomK::new`] and of the run; `Argument` if its hashes do not ascend.
    pub fn of_run(mut run: impl Run, capacity: usize) -> Result<BottomK> {
        let mut sketch = BottomK::new(capacity, run.seed())?;
        while sketch.is_complete && run.advance()? {
            let entry = run.entry();
            let hash = shorten(entry.hash);
            match sketch.smallest.last() {
                _ if entry.value.is_none() => {}
                Some(last) if *last == hash => {}
                Some(last) if *last > hash => {
                    let expected = format!("{last:010x} or more");
                    return Err(Error::argument("next hash of a run", expected, entry.hash));
                }
                _ if sketch.smallest.len() == capacity => sketch.is_complete = false,
                _ => sketch.smallest.push(hash),
            }
        }
        Ok(sketch)
    }

    /// Returns the seed that keys are hashed with.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Returns the number of hashes that the sketch has room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the memory of the hashes, in bytes.
    pub fn bytes(&self) -> usize {
        (self.smallest.capacity() + self.waiting.capacity()) * size_of::<u64>()
    }

    /// Whether the sketch has the hashes of all keys, so that its estimate is exact.
    pub fn is_complete(&self) -> bool {
        self.is_complete && self.settled().is_complete
    }

    /// Inserts a key.
    pub fn insert(&mut self, key: &[u8]) {
        self.insert_hash(KeyHash::of(key, self.seed));
    }

    /// Inserts the hash of a key with this sketch's seed.
    #[inline]
    pub fn insert_hash(&mut self, hash: KeyHash) {
        self.insert_bits(shorten(hash));
    }

    /// Inserts the first bits of a hash.
    #[inline]
    fn insert_bits(&mut self, hash: u64) {
        if self.smallest.len() == self.capacity
            && let Some(last) = self.smallest.last()
            && hash >= *last
        {
            self.is_complete &= hash == *last;
            return;
        }
        self.waiting.push(hash);
        if self.waiting.len() >= self.capacity.max(WAITING_MIN) {
            self.settle();
        }
    }

    /// Sorts in the waiting hashes.
    fn settle(&mut self) {
        self.smallest.append(&mut self.waiting);
        self.smallest.sort_unstable();
        self.smallest.dedup();
        if self.smallest.len() > self.capacity {
            self.smallest.truncate(self.capacity);
            self.is_complete = false;
        }
    }

    /// Returns the sketch without waiting hashes.
    fn settled(&self) -> BottomK {
        let mut settled = self.clone();
        settled.settle();
        settled
    }

    /// Returns the first 40 bits of the smallest hashes, as ascending numbers.
    pub fn hashes(&self) -> Vec<u64> {
        self.settled().smallest
    }

    /// Returns the set for a [`PrefixSample`]: it ends where the sketch ends, whatever the precision.
    pub fn to_set(&self) -> PrefixSet<'static> {
        let sketch = self.settled();
        let to_hash = |hash: u64| u128::from(hash) << (u128::BITS - HASH_BITS);
        let mut hashes: Vec<u128> = sketch.smallest.into_iter().map(to_hash).collect();
        // The last hash is the bound.
        let end = if sketch.is_complete { None } else { hashes.pop() };
        PrefixSet::of_hashes((self.seed, HASH_BITS), hashes, end)
    }

    /// Adds the keys of another sketch. The capacity becomes the smaller one of both.
    ///
    /// # Errors
    /// `WrongSeed` if the keys are hashed with another seed.
    pub fn union(&mut self, other: &BottomK) -> Result<()> {
        check_seed(self.seed, other.seed)?;
        // Hashes above the last one of either sketch are not all known, and there are enough below.
        self.capacity = self.capacity.min(other.capacity);
        self.settle();
        self.is_complete &= other.is_complete;
        other.smallest.iter().chain(&other.waiting).for_each(|hash| self.insert_bits(*hash));
        self.settle();
        Ok(())
    }

    /// Estimates the number of distinct keys: (k − 1)/θ, where θ is the k-th smallest hash as a part of
    /// all hashes. The interval has the true value with the probability `confidence`. Keys whose first 40 bits are
    /// equal count as one: about n²/2^41 of n keys, 0.05 % of a billion.
    ///
    /// # Errors
    /// `Argument` if the confidence is not between 0 and 1, both excluded.
    pub fn estimate(&self, confidence: f64) -> Result<PrefixEstimate> {
        let all = Expression::set(0);
        let precision = Precision::whole(confidence)?;
        let sample = PrefixSample::read(vec![self.to_set()], &all, &precision)?;
        Ok(sample.estimate(&all))
    }
}

/// Returns the bits of a hash that a sketch keeps.
#[inline]
fn shorten(hash: KeyHash) -> u64 {
    hash.high() >> (u64::BITS - HASH_BITS)
}

/// Sketches are equal if they are for the same keys and have the same capacity.
impl PartialEq for BottomK {
    fn eq(&self, other: &BottomK) -> bool {
        let parts = |sketch: &BottomK| {
            let BottomK { seed, capacity, smallest, is_complete, .. } = sketch.settled();
            (seed, capacity, is_complete, smallest)
        };
        parts(self) == parts(other)
    }
}

impl Eq for BottomK {}

impl fmt::Debug for BottomK {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BottomK { seed, capacity, smallest, .. } = self.settled();
        write!(f, "BottomK(seed {seed}, {} of {capacity} hashes)", smallest.len())
    }
}
