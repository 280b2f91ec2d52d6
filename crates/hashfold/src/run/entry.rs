//! Entries, runs of them, and their limits.

use super::Summary;
use crate::{
    error::{Error, ErrorKind, Result},
    key::{KeyHash, Seed},
};
use std::ops::DerefMut;

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
/// A run ends after an error.
pub trait Run: Send {
    /// Returns the seed that the keys are hashed with.
    fn seed(&self) -> Seed;

    /// Returns upper bounds on all entries of the run, which hold wherever the run stands.
    fn summary(&self) -> Summary;

    /// Steps to the next entry; returns `false` at the end. A new run stands before its first
    /// entry.
    fn advance(&mut self) -> Result<bool>;

    /// Returns the current entry.
    ///
    /// # Panics
    /// If the last `advance` did not return `true`.
    fn entry(&self) -> Entry<'_>;
}

/// A mutable reference to a run, or a box of one, is that run.
impl<P: DerefMut<Target: Run> + Send> Run for P {
    fn seed(&self) -> Seed {
        (**self).seed()
    }

    fn summary(&self) -> Summary {
        (**self).summary()
    }

    fn advance(&mut self) -> Result<bool> {
        (**self).advance()
    }

    fn entry(&self) -> Entry<'_> {
        (**self).entry()
    }
}

/// The treatment of a key that occurs more than once in one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// The last entry of the key is kept.
    #[default]
    KeepLast,
    /// A repeated key is an error.
    Refuse,
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
