//! Runs: entries in ascending hash order, streamed, in bounded memory.
//!
//! A run is the one form in which entries travel. [`Sorter`] makes a run of entries in any order,
//! [`Merge`] makes one of many, and `scan` of every part gives a run back. Builders take a run.
//!
//! The order is that of ([`KeyHash`], key): two keys with one 128-bit hash stand side by side.

mod merge;
pub(crate) mod prefetch;
mod sort;
#[cfg(test)]
mod tests;
mod vector;

pub use self::{
    merge::{Merge, Tombstones},
    sort::{MEMORY_BYTES_MIN, SortOptions, Sorted, Sorter},
    vector::VecRun,
};

use crate::{
    error::{Error, ErrorKind, Result},
    key::KeyHash,
};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = (1 << 16) - 1;

/// The longest value, in bytes: 64 MiB.
pub const VALUE_BYTES_MAX: usize = 1 << 26;

/// A hash with its key and value, or with a tombstone in the value's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The hash of `key` under the run's seed.
    pub hash: KeyHash,
    /// 0 to [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// 0 to [`VALUE_BYTES_MAX`] bytes; `None` is a tombstone: the key is deleted.
    pub value: Option<&'a [u8]>,
}

/// Entries in ascending order of hash, then key; no key twice. An error ends the run.
pub trait Run: Send {
    /// Steps to the next entry; `false` at the end. A new run stands before its first entry.
    fn advance(&mut self) -> Result<bool>;

    /// The entry stepped to.
    ///
    /// # Panics
    /// If the last `advance` did not return `true`.
    fn entry(&self) -> Entry<'_>;
}

impl<R: Run + ?Sized> Run for &mut R {
    fn advance(&mut self) -> Result<bool> {
        (**self).advance()
    }

    fn entry(&self) -> Entry<'_> {
        (**self).entry()
    }
}

impl<R: Run + ?Sized> Run for Box<R> {
    fn advance(&mut self) -> Result<bool> {
        (**self).advance()
    }

    fn entry(&self) -> Entry<'_> {
        (**self).entry()
    }
}

/// What to do with a key that comes twice in one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// The last one wins.
    #[default]
    KeepLast,
    /// It is an error.
    Refuse,
}

/// The smallest and largest of some sizes, in bytes; `min > max` if there were none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
}

impl SizeRange {
    /// Of nothing.
    pub const EMPTY: SizeRange = SizeRange { min: u64::MAX, max: 0 };

    /// Takes one more size into account.
    #[inline]
    pub fn add(&mut self, size: usize) {
        self.min = self.min.min(size as u64);
        self.max = self.max.max(size as u64);
    }

    /// The range that holds both.
    #[must_use]
    pub fn union(self, other: SizeRange) -> SizeRange {
        SizeRange { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// What is known of a run before its first entry: upper bounds that a builder plans with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Entries, at most: tombstones and duplicates may still fall away.
    pub entries_max: u64,
    /// Sizes of keys.
    pub keys: SizeRange,
    /// Sizes of values, tombstones left out.
    pub values: SizeRange,
    /// Key and value bytes together, at most.
    pub bytes_max: u64,
}

impl Summary {
    /// Of nothing.
    pub const EMPTY: Summary =
        Summary { entries_max: 0, keys: SizeRange::EMPTY, values: SizeRange::EMPTY, bytes_max: 0 };

    /// Takes one more entry into account.
    #[inline]
    pub fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.entries_max += 1;
        self.keys.add(key.len());
        self.bytes_max += key.len() as u64;
        if let Some(value) = value {
            self.values.add(value.len());
            self.bytes_max += value.len() as u64;
        }
    }

    /// Of the entries of both.
    #[must_use]
    pub fn union(self, other: Summary) -> Summary {
        Summary {
            entries_max: self.entries_max + other.entries_max,
            keys: self.keys.union(other.keys),
            values: self.values.union(other.values),
            bytes_max: self.bytes_max + other.bytes_max,
        }
    }
}

/// Refuses keys and values that are too long.
#[inline]
pub fn check_sizes(key: &[u8], value: Option<&[u8]>) -> Result<()> {
    if key.len() <= KEY_BYTES_MAX && value.is_none_or(|value| value.len() <= VALUE_BYTES_MAX) {
        return Ok(());
    }
    let (what, limit, got) = if key.len() > KEY_BYTES_MAX {
        ("key size in bytes", KEY_BYTES_MAX, key.len())
    } else {
        ("value size in bytes", VALUE_BYTES_MAX, value.map_or(0, <[u8]>::len))
    };
    Err(Error::new(ErrorKind::Limit { what, limit: limit as u64, got: got as u64 }))
}
