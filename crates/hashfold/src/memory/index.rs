//! An index from hashes of 64 bits to values: the regions of one shard, which has one writer at a time.
//!
//! ```text
//! hash   8 bits: region │ directory's bits: entry → group │ … 24 + 24 bits: two lines in the group
//! ```
//!
//! Several pairs may have one hash: a caller whose values lead to the keys tells them apart.

use super::{
    MemoryOptions,
    arena::{Arena, UNITS_MAX},
    displace::{self, Lines},
    group::{self, CHUNK_BYTES, CHUNK_LINES, REGION_BITS},
    kernel,
    line::{self, Format, LINE_BYTES, Line, Pair},
    scratch::Scratch,
    shape::Shape,
    snapshots::Snapshots,
};
use crate::{cpu::Instructions, error::Result};
use std::ops::Range;

/// Number of hashes of a batch, which has the lock of its shard.
pub(super) const BATCH: usize = 128;
/// Number of hashes between two steps of a prefetch.
pub(super) const AHEAD: usize = 16;

/// A directory: the groups of the hashes that share their first [`REGION_BITS`] bits.
#[derive(Debug)]
pub(super) struct Region {
    /// The group of each value of the next `bits` bits.
    pub(super) directory: Vec<u32>,
    pub(super) bits: u32,
}

/// The regions of one shard.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) regions: Vec<Region>,
    /// The number of the first region among all regions.
    first_region: usize,
    pub(super) groups: Arena<LINE_BYTES>,
    pub(super) chunks: Arena<CHUNK_BYTES>,
    pub(super) shape: Shape,
    pub(super) snapshots: Snapshots,
    instructions: Instructions,
    /// Number of pairs.
    pub(super) count: u64,
    /// Number of times that a group was built anew: grown, split or shrunk.
    pub(super) rebuilds: u64,
    /// Number of pairs in these groups.
    pub(super) moved: u64,
    /// Memory for building a group anew.
    pub(super) scratch: Scratch,
}

/// A pair in its place, until the index changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) value: u64,
    group: u32,
    chunk: u32,
    line: u8,
    slot: u8,
    format: Format,
}

/// The lines of a group in its chunks.
struct GroupLines<'a> {
    chunks: &'a mut Arena<CHUNK_BYTES>,
    group: &'a Line,
}

impl Lines for GroupLines<'_> {
    #[inline]
    fn count(&self) -> usize {
        group::chunks(self.group) * CHUNK_LINES
    }

    #[inline]
    fn get(&self, line: usize) -> &Line {
        self.chunks.line(group::id(self.group, line / CHUNK_LINES), line % CHUNK_LINES)
    }

    #[inline]
    fn get_mut(&mut self, line: usize) -> &mut Line {
        self.chunks.line_mut(group::id(self.group, line / CHUNK_LINES), line % CHUNK_LINES)
    }

    #[inline]
    fn prefetch(&self, line: usize) {
        self.chunks.prefetch(group::id(self.group, line / CHUNK_LINES), line % CHUNK_LINES);
    }
}

impl Index {
    /// Makes an index of these regions without pairs.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted; errors of the system.
    pub(super) fn new(options: &MemoryOptions, regions: Range<usize>) -> Result<Index> {
        let executor = &options.executor;
        let mut groups = Arena::new(&options.budget, executor.clone(), UNITS_MAX);
        let first_region = regions.start;
        let mut directories = Vec::with_capacity(regions.len());
        for _ in regions {
            let group = groups.allocate()?;
            group::Group::default().encode(groups.line_mut(group, 0));
            directories.push(Region { directory: vec![group], bits: 0 });
        }
        Ok(Index {
            regions: directories,
            first_region,
            groups,
            chunks: Arena::new(&options.budget, executor.clone(), UNITS_MAX),
            shape: Shape::new(options.load, options.wide_values),
            snapshots: Snapshots::new(&options.budget),
            instructions: Instructions::in_use(),
            count: 0,
            rebuilds: 0,
            moved: 0,
            scratch: Scratch::default(),
        })
    }

    #[cfg(test)]
    pub(super) fn use_instructions(&mut self, instructions: Instructions) {
        self.instructions = instructions.min(Instructions::in_use());
    }

    /// Returns the first and the last hash of the index.
    pub(super) fn range(&self) -> (u64, u64) {
        let shift = u64::BITS - REGION_BITS;
        let last = self.first_region + self.regions.len() - 1;
        ((self.first_region as u64) << shift, (last as u64) << shift | u64::MAX >> REGION_BITS)
    }

    /// Returns the memory of the index in bytes: resident, or about to be.
    pub(super) fn bytes(&self) -> u64 {
        let directory = |region: &Region| region.directory.capacity() * size_of::<u32>();
        let directories: usize = self.regions.iter().map(directory).sum();
        let bytes = self.groups.bytes() + self.chunks.bytes() + self.snapshots.bytes();
        bytes + (directories + self.scratch.bytes()) as u64
    }

    /// Returns the region of a hash.
    #[inline]
    pub(super) fn region(&self, hash: u64) -> usize {
        (hash >> (u64::BITS - REGION_BITS)) as usize - self.first_region
    }

    /// Returns the group of a hash.
    #[inline]
    pub(super) fn group_of(&self, hash: u64) -> u32 {
        let region = &self.regions[self.region(hash)];
        // Two shifts: `bits` may be 0.
        region.directory[((hash << REGION_BITS) >> 1 >> (u64::BITS - 1 - region.bits)) as usize]
    }

