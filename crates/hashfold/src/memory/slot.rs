//! A key of an [`AppendTable`](super::AppendTable) while its shard is locked.

use super::{append_shard::AppendShard, place::Place, slabs::Reference};
use crate::error::Result;

/// A key and its value, while [`AppendTable::change_many`](super::AppendTable::change_many) has its shard locked: what
/// is read and changed here happens at one moment.
#[derive(Debug)]
pub struct Slot<'a> {
    pub(super) shard: &'a mut AppendShard,
    pub(super) place: &'a Place,
    pub(super) key: &'a [u8],
}

impl Slot<'_> {
    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        self.key
    }

    /// Returns the size of the value in bytes; `None` if the key is not there.
    #[inline]
    pub fn size(&self) -> Option<usize> {
        let found = self.shard.find(self.place, self.key)?;
        Some(self.shard.values.sizes(Reference(found.value)).0)
    }

    /// Returns the value.
    pub fn get(&self) -> Option<Vec<u8>> {
        let found = self.shard.find(self.place, self.key)?;
        let mut value = Vec::new();
        self.shard.values.read_value(Reference(found.value), &mut value);
        Some(value)
    }

    /// Inserts the key, or replaces its value; returns whether the key was there.
    ///
    /// # Errors
    /// Those of [`AppendTable::put`](super::AppendTable::put).
    pub fn put(&mut self, value: impl AsRef<[u8]>) -> Result<bool> {
        self.shard.put(self.place, self.key, value.as_ref())
    }

    /// Adds bytes to the end of the value; a key that is not there is inserted. Returns the size of the value then.
    ///
    /// # Errors
    /// Those of [`AppendTable::append`](super::AppendTable::append).
    #[inline]
    pub fn append(&mut self, bytes: impl AsRef<[u8]>) -> Result<usize> {
        self.shard.append(self.place, self.key, bytes.as_ref())
    }

    /// Removes the first bytes of the value, so that at most `keep` bytes stay. Returns the number of bytes removed, or
    /// `None` if the key is not there.
    ///
    /// # Errors
    /// Those of [`AppendTable::trim`](super::AppendTable::trim).
    pub fn trim(&mut self, keep: usize) -> Result<Option<usize>> {
        self.shard.trim_to(self.place, self.key, keep)
    }

    /// Removes the first bytes of the value, as many as `drop` returns for it. Returns their number, or `None` if the key is
    /// not there.
    ///
    /// # Errors
    /// Those of [`AppendTable::trim_with`](super::AppendTable::trim_with).
    pub fn trim_with(&mut self, drop: impl FnOnce(&[u8]) -> usize) -> Result<Option<usize>> {
        self.shard.trim(self.place, self.key, drop)
    }

    /// Removes the key; returns whether it was there.
    ///
    /// # Errors
    /// Those of [`AppendTable::remove`](super::AppendTable::remove).
    pub fn remove(&mut self) -> Result<bool> {
        self.shard.remove(self.place, self.key)
    }
}
