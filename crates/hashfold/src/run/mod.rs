//! Runs: streams of entries in ascending hash order, in bounded memory.
//!
//! All bulk data travels as runs. [`Sorter`] makes a run of entries in any order, [`Merge`] makes
//! one run of several, every part's `scan` returns a run, and builders read one.
//!
//! Entries are ordered by ([`KeyHash`], key): two keys with the same 128-bit hash stand side by
//! side.

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

/// A key with its hash and its value, or with a tombstone instead of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The hash of `key` under the run's seed.
    pub hash: KeyHash,
    /// The key: 0 to [`KEY_BYTES_MAX`] bytes.
    pub key: &'a [u8],
    /// The value: 0 to [`VALUE_BYTES_MAX`] bytes. `None` is a tombstone: the key is deleted.
    pub value: Option<&'a [u8]>,
}

/// A stream of entries in ascending order of (hash, key), each key at most once.
///
/// A run that has returned an error has ended.
pub trait Run: Send {
    /// Steps to the next entry; returns `false` at the end. A new run stands before its first
    /// entry.
    fn advance(&mut self) -> Result<bool>;

    /// Returns the current entry.
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

/// The treatment of a key that comes more than once in one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// The last entry of the key is kept.
    #[default]
    KeepLast,
    /// A key that comes twice is an error.
    Refuse,
}

/// The range of a number of sizes, in bytes. `min > max` if there are no sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// The smallest size, in bytes.
    pub min: u64,
    /// The largest size, in bytes.
    pub max: u64,
}

impl SizeRange {
    /// The range of no sizes.
    pub const EMPTY: SizeRange = SizeRange { min: u64::MAX, max: 0 };

    /// Extends the range by one size, in bytes.
    #[inline]
    pub fn add(&mut self, size: usize) {
        self.min = self.min.min(size as u64);
        self.max = self.max.max(size as u64);
    }

    /// Returns the smallest range that includes both ranges.
    #[must_use]
    pub fn union(self, other: SizeRange) -> SizeRange {
        SizeRange { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Upper bounds on a run that are known before its first entry, for a builder to plan with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Maximum number of entries; tombstones and duplicates may still be dropped.
    pub entries_max: u64,
    /// Sizes of the keys, in bytes.
    pub keys: SizeRange,
    /// Sizes of the values, in bytes; tombstones have none.
    pub values: SizeRange,
    /// Maximum size of all keys and values together, in bytes.
    pub bytes_max: u64,
}

impl Summary {
    /// The summary of an empty run.
    pub const EMPTY: Summary =
        Summary { entries_max: 0, keys: SizeRange::EMPTY, values: SizeRange::EMPTY, bytes_max: 0 };

    /// Extends the summary by one entry.
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

    /// Returns the summary of a run with the entries of both runs.
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

/// Refuses a key of more than [`KEY_BYTES_MAX`] bytes and a value of more than [`VALUE_BYTES_MAX`].
///
/// # Errors
/// `Limit`.
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
