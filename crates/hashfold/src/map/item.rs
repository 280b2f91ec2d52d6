//! Changes, and entries whose bytes are elsewhere.

use super::pointer::{POINTER_SIZE, Pointer};
use crate::{codec::Decoder, error::Result, key::KeyHash};

/// Size of the time at which an entry expires, in bytes: little-endian milliseconds since
/// 1970-01-01 UTC.
pub(super) const EXPIRY_SIZE: usize = 8;

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

/// A value, and when it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content<'a> {
    pub(super) value: Value<'a>,
    /// Milliseconds since 1970-01-01 UTC. A tombstone has none.
    pub(super) expires_at: Option<u64>,
}

/// A change of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) hash: KeyHash,
    pub(super) key: &'a [u8],
    pub(super) content: Content<'a>,
}

impl<'a> Content<'a> {
    pub(super) const TOMBSTONE: Content<'static> = Content::lasting(Value::Tombstone);

    /// Returns a value that does not expire.
    pub(super) const fn lasting(value: Value<'a>) -> Content<'a> {
        Content { value, expires_at: None }
    }

    /// Returns the state at a moment: a value that has expired is deleted.
    pub(super) fn at(self, now: u64) -> Content<'a> {
        if self.expires_at.is_some_and(|time| now >= time) { Content::TOMBSTONE } else { self }
    }

    /// Decodes the value or the pointer of an entry from its bytes, which begin with the time if the
    /// entry expires.
    pub(super) fn decode(bytes: &'a [u8], form: Form) -> Result<Content<'a>> {
        let mut fields = Decoder::new(bytes);
        let expires_at = if form.expires { Some(fields.u64()?) } else { None };
        let value = match form.is_large {
            true => Value::Large(Pointer::decode(fields.rest())?),
            false => Value::Inline(fields.rest()),
        };
        Ok(Content { value, expires_at })
    }

    /// Appends the bytes that [`Content::decode`] reads.
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.extend(self.expires_at.iter().flat_map(|time| time.to_le_bytes()));
        match self.value {
            Value::Tombstone => {}
            Value::Inline(value) => out.extend_from_slice(value),
            Value::Large(pointer) => out.extend(pointer.encode()),
        }
    }

    /// Returns what the bytes of the entry are.
    pub(super) fn form(self) -> Form {
        Form { is_large: matches!(self.value, Value::Large(_)), expires: self.expires_at.is_some() }
    }
}

/// The form of the bytes of an entry after its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Form {
    /// Whether there is a pointer in place of the value.
    pub(super) is_large: bool,
    /// Whether the time at which the entry expires is before the value.
    pub(super) expires: bool,
}

impl Form {
    /// Returns the size of the time in front of the value, in bytes.
    pub(super) fn expiry_size(self) -> usize {
        if self.expires { EXPIRY_SIZE } else { 0 }
    }
}

/// The value size of a tombstone.
const NO_VALUE: u16 = u16::MAX;

/// An entry of a batch: its key, the time at which it expires if it does, and its value or the
/// pointer to it are adjacent in the batch's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) hash: KeyHash,
    /// Offset of the key in the bytes of the batch.
    pub(super) start: u32,
    pub(super) key_size: u16,
    value_size: u16,
    /// Size of a large value in bytes; 0 if the value is not large.
    pub(super) large_size: u32,
    pub(super) form: Form,
    /// Rank of the list or of the blocks that the entry is from: 0 is the newest.
    pub(super) age: u16,
}

impl Item {
    /// Makes the newest item of a change, which is at `start` of the bytes of the batch.
    pub(super) fn new(change: Change<'_>, start: u32) -> Item {
        let Change { hash, key, content } = change;
        let (value_size, large_size) = match content.value {
            Value::Tombstone => (NO_VALUE, 0),
            Value::Inline(value) => (value.len() as u16, 0),
            Value::Large(pointer) => (POINTER_SIZE as u16, pointer.size),
        };
        let (key_size, form) = (key.len() as u16, content.form());
        Item { hash, start, key_size, value_size, large_size, form, age: 0 }
    }

    /// Returns the size of the value or of the pointer to it in bytes, or `None` for a tombstone.
    pub(super) fn value_size(&self) -> Option<u16> {
        (self.value_size != NO_VALUE).then_some(self.value_size)
    }

    /// Returns the size of all that the batch has of the entry, in bytes.
    pub(super) fn size(&self) -> usize {
        let value_size = usize::from(self.value_size().unwrap_or(0));
        usize::from(self.key_size) + self.form.expiry_size() + value_size
    }
}
