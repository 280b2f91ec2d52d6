//! Fences: from a hash to its block, with about one byte of memory per block.
//!
//! Fences replace the paper's sparse tries for small entries; in measurements they are smaller and
//! faster. The idea is a B+ tree's separators, compressed because hashes are uniform. A block's
//! *fence* is a hash above all hashes in the blocks before, and at most the block's own first hash.
//! A hash belongs to the last block whose fence is not above it.
//!
//! ```text
//! hash ── x superblocks ──> superblock, fraction
//!         anchors[superblock]: fences before it     bytes: one a fence
//!         m fences in it ──> evenly spaced at (j + 1/2) / m, each shifted by its byte
//!         block = fences before + fences at or below the fraction
//! ```
//!
//! Fences are rounded down, so a lookup never starts before the right block. About 1 lookup in 100
//! starts at the block after it. The head of that block shows this, and a second read follows. A
//! superblock whose fences are too far from even spacing lists them in full.

use super::{
    image::{Image, Sections},
    options::{IndexChoice, IndexStats},
};
use crate::{
    codec::{Decoder, within},
    error::{Error, Result},
    key::KeyHash,
};
use std::ops::Range;

/// Mean number of fences in a superblock. More fences take fewer bits for anchors, but are farther
/// from even spacing and so are rounded more coarsely.
const FENCES: u64 = 20;

/// Maximum number of fences in a superblock in compact form; with more, the superblock lists them.
const FENCES_MAX: usize = 96;

/// Fractions of a superblock are in units of 1 / 2^30.
const FRACTION_BITS: u32 = 30;

/// Number of superblocks whose anchors are relative to the same number.
const EPOCH: u64 = 512;

/// Number of fences that are compared with a hash where they are near even spacing.
const NEAR: usize = 8;

/// The offset that is added to a fence's byte.
const MIDDLE: i32 = 128;

/// Half the range of a byte, in standard deviations of a fence from even spacing.
const DEVIATIONS: f64 = 3.7;

/// A builder of the fences of blocks, in one pass.
#[derive(Debug)]
pub(super) struct FencesBuilder {
    superblocks: u64,
    step: u32,
    /// The block of the last entry.
    block: u64,
    superblock: u64,
    /// The first hashes of the blocks that have their fences in this superblock.
    firsts: Vec<u64>,
    /// For each superblock: twice the number of fences before it, plus 1 if the superblock lists
    /// its fences.
    anchors: Vec<u64>,
    bytes: Vec<u8>,
    explicit: Vec<(u64, u64)>,
    explicit_fences: Vec<u64>,
}

impl FencesBuilder {
    /// Makes a builder for about `entries` entries in about `blocks` blocks.
    pub(super) fn new(entries: u64, blocks: u64) -> FencesBuilder {
        let superblocks = (blocks / FENCES).max(1);
        FencesBuilder {
            superblocks,
            step: step(entries.max(1) as f64, blocks.max(1) as f64, superblocks as f64),
            block: 0,
            superblock: 0,
            firsts: Vec::new(),
            anchors: Vec::new(),
            bytes: Vec::new(),
            explicit: Vec::new(),
            explicit_fences: Vec::new(),
        }
    }

    /// Adds the hash and the block of the next entry.
    #[inline]
    pub(super) fn push(&mut self, hash: KeyHash, block: u64) {
        if block > self.block {
            self.begin(hash.high(), block);
        }
    }

    fn begin(&mut self, first: u64, block: u64) {
        let superblock = superblock(first, self.superblocks).0;
        while self.superblock < superblock {
            self.close();
        }
        // A block in which no entry starts gets the fence of the next block in which one does.
        self.firsts.extend((self.block..block).map(|_| first));
        self.block = block;
    }