    /// Finds a pair with this hash whose value `accept` accepts.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut accept: impl FnMut(u64) -> bool) -> Option<Found> {
        let number = self.group_of(hash);
        let group = self.groups.line(number, 0);
        let lines = group::chunks(group) * CHUNK_LINES;
        if lines == 0 {
            return None;
        }
        let format = self.shape.format(group::depth(group));
        let places = group::places(hash, lines)
            .map(|line| (group::id(group, line / CHUNK_LINES), line % CHUNK_LINES));
        let both = places.map(|(chunk, line)| self.chunks.line(chunk, line));
        let masks = kernel::equal(self.instructions, both, hash);
        for (i, mut mask) in masks.into_iter().enumerate() {
            while mask != 0 {
                let slot = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                if format.is_of(both[i], slot, hash) {
                    let value = format.value(both[i], slot);
                    if accept(value) {
                        let ((chunk, line), slot) = (places[i], slot as u8);
                        let line = line as u8;
                        return Some(Found { value, group: number, chunk, line, slot, format });
                    }
                }
            }
        }
        None
    }

    /// Replaces the value of a pair.
    ///
    /// # Errors
    /// `Memory` if a snapshot needs a copy of the group and the budget is exhausted; nothing is changed then.
    #[inline]
    pub(super) fn replace(&mut self, hash: u64, found: Found, value: u64) -> Result<()> {
        self.before_change(found.group, hash)?;
        let line = self.chunks.line_mut(found.chunk, usize::from(found.line));
        found.format.set_value(line, usize::from(found.slot), value);
        Ok(())
    }

    /// Inserts a pair, beside others that may have its hash.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted; `Limit` if too many pairs crowd one place. Nothing is changed then.
    #[inline]
    pub(super) fn insert(&mut self, pair: Pair) -> Result<()> {
        loop {
            let number = self.group_of(pair.hash);
            self.before_change(number, pair.hash)?;
            let group = self.groups.line_mut(number, 0);
            let format = self.shape.format(group::depth(group));
            let count = group::count(group);
            if count < self.shape.limit(format, group::chunks(group)) {
                let mut lines = GroupLines { chunks: &mut self.chunks, group };
                if displace::insert(&mut lines, format, pair) {
                    group::set_count(group, count + 1);
                    self.count += 1;
                    return Ok(());
                }
            }
            self.grow(number, pair.hash)?;
        }
    }

    /// Inserts a pair, or replaces the value of the pair with its hash, whose value is returned.
    ///
    /// # Errors
    /// Those of [`Index::insert`].
    #[inline]
    pub(super) fn put(&mut self, pair: Pair) -> Result<Option<u64>> {
        let Some(found) = self.find(pair.hash, |_| true) else {
            return self.insert(pair).map(|()| None);
        };
        self.replace(pair.hash, found, pair.value)?;
        Ok(Some(found.value))
    }

    /// Removes a pair.
    ///
    /// # Errors
    /// Those of [`Index::replace`].
    pub(super) fn remove(&mut self, hash: u64, found: Found) -> Result<()> {
        self.before_change(found.group, hash)?;
        let line = self.chunks.line_mut(found.chunk, usize::from(found.line));
        line::remove(line, usize::from(found.slot));
        let group = self.groups.line_mut(found.group, 0);
        let count = group::count(group) - 1;
        group::set_count(group, count);
        self.count -= 1;
        if self.shape.shrinks(found.format, group::chunks(group), count) {
            self.shrink(found.group, hash);
        }
        Ok(())
    }

    /// Returns the first pair with this hash that is found, whatever its key.
    #[inline]
    pub(super) fn first(&self, hash: u64) -> Option<u64> {
        self.find(hash, |_| true).map(|found| found.value)
    }

    /// Prepares the group of a hash for a change: [`Index::replace`] in it does not fail then.
    ///
    /// # Errors
    /// Those of [`Index::replace`].
    #[inline]
    pub(super) fn prepare(&mut self, hash: u64) -> Result<()> {
        self.before_change(self.group_of(hash), hash)
    }

    /// Returns the pairs of the group of a hash, in any order, and the last hash of the group.
    pub(super) fn group_at(&self, hash: u64, pairs: &mut Vec<Pair>) -> u64 {
        pairs.clear();
        let group = group::Group::decode(self.groups.line(self.group_of(hash), 0));
        self.gather(&group, hash, pairs);
        group::range(hash, group.depth).1
    }

    /// Prefetches what hashes after the `i`-th of a batch need: the descriptor of one, and the lines of one before it, whose
    /// descriptor has come meanwhile. Called for each `i` in order, before the `i`-th hash is looked up, so that the
    /// cache misses of many hashes overlap with each other and with the work.
    #[inline]
    pub(super) fn prefetch(&self, batch: &[(usize, u64)], i: usize) {
        if i == 0 {
            let first = |count| batch.iter().take(count).map(|(_, hash)| *hash);
            first(2 * AHEAD).for_each(|hash| self.prefetch_group(hash));
            first(AHEAD).for_each(|hash| self.prefetch_lines(hash));
        }
        if let Some((_, hash)) = batch.get(i + 2 * AHEAD) {
            self.prefetch_group(*hash);
        }
        if let Some((_, hash)) = batch.get(i + AHEAD) {
            self.prefetch_lines(*hash);
        }
    }

    #[inline]
    fn prefetch_group(&self, hash: u64) {
        self.groups.prefetch(self.group_of(hash), 0);
    }

    #[inline]
    fn prefetch_lines(&self, hash: u64) {
        let group = self.groups.line(self.group_of(hash), 0);
        let lines = group::chunks(group) * CHUNK_LINES;
        if lines > 0 {
            for line in group::places(hash, lines) {
                self.chunks.prefetch(group::id(group, line / CHUNK_LINES), line % CHUNK_LINES);
            }
        }
    }
}
