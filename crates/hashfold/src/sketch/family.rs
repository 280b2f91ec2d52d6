//! The hash functions of sketches, and how a hash becomes a register and a value.

use super::murmur::{murmur_hash_3, murmur_hash_64a};
use crate::key::{KeyHash, Seed};
use std::{fmt, ops::RangeInclusive};

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
    /// The first 64 bits of MurmurHash3 x64 128 with the seed 0, as postgresql-hll computes them in
    /// `hll_hash_text` and `hll_hash_bytea` of the bytes of a value, in `hll_hash_bigint` and
    /// `hll_hash_integer` of its 8 or 4 bytes, little-endian. The last bits choose the register.
    Postgres {
        /// Number of bits of a register, 1 to 7: its `regwidth`, which is 5 by default. A register
        /// holds at most 2^regwidth − 1.
        regwidth: u8,
    },
    /// MurmurHash3 x64 128 with the seed 9001, as Apache DataSketches uses it: strings by their UTF-8
    /// bytes, integers by 8 bytes, little-endian. 26 bits choose the register, 64 others are the value.
    DataSketches,
}

/// The widths of registers of [`Family::Postgres`], in bits.
pub(super) const REGWIDTHS: RangeInclusive<u8> = 1..=7;

/// The seed of Redis for MurmurHash64A.
const REDIS_SEED: u64 = 0xadc8_3b19;
/// The seed of DataSketches for MurmurHash3.
const DATASKETCHES_SEED: u64 = 9001;
/// Number of bits of a coupon that choose the register.
pub(super) const ADDRESS_BITS: u32 = 26;
/// The largest value of a coupon.
const COUPON_VALUE_MAX: u8 = 63;

impl Family {
    /// Returns the 64 bits of a key's hash that sketches use. For [`Family::DataSketches`], they are what
    /// it calls a coupon: 26 bits of the hash, above them a value of 6 bits; 0 for the empty key, which it
    /// ignores.
    #[inline]
    pub fn hash(self, key: &[u8]) -> u64 {
        match self {
            Family::Hashfold(seed) => KeyHash::of(key, seed).high(),
            Family::Redis => murmur_hash_64a(key, REDIS_SEED),
            Family::Postgres { .. } => murmur_hash_3(key, 0)[0],
            Family::DataSketches if key.is_empty() => 0,
            Family::DataSketches => {
                let [address, zeros] = murmur_hash_3(key, DATASKETCHES_SEED);
                let value = (zeros.leading_zeros() as u8 + 1).min(COUPON_VALUE_MAX);
                u64::from(value) << ADDRESS_BITS | address & ((1 << ADDRESS_BITS) - 1)
            }
        }
    }

    /// Returns the register of a hash, and the value that it gives the register: 1 plus the number of
    /// zeros before the first one of the other bits. A value of 0 changes nothing.
    #[inline]
    pub(super) fn place(self, hash: u64, precision: u8) -> (usize, u8) {
        match self {
            Family::Hashfold(_) => {
                let value = rest_of(hash, precision).leading_zeros() as u8 + 1;
                ((hash >> (64 - precision)) as usize, value)
            }
            Family::Redis => {
                let rest = hash >> precision | 1 << (64 - precision);
                (low_bits(hash, precision), rest.trailing_zeros() as u8 + 1)
            }
            Family::Postgres { regwidth } => {
                // As in postgresql-hll, zeros alone have no value.
                let rest = hash >> precision;
                let value = if rest == 0 { 0 } else { rest.trailing_zeros() as u8 + 1 };
                (low_bits(hash, precision), value.min(value_max(regwidth)))
            }
            Family::DataSketches => {
                (low_bits(hash, precision), (hash >> ADDRESS_BITS) as u8 & COUPON_VALUE_MAX)
            }
        }
    }

    /// Returns the largest value of a register, less 1.
    pub(super) fn q(self, precision: u8) -> usize {
        usize::from(match self {
            Family::Hashfold(_) | Family::Redis => 64 - precision,
            // Zeros alone have no value.
            Family::Postgres { regwidth } => (63 - precision).min(value_max(regwidth) - 1),
            Family::DataSketches => COUPON_VALUE_MAX - 1,
        })
    }

    /// Returns the place of a register's value in a sketch whose precision is lower by `bits`. A value that
    /// the width of a register of postgresql-hll bounds stays at the bound.
    pub(super) fn shorten(self, index: usize, value: u8, precision: u8, bits: u8) -> (usize, u8) {
        match self {
            Family::Hashfold(_) => {
                let lost = index & ((1 << bits) - 1);
                let zeros = lost.leading_zeros() as u8 - (usize::BITS as u8 - bits);
                (index >> bits, if lost == 0 { value + bits } else { zeros + 1 })
            }
            Family::Redis | Family::Postgres { .. } => {
                let shorter = precision - bits;
                let lost = index >> shorter;
                let zeros = lost.trailing_zeros() as u8;
                let value = if lost == 0 { value + bits } else { zeros + 1 };
                (index & ((1 << shorter) - 1), value.min(self.q(shorter) as u8 + 1))
            }
            Family::DataSketches => (index & ((1 << (precision - bits)) - 1), value),
        }
    }
}

/// Returns the bits of a hash of [`Family::Hashfold`] after those that number the register, and a one that
/// bounds the value.
pub(super) fn rest_of(hash: u64, precision: u8) -> u64 {
    hash << precision | 1 << (precision - 1)
}

/// Returns the register that the last bits of a hash number.
fn low_bits(hash: u64, precision: u8) -> usize {
    (hash & ((1 << precision) - 1)) as usize
}

/// Returns the largest value in a register of some bits.
fn value_max(regwidth: u8) -> u8 {
    (1 << regwidth) - 1
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Family::Hashfold(seed) => write!(f, "XXH3-128 with the seed {seed}"),
            Family::Redis => write!(f, "MurmurHash64A of Redis"),
            Family::Postgres { regwidth } => {
                write!(f, "MurmurHash3 of postgresql-hll, registers of {regwidth} bits")
            }
            Family::DataSketches => write!(f, "MurmurHash3 of DataSketches"),
        }
    }
}
