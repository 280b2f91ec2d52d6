//! The map from the rank of an entry to its block, for tables whose entries differ in size.
//!
//! Blocks and entries follow each other, so one ascending sequence suffices: the rank of the first
//! entry that starts in each block or after it, or, if entries are larger than blocks, the block of
//! each entry. The sequence is kept in Elias-Fano form: the low bits as they are, the high bits in
//! unary. It takes about 2 + log2(k) bits per block with k entries per block, or 2 + log2(k) bits
//! per entry with k blocks per entry, and 64 bits more for every 256 values.

use super::image::{Image, Sections};
use crate::{
    codec::{Decoder, within},
    error::{Error, Result},
};
use std::ops::Range;

/// Number of ones, or of zeros, of the high bits between two noted positions.
const SAMPLE: u64 = 256;

/// The meaning of the values of the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sequence {
    /// For each block, the rank of the first entry that starts there or later.
    FirstRanks,
    /// For each entry, its block.
    StartBlocks,
}

/// A builder of the sequence, in one pass.
#[derive(Debug)]
pub(super) struct LocationsBuilder {
    sequence: Sequence,
    low_bits: u32,
    count: u64,
    low: Vec<u64>,
    high: Vec<u64>,
    samples: Vec<u64>,
    zeros: u64,
    ranks: u64,
    next_block: u64,
}

impl LocationsBuilder {
    /// Makes a builder for about `entries` entries in about `blocks` blocks.
    pub(super) fn new(entries: u64, blocks: u64) -> LocationsBuilder {
        let (sequence, count, universe) = if entries >= blocks {
            (Sequence::FirstRanks, blocks, entries)
        } else {
            (Sequence::StartBlocks, entries, blocks)
        };
        LocationsBuilder {
            sequence,
            low_bits: (universe / count.max(1)).max(1).ilog2(),
            count: 0,
            low: Vec::new(),
            high: Vec::new(),
            samples: Vec::new(),
            zeros: 0,
            ranks: 0,
            next_block: 0,
        }
    }

    /// Adds the block of the next entry.
    #[inline]
    pub(super) fn push(&mut self, block: u64) {
        match self.sequence {
            Sequence::FirstRanks => {
                while self.next_block <= block {
                    self.add(self.ranks);
                    self.next_block += 1;
                }
            }
            Sequence::StartBlocks => self.add(block),
        }
        self.ranks += 1;
    }

    fn add(&mut self, value: u64) {
        let position = self.count * u64::from(self.low_bits);
        put(&mut self.low, position, value & ((1 << self.low_bits) - 1), self.low_bits);
        while self.zeros < value >> self.low_bits {
            if self.sequence == Sequence::FirstRanks && self.zeros.is_multiple_of(SAMPLE) {
                self.samples.push(self.count + self.zeros);
            }
            self.zeros += 1;
        }
        let one = self.count + self.zeros;
        if self.sequence == Sequence::StartBlocks && self.count.is_multiple_of(SAMPLE) {
            self.samples.push(one);
        }
        put(&mut self.high, one, 1, 1);
        self.count += 1;
    }

    /// Adds the sequence to an index: its fields and its three sections.
    pub(super) fn finish(mut self, image: &mut Image) {
        // One more value than there are blocks: every rank then has a first rank above it.
        if self.sequence == Sequence::FirstRanks {
            self.add(self.ranks);
        }
        image.field(match self.sequence {
            Sequence::FirstRanks => 0,
            Sequence::StartBlocks => 1,
        });
        image.field(self.count);
        image.field(u64::from(self.low_bits));
        let bytes = |words: Vec<u64>| words.into_iter().flat_map(u64::to_le_bytes).collect();
        image.section(bytes(self.low));
        image.section(bytes(self.high));
        image.section(bytes(self.samples));
    }
}

fn put(words: &mut Vec<u64>, position: u64, value: u64, len: u32) {
    let end = (position + u64::from(len)).div_ceil(64) as usize;
    if words.len() < end {
        words.resize(end, 0);
    }
    if len == 0 {
        return;
    }
    let (at, shift) = ((position / 64) as usize, (position % 64) as u32);
    words[at] |= value << shift;
    if shift + len > 64 {
        words[at + 1] |= value >> (64 - shift);
    }
}

/// The sequence in memory.
#[derive(Debug)]
pub(super) struct Locations {
    sequence: Sequence,
    count: u64,
    low_bits: u32,
    low: Range<usize>,
    high: Range<usize>,
    samples: Range<usize>,
}

