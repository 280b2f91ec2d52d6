//! The hash of a key. Everything outside RAM is sorted by it.

use std::fmt;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The 64-bit seed that the keys of a data set are hashed with; kept in the header of each file.
///
/// Tables and stores on disk have random ones unless their options say otherwise, so that an attacker cannot choose
/// colliding keys in advance. `Seed::default()` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seed(pub u64);

/// Writes a decimal number, as seeds are given on the command line: the seed of one data set can be pasted into the command
/// that makes another.
impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The XXH3-128 hash of a key's bytes under a [`Seed`].
///
/// Hashes compare as 128-bit numbers. The high bits determine the place of an entry; the other bits
/// distinguish the entries of one place.
///
/// ```
/// use hashfold::{KeyHash, Seed};
/// let hash = KeyHash::of(b"a key", Seed(7));
/// assert_eq!(hash, KeyHash::of(b"a key", Seed(7)));
/// assert_ne!(hash, KeyHash::of(b"a key", Seed(8)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(u128);

impl KeyHash {
    /// Hashes a key.
    #[inline]
    pub fn of(key: &[u8], seed: Seed) -> KeyHash {
        KeyHash(xxh3_128_with_seed(key, seed.0))
    }

    /// Makes a hash from its 128 bits.
    #[inline]
    pub const fn from_bits(bits: u128) -> KeyHash {
        KeyHash(bits)
    }

    /// Returns all 128 bits of the hash.
    #[inline]
    pub const fn bits(self) -> u128 {
        self.0
    }

    /// Returns the high 64 bits, which address buckets, blocks and partitions.
    #[inline]
    pub const fn high(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// Returns the low 64 bits, which fingerprints are taken from.
    #[inline]
    pub const fn low(self) -> u64 {
        self.0 as u64
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
