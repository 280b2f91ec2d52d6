//! Entries as bytes, in memory and in the spill file.
//!
//! | size         | field     |                                                  |
//! |-------------:|-----------|--------------------------------------------------|
//! |     variable | key_size  | in bytes                                         |
//! |     variable | value_tag | 0 for a tombstone, else the value's size plus 1  |
//! |     key_size | key       |                                                  |
//! | value_size   | value     |                                                  |

use crate::{
    codec::{Decoder, varint_len, write_varint},
    error::{ErrorKind, Result},
    key::{KeyHash, Seed},
    run::{KEY_BYTES_MAX, VALUE_BYTES_MAX},
};

const HEAD_BYTES_MAX: usize =
    varint_len(KEY_BYTES_MAX as u64) + varint_len(VALUE_BYTES_MAX as u64 + 1);

/// A key, and its value or a tombstone.
pub(super) type KeyValue<'a> = (&'a [u8], Option<&'a [u8]>);

/// An entry that is about to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoded<'a> {
    /// The two integers in front of the key and the value.
    head: [u8; HEAD_BYTES_MAX],
    head_len: usize,
    key: &'a [u8],
    value: &'a [u8],
}

impl<'a> Encoded<'a> {
    #[inline]
    pub(super) fn new(key: &'a [u8], value: Option<&'a [u8]>) -> Encoded<'a> {
        let mut head = [0; HEAD_BYTES_MAX];
        let mut head_len = write_varint(&mut head, key.len() as u64);
        let tag = value.map_or(0, |value| value.len() as u64 + 1);
        head_len += write_varint(&mut head[head_len..], tag);
        Encoded { head, head_len, key, value: value.unwrap_or_default() }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.head_len + self.key.len() + self.value.len()
    }

    /// Writes the entry to `out`, whose length is [`Encoded::len`].
    #[inline]
    pub(super) fn write(&self, out: &mut [u8]) {
        let (head, rest) = out.split_at_mut(self.head_len);
        let (key, value) = rest.split_at_mut(self.key.len());
        head.copy_from_slice(&self.head[..self.head_len]);
        key.copy_from_slice(self.key);
        value.copy_from_slice(self.value);
    }

    /// Returns the parts of the entry, in order.
    pub(super) fn parts(&self) -> [&[u8]; 3] {
        [&self.head[..self.head_len], self.key, self.value]
    }
}

/// The offsets of an encoded entry's parts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EntryOffsets {
    key_start: usize,
    value_start: usize,
    /// Offset after the last byte of the entry.
    pub(super) end: usize,
    tombstone: bool,
}

impl EntryOffsets {
    /// Reads the offsets of the entry at `start`. `Truncated` if the entry does not end inside
    /// `bytes`.
    #[inline]
    pub(super) fn read(bytes: &[u8], start: usize) -> Result<EntryOffsets> {
        let mut decoder = Decoder::new(&bytes[start..]);
        let key_size = decoder.varint()?;
        let value_tag = decoder.varint()?;
        let key_start = bytes.len() - decoder.rest().len();
        // No sum overflows for numbers that an encoder wrote; other numbers fail the test below.
        let value_start = key_start.saturating_add(key_size as usize);
        let end = value_start.saturating_add(value_tag.saturating_sub(1) as usize);
        if end > bytes.len() {
            let (expected, got) = ((end - start) as u64, (bytes.len() - start) as u64);
            return Err(ErrorKind::Truncated { expected, got }.into());
        }
        Ok(EntryOffsets { key_start, value_start, end, tombstone: value_tag == 0 })
    }

    #[inline]
    pub(super) fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.key_start..self.value_start]
    }

    #[inline]
    pub(super) fn value<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        (!self.tombstone).then(|| &bytes[self.value_start..self.end])
    }
}

/// The hash function of a sort; tests may choose the hashes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hasher {
    pub(super) seed: Seed,
    #[cfg(test)]
    forged: Option<fn(&[u8]) -> KeyHash>,
}

impl Hasher {
    pub(super) fn new(seed: Seed) -> Hasher {
        Hasher {
            seed,
            #[cfg(test)]
            forged: None,
        }
    }

    #[cfg(test)]
    pub(super) fn forged(hash: fn(&[u8]) -> KeyHash) -> Hasher {
        Hasher { seed: Seed(0), forged: Some(hash) }
    }

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        #[cfg(test)]
        if let Some(forged) = self.forged {
            return forged(key);
        }
        KeyHash::of(key, self.seed)
    }
}
