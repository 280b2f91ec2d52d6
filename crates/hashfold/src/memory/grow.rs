//! Rebuilding a group: with a further chunk, split in two, or smaller. Pairs are placed into lines in a buffer that fits
//! in the first cache, which are then copied to their chunks. Until they are placed, nothing is changed.

use super::{
    arena::crowded,
    choice,
    fill::fill,
    group::{CHUNKS_MAX, Chunk, DEPTH_MAX, Group, REGION_BITS},
    index::{Index, RECENT, group_at},
    kernel::{self, Masks},
    line::{self, Format, Pair, SLOTS_MAX},
};
use crate::error::Result;

/// Number of chunks that are prefetched ahead of the one that is read.
const AHEAD: usize = 2;

impl Index {
    /// Lets the group of `hash` grow by a chunk, or splits it; one without chunks is merged with another if both have few pairs.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted; `Limit` if it cannot grow. Nothing is changed then.
    #[cold]
    #[inline(never)]
    pub(super) fn grow(&mut self, number: u32, hash: u64) -> Result<()> {
        let group = Group::decode(self.groups.line(group_at(number)));
        // Its pairs may have been removed during a snapshot, when nothing is merged.
        if group.chunks == 0 && self.merge(hash) {
            return Ok(());
        }
        let mut pairs = std::mem::take(&mut self.scratch.pairs);
        let extended = match group.chunks {
            CHUNKS_MAX => Ok(false),
            _ => self.extend(number, group, hash, &mut pairs),
        };
        let grown = match extended {
            Ok(false) => {
                pairs.clear();
                self.gather(&group, hash, &mut pairs);
                self.split(number, group, hash, &mut pairs)
            }
            extended => extended.map(drop),
        };
        self.scratch.pairs = pairs;
        grown
    }

    /// Merges a group with another if both have few pairs; else it shrinks, if its pairs find their places in fewer chunks.
    #[cold]
    #[inline(never)]
    pub(super) fn shrink(&mut self, number: u32, hash: u64) {
        if self.merge(hash) {
            return;
        }
        let group = Group::decode(self.groups.line(group_at(number)));
        let mut pairs = std::mem::take(&mut self.scratch.pairs);
        pairs.clear();
        self.gather(&group, hash, &mut pairs);
        let mut chunks = std::mem::take(&mut self.scratch.chunks);
        let size = self.fit(self.shape.format(group.depth), &pairs, &mut chunks[0]);
        if let Some(size) = size.filter(|size| *size < group.chunks) {
            self.release(&group);
            let smaller = Group { chunks: size, count: pairs.len(), ..group };
            let stored = self.store(number, smaller, &chunks[0]);
            debug_assert!(stored.is_ok(), "more chunks were released");
            self.chunks.give_back();
        }
        self.scratch.chunks = chunks;
        self.scratch.pairs = pairs;
    }

    /// Adds the pairs of a group to `pairs`; `hash` is any hash in the group's range.
    pub(super) fn gather(&self, group: &Group, hash: u64, pairs: &mut Vec<Pair>) {
        let mut count = pairs.len();
        pairs.resize(count + group.count + SLOTS_MAX, Pair { hash: 0, value: 0 });
        let format = self.shape.format(group.depth);
        for i in 0..group.chunks {
            let chunk = self.chunk_ahead(group, i);
            let masks = kernel::in_use(chunk);
            kernel::gather(self.instructions, format, chunk, &masks, hash, pairs, &mut count);
        }
        pairs.truncate(count);
    }

    /// Returns a chunk of a group, and prefetches a later one: beside the first chunk, all up to that one.
    fn chunk_ahead(&self, group: &Group, number: usize) -> &Chunk {
        let first = if number == 0 { 0 } else { number + AHEAD };
        let later = group.ids().iter().take(number + AHEAD + 1).skip(first);
        later.for_each(|id| self.chunks.prefetch_unit(*id));
        self.chunk(group.ids[number])
    }

