//! The layout of the data file: blocks, and the places of entries in them.
//!
//! `docs/formats/table.md` has the same tables. The header block of [`crate::io::frame`] is followed
//! by blocks of equal size, numbered from 0, then by the footer.
//!
//! A block:
//!
//! | offset | size | field    |                                                                     |
//! |-------:|-----:|----------|---------------------------------------------------------------------|
//! |      0 |    4 | checksum | the block's seal (frame.md)                                         |
//! |      4 |    2 | first    | offset in the block of the first entry that starts here, in bytes   |
//! |      6 |    2 | count    | number of entries that start here                                   |
//! |      8 |    8 | before   | the high 64 bits of the last hash that started before this block    |
//! |     16 |    … | payload  | entries, then zeros                                                 |
//!
//! An entry:
//!
//! | field      |                                                                |
//! |------------|----------------------------------------------------------------|
//! | key_size   | a variable-length integer, unless all keys have one size       |
//! | value_size | a variable-length integer, unless all values have one size     |
//! | key        | key_size bytes                                                 |
//! | value      | value_size bytes                                               |
//!
//! Entries are in ascending order of (hash, key). A small entry (at most an eighth of a payload) that
//! does not fit into the rest of a block starts in the next block, so that a small entry is read with
//! one block. A larger entry continues in the payloads of the next blocks, so that at most an eighth
//! of a payload is wasted. If all keys have the same size and all values, too, large entries follow
//! each other without gaps, and the place of an entry follows from its rank. Otherwise a large entry
//! starts only where its two integers fit into the block.

use crate::{
    codec::{Decoder, VARINT_BYTES_MAX, varint_len},
    error::{Error, Result},
    io::{ALIGNMENT, SEAL_SIZE, Seal},
    run::{KEY_BYTES_MAX, SizeRange, Summary, VALUE_BYTES_MAX},
};

/// Size of a block's head, in bytes. The rest of the block is payload.
pub(super) const BLOCK_HEAD: usize = 16;

/// The largest block, in bytes.
pub const BLOCK_SIZE_MAX: usize = 1 << 16;

/// Maximum size of the two integers in front of an entry, in bytes.
const SIZES_MAX: usize = varint_len(KEY_BYTES_MAX as u64) + varint_len(VALUE_BYTES_MAX as u64);
const _: () = assert!(SIZES_MAX < VARINT_BYTES_MAX);

/// The part of a payload (1/8) above which an entry may continue in the next block.
const SMALL_PART: usize = 8;

/// The stored size if sizes differ.
const VARIABLE: u64 = u64::MAX;

/// The sizes that determine the places of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Size of a block in bytes: a power of two, [`ALIGNMENT`] to [`BLOCK_SIZE_MAX`].
    pub(crate) block_size: usize,
    /// Size of each key in bytes, if all keys have the same size.
    pub(crate) key_size: Option<usize>,
    /// Size of each value in bytes, if all values have the same size.
    pub(crate) value_size: Option<usize>,
}

/// The place of a byte: a block, and an offset in it that counts the block's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) block: u64,
    pub(crate) offset: usize,
}

/// Refuses a block size that is not a power of two in range.
pub(crate) fn check_block_size(block_size: usize) -> Result<()> {
    if block_size.is_power_of_two() && (ALIGNMENT..=BLOCK_SIZE_MAX).contains(&block_size) {
        return Ok(());
    }
    let expected = format!("a power of two from {ALIGNMENT} to {BLOCK_SIZE_MAX}");
    Err(Error::argument("block size", expected, block_size))
}

impl Layout {
    /// Returns the layout for entries with this summary.
    pub(super) fn of(summary: &Summary, block_size: usize) -> Layout {
        let one = |range: SizeRange| (range.min == range.max).then_some(range.max as usize);
        Layout { block_size, key_size: one(summary.keys), value_size: one(summary.values) }
    }

    /// Returns the offset of a position from the start of the data file, in bytes.
    #[inline]
    pub(super) fn file_offset(self, at: Position) -> u64 {
        ALIGNMENT as u64 + at.block * self.block_size as u64 + at.offset as u64
    }

    /// Returns the payload of a block, in bytes.
    #[inline]
    pub(super) fn payload(self) -> usize {
        self.block_size - BLOCK_HEAD
    }

    /// Returns the size of the largest entry that never continues in a second block, in bytes.
    #[inline]
    fn small_max(self) -> usize {
        self.payload() / SMALL_PART
    }

    /// Returns the size of each entry in bytes, at least 1, if all entries have the same size.
    #[inline]
    pub(super) fn entry_size(self) -> Option<usize> {
        Some((self.key_size? + self.value_size?).max(1))
    }

    /// Returns the number of entries of each block, if it is constant.
    pub(super) fn entries_per_block(self) -> Option<u64> {
        let size = self.entry_size().filter(|&size| size <= self.small_max())?;
        Some((self.payload() / size) as u64)
    }

