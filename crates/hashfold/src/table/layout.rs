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
//! |     16 |    … | payload  | as the arrangement says                                             |
//!
//! Entries are in ascending order of (hash, key). The *tag* of an entry is the lowest byte of its
//! hash: a lookup compares the tags of a block first, many at once, and reads few other bytes. All
//! blocks of a file have one arrangement:
//!
//! | arrangement | payload                                                                       |
//! |-------------|-------------------------------------------------------------------------------|
//! | packed      | entries, then zeros                                                           |
//! | tagged      | tags, zeros up to a multiple of 8, entries, then zeros                        |
//! | slotted     | entries, zeros, and at the block's end the starts of the entries and the tags |
//!
//! **Packed.** An entry:
//!
//! | field      |                                                                |
//! |------------|----------------------------------------------------------------|
//! | key_size   | a variable-length integer, unless all keys have one size       |
//! | value_size | a variable-length integer, unless all values have one size     |
//! | key        | key_size bytes                                                 |
//! | value      | value_size bytes                                               |
//!
//! A small entry (at most an eighth of a payload) that does not fit into the rest of a block starts in
//! the next block, so that a small entry is read with one block. A larger entry continues in the
//! payloads of the next blocks, so that at most an eighth of a payload is wasted. If all keys have the
//! same size and all values, too, large entries follow each other without gaps, and the place of an
//! entry follows from its rank. Otherwise a large entry starts only where its two integers fit into
//! the block.
//!
//! **Tagged**, for small entries of one size: a block has room for as many tags as it has for
//! entries, and its entries have no sizes.
//!
//! **Slotted**, if sizes differ: the end of a block in which entries start is
//!
//! | field  |                                                                                      |
//! |--------|--------------------------------------------------------------------------------------|
//! | starts | 2 bytes for each entry that starts in the block: its offset there                    |
//! | end    | 2 bytes: the offset after the last of these entries, or 0 if it continues            |
//! | tags   | 1 byte for each of these entries                                                     |
//!
//! An entry that lies in one block has no value_size: its value ends where the next entry starts. One
//! that continues is written as in packed blocks, up to `starts` of its first block.

use super::tags;
use crate::{
    codec::{Decoder, VARINT_BYTES_MAX, varint_len},
    error::{Error, Result},
    io::{ALIGNMENT, SEAL_SIZE},
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

/// Maximum growth of a file by tags and starts, as a part of its size (1/20). Entries for which they
/// would take more are packed. Without tags, a lookup in memory compares keys one by one: entries of 116
/// bytes, of which tags displace one in 35, were found in twice the time.
const GROWTH_PART: usize = 20;

/// Alignment of the entries behind tags, in bytes.
const TAGS_ALIGNMENT: usize = 8;

/// Size of the start of an entry in a slotted block, in bytes.
const START_SIZE: usize = 2;

/// Size of an entry's tag, in bytes.
const TAG_SIZE: usize = 1;

/// The stored size if sizes differ.
const VARIABLE: u64 = u64::MAX;

/// The order of entries, tags and starts in the blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    /// Entries one after the other, with their sizes in front. The only one of format version 1.
    Packed = 0,
    /// Tags, then small entries of one size.
    Tagged = 1,
    /// Entries, then their starts and tags at the end of the block.
    Slotted = 2,
}