    fn close(&mut self) {
        let before = (self.bytes.len() as u64) << 1;
        let start = self.bytes.len();
        let fits = self.firsts.len() <= FENCES_MAX && self.round();
        if fits {
            self.anchors.push(before);
        } else {
            self.anchors.push(before | 1);
            self.explicit.push((self.superblock, self.explicit_fences.len() as u64));
            self.explicit_fences.extend(&self.firsts);
            self.bytes.resize(start + self.firsts.len(), 0);
        }
        self.firsts.clear();
        self.superblock += 1;
    }

    /// Appends a byte for each fence; returns `false` if one does not fit. The best byte is the
    /// largest one whose fence is not above the block's first hash: if any byte gives a fence above
    /// the hash before, this one does.
    fn round(&mut self) -> bool {
        let spacing = Spacing::of(self.firsts.len());
        let start = self.bytes.len();
        for (j, &first) in self.firsts.iter().enumerate() {
            let first = superblock(first, self.superblocks).1;
            let byte = (first - spacing.at(j)).div_euclid(self.step as i32) + MIDDLE;
            // A slightly smaller byte only makes some lookups start at the next block.
            let byte = if byte > 255 && byte < 255 + MIDDLE / 2 { 255 } else { byte };
            let Ok(byte) = u8::try_from(byte) else {
                self.bytes.truncate(start);
                return false;
            };
            self.bytes.push(byte);
        }
        true
    }

    /// Adds the fences to an index: their fields and their five sections.
    pub(super) fn finish(mut self, image: &mut Image) {
        while self.superblock < self.superblocks {
            self.close();
        }
        self.anchors.push((self.bytes.len() as u64) << 1);
        let (epochs, anchors, width) = pack(&self.anchors);
        image.field(self.superblocks);
        image.field(u64::from(self.step));
        image.field(self.bytes.len() as u64);
        image.field(width);
        let bytes = |words: Vec<u64>| words.into_iter().flat_map(u64::to_le_bytes).collect();
        image.section(bytes(epochs));
        image.section(anchors);
        image.section(self.bytes);
        let explicit = self.explicit.iter().flat_map(|&(superblock, first)| [superblock, first]);
        image.section(bytes(explicit.collect()));
        image.section(bytes(self.explicit_fences));
    }
}

/// Returns the unit of a byte, in fractions of a superblock: a byte spans [`DEVIATIONS`] standard
/// deviations in either direction. A fence is an order statistic of the superblock's hashes, at a
/// random phase of the even spacing.
fn step(entries: f64, blocks: f64, superblocks: f64) -> u32 {
    let (keys, fences) = ((entries / superblocks).max(1.0), (blocks / superblocks).max(1.0));
    let deviation = (0.25 / keys + 1.0 / (12.0 * fences * fences)).sqrt();
    let unit = 2.0 * DEVIATIONS * deviation / 256.0;
    ((unit * f64::from(1_u32 << FRACTION_BITS)) as u32).clamp(1, 1 << 22)
}

/// Returns the superblock of a hash's high bits, and the fraction in it.
#[inline(always)]
fn superblock(hash: u64, superblocks: u64) -> (u64, i32) {
    let product = u128::from(hash) * u128::from(superblocks);
    ((product >> 64) as u64, (product as u64 >> (64 - FRACTION_BITS)) as i32)
}

/// The middles of equal parts of a superblock.
#[derive(Clone, Copy)]
struct Spacing {
    first: i32,
    part: i32,
}

impl Spacing {
    #[inline(always)]
    fn of(count: usize) -> Spacing {
        let part = (1 << FRACTION_BITS) / (count as u32).max(1);
        Spacing { first: (part / 2) as i32, part: part as i32 }
    }

    #[inline(always)]
    fn at(self, j: usize) -> i32 {
        self.first.wrapping_add((j as i32).wrapping_mul(self.part))
    }
}

