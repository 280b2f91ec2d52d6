//! An index from hashes of 64 bits to values: the regions of one shard, which has one writer at a time.
//!
//! ```text
//! hash   8 bits: region │ directory's bits: entry → group │ last 48 bits: chunk of the group, two lines of the chunk
//! ```
//!
//! Several pairs may have one hash: a caller whose values lead to the keys tells them apart.

use super::{
    MemoryOptions,
    arena::{Arena, At, UNITS_MAX},
    choice,
    directory::Directories,
    displace, group, kernel,
    line::{self, CHUNK_BYTES, Chunk, Format, LINE_BYTES, LOW, Line, Pair, SLOTS_MAX},
    place::Place,
    scratch::Scratch,
    shape::Shape,
    snapshots::Snapshots,
};
use crate::{cpu::Instructions, error::Result, run::prefetch::prefetch};
use std::ops::Range;

/// Number of hashes of a batch, which has the lock of its shard.
pub(super) const BATCH: usize = 256;

/// Number of rebuilt groups that are remembered. One is rebuilt every hundred puts or so, while the places of fewer are known
/// ahead.
pub(super) const RECENT: usize = 4;

/// The regions of one shard.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) directories: Directories,
    pub(super) groups: Arena<LINE_BYTES>,
    pub(super) chunks: Arena<CHUNK_BYTES>,
    pub(super) shape: Shape,
    pub(super) snapshots: Snapshots,
    pub(super) instructions: Instructions,
    /// Number of pairs.
    pub(super) count: u64,
    /// Number of times that a group was rebuilt: it grew, split, shrank or merged.
    pub(super) rebuilds: u64,
    /// The last groups that were rebuilt: that of the n-th time is at n modulo the number of these.
    pub(super) rebuilt: [u32; RECENT],
    /// Number of pairs that moved to other chunks then.
    pub(super) moved: u64,
    /// The first hash whose group was not merged because there was a snapshot, of those that are to be tried again.
    pub(super) unmerged: Option<u64>,
    /// Memory for rebuilding a group.
    pub(super) scratch: Scratch,
}

/// A pair in its place, until the index changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) value: u64,
    group: u32,
    line: At,
    slot: u8,
    format: Format,
}

impl Index {
    /// Makes an index of these regions without pairs.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted; errors of the system.
    pub(super) fn new(options: &MemoryOptions, regions: Range<usize>) -> Result<Index> {
        let executor = &options.executor;
        let mut groups = Arena::new(&options.budget, executor.clone(), UNITS_MAX);
        let mut first_groups = Vec::with_capacity(regions.len());
        for _ in regions.clone() {
            let group = groups.allocate()?;
            group::Group::default().encode(groups.line_mut(group_at(group)));
            first_groups.push(group);
        }
        Ok(Index {
            directories: Directories::new(regions.start, &first_groups)?,
            groups,
            chunks: Arena::new(&options.budget, executor.clone(), UNITS_MAX),
            shape: Shape::new(options.load, options.wide_values),
            snapshots: Snapshots::new(&options.budget),
            instructions: Instructions::in_use(),
            count: 0,
            rebuilds: 0,
            rebuilt: [0; RECENT],
            moved: 0,
            unmerged: None,
            scratch: Scratch::default(),
        })
    }

    #[cfg(test)]
    pub(super) fn use_instructions(&mut self, instructions: Instructions) {
        self.instructions = instructions.min(Instructions::in_use());
    }

    /// Returns the first and the last hash of the index.
    pub(super) fn range(&self) -> (u64, u64) {
        self.directories.range()
    }