/// The numbers that determine the places of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Size of a block in bytes: a power of two, [`ALIGNMENT`] to [`BLOCK_SIZE_MAX`].
    pub(crate) block_size: usize,
    /// Size of each key in bytes, if all keys have the same size.
    pub(crate) key_size: Option<usize>,
    /// Size of each value in bytes, if all values have the same size.
    pub(crate) value_size: Option<usize>,
    pub(super) arrangement: Arrangement,
    /// Offset in a block of its first entry, unless another one continues there.
    pub(super) entries_start: usize,
    /// Number of entries of each block but the last; 0 if it is not constant.
    per_block: usize,
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
        let (key_size, value_size) = (one(summary.keys), one(summary.values));
        let layout = |kind| Layout::new(block_size, key_size, value_size, kind);
        let packed = layout(Arrangement::Packed);
        // The file grows from `small` to `large`.
        let (other, small, large) = match packed.entry_size() {
            Some(size) if size > packed.small_max() => return packed,
            Some(_) => {
                let tagged = layout(Arrangement::Tagged);
                (tagged, tagged.per_block, packed.per_block)
            }
            None => {
                let (slotted, mean) = (layout(Arrangement::Slotted), mean_size(summary));
                (slotted, mean + packed.overhead(mean), mean + slotted.overhead(mean))
            }
        };
        if GROWTH_PART * large <= (GROWTH_PART + 1) * small { other } else { packed }
    }

    fn new(
        block_size: usize,
        key_size: Option<usize>,
        value_size: Option<usize>,
        arrangement: Arrangement,
    ) -> Layout {
        let entries_start = BLOCK_HEAD;
        let layout =
            Layout { block_size, key_size, value_size, arrangement, entries_start, per_block: 0 };
        let Some(size) = layout.entry_size().filter(|&size| size <= layout.small_max()) else {
            return layout;
        };
        if arrangement != Arrangement::Tagged {
            return Layout { per_block: layout.payload() / size, ..layout };
        }
        let mut per_block = layout.payload() / (size + TAG_SIZE);
        loop {
            let tags_end = BLOCK_HEAD + per_block * TAG_SIZE;
            let entries_start = tags_end.next_multiple_of(TAGS_ALIGNMENT);
            if entries_start + per_block * size <= block_size {
                return Layout { entries_start, per_block, ..layout };
            }
            per_block -= 1;
        }
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
    #[inline]
    pub(super) fn entries_per_block(self) -> Option<u64> {
        (self.per_block > 0).then_some(self.per_block as u64)
    }

    /// Returns the start of the entry with this rank, if it follows from the rank alone.
    #[inline]
    pub(super) fn position(self, rank: u64) -> Option<Position> {
        let size = self.entry_size()?;
        if let Some(count) = self.entries_per_block() {
            let offset = self.entries_start + (rank % count) as usize * size;
            return Some(Position { block: rank / count, offset });
        }
        let start = Position { block: 0, offset: self.entries_start };
        Some(self.step(start, rank.saturating_mul(size as u64), self.block_size))
    }

    /// Returns the number of blocks that entries with this summary take, about.
    pub(super) fn blocks_of(self, summary: &Summary) -> u64 {
        let entries = summary.entries_max;
        if let Some(count) = self.entries_per_block() {
            return entries.div_ceil(count);
        }
        let overhead = self.overhead(mean_size(summary)) as u64;
        (summary.bytes_max + entries * overhead).div_ceil(self.payload() as u64)
    }

    /// Returns the bytes that an entry takes besides its key and value, about, where sizes differ.
    /// `mean` is the mean size of a key and its value.
    fn overhead(self, mean: usize) -> usize {
        let slot = match self.arrangement {
            Arrangement::Slotted => START_SIZE + TAG_SIZE,
            Arrangement::Packed | Arrangement::Tagged => 0,
        };
        self.encoded_size(0, mean) - mean + slot
    }

    /// Returns the size of an entry that lies in one block, with its integers, in bytes.
    #[inline]
    pub(super) fn encoded_size(self, key: usize, value: usize) -> usize {
        let key_size = if self.key_size.is_some() { 0 } else { varint_len(key as u64) };
        let value_size = if self.has_value_size(false) { varint_len(value as u64) } else { 0 };
        key_size + value_size + key + value
    }

    /// Whether the size of an entry's value stands in front of the entry.
    #[inline]
    pub(super) fn has_value_size(self, continues: bool) -> bool {
        self.value_size.is_none() && (continues || self.arrangement != Arrangement::Slotted)
    }

    /// Returns the end of the payload of a block in which `count` entries start: the offset of the
    /// starts.
    #[inline]
    pub(super) fn payload_end(self, count: usize) -> usize {
        match (self.arrangement, count) {
            (Arrangement::Slotted, 1..) => self.block_size - slots_size(count),
            _ => self.block_size,
        }
    }

    /// Returns the bytes from `offset` on that are free for one more entry in a block in which
    /// `count` entries start.
    #[inline]
    fn free(self, offset: usize, count: usize) -> usize {
        match self.arrangement {
            Arrangement::Tagged if count == self.per_block => 0,
            _ => self.payload_end(count + 1).saturating_sub(offset),
        }
    }

    /// Returns where an entry of `size` encoded bytes starts, and whether it continues in the next
    /// block. `next` is the first free byte, in a block in which `count` entries start.
    #[inline]
    pub(super) fn place(self, next: Position, count: usize, size: usize) -> (Position, bool) {
        let free = self.free(next.offset, count);
        let is_large = size > self.small_max();
        let may_start = is_large && (self.entry_size().is_some() || free >= SIZES_MAX);
        if free > 0 && (size <= free || may_start) {
            return (next, size > free);
        }
        let start = Position { block: next.block + 1, offset: self.entries_start };
        (start, size > self.free(start.offset, 0))
    }

    /// Returns the position after `len` more payload bytes; the payload of the first block ends at
    /// `end`.
    #[inline]
    pub(super) fn step(self, from: Position, len: u64, end: usize) -> Position {
        let offset = from.offset as u64 + len;
        if offset < end as u64 {
            return Position { block: from.block, offset: offset as usize };
        }
        let (payload, rest) = (self.payload() as u64, offset - end as u64);
        Position {
            block: from.block + 1 + rest / payload,
            offset: BLOCK_HEAD + (rest % payload) as usize,
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

    /// Returns the entry that is the `nth` one to start in a block and lies in it, or `None` if it
    /// continues or is damaged. `offset` is that of the entry, for packed blocks.
    #[inline]
    pub(super) fn entry_inside(
        self,
        block: &[u8],
        count: usize,
        nth: usize,
        offset: usize,
    ) -> Option<EntryInside> {
        if self.arrangement != Arrangement::Slotted {
            let (key, value, sizes) = self.decode_sizes(block.get(offset..)?).ok()?;
            let key_start = offset + sizes;
            let value_start = key_start + key;
            let end = value_start + value;
            return (end <= block.len()).then_some(EntryInside { key_start, value_start, end });
        }
        let (start, end) = (start_of(block, count, nth), start_of(block, count, nth + 1));
        let bytes = block.get(start..end).filter(|_| start >= BLOCK_HEAD)?;
        let mut fields = Decoder::new(bytes);
        let key = match self.key_size {
            Some(size) => size,
            None => usize::try_from(fields.varint().ok()?).ok()?,
        };
        let value = fields.rest().len().checked_sub(key)?;
        let value_start = end - value;
        let is_entry = end <= self.payload_end(count)
            && self.value_size.is_none_or(|size| size == value)
            && key <= KEY_BYTES_MAX;
        is_entry.then_some(EntryInside { key_start: value_start - key, value_start, end })
    }

    /// Returns the offset of the `nth` entry that starts in a block, and whether it continues in the
    /// next one; `None` if it follows only from the entries before.
    #[inline]
    pub(super) fn start_in(self, block: &[u8], count: usize, nth: usize) -> Option<(usize, bool)> {
        match self.arrangement {
            Arrangement::Packed => None,
            Arrangement::Tagged => {
                Some((self.entries_start + nth * self.entry_size().unwrap_or(0), false))
            }
            Arrangement::Slotted => {
                let continues = nth + 1 == count && start_of(block, count, count) == 0;
                Some((start_of(block, count, nth), continues))
            }
        }
    }

    /// Returns the offset of the `nth` entry that starts in a block with tags.
    #[inline]
    pub(super) fn start_at(&self, block: &[u8], count: usize, nth: usize) -> usize {
        match self.entry_size() {
            Some(size) => self.entries_start + nth * size,
            None => start_of(block, count, nth),
        }
    }

    /// Returns how many entries start in a block before the one at this offset, where an entry's place
    /// follows from its rank. The number has no meaning where entries follow each other.
    #[inline]
    pub(super) fn nth_at(self, offset: usize) -> usize {
        match (self.arrangement, self.entry_size()) {
            (Arrangement::Tagged, Some(size)) => offset.saturating_sub(self.entries_start) / size,
            _ => 0,
        }
    }

    /// Returns the numbers of those of the `count` entries of a block that have the tag of a hash;
    /// `None` if the block has no tags.
    #[inline]
    pub(super) fn tagged(self, block: &[u8], count: usize, tag: u8) -> Option<tags::Matches<'_>> {
        let start = match self.arrangement {
            Arrangement::Packed => return None,
            Arrangement::Tagged => BLOCK_HEAD,
            Arrangement::Slotted => block.len() - count * TAG_SIZE,
        };
        Some(tags::Matches::new(block, start, count, tag))
    }

    /// Returns the offset of the tags of a block in which `count` entries start; `None` if it has none.
    #[inline]
    pub(super) fn tags_start(&self, count: usize) -> Option<usize> {
        match self.arrangement {
            Arrangement::Packed => None,
            Arrangement::Tagged => Some(BLOCK_HEAD),
            Arrangement::Slotted => self.block_size.checked_sub(count * TAG_SIZE),
        }
    }

    /// Returns the sizes of keys and values, if all entries have the same ones.
    #[inline]
    pub(super) fn sizes(&self) -> Option<(usize, usize)> {
        self.key_size.zip(self.value_size)
    }

    /// Writes what a block has besides its head and its entries: tags, and starts with the end of the
    /// last entry.
    pub(super) fn write_slots(self, block: &mut [u8], starts: &[u16], end: u16, tags: &[u8]) {
        match self.arrangement {
            Arrangement::Packed => {}
            Arrangement::Tagged => {
                let (used, unused) = block[BLOCK_HEAD..self.entries_start].split_at_mut(tags.len());
                used.copy_from_slice(tags);
                unused.fill(0);
            }
            Arrangement::Slotted => {
                let slots = self.payload_end(tags.len());
                let (places, last) = block[slots..].split_at_mut(starts.len() * START_SIZE);
                for (place, start) in places.chunks_exact_mut(START_SIZE).zip(starts) {
                    place.copy_from_slice(&start.to_le_bytes());
                }
                if !starts.is_empty() {
                    last[..START_SIZE].copy_from_slice(&end.to_le_bytes());
                    last[START_SIZE..].copy_from_slice(tags);
                }
            }
        }
    }

    /// Returns the footer fields of the layout.
    pub(super) fn encode(self) -> [u64; 4] {
        let size = |size: Option<usize>| size.map_or(VARIABLE, |size| size as u64);
        let arrangement = self.arrangement as u64;
        [self.block_size as u64, size(self.key_size), size(self.value_size), arrangement]
    }

    /// Reads the footer fields of the layout from a file of this format version.
    pub(super) fn decode(fields: &mut Decoder<'_>, version: u16) -> Result<Layout> {
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
        let packed = Layout::new(block_size, key_size, value_size, Arrangement::Packed);
        let number = if version == 1 { 0 } else { fields.u64()? };
        let arrangement = match (number, packed.entry_size()) {
            (0, _) => return Ok(packed),
            (1, Some(_)) if packed.per_block > 0 => Arrangement::Tagged,
            (2, None) => Arrangement::Slotted,
            _ => {
                let expected = "one that suits the sizes of keys and values";
                return Err(Error::field("arrangement", expected, number));
            }
        };
        Ok(Layout::new(block_size, key_size, value_size, arrangement))
    }
}

/// Returns the mean size of a key and its value, in bytes.
fn mean_size(summary: &Summary) -> usize {
    (summary.bytes_max / summary.entries_max.max(1)) as usize
}

/// Returns the size of the end of a slotted block in which `count` entries start, in bytes.
#[inline]
fn slots_size(count: usize) -> usize {
    (count + 1) * START_SIZE + count * TAG_SIZE
}

/// Returns the offset of the `nth` entry of a slotted block in which `count` entries start; that of
/// the entry after the last one is the field `end`.
#[inline]
fn start_of(block: &[u8], count: usize, nth: usize) -> usize {
    let starts = &block[block.len() - slots_size(count)..];
    usize::from(u16::from_le_bytes([starts[START_SIZE * nth], starts[START_SIZE * nth + 1]]))
}

#[inline]
fn limited(fields: &mut Decoder<'_>, what: &'static str, max: usize) -> Result<usize> {
    let value = fields.varint()?;
    if value <= max as u64 {
        return Ok(value as usize);
    }
    Err(Error::field(what, format!("at most {max}"), value))
}

/// The place of an entry that lies in one block: offsets in the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryInside {
    pub(super) key_start: usize,
    /// Start of the value, which is the end of the key.
    pub(super) value_start: usize,
    pub(super) end: usize,
}