/// Encodes anchors relative to their epoch and to even growth, in two bytes each; or in full, if
/// that does not fit.
fn pack(anchors: &[u64]) -> (Vec<u64>, Vec<u8>, u64) {
    let epochs: Vec<u64> = anchors.iter().copied().step_by(EPOCH as usize).collect();
    let narrow: Option<Vec<u8>> = anchors
        .iter()
        .enumerate()
        .map(|(i, &anchor)| {
            let even = even(epochs[i / EPOCH as usize], i as u64);
            i16::try_from(anchor as i64 - even as i64).ok().map(i16::to_le_bytes)
        })
        .collect::<Option<Vec<_>>>()
        .map(|rows| rows.concat());
    match narrow {
        Some(narrow) => (epochs, narrow, 2),
        None => (epochs, anchors.iter().flat_map(|a| a.to_le_bytes()).collect(), 8),
    }
}

#[inline(always)]
fn even(epoch: u64, superblock: u64) -> u64 {
    (epoch & !1).wrapping_add(2 * FENCES * (superblock % EPOCH))
}

/// The fences of an index in memory.
#[derive(Debug)]
pub(super) struct Fences {
    superblocks: u64,
    step: i32,
    narrow: bool,
    epochs: Box<[u64]>,
    anchors: Range<usize>,
    bytes: Range<usize>,
    explicit: Box<[(u64, u64)]>,
    explicit_fences: Range<usize>,
}

/// The place of a hash among the fences of its superblock.
struct Found<'a> {
    /// Number of fences before the superblock.
    before: u64,
    /// The fences of the superblock, if they are in compact form.
    fences: &'a [u8],
    fraction: i32,
    /// Number of these fences at or below the fraction.
    count: u32,
}

impl Found<'_> {
    #[inline(always)]
    fn block(&self) -> u64 {
        self.before + u64::from(self.count)
    }
}

impl Fences {
    /// Reads the fields and finds the sections that [`FencesBuilder::finish`] wrote.
    pub(super) fn open(fields: &mut Decoder<'_>, sections: &mut Sections<'_>) -> Result<Fences> {
        let superblocks = within("superblocks", 1..=(1 << 56) - 1, fields.u64()?)?;
        let step = within("step of fences", 0..=1 << 22, fields.u64()?)?;
        let fences = fields.u64()?;
        let width = fields.u64()?;
        if width != 2 && width != 8 {
            return Err(Error::field("width of anchors", "2 or 8", width));
        }
        let epochs_size = 8 * (superblocks + 1).div_ceil(EPOCH);
        let epochs = sections.next_of_size("epochs", epochs_size)?;
        let anchors = sections.next_of_size("anchors", (superblocks + 1) * width)?;
        let bytes = sections.next_of_size("fences", fences)?;
        let (explicit, explicit_fences) = (sections.next_section()?, sections.next_section()?);
        let all = sections.bytes();
        let (rows, _) = all[explicit].as_chunks::<16>();
        let row = |row: &[u8; 16]| {
            let mut row = Decoder::new(row);
            Ok((row.u64()?, row.u64()?))
        };
        Ok(Fences {
            superblocks,
            step: step as i32,
            narrow: width == 2,
            epochs: all[epochs].as_chunks().0.iter().map(|e| u64::from_le_bytes(*e)).collect(),
            anchors,
            bytes,
            explicit: rows.iter().map(row).collect::<Result<_>>()?,
            explicit_fences,
        })
    }

    /// Returns the sizes of the parts of the fences.
    pub(super) fn stats(&self) -> IndexStats {
        let fences = self.bytes.len() + self.explicit.len() * 16 + self.explicit_fences.len();
        IndexStats {
            choice: IndexChoice::Fences,
            coded_bytes: fences as u64,
            directory_bytes: (self.anchors.len() + self.epochs.len() * 8) as u64,
            explicit_superblocks: self.explicit.len() as u64,
            ..IndexStats::default()
        }
    }

    /// Returns the block of keys with this hash, or the block after it. `bytes` is the body of the
    /// index.
    #[inline(always)] // In a loop over hashes, what does not depend on the hash is done once.
    pub(super) fn block(&self, bytes: &[u8], hash: KeyHash) -> u64 {
        self.search(bytes, hash).block()
    }