impl Locations {
    /// Reads the fields and finds the sections that [`LocationsBuilder::finish`] wrote.
    pub(super) fn open(fields: &mut Decoder<'_>, sections: &mut Sections<'_>) -> Result<Locations> {
        let sequence = match fields.u64()? {
            0 => Sequence::FirstRanks,
            1 => Sequence::StartBlocks,
            other => return Err(Error::field("locations", "0 or 1", other)),
        };
        let count = fields.u64()?;
        let low_bits = within("low bits", 0..=48, fields.u64()?)? as u32;
        let low_words = count.saturating_mul(u64::from(low_bits)).div_ceil(64);
        let low = sections.next_of_size("low bits of locations", low_words.saturating_mul(8))?;
        let (high, samples) = (sections.next_section()?, sections.next_section()?);
        // The high bits have a one for each value.
        if count > high.len() as u64 * 8 {
            let expected = format!("at most {}", high.len() * 8);
            return Err(Error::field("number of locations", expected, count));
        }
        Ok(Locations { sequence, count, low_bits, low, high, samples })
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn size(&self) -> u64 {
        (self.low.len() + self.high.len() + self.samples.len()) as u64
    }

    /// Returns the block in which the entry with this rank starts; an arbitrary block if there is
    /// no such rank.
    pub(super) fn block(&self, bytes: &[u8], rank: u64) -> u64 {
        match self.sequence {
            Sequence::FirstRanks => self.not_above(bytes, rank).0.saturating_sub(1),
            Sequence::StartBlocks => {
                let start = self.sampled(bytes, rank / SAMPLE);
                let one = select(self.words(bytes, &self.high), start, rank % SAMPLE);
                let high = one.saturating_sub(rank) << self.low_bits;
                high | self.low(bytes, rank)
            }
        }
    }

    /// Calls `visit` with each rank in `ranks`, except the first, at which a block begins.
    pub(super) fn starts(&self, bytes: &[u8], ranks: Range<u64>, mut visit: impl FnMut(u64)) {
        if self.sequence == Sequence::StartBlocks {
            // Entries are larger than blocks, so nearly every rank begins a block.
            let mut last = self.block(bytes, ranks.start);
            for rank in ranks.start + 1..ranks.end {
                let block = self.block(bytes, rank);
                if block != last {
                    visit(rank);
                }
                last = block;
            }
            return;
        }
        let (mut index, mut position) = self.not_above(bytes, ranks.start);
        while index < self.count {
            position = select(self.words(bytes, &self.high), position, 0);
            let first = position.saturating_sub(index) << self.low_bits | self.low(bytes, index);
            if first >= ranks.end {
                return;
            }
            visit(first);
            index += 1;
            position += 1;
        }
    }

    /// Returns the number of values that are at most `value`, where values are first ranks, and the
    /// position in the high bits after them.
    fn not_above(&self, bytes: &[u8], value: u64) -> (u64, u64) {
        let words = self.words(bytes, &self.high);
        let high = value >> self.low_bits;
        // The values with these high bits come after the zero that ends the smaller ones.
        let mut position = self.after_zeros(bytes, high);
        let mut count = position.saturating_sub(high).min(self.count);
        let low = value & ((1 << self.low_bits) - 1);
        while count < self.count && bit(words, position) && self.low(bytes, count) <= low {
            count += 1;
            position += 1;
        }
        (count, position)
    }

    /// Returns the position after the first `zeros` zeros.
    fn after_zeros(&self, bytes: &[u8], zeros: u64) -> u64 {
        if zeros == 0 {
            return 0;
        }
        let zero = zeros - 1;
        let start = self.sampled(bytes, zero / SAMPLE);
        select_zero(self.words(bytes, &self.high), start, zero % SAMPLE) + 1
    }

    fn sampled(&self, bytes: &[u8], index: u64) -> u64 {
        let samples = self.words(bytes, &self.samples);
        // In a damaged sequence, positions past the end become the end.
        let end = self.high.len() as u64 * 8;
        samples.get(index as usize).map_or(end, |sample| u64::from_le_bytes(*sample))
    }

    fn low(&self, bytes: &[u8], index: u64) -> u64 {
        if self.low_bits == 0 {
            return 0;
        }
        let words = self.words(bytes, &self.low);
        let position = index.saturating_mul(u64::from(self.low_bits));
        let (at, shift) = ((position / 64) as usize, (position % 64) as u32);
        let mut value = word(words, at) >> shift;
        if shift + self.low_bits > 64 {
            value |= word(words, at + 1) << (64 - shift);
        }
        value & ((1 << self.low_bits) - 1)
    }

    fn words<'a>(&self, bytes: &'a [u8], range: &Range<usize>) -> &'a [[u8; 8]] {
        bytes[range.clone()].as_chunks().0
    }
}

/// Returns a word, or 0 after the last one.
fn word(words: &[[u8; 8]], at: usize) -> u64 {
    words.get(at).map_or(0, |word| u64::from_le_bytes(*word))
}

fn bit(words: &[[u8; 8]], position: u64) -> bool {
    word(words, (position / 64) as usize) >> (position % 64) & 1 == 1
}

/// Returns the position of the one with this index, counted from `start`; the end if there is none.
fn select(words: &[[u8; 8]], start: u64, index: u64) -> u64 {
    select_in(words, start, index, |word| word)
}

/// Returns the position of the zero with this index, counted from `start`; the end if there is
/// none.
fn select_zero(words: &[[u8; 8]], start: u64, index: u64) -> u64 {
    select_in(words, start, index, |word| !word)
}

fn select_in(words: &[[u8; 8]], start: u64, mut index: u64, view: impl Fn(u64) -> u64) -> u64 {
    let mut at = (start / 64) as usize;
    let mut mask = u64::MAX << (start % 64);
    while at < words.len() {
        let mut ones = view(word(words, at)) & mask;
        let count = u64::from(ones.count_ones());
        if index < count {
            for _ in 0..index {
                ones &= ones - 1;
            }
            return at as u64 * 64 + u64::from(ones.trailing_zeros());
        }
        index -= count;
        at += 1;
        mask = u64::MAX;
    }
    words.len() as u64 * 64
}