impl EntryInside {
    /// Returns the key and the value of the entry in its block.
    #[inline]
    pub(super) fn parts(self, block: &[u8]) -> Option<(&[u8], &[u8])> {
        let EntryInside { key_start, value_start, end } = self;
        Some((block.get(key_start..value_start)?, block.get(value_start..end)?))
    }
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

    /// Reads the head of a block, whatever it is.
    #[inline]
    pub(super) fn of(block: &[u8]) -> BlockHead {
        let head: &[u8; BLOCK_HEAD] = block.first_chunk().expect("a block is longer than its head");
        let short = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let before = u64::from_le_bytes(std::array::from_fn(|i| head[SEAL_SIZE + 4 + i]));
        BlockHead { first: short(SEAL_SIZE), count: short(SEAL_SIZE + 2), before }
    }

    /// Whether the head agrees with the layout.
    #[inline]
    pub(super) fn suits(&self, layout: &Layout) -> bool {
        let &BlockHead { first, count, .. } = self;
        let is_inside = (BLOCK_HEAD..layout.block_size).contains(&first);
        match layout.arrangement {
            Arrangement::Packed => count == 0 || is_inside,
            Arrangement::Tagged => count <= layout.per_block && first == layout.entries_start,
            Arrangement::Slotted => {
                (count == 0 || is_inside) && slots_size(count) <= layout.payload()
            }
        }
    }

