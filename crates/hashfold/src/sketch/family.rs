//! The hash functions of sketches, and how a hash becomes a register and a value.

use crate::key::{KeyHash, Seed};
use std::fmt;

/// The hash function of a sketch, and which bits of a hash choose the register. Only sketches of one
/// family can be united.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Family {
    /// [`KeyHash`] with a seed. The first bits choose the register, so that a sketch is made from a run
    /// register by register.
    Hashfold(Seed),
    /// MurmurHash64A with the seed of Redis and Valkey. The last bits choose the register.
    Redis,
}

/// The seed of Redis for MurmurHash64A.
const REDIS_SEED: u64 = 0xadc8_3b19;

impl Family {
    /// Returns the 64 bits of a key's hash that sketches use.
    #[inline]
    pub fn hash(self, key: &[u8]) -> u64 {
        match self {
            Family::Hashfold(seed) => KeyHash::of(key, seed).high(),
            Family::Redis => murmur_hash_64a(key, REDIS_SEED),
        }
    }

    /// Returns the register of a hash, and the value that it gives the register: 1 plus the number of
    /// zeros before the first one of the other bits.
    #[inline]
    pub(super) fn place(self, hash: u64, precision: u8) -> (usize, u8) {
        match self {
            Family::Hashfold(_) => {
                // A one after the last bit bounds the value.
                let rest = hash << precision | 1 << (precision - 1);
                ((hash >> (64 - precision)) as usize, rest.leading_zeros() as u8 + 1)
            }
            Family::Redis => {
                let rest = hash >> precision | 1 << (64 - precision);
                ((hash & ((1 << precision) - 1)) as usize, rest.trailing_zeros() as u8 + 1)
            }
        }
    }

    /// Returns the place of a register's value in a sketch whose precision is lower by `bits`.
    pub(super) fn shorten(self, index: usize, value: u8, precision: u8, bits: u8) -> (usize, u8) {
        match self {
            Family::Hashfold(_) => {
                let lost = index & ((1 << bits) - 1);
                let zeros = lost.leading_zeros() as u8 - (usize::BITS as u8 - bits);
                (index >> bits, if lost == 0 { value + bits } else { zeros + 1 })
            }
            Family::Redis => {
                let shorter = precision - bits;
                let lost = index >> shorter;
                let zeros = lost.trailing_zeros() as u8;
                (index & ((1 << shorter) - 1), if lost == 0 { value + bits } else { zeros + 1 })
            }
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Family::Hashfold(seed) => write!(f, "XXH3-128 with the seed {seed}"),
            Family::Redis => write!(f, "MurmurHash64A of Redis"),
        }
    }
}

/// MurmurHash64A by Austin Appleby (public domain), for little-endian input.
fn murmur_hash_64a(key: &[u8], seed: u64) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    const R: u32 = 47;
    let mut h = seed ^ (key.len() as u64).wrapping_mul(M);
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ k >> R).wrapping_mul(M);
        h = (h ^ k).wrapping_mul(M);
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        h = (h ^ last).wrapping_mul(M);
    }
    h = (h ^ h >> R).wrapping_mul(M);
    h ^ h >> R
}