    /// Returns the memory of the index in bytes: resident, or about to be.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = self.groups.bytes() + self.chunks.bytes() + self.snapshots.bytes();
        bytes + (self.directories.bytes() + self.scratch.bytes()) as u64
    }

    /// Returns the group of a hash.
    #[inline]
    pub(super) fn group_of(&self, hash: u64) -> u32 {
        self.directories.group(hash)
    }

    /// Prefetches the entry of a hash in the directory.
    #[inline(always)]
    pub(super) fn prefetch_entry(&self, hash: u64) {
        self.directories.prefetch(hash);
    }

    /// Returns the place of a hash.
    #[inline]
    pub(super) fn place(&self, hash: u64) -> Place {
        let mut place = Place::unknown(hash);
        place.group = self.group_of(hash);
        self.set_lines(&mut place);
        place
    }

    /// Finds the group of a place.
    #[inline(always)]
    pub(super) fn find_group(&self, place: &mut Place) {
        place.group = self.group_of(place.hash);
        place.rebuilds = self.rebuilds;
    }

    /// Prefetches the descriptor of the group of a place.
    #[inline(always)]
    pub(super) fn prefetch_group(&self, place: &Place) {
        self.groups.prefetch(group_at(place.group));
    }

    /// Finds the lines of a place whose group was found.
    #[inline(always)]
    pub(super) fn find_lines(&self, place: &mut Place) {
        if !self.is_current(place) {
            place.group = self.group_of(place.hash);
        }
        self.set_lines(place);
    }

    /// Prefetches the first or the second line of a place.
    #[inline(always)]
    pub(super) fn prefetch_line(&self, place: &Place, which: usize) {
        if place.has_lines {
            self.chunks.prefetch(place.lines[which]);
        }
    }

    /// Whether the group of a place was not rebuilt since the place was found.
    #[inline]
    pub(super) fn is_current(&self, place: &Place) -> bool {
        let since = self.rebuilds.wrapping_sub(place.rebuilds);
        since == 0 || since <= RECENT as u64 && !self.rebuilt.contains(&place.group)
    }

    /// Prefetches the lines that the pairs in the first line of a place may move to, if both lines are full.
    #[inline]
    pub(super) fn prefetch_others_if_crowded(&self, place: &Place) {
        // The lines of a group that was rebuilt since belong to others, and the group may have none.
        if self.is_current(place) && self.is_crowded(place) {
            self.prefetch_others(place);
        }
    }

    /// Whether both lines of a place that is current are full.
    #[inline]
    pub(super) fn is_crowded(&self, place: &Place) -> bool {
        let meta = |at| line::meta(self.chunks.line(at));
        place.has_lines && place.format.are_full(place.lines.map(meta))
    }

    /// Prefetches the lines that the pairs in the first line of a place that is current may move to.
    #[inline]
    pub(super) fn prefetch_others(&self, place: &Place) {
        // A pair of the second line moves only if none of the first one can.
        let [first, _] = choice::lines(place.hash);
        let chunk = self.chunk(Arena::<CHUNK_BYTES>::unit_of(place.lines[0]));
        for slot in 0..place.format.slots() {
            prefetch(chunk, displace::other_line(chunk, first, slot));
        }
    }

    /// Sets what depends on the descriptor of the group of a place.
    #[inline(always)]
    fn set_lines(&self, place: &mut Place) {
        let group = self.groups.line(group_at(place.group));
        let (count, division) = (group::chunks(group), group::division(group));
        place.rebuilds = self.rebuilds;
        place.format = self.shape.format(division.depth);
        place.has_lines = count > 0;
        place.seen = 0;
        if count > 0 {
            let chunk = division.chunk(count, place.hash);
            let chunk = group::id(group, chunk);
            let [first, second] = choice::lines(place.hash);
            place.lines[0] = Arena::<CHUNK_BYTES>::at(chunk, first);
            place.lines[1] = Arena::<CHUNK_BYTES>::at(chunk, second);
        }
    }

    /// Finds a pair with the hash of a place, whose value `accept` accepts.
    #[inline]
    pub(super) fn find(&self, place: &Place, accept: impl FnMut(u64) -> bool) -> Option<Found> {
        if self.is_current(place) {
            self.find_in(place, accept)
        } else {
            self.find_in(&self.place(place.hash), accept)
        }
    }

    #[inline(always)]
    fn find_in(&self, place: &Place, mut accept: impl FnMut(u64) -> bool) -> Option<Found> {
        if !place.has_lines {
            return None;
        }
        if place.seen != 0
            && let Some(found) = self.seen(place)
            && accept(found.value)
        {
            return Some(found);
        }
        let both = [self.chunks.line(place.lines[0]), self.chunks.line(place.lines[1])];
        // The slots of both lines, eight bits each.
        let mut mask = kernel::equal(self.instructions, both, place.hash);
        while mask != 0 {
            let bit = mask.trailing_zeros();
            let found = Self::pair_at(place, both[bit as usize / 8], bit);
            mask &= mask - 1;
            if let Some(found) = found.filter(|found| accept(found.value)) {
                return Some(found);
            }
        }
        None
    }

    /// Returns the pair in the slot that was seen to have the hash of a place, if it still has.
    #[inline(always)]
    fn seen(&self, place: &Place) -> Option<Found> {
        let bit = place.seen.trailing_zeros();
        let (line, slot) = (self.chunks.line(place.lines[bit as usize / 8 % 2]), bit as usize % 8);
        let is_same =
            line::in_use(line) >> slot & 1 == 1 && line::low(line, slot) == place.hash & LOW;
        if is_same { Self::pair_at(place, line, bit) } else { None }
    }

    /// Returns the pair in a slot of a line, whose last 48 bits are those of the hash of a place, if all bits are.
    #[inline(always)]
    fn pair_at(place: &Place, line: &Line, bit: u32) -> Option<Found> {
        let (which, slot, format) = (bit as usize / 8 % 2, bit as usize % 8, place.format);
        if !format.is_of(line, slot, place.hash) {
            return None;
        }
        let (value, line) = (format.value(line, slot), place.lines[which]);
        Some(Found { value, group: place.group, line, slot: slot as u8, format })
    }

    /// Replaces the value of a pair.
    ///
    /// # Errors
    /// `Memory` if a snapshot needs a copy of the group and the budget is exhausted; nothing is changed then.
    #[inline]
    pub(super) fn replace(&mut self, hash: u64, found: Found, value: u64) -> Result<()> {
        self.before_change(found.group, hash)?;
        let line = self.chunks.line_mut(found.line);
        found.format.set_value(line, usize::from(found.slot), value);
        Ok(())
    }

    /// Inserts a pair, beside others that may have its hash.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted; `Limit` if too many pairs crowd one place. No pair is changed then.
    #[inline]
    pub(super) fn insert(&mut self, place: &Place, value: u64) -> Result<()> {
        let is_done = self.is_current(place) && self.try_insert(place, value)?;
        if is_done { Ok(()) } else { self.insert_anew(place.hash, value) }
    }

    /// Inserts a pair into the group of a place; returns `false`, and changes nothing, if it has no room.
    #[inline(always)]
    fn try_insert(&mut self, place: &Place, value: u64) -> Result<bool> {
        let (format, pair) = (place.format, Pair { hash: place.hash, value });
        self.before_change(place.group, place.hash)?;
        let group = self.groups.line(group_at(place.group));
        let count = group::count(group);
        if !place.has_lines || count >= self.shape.limit(format, group::chunks(group)) {
            return Ok(false);
        }
        let lines = place.lines.map(Arena::<CHUNK_BYTES>::line_in_unit);
        let chunk = self.chunk_mut(Arena::<CHUNK_BYTES>::unit_of(place.lines[0]));
        let is_done = displace::insert_at(chunk, lines, format, pair);
        if is_done {
            group::set_count(self.groups.line_mut(group_at(place.group)), count + 1);
            self.count += 1;
        }
        Ok(is_done)
    }

    /// Inserts a pair; its group grows if it has no room.
    #[cold]
    fn insert_anew(&mut self, hash: u64, value: u64) -> Result<()> {
        loop {
            let place = self.place(hash);
            if self.try_insert(&place, value)? {
                return Ok(());
            }
            self.grow(place.group, hash)?;
        }
    }

    /// Inserts a pair, or replaces the value of the pair with its hash, whose value is returned.
    ///
    /// # Errors
    /// Those of [`Index::insert`].
    #[inline]
    pub(super) fn put(&mut self, place: &Place, value: u64) -> Result<Option<u64>> {
        let Some(found) = self.find(place, |_| true) else {
            return self.insert(place, value).map(|()| None);
        };
        self.replace(place.hash, found, value)?;
        Ok(Some(found.value))
    }

    /// Removes a pair.
    ///
    /// # Errors
    /// Those of [`Index::replace`].
    pub(super) fn remove(&mut self, hash: u64, found: Found) -> Result<()> {
        self.before_change(found.group, hash)?;
        let line = self.chunks.line_mut(found.line);
        line::remove(line, usize::from(found.slot));
        let group = self.groups.line_mut(group_at(found.group));
        let count = group::count(group) - 1;
        group::set_count(group, count);
        self.count -= 1;
        let chunks = group::chunks(group);
        if self.shape.shrinks(found.format, chunks, count) {
            self.shrink(found.group, hash);
        } else if Shape::merges(chunks, count) {
            self.merge(hash);
        }
        Ok(())
    }

    /// Returns the value of the first pair with the hash of a place that is found, whatever its key.
    #[inline]
    pub(super) fn first(&self, place: &Place) -> Option<u64> {
        self.find(place, |_| true).map(|found| found.value)
    }

    /// Looks for a pair with the hash of a place, whatever its key, and returns its value; finding it again is faster then. It does not
    /// branch on whether there is one: keys that are there and new ones come in any order, and the branch would be mispredicted. If the
    /// first pair with the last 48 bits of the hash has other first bits, which is rare, it returns none.
    #[inline]
    pub(super) fn see(&self, place: &mut Place) -> Option<u64> {
        if !self.is_current(place) {
            *place = self.place(place.hash);
        }
        if !place.has_lines {
            return None;
        }
        let both = [self.chunks.line(place.lines[0]), self.chunks.line(place.lines[1])];
        let mask = kernel::equal(self.instructions, both, place.hash);
        // With an empty mask, some slot.
        let bit = mask.trailing_zeros() % u16::BITS;
        let (line, slot) = (both[bit as usize / 8], (bit as usize % 8).min(SLOTS_MAX - 1));
        let is_seen = (mask != 0) & place.format.is_of(line, slot, place.hash);
        place.seen = u16::from(is_seen) << bit;
        is_seen.then_some(place.format.value(line, slot))
    }

    /// Prepares the group of a place for a change: [`Index::replace`] in it does not fail then.
    ///
    /// # Errors
    /// Those of [`Index::replace`].
    #[inline]
    pub(super) fn prepare(&mut self, place: &Place) -> Result<()> {
        if self.snapshots.active.is_empty() {
            return Ok(());
        }
        self.before_change(self.group_of(place.hash), place.hash)
    }

    /// Returns the lines of a chunk.
    #[inline]
    pub(super) fn chunk(&self, id: u32) -> &Chunk {
        self.chunks.unit(id).as_chunks().0.first_chunk().expect("a unit is a chunk")
    }

    /// Returns the lines of a chunk, to be changed.
    #[inline]
    pub(super) fn chunk_mut(&mut self, id: u32) -> &mut Chunk {
        self.chunks.unit_mut(id).as_chunks_mut().0.first_chunk_mut().expect("a unit is a chunk")
    }

    /// Returns the pairs of the group of a hash, in any order, and the last hash of the group.
    pub(super) fn group_at(&self, hash: u64, pairs: &mut Vec<Pair>) -> u64 {
        pairs.clear();
        let group = group::Group::decode(self.groups.line(group_at(self.group_of(hash))));
        self.gather(&group, hash, pairs);
        group::range(hash, group.division.depth).1
    }
}

/// Returns where the descriptor of a group is.
#[inline]
pub(super) fn group_at(group: u32) -> At {
    Arena::<LINE_BYTES>::at(group, 0)
}
