//! An entry whose bytes are elsewhere.

use crate::{key::KeyHash, run::Entry};

/// The value size of a tombstone.
const NO_VALUE: u16 = u16::MAX;

/// An entry of a batch: its key and its value are adjacent in the batch's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) hash: KeyHash,
    /// Offset of the key in the bytes of the batch.
    pub(super) start: u32,
    pub(super) key_size: u16,
    value_size: u16,
}

impl Item {
    /// Makes the item of an entry, which is at `start` of the bytes of the batch.
    pub(super) fn new(entry: Entry<'_>, start: u32) -> Item {
        Item {
            hash: entry.hash,
            start,
            key_size: entry.key.len() as u16,
            value_size: entry.value.map_or(NO_VALUE, |value| value.len() as u16),
        }
    }

    /// Returns the size of the value in bytes, or `None` for a tombstone.
    pub(super) fn value_size(&self) -> Option<u16> {
        (self.value_size != NO_VALUE).then_some(self.value_size)
    }

    /// Returns the size of key and value, in bytes.
    pub(super) fn size(&self) -> usize {
        usize::from(self.key_size) + usize::from(self.value_size().unwrap_or(0))
    }
}