    /// Returns [`Fences::block`], and the part of this block, in units of 1 / 256, that probably comes
    /// before the entry of a key with this hash: between fences, hashes are uniform. The part is `None`
    /// if another superblock has a fence of the block.
    #[inline]
    pub(super) fn block_and_part(&self, bytes: &[u8], hash: KeyHash) -> (u64, Option<u8>) {
        let found = self.search(bytes, hash);
        (found.block(), self.part(found))
    }

    #[inline(always)]
    fn search<'a>(&self, bytes: &'a [u8], hash: KeyHash) -> Found<'a> {
        let (superblock, fraction) = superblock(hash.high(), self.superblocks);
        let (anchor, next) = self.anchors(bytes, superblock);
        let (before, next) = (anchor >> 1, next >> 1);
        if anchor & 1 == 1 {
            let before = before + self.listed(bytes, superblock, hash.high());
            return Found { before, fences: &[], fraction, count: 0 };
        }
        let fences = &bytes[self.bytes.clone()];
        let fences = fences.get(before as usize..next as usize).unwrap_or(&[]);
        Found { before, fences, fraction, count: self.count(fences, fraction) }
    }

    #[inline(always)]
    fn part(&self, Found { fences, fraction, count, .. }: Found<'_>) -> Option<u8> {
        let spacing = Spacing::of(fences.len());
        let fence = |j: u32| {
            let shift = (i32::from(*fences.get(j as usize)?) - MIDDLE) * self.step;
            Some(spacing.at(j as usize).wrapping_add(shift))
        };
        let (low, high) = (fence(count.checked_sub(1)?)?, fence(count)?);
        let width = high.wrapping_sub(low).max(1);
        let before = fraction.wrapping_sub(low).clamp(0, width - 1);
        Some((u64::from(before as u32) * 256 / u64::from(width as u32)) as u8)
    }

    /// Returns the number of fences at or below the fraction.
    #[inline(always)]
    fn count(&self, fences: &[u8], fraction: i32) -> u32 {
        let spacing = Spacing::of(fences.len());
        let Some((start, near)) = self.near(fences, fraction, spacing) else {
            return self.count_from(fences, spacing.first, spacing.part, fraction);
        };
        start + self.count_from(near, spacing.at(start as usize), spacing.part, fraction)
    }

    /// Returns the only fences that may be on either side of the fraction, after some that are at or
    /// below it; their number comes first. `None` if there are more than [`NEAR`] of them.
    #[inline(always)]
    fn near<'a>(
        &self,
        fences: &'a [u8],
        fraction: i32,
        spacing: Spacing,
    ) -> Option<(u32, &'a [u8; NEAR])> {
        // A byte shifts a fence by less than three parts, and even spacing is rounded down by less
        // than a step for each fence.
        let shift_max = MIDDLE * self.step + fences.len() as i32;
        let start_max = fences.len().checked_sub(NEAR).filter(|_| shift_max < 3 * spacing.part)?;
        let part = (fraction as u64 * fences.len() as u64) >> FRACTION_BITS;
        let start = (part as usize).saturating_sub(NEAR / 2 - 1).min(start_max);
        Some((start as u32, fences[start..].first_chunk()?))
    }

    /// Returns the number of fences at or below the fraction, the first of which has its middle at
    /// `first`. Compiles to vector code.
    #[inline(always)]
    fn count_from(&self, fences: &[u8], first: i32, part: i32, fraction: i32) -> u32 {
        let mut fence = first - MIDDLE * self.step;
        let mut count = 0;
        for &byte in fences {
            count += u32::from(i32::from(byte) * self.step + fence <= fraction);
            fence = fence.wrapping_add(part);
        }
        count
    }

    /// Returns the anchors of a superblock and of the next one.
    #[inline(always)]
    fn anchors(&self, bytes: &[u8], superblock: u64) -> (u64, u64) {
        let anchors = &bytes[self.anchors.clone()];
        let i = superblock as usize;
        if !self.narrow {
            let anchors = anchors.as_chunks().0;
            return (u64::from_le_bytes(anchors[i]), u64::from_le_bytes(anchors[i + 1]));
        }
        let shifts = anchors.as_chunks().0;
        let shifts = (i16::from_le_bytes(shifts[i]), i16::from_le_bytes(shifts[i + 1]));
        (self.shifted(superblock, shifts.0), self.shifted(superblock + 1, shifts.1))
    }

    /// Returns the anchor that differs from even growth by `shift`.
    #[inline(always)]
    fn shifted(&self, superblock: u64, shift: i16) -> u64 {
        let even = even(self.epochs[(superblock / EPOCH) as usize], superblock);
        even.wrapping_add_signed(i64::from(shift))
    }

    #[cold]
    fn listed(&self, bytes: &[u8], superblock: u64, hash: u64) -> u64 {
        let Ok(at) = self.explicit.binary_search_by_key(&superblock, |&(s, _)| s) else { return 0 };
        let (fences, _) = bytes[self.explicit_fences.clone()].as_chunks::<8>();
        let end = self.explicit.get(at + 1).map_or(fences.len(), |&(_, first)| first as usize);
        let fences = fences.get(self.explicit[at].1 as usize..end).unwrap_or(&[]);
        fences.partition_point(|fence| u64::from_le_bytes(*fence) <= hash) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::{Random as _, SeededRandom};

    #[test]
    fn fences_near_a_hash_are_counted_as_all_fences_are() {
        let random = SeededRandom::new(5);
        let mut near = 0;
        for case in 0..20_000 {
            let fences: Vec<u8> =
                (0..random.next_u64() % 100).map(|_| random.next_u64() as u8).collect();
            let step = (random.next_u64() >> (42 + random.next_u64() % 20)) as i32;
            let all = Fences {
                superblocks: 1,
                step,
                narrow: true,
                epochs: Box::default(),
                anchors: 0..0,
                bytes: 0..0,
                explicit: Box::default(),
                explicit_fences: 0..0,
            };
            let fraction = (random.next_u64() >> (64 - FRACTION_BITS)) as i32;
            let Spacing { first, part } = Spacing::of(fences.len());
            let expected = all.count_from(&fences, first, part, fraction);
            assert_eq!(all.count(&fences, fraction), expected, "case {case}");
            near += u32::from(all.near(&fences, fraction, Spacing { first, part }).is_some());
        }
        assert!(near > 10_000, "{near} cases in which few fences are near");
    }

    /// The probable place of a hash in its block is about where it is.
    #[test]
    fn the_part_of_a_block_before_a_hash_is_about_right() {
        let random = SeededRandom::new(6);
        let mut hashes: Vec<u64> = (0..40_000).map(|_| random.next_u64()).collect();
        hashes.sort_unstable();
        let hash = |high: u64| KeyHash::from_bits(u128::from(high) << 64);
        let mut builder = FencesBuilder::new(40_000, 1000);
        (0..).zip(&hashes).for_each(|(i, high)| builder.push(hash(*high), i / 40));
        let mut image = Image::default();
        builder.finish(&mut image);
        let (fields, body) = image.into_parts();
        let body = body.concat();
        let (mut fields, mut sections) = Sections::split(&fields, &body).unwrap();
        let fences = Fences::open(&mut fields, &mut sections).unwrap();
        let (mut known, mut squares) = (0.0, 0.0);
        for (i, high) in hashes.iter().enumerate() {
            let (block, part) = fences.block_and_part(&body, hash(*high));
            assert_eq!(block, fences.block(&body, hash(*high)));
            if let Some(part) = part.filter(|_| block == i as u64 / 40) {
                let distance = f64::from(part) * 40.0 / 256.0 - (i % 40) as f64;
                known += 1.0;
                squares += distance * distance;
            }
        }
        let deviation = f64::sqrt(squares / known);
        assert!(known > 30_000.0 && deviation < 3.5, "{deviation} entries, {known} known");
    }
}