    /// Reads the head of a block, whose checksum was checked.
    ///
    /// # Errors
    /// The head does not agree with the layout.
    #[inline]
    pub(super) fn read(block: &[u8], layout: Layout) -> Result<BlockHead> {
        let head = BlockHead::of(block);
        if head.suits(&layout) { Ok(head) } else { Err(head.refused(layout)) }
    }

    /// Returns the error of a head that does not agree with the layout.
    #[cold]
    fn refused(self, layout: Layout) -> Error {
        let BlockHead { first, count, .. } = self;
        if count > 0 && !(BLOCK_HEAD..layout.block_size).contains(&first) {
            let expected = format!("{BLOCK_HEAD} to {}", layout.block_size - 1);
            return Error::field("first entry of the block", expected, first);
        }
        Error::field("entries of the block", "as many as fit in it", count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the layout for entries of these sizes, and checks how much larger their file is.
    fn layout(keys: SizeRange, values: SizeRange, mean: u64) -> Layout {
        let summary = Summary { entries_max: 1 << 20, keys, values, bytes_max: mean << 20 };
        let chosen = Layout::of(&summary, ALIGNMENT);
        let Layout { block_size, key_size, value_size, .. } = chosen;
        let packed = Layout::new(block_size, key_size, value_size, Arrangement::Packed);
        let (chosen_blocks, packed_blocks) =
            (chosen.blocks_of(&summary), packed.blocks_of(&summary));
        let growth = chosen_blocks as f64 / packed_blocks as f64;
        assert!(growth < 1.0505, "{mean} bytes, {:?}: {growth}", chosen.arrangement);
        chosen
    }

    /// Issue 14: entries of common sizes have tags.
    #[test]
    fn tags_make_no_file_more_than_a_20th_larger() {
        let one = |size: u64| SizeRange { min: size, max: size };
        let some = |max: u64| SizeRange { min: 0, max };
        for size in 1..2000 {
            layout(one(0), one(size), size);
            let differing = layout(some(100), some(2000), size).arrangement;
            assert_eq!(differing == Arrangement::Slotted, size >= 38, "{size}");
            let keys_differ = layout(some(100), one(0), size).arrangement;
            assert_eq!(keys_differ == Arrangement::Slotted, size >= 59, "{size}");
        }
        // 8 entries of 510 bytes fill a block without tags; with tags there is room for 7.
        for (size, has_tags) in
            [(18, false), (48, true), (64, true), (102, true), (116, true), (510, false)]
        {
            let arrangement = layout(one(16), one(size - 16), size).arrangement;
            assert_eq!(arrangement == Arrangement::Tagged, has_tags, "{size}");
        }
    }
}
