//! The number and the sizes of entries, which become the summary of a run.

use super::{block::BLOCK_SIZE, item::Item};
use crate::{
    codec::{Decoder, put_varint, within},
    error::Result,
    run::{SizeRange, Summary},
};

/// Bounds on the number of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryBounds {
    /// Minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
}

/// The number of entries, and bounds on their sizes in bytes. A minimum above the maximum means
/// that there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Number of entries.
    pub(super) entries: u64,
    /// Size of all keys and values together, with a pointer in place of each large value.
    pub(super) bytes: u64,
    keys: (u16, u16),
    /// Those of values that are not large.
    values: (u16, u16),
    pub(super) large: LargeSizes,
}

/// The largest size of all large values together. Only a damaged file has a larger one.
const BYTES_MAX: u64 = u64::MAX >> 24;

/// Bounds on the sizes of large values, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LargeSizes {
    /// Size of all large values together.
    bytes: u64,
    range: (u32, u32),
}

impl LargeSizes {
    pub(super) const EMPTY: LargeSizes = LargeSizes { bytes: 0, range: (u32::MAX, 0) };

    /// Appends the encoded sizes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.bytes);
        out.extend([self.range.0, self.range.1].iter().flat_map(|size| size.to_le_bytes()));
    }

    /// Decodes the sizes.
    pub(super) fn decode(fields: &mut Decoder<'_>) -> Result<LargeSizes> {
        let bytes = within("size of large values in bytes", 0..=BYTES_MAX, fields.varint()?)?;
        Ok(LargeSizes { bytes, range: (fields.u32()?, fields.u32()?) })
    }
}

impl Sizes {
    pub(super) const EMPTY: Sizes = Sizes {
        entries: 0,
        bytes: 0,
        keys: (u16::MAX, 0),
        values: (u16::MAX, 0),
        large: LargeSizes::EMPTY,
    };

    /// Adds an entry. A tombstone has no value.
    pub(super) fn add(&mut self, item: &Item) {
        let widen = |(min, max): (u16, u16), size: u16| (min.min(size), max.max(size));
        self.entries += 1;
        self.keys = widen(self.keys, item.key_size);
        self.bytes += item.size() as u64;
        if item.form.is_large {
            let (min, max) = self.large.range;
            self.large.bytes += u64::from(item.large_size);
            self.large.range = (min.min(item.large_size), max.max(item.large_size));
        } else if let Some(size) = item.value_size() {
            self.values = widen(self.values, size);
        }
    }

    /// Returns the upper bounds of a run of these entries.
    pub(super) fn summary(&self) -> Summary {
        let range = |(min, max): (u32, u32)| match min <= max {
            true => SizeRange { min: min.into(), max: max.into() },
            false => SizeRange::EMPTY,
        };
        let wide = |(min, max): (u16, u16)| (min.into(), max.into());
        Summary {
            entries_max: self.entries,
            keys: range(wide(self.keys)),
            values: range(wide(self.values)).union(range(self.large.range)),
            bytes_max: self.bytes + self.large.bytes,
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
            large: LargeSizes::EMPTY,
        })
    }
}