    /// Returns the start of the entry with this rank, if it follows from the rank alone.
    #[inline]
    pub(super) fn position(self, rank: u64) -> Option<Position> {
        let size = self.entry_size()?;
        if let Some(count) = self.entries_per_block() {
            let offset = BLOCK_HEAD + (rank % count) as usize * size;
            return Some(Position { block: rank / count, offset });
        }
        Some(self.step(Position { block: 0, offset: BLOCK_HEAD }, rank.saturating_mul(size as u64)))
    }

    /// Returns the size of an entry with its two integers, in bytes.
    #[inline]
    pub(super) fn encoded_size(self, key: usize, value: usize) -> usize {
        self.sizes_size(key, value) + key + value
    }

    #[inline]
    fn sizes_size(self, key: usize, value: usize) -> usize {
        let key = if self.key_size.is_some() { 0 } else { varint_len(key as u64) };
        key + if self.value_size.is_some() { 0 } else { varint_len(value as u64) }
    }

    /// Returns the start of an entry of `size` encoded bytes if `next` is the first free byte.
    #[inline]
    pub(super) fn start(self, next: Position, size: usize) -> Position {
        let left = self.block_size - next.offset;
        let fits = if size <= self.small_max() {
            size <= left
        } else {
            self.entry_size().is_some() || left >= SIZES_MAX
        };
        if fits && left > 0 {
            return next;
        }
        Position { block: next.block + 1, offset: BLOCK_HEAD }
    }

    /// Returns the position after `len` more payload bytes.
    #[inline]
    pub(super) fn step(self, from: Position, len: u64) -> Position {
        let offset = from.offset as u64 + len;
        if offset < self.block_size as u64 {
            return Position { block: from.block, offset: offset as usize };
        }
        let (payload, from_start) = (self.payload() as u64, offset - BLOCK_HEAD as u64);
        Position {
            block: from.block + from_start / payload,
            offset: BLOCK_HEAD + (from_start % payload) as usize,
        }
    }

    /// Reads the sizes of an entry's key and value; the third number is the bytes they took. Both
    /// integers are in the same block.
    #[inline]
    pub(super) fn decode_sizes(self, bytes: &[u8]) -> Result<(usize, usize, usize)> {
        let mut fields = Decoder::new(bytes);
        let key = match self.key_size {
            Some(size) => size,
            None => limited(&mut fields, "key size", KEY_BYTES_MAX)?,
        };
        let value = match self.value_size {
            Some(size) => size,
            None => limited(&mut fields, "value size", VALUE_BYTES_MAX)?,
        };
        Ok((key, value, bytes.len() - fields.rest().len()))
    }

    /// Returns the footer fields of the layout.
    pub(super) fn encode(self) -> [u64; 3] {
        let size = |size: Option<usize>| size.map_or(VARIABLE, |size| size as u64);
        [self.block_size as u64, size(self.key_size), size(self.value_size)]
    }

    /// Reads the footer fields of the layout.
    pub(super) fn decode(fields: &mut Decoder<'_>) -> Result<Layout> {
        let block_size = fields.u64()?;
        let block_size = usize::try_from(block_size).unwrap_or(usize::MAX);
        check_block_size(block_size)
            .map_err(|_| Error::field("block size", "a power of two in range", block_size))?;
        let mut size = |what, max: usize| match fields.u64()? {
            VARIABLE => Ok(None),
            size if size <= max as u64 => Ok(Some(size as usize)),
            size => Err(Error::field(what, format!("at most {max}"), size)),
        };
        let key_size = size("key size", KEY_BYTES_MAX)?;
        let value_size = size("value size", VALUE_BYTES_MAX)?;
        Ok(Layout { block_size, key_size, value_size })
    }
}

#[inline]
fn limited(fields: &mut Decoder<'_>, what: &'static str, max: usize) -> Result<usize> {
    let value = fields.varint()?;
    if value <= max as u64 {
        return Ok(value as usize);
    }
    Err(Error::field(what, format!("at most {max}"), value))
}

/// The head of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BlockHead {
    /// Offset in the block of the first entry that starts there.
    pub(super) first: usize,
    /// Number of entries that start in the block.
    pub(super) count: usize,
    /// High 64 bits of the last hash before this block. A key whose hash is above it and below the
    /// hashes that start here is not in the file.
    pub(super) before: u64,
}

impl BlockHead {
    /// Writes the head of a block, except for the checksum.
    pub(super) fn write(self, block: &mut [u8]) {
        block[4..6].copy_from_slice(&(self.first as u16).to_le_bytes());
        block[6..8].copy_from_slice(&(self.count as u16).to_le_bytes());
        block[8..16].copy_from_slice(&self.before.to_le_bytes());
    }
}

/// Checks the checksum of a block and reads its head.
#[inline]
pub(super) fn unseal(block: &[u8], number: u64, id: u64) -> Result<BlockHead> {
    Seal::of(number, id).check(block)?;
    let mut fields = Decoder::new(&block[SEAL_SIZE..]);
    let (first, count) = (usize::from(fields.u16()?), usize::from(fields.u16()?));
    let before = fields.u64()?;
    if count > 0 && !(BLOCK_HEAD..block.len()).contains(&first) {
        let expected = format!("{BLOCK_HEAD} to {}", block.len() - 1);
        return Err(Error::field("first entry of the block", expected, first));
    }
    Ok(BlockHead { first, count, before })
}
