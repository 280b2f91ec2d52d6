//! Changes, and entries whose bytes are elsewhere.

use super::pointer::{POINTER_SIZE, Pointer};
use crate::{key::KeyHash, run::Entry};

/// The value of a change, as lists, blocks and the log hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// The key is deleted.
    Tombstone,
    /// The value itself.
    Inline(&'a [u8]),
    /// The place of a large value.
    Large(Pointer),
}

/// A change of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) hash: KeyHash,
    pub(super) key: &'a [u8],
    pub(super) value: Value<'a>,
}

impl<'a> From<Entry<'a>> for Change<'a> {
    /// Makes the change to an entry whose value is not large.
    fn from(Entry { hash, key, value }: Entry<'a>) -> Change<'a> {
        Change { hash, key, value: value.map_or(Value::Tombstone, Value::Inline) }
    }
}

/// The value size of a tombstone.
const NO_VALUE: u16 = u16::MAX;

/// An entry of a batch: its key and its value, or the pointer to it, are adjacent in the batch's
/// bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) hash: KeyHash,
    /// Offset of the key in the bytes of the batch.
    pub(super) start: u32,
    pub(super) key_size: u16,
    value_size: u16,
    /// Size of a large value in bytes; 0 if the value is not large.
    pub(super) large_size: u32,
}

impl Item {
    /// Makes the item of a change, which is at `start` of the bytes of the batch.
    pub(super) fn new(change: Change<'_>, start: u32) -> Item {
        let (value_size, large_size) = match change.value {
            Value::Tombstone => (NO_VALUE, 0),
            Value::Inline(value) => (value.len() as u16, 0),
            Value::Large(pointer) => (POINTER_SIZE as u16, pointer.size),
        };
        Item { hash: change.hash, start, key_size: change.key.len() as u16, value_size, large_size }
    }

    /// Whether the bytes of the value are a pointer.
    pub(super) fn is_large(&self) -> bool {
        self.large_size > 0
    }

    /// Returns the size of the value or of the pointer to it in bytes, or `None` for a tombstone.
    pub(super) fn value_size(&self) -> Option<u16> {
        (self.value_size != NO_VALUE).then_some(self.value_size)
    }

    /// Returns the size of key and value, in bytes.
    pub(super) fn size(&self) -> usize {
        usize::from(self.key_size) + usize::from(self.value_size().unwrap_or(0))
    }
}
