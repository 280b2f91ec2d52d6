//! A block: ascending fingerprints in 4096 bytes, in Elias-Fano form. The low bits of the
//! fingerprints are stored side by side, the high bits as distances in unary.
//!
//! A fingerprint's *low part* is its last `low_bits` bits; its *bucket* is the number that the
//! other bits make. This table also stands in `docs/formats/filter.md`.
//!
//! | offset | size | field        |                                                                 |
//! |-------:|-----:|--------------|-----------------------------------------------------------------|
//! |      0 |    4 | checksum     | the block's seal (frame.md)                                     |
//! |      4 |    2 | items        | number of fingerprints, 1 to 8192                               |
//! |      6 |    2 | exceptions   | size of the field `exceptions`, in bytes                        |
//! |      8 |    8 | first_bucket | bucket of item 0                                                |
//! |     16 |    1 | low_bits     | number of bits in a low part, 0 to 63                           |
//! |     17 |    3 | zeros        |                                                                 |
//! |     20 |    … | lows         | low parts, low_bits each, item 0 in the lowest bits; padded with zeros to a multiple of 8 items |
//! |      … |    … | buckets      | bit i + bucket - first_bucket is set for each item i; then zeros |
//! |      … |    … | exceptions   | at the end of the block: the items whose count is not 1         |
//!
//! An exception:
//!
//! | field |                                                                                        |
//! |-------|----------------------------------------------------------------------------------------|
//! | gap   | number of items between this exception and the one before it, or the start: a variable-length integer |
//! | count | 2c for a count c ≥ 0, -2c - 1 for a negative count: a variable-length integer          |
//!
//! Blocks without exceptions spend no space on them. The best `low_bits` depends on the density of
//! the fingerprints, so each block has its own: about the base 2 logarithm of the mean distance,
//! which makes `low_bits + 2.5` bits per item.

use crate::{
    codec::Decoder,
    error::{Error, ErrorKind, Result},
    io::Seal,
};

/// Size of a block, in bytes.
pub(in crate::filter) const BLOCK_SIZE: usize = 4096;

/// Maximum number of items in a block.
pub(in crate::filter) const ITEMS_MAX: usize = 8192;

/// Size of the fields before `lows`, in bytes.
pub(super) const HEAD: usize = 20;

/// Number of items in a group, whose low parts fill whole bytes.
pub(super) const GROUP: usize = 8;

/// Maximum number of low bits: a bucket has at least one of the 64 bits.
pub(super) const LOW_BITS_MAX: u32 = 63;

const _: () = assert!(ITEMS_MAX <= u16::MAX as usize);
const _: () = assert!(BLOCK_SIZE <= u16::MAX as usize);

/// The bytes of a block.
pub(in crate::filter) type Bytes = [u8; BLOCK_SIZE];

/// Checks a block's size and checksum and reads its head.
pub(in crate::filter) fn unseal(block: &[u8], number: u64, id: u64) -> Result<Block<'_>> {
    let Ok(bytes) = <&Bytes>::try_from(block) else {
        let (expected, got) = (BLOCK_SIZE as u64, block.len() as u64);
        return Err(ErrorKind::Truncated { expected, got }.into());
    };
    Seal::of(number, id).check(block)?;
    Block::new(bytes)
}

/// A block whose head is valid: sizes and offsets are in range. The fingerprints are not checked.
#[derive(Clone, Copy, Debug)]
pub(in crate::filter) struct Block<'a> {
    pub(super) bytes: &'a Bytes,
    /// Number of items, 1 to [`ITEMS_MAX`].
    pub(super) items: usize,
    /// Bucket of the first item; it fits in 64 bits less the low bits.
    pub(super) first_bucket: u64,
    /// Number of low bits, at most [`LOW_BITS_MAX`].
    pub(super) low_bits: u32,
    /// Offset of the buckets; at least one byte before `exceptions_start`.
    pub(super) buckets_start: usize,
    /// Offset of the exceptions, at most [`BLOCK_SIZE`].
    pub(super) exceptions_start: usize,
}