    /// Adds a chunk to a group, and moves the pairs to it that belong there; returns `false`, and changes nothing, if they do
    /// not fit. `pairs` is memory for them.
    fn extend(
        &mut self,
        number: u32,
        mut group: Group,
        hash: u64,
        pairs: &mut Vec<Pair>,
    ) -> Result<bool> {
        let format = self.shape.format(group.depth);
        let (moving, count) = self.collect_leaving(&group, hash, pairs);
        let pairs = &pairs[..count];
        let mut chunks = std::mem::take(&mut self.scratch.chunks);
        let fits =
            fill(self.instructions, format, pairs, &mut chunks[0][0], &mut self.scratch.left);
        let added = if fits { self.chunks.allocate().map(Some) } else { Ok(None) };
        if let Ok(Some(id)) = added {
            *self.chunk_mut(id) = chunks[0][0];
            for (id, masks) in group.ids().iter().zip(&moving) {
                let lines = self.chunk_mut(*id).iter_mut();
                lines.zip(masks).for_each(|(line, mask)| line::remove_all(line, *mask));
            }
            group.ids[group.chunks] = id;
            group.chunks += 1;
            self.set_group(number, &group);
            self.moved += count as u64;
        }
        self.scratch.chunks = chunks;
        added.map(|added| added.is_some())
    }

    /// Writes the pairs of a group that leave their chunk for a further one to the first places of `pairs`; returns their slots
    /// and their number.
    fn collect_leaving(
        &self,
        group: &Group,
        hash: u64,
        pairs: &mut Vec<Pair>,
    ) -> ([Masks; CHUNKS_MAX], usize) {
        let format = self.shape.format(group.depth);
        let (mut slots, mut count) = ([Masks::default(); CHUNKS_MAX], 0);
        let leaving = choice::buckets_of_last(group.chunks + 1);
        // The pairs that are there stay: to clear them takes time.
        pairs.resize(pairs.len().max(group.count + SLOTS_MAX), Pair { hash: 0, value: 0 });
        for (i, masks) in slots.iter_mut().enumerate().take(group.chunks) {
            let chunk = self.chunk_ahead(group, i);
            *masks = kernel::of_buckets(self.instructions, format, chunk, leaving);
            kernel::gather(self.instructions, format, chunk, masks, hash, pairs, &mut count);
        }
        (slots, count)
    }

    /// Splits a group by the next bit of its hashes.
    fn split(&mut self, number: u32, group: Group, hash: u64, pairs: &mut [Pair]) -> Result<()> {
        let depth = group.depth + 1;
        if depth > DEPTH_MAX {
            return Err(crowded("number of keys with nearly equal hashes", pairs.len() as u64));
        }
        let bit = 1 << (u64::BITS - REGION_BITS - depth);
        let middle = partition(pairs, bit);
        let (low, high) = pairs.split_at(middle);
        let format = self.shape.format(depth);
        let mut chunks = std::mem::take(&mut self.scratch.chunks);
        let sizes = [self.fit(format, low, &mut chunks[0]), self.fit(format, high, &mut chunks[1])];
        let counts = [low.len(), high.len()];
        let group = Group { depth, ..group };
        let done = self.store_halves(number, group, hash, counts, sizes, &chunks);
        self.scratch.chunks = chunks;
        done
    }

    /// Replaces a group by its two halves, which have these numbers of pairs and of chunks.
    fn store_halves(
        &mut self,
        number: u32,
        group: Group,
        hash: u64,
        counts: [usize; 2],
        sizes: [Option<usize>; 2],
        chunks: &[Vec<Chunk>; 2],
    ) -> Result<()> {
        let [Some(low), Some(high)] = sizes else {
            let crowded_half = counts[usize::from(sizes[0].is_some())];
            return Err(crowded("number of keys with nearly equal hashes", crowded_half as u64));
        };
        self.chunks.ensure((low + high).saturating_sub(group.chunks))?;
        self.directories.prepare(hash, group.depth)?;
        let upper = self.groups.allocate()?;
        self.release(&group);
        self.store(number, Group { chunks: low, count: counts[0], ..group }, &chunks[0])?;
        self.store(upper, Group { chunks: high, count: counts[1], ..group }, &chunks[1])?;
        let bit = 1 << (u64::BITS - REGION_BITS - group.depth);
        self.directories.lead(hash | bit, group.depth, upper);
        Ok(())
    }

