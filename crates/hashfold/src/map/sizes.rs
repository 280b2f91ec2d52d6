//! The number and the sizes of entries, which become the summary of a run.

use super::block::BLOCK_SIZE;
use crate::{
    codec::{Decoder, put_varint, within},
    error::Result,
    run::{SizeRange, Summary},
};

/// The number of entries, and bounds on their sizes in bytes. A minimum above the maximum means
/// that there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Number of entries.
    pub(super) entries: u64,
    /// Size of all keys and values together.
    pub(super) bytes: u64,
    keys: (u16, u16),
    values: (u16, u16),
}

impl Sizes {
    pub(super) const EMPTY: Sizes =
        Sizes { entries: 0, bytes: 0, keys: (u16::MAX, 0), values: (u16::MAX, 0) };

    /// Adds an entry. A tombstone has no value.
    pub(super) fn add(&mut self, key: u16, value: Option<u16>) {
        let widen = |(min, max): (u16, u16), size: u16| (min.min(size), max.max(size));
        self.entries += 1;
        self.keys = widen(self.keys, key);
        self.values = value.map_or(self.values, |value| widen(self.values, value));
        self.bytes += u64::from(key) + u64::from(value.unwrap_or(0));
    }

    /// Returns the upper bounds of a run of these entries.
    pub(super) fn summary(&self) -> Summary {
        let range = |(min, max): (u16, u16)| match min <= max {
            true => SizeRange { min: min.into(), max: max.into() },
            false => SizeRange::EMPTY,
        };
        Summary {
            entries_max: self.entries,
            keys: range(self.keys),
            values: range(self.values),
            bytes_max: self.bytes,
        }
    }

    /// Appends the encoded sizes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.entries);
        put_varint(out, self.bytes);
        for size in [self.keys.0, self.keys.1, self.values.0, self.values.1] {
            out.extend(size.to_le_bytes());
        }
    }

    /// Decodes the sizes of entries in this number of blocks.
    pub(super) fn decode(fields: &mut Decoder<'_>, blocks: u64) -> Result<Sizes> {
        let bytes_max = blocks.saturating_mul(BLOCK_SIZE as u64);
        Ok(Sizes {
            entries: within("number of entries", 0..=bytes_max, fields.varint()?)?,
            bytes: within("size of entries in bytes", 0..=bytes_max, fields.varint()?)?,
            keys: (fields.u16()?, fields.u16()?),
            values: (fields.u16()?, fields.u16()?),
        })
    }
}