impl<'a> Block<'a> {
    /// Reads the head of a block whose checksum was checked, or that never left RAM.
    #[inline]
    pub(in crate::filter) fn new(bytes: &'a Bytes) -> Result<Block<'a>> {
        let mut fields = Decoder::new(&bytes[4..HEAD]);
        let (items, exceptions) = (usize::from(fields.u16()?), usize::from(fields.u16()?));
        let (first_bucket, low_bits) = (fields.u64()?, u32::from(fields.u8()?));
        if !(1..=ITEMS_MAX).contains(&items) {
            return Err(Error::field("items of the block", format!("1 to {ITEMS_MAX}"), items));
        }
        if low_bits > LOW_BITS_MAX {
            let expected = format!("at most {LOW_BITS_MAX}");
            return Err(Error::field("low bits of the block", expected, low_bits));
        }
        if fields.rest() != [0; 3] {
            return Err(Error::field("head of the block", "zeros at its end", "others"));
        }
        if first_bucket > u64::MAX >> low_bits {
            let expected = format!("at most {}", u64::MAX >> low_bits);
            return Err(Error::field("first bucket of the block", expected, first_bucket));
        }
        let buckets_start = HEAD + items.div_ceil(GROUP) * low_bits as usize;
        let room = BLOCK_SIZE.saturating_sub(buckets_start);
        if room <= exceptions || bytes[buckets_start] & 1 == 0 {
            let expected = "those of all items, from the first bucket on";
            return Err(Error::field("buckets of the block", expected, "others"));
        }
        let exceptions_start = BLOCK_SIZE - exceptions;
        Ok(Block { bytes, items, first_bucket, low_bits, buckets_start, exceptions_start })
    }

    /// Returns the number of fingerprints.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.items
    }

    /// Returns the first fingerprint.
    #[cfg(test)]
    pub(super) fn first(&self) -> u64 {
        self.first_bucket << self.low_bits | self.low(0)
    }

    pub(super) fn buckets(&self) -> &'a [u8] {
        &self.bytes[self.buckets_start..self.exceptions_start]
    }

    /// Whether the bucket of the last item is in range; `last` is the position of its bit.
    #[inline]
    pub(super) fn are_buckets_legal(&self, last: u64) -> bool {
        let passed = last - (self.items - 1) as u64;
        self.first_bucket.checked_add(passed).is_some_and(|it| it <= u64::MAX >> self.low_bits)
    }

    pub(super) fn exceptions(&self) -> Exceptions<'a> {
        Exceptions { bytes: &self.bytes[self.exceptions_start..], next: 0 }
    }

    /// Returns the low part of item `i`, which is below the number of items.
    #[inline]
    pub(super) fn low(&self, i: usize) -> u64 {
        let bit = i * self.low_bits as usize;
        let start = HEAD + bit / 8;
        let mut bytes = [0; 16];
        match self.bytes[start..].first_chunk() {
            Some(chunk) => bytes = *chunk,
            None => bytes[..BLOCK_SIZE - start].copy_from_slice(&self.bytes[start..]),
        }
        (u128::from_le_bytes(bytes) >> (bit % 8)) as u64 & low_mask(self.low_bits)
    }
}

/// Returns a mask of the low bits.
#[inline]
pub(super) const fn low_mask(low_bits: u32) -> u64 {
    (1 << low_bits) - 1
}

/// The items whose count is not 1, in order.
pub(super) struct Exceptions<'a> {
    pub(super) bytes: &'a [u8],
    /// The first item that may be the next exception.
    next: u64,
}

impl Exceptions<'_> {
    /// Returns the position and the count of the next exception. Positions ascend.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<(u64, i64)>> {
        let (gap, count) = match self.bytes {
            [] => return Ok(None),
            // Nearly all exceptions have two bytes.
            &[gap @ 0..0x80, count @ 0..0x80, ref rest @ ..] => {
                self.bytes = rest;
                (u64::from(gap), u64::from(count))
            }
            bytes => {
                let mut fields = Decoder::new(bytes);
                let both = (fields.varint()?, fields.varint()?);
                self.bytes = fields.rest();
                both
            }
        };
        let position = self.next.saturating_add(gap);
        self.next = position.saturating_add(1);
        Ok(Some((position, unfold(count))))
    }
}

/// Maps a signed number to an unsigned one; numbers near 0 become small.
#[inline]
pub(super) fn fold(count: i64) -> u64 {
    (count << 1 ^ count >> 63) as u64
}

/// Reverses [`fold`].
#[inline]
pub(super) fn unfold(folded: u64) -> i64 {
    (folded >> 1) as i64 ^ -((folded & 1) as i64)
}