    /// Returns the chunks of a group to the arena, so that of those in one step, the first one is used first.
    pub(super) fn release(&mut self, group: &Group) {
        group.ids().iter().rev().for_each(|id| self.chunks.release(*id));
    }

    /// Copies chunks to new ones, which must have been ensured, and writes the descriptor.
    pub(super) fn store(&mut self, number: u32, mut group: Group, chunks: &[Chunk]) -> Result<()> {
        for (id, chunk) in group.ids[..group.chunks].iter_mut().zip(chunks) {
            *id = self.chunks.allocate()?;
            *self.chunk_mut(*id) = *chunk;
        }
        self.set_group(number, &group);
        self.moved += group.count as u64;
        Ok(())
    }

    /// Writes the descriptor of a group that was rebuilt.
    pub(super) fn set_group(&mut self, number: u32, group: &Group) {
        group.encode(self.groups.line_mut(group_at(number)));
        self.rebuilds += 1;
        self.rebuilt[self.rebuilds as usize % RECENT] = number;
    }

    /// Places pairs into as many chunks as their number asks for, or into more, or else fewer, if they find no slots; returns the
    /// number of chunks, or `None` if one group cannot hold them.
    pub(super) fn fit(
        &mut self,
        format: Format,
        pairs: &[Pair],
        chunks: &mut [Chunk],
    ) -> Option<usize> {
        let least = self.shape.chunks_for(format, pairs.len())?;
        // Keys that were chosen for it may fit only into as many chunks as they come from.
        let mut sizes = (least..=CHUNKS_MAX).chain((0..least).rev());
        sizes.find(|size| self.fill_all(format, pairs, &mut chunks[..*size]))
    }

    /// Places pairs into chunks; returns `false` if one finds no slot.
    fn fill_all(&mut self, format: Format, pairs: &[Pair], chunks: &mut [Chunk]) -> bool {
        let ends = sort(pairs, chunks.len(), &mut self.scratch.sorted);
        let mut start = 0;
        let fits = chunks.iter_mut().zip(ends).all(|(chunk, end)| {
            let pairs = &self.scratch.sorted[start..end];
            start = end;
            fill(self.instructions, format, pairs, chunk, &mut self.scratch.left)
        });
        // Without chunks, there is room for no pair.
        fits && start == pairs.len()
    }
}

/// Writes pairs to `sorted` by their chunk, of `count` chunks; returns the end of each chunk.
fn sort(pairs: &[Pair], count: usize, sorted: &mut [Pair]) -> [usize; CHUNKS_MAX] {
    let chunk = |pair: &Pair| choice::chunk(count, pair.hash);
    let mut ends = [0; CHUNKS_MAX];
    pairs.iter().for_each(|pair| ends[chunk(pair)] += 1);
    let mut start = 0;
    for end in &mut ends {
        // At first the start of each chunk; it becomes the end as pairs are added.
        (*end, start) = (start, start + *end);
    }
    for pair in pairs {
        let end = &mut ends[chunk(pair)];
        sorted[*end] = *pair;
        *end += 1;
    }
    ends
}

/// Moves the pairs whose hashes have a bit behind the others; returns the number of the others.
fn partition(pairs: &mut [Pair], bit: u64) -> usize {
    let mut low = 0;
    for i in 0..pairs.len() {
        let is_low = pairs[i].hash & bit == 0;
        pairs.swap(i, low);
        low += usize::from(is_low);
    }
    low
}
