//! Changing the chunks of a group: it gets a further one, splits in two, or shrinks. Pairs that move are placed into lines in a
//! buffer that fits in the first cache, which are then copied to their chunks. Until they are placed, nothing is changed.

use super::{
    arena::crowded,
    division::{CHUNKS_MAX, DEPTH_MAX, Division, HALF},
    fill::fill,
    group::Group,
    index::{Index, RECENT, group_at},
    kernel::{self, Masks},
    line::{self, Chunk, Format, Pair, SLOTS_MAX},
    scratch::EMPTY,
};
use crate::error::Result;

/// Number of chunks that are prefetched ahead of the one that is read.
const AHEAD: usize = 2;

/// A group that was built of a part of the pairs of another one, and is not stored yet.
#[derive(Clone, Copy)]
struct Built {
    division: Division,
    /// A hash in its range.
    hash: u64,
    count: usize,
    /// Number of chunks.
    chunks: usize,
}

impl Index {
    /// Lets the group of `hash` grow by a chunk, or splits it.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted; `Limit` if it cannot grow. Nothing is changed then.
    #[cold]
    #[inline(never)]
    pub(super) fn grow(&mut self, number: u32, hash: u64) -> Result<()> {
        let group = Group::decode(self.groups.line(group_at(number)));
        let mut pairs = std::mem::take(&mut self.scratch.pairs);
        let extended = match group.chunks {
            CHUNKS_MAX => Ok(false),
            _ => self.extend(number, group, hash, &mut pairs),
        };
        let grown = match extended {
            Ok(false) => self.split(number, group, hash, &mut pairs),
            Ok(true) => {
                self.split_if_divided(number, hash);
                Ok(())
            }
            Err(error) => Err(error),
        };
        self.scratch.pairs = pairs;
        grown
    }

    /// Splits a group that has got its last chunk, while its lines are in the caches.
    fn split_if_divided(&mut self, number: u32, hash: u64) {
        let group = Group::decode(self.groups.line(group_at(number)));
        if let Some(halves) = self.divided_halves(&group, hash) {
            // Without memory for a descriptor, it splits when it is full.
            let _ = self.hand_over(number, &group, hash, halves);
        }
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
        let size = self.fit(group.division, &pairs, &mut chunks);
        if let Some(size) = size.filter(|size| *size < group.chunks) {
            self.release(&group);
            let smaller = Group { chunks: size, count: pairs.len(), ..group };
            let stored = self.store(number, smaller, &chunks);
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
        let format = self.shape.format(group.division.depth);
        for i in 0..group.chunks {
            let chunk = self.chunk_ahead(group, i);
            kernel::gather(self.instructions, format, chunk, hash, pairs, &mut count);
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
    /// not fit, or if there are none, since all pairs are in the lower half. `pairs` is memory for them.
    fn extend(
        &mut self,
        number: u32,
        mut group: Group,
        hash: u64,
        pairs: &mut Vec<Pair>,
    ) -> Result<bool> {
        let format = self.shape.format(group.division.depth);
        let (moving, count) = self.collect_leaving(&group, hash, pairs);
        if count == 0 && group.chunks >= HALF {
            return Ok(false);
        }
        let pairs = &pairs[..count];
        let mut chunks = std::mem::take(&mut self.scratch.chunks);
        let fits = fill(self.instructions, format, pairs, &mut chunks[0], &mut self.scratch.left);
        let added = if fits { self.chunks.allocate().map(Some) } else { Ok(None) };
        if let Ok(Some(id)) = added {
            *self.chunk_mut(id) = chunks[0];
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
        let format = self.shape.format(group.division.depth);
        let (mut slots, mut count) = ([Masks::default(); CHUNKS_MAX], 0);
        let leaving = group.division.of_last(group.chunks + 1);
        // The pairs that are there stay: to clear them takes time.
        pairs.resize(pairs.len().max(group.count + SLOTS_MAX), Pair { hash: 0, value: 0 });
        for (i, masks) in slots.iter_mut().enumerate().take(group.chunks) {
            let chunk = self.chunk_ahead(group, i);
            *masks = kernel::of_part(self.instructions, format, chunk, &leaving);
            kernel::gather_slots(format, chunk, masks, hash, pairs, &mut count);
        }
        (slots, count)
    }

    /// Splits a group by the next bit of its hashes. `pairs` is memory for them.
    fn split(&mut self, number: u32, group: Group, hash: u64, pairs: &mut Vec<Pair>) -> Result<()> {
        if group.division.depth == DEPTH_MAX {
            return Err(crowded("number of keys with nearly equal hashes", group.count as u64));
        }
        if let Some(halves) = self.divided_halves(&group, hash) {
            return self.hand_over(number, &group, hash, halves);
        }
        pairs.clear();
        self.gather(&group, hash, pairs);
        let mut chunks = std::mem::take(&mut self.scratch.chunks);
        let built = self.build_halves(&group, hash, pairs, &mut chunks);
        let done = built.and_then(|built| self.store_built(number, &group, &built, &chunks));
        // Chosen keys may have needed many.
        chunks.truncate(2 * CHUNKS_MAX);
        chunks.shrink_to(2 * CHUNKS_MAX);
        self.scratch.chunks = chunks;
        done
    }

    /// Returns the halves of a group if each has chunks of its own, in the format that they have after it splits, and
    /// enough pairs for them.
    fn divided_halves(&self, group: &Group, hash: u64) -> Option<[Group; 2]> {
        let division = group.division;
        let format = self.shape.format(division.depth);
        if group.chunks < CHUNKS_MAX
            || division.depth == DEPTH_MAX
            || format != self.shape.format(division.depth + 1)
        {
            return None;
        }
        let mut halves = [0, 1].map(|which| {
            let mut ids = [0; CHUNKS_MAX];
            ids[..HALF].copy_from_slice(&group.ids[which * HALF..][..HALF]);
            Group { chunks: HALF, division: division.halves()[which], ids, ..*group }
        });
        // The half of the hash is counted: of a full group, it often gets a further chunk at once, for which its lines are read
        // again.
        let counted = (hash >> division.next_bit() & 1) as usize;
        let count = self.count_pairs(&halves[counted]);
        halves[counted].count = count;
        halves[1 - counted].count -= count;
        let is_filled = |half: &Group| !self.shape.shrinks(format, HALF, half.count);
        halves.iter().all(is_filled).then_some(halves)
    }

    /// Splits a group whose halves have chunks of their own: a new group gets the upper one, and no pair moves.
    fn hand_over(
        &mut self,
        number: u32,
        group: &Group,
        hash: u64,
        [low, high]: [Group; 2],
    ) -> Result<()> {
        let depth = group.division.depth + 1;
        self.directories.prepare(hash, depth)?;
        let upper = self.groups.allocate()?;
        self.set_group(number, &low);
        self.set_group(upper, &high);
        self.directories.lead(hash | 1 << group.division.next_bit(), depth, upper);
        Ok(())
    }

    /// Counts the pairs in the chunks of a group.
    fn count_pairs(&self, group: &Group) -> usize {
        let in_chunk = |i| kernel::count(&kernel::in_use(self.chunk_ahead(group, i)));
        (0..group.chunks).map(in_chunk).sum()
    }

    /// Builds a group of each half of a group, or, if the pairs of a half find no slots, of each half of that, and so on. Their
    /// chunks are one after the other.
    fn build_halves(
        &mut self,
        group: &Group,
        hash: u64,
        pairs: &mut [Pair],
        chunks: &mut Vec<Chunk>,
    ) -> Result<Vec<Built>> {
        let (mut built, mut end) = (Vec::with_capacity(2), 0);
        let mut to_split = vec![(group.division, hash, pairs)];
        while let Some((division, hash, pairs)) = to_split.pop() {
            if division.depth == DEPTH_MAX {
                return Err(crowded("number of keys with nearly equal hashes", pairs.len() as u64));
            }
            let bit = 1 << division.next_bit();
            let middle = partition(pairs, bit);
            let halves = <[&mut [Pair]; 2]>::from(pairs.split_at_mut(middle));
            let hashes = [hash & !bit, hash | bit];
            for ((division, hash), pairs) in division.halves().into_iter().zip(hashes).zip(halves) {
                chunks.resize(chunks.len().max(end + CHUNKS_MAX), EMPTY);
                let Some(size) = self.fit(division, pairs, &mut chunks[end..]) else {
                    to_split.push((division, hash, pairs));
                    continue;
                };
                end += size;
                built.push(Built { division, hash, count: pairs.len(), chunks: size });
            }
        }
        Ok(built)
    }

    /// Replaces a group by groups that were built of its pairs, whose chunks are one after the other.
    fn store_built(
        &mut self,
        number: u32,
        group: &Group,
        built: &[Built],
        mut chunks: &[Chunk],
    ) -> Result<()> {
        let size: usize = built.iter().map(|built| built.chunks).sum();
        self.chunks.ensure(size.saturating_sub(group.chunks))?;
        self.groups.ensure(built.len() - 1)?;
        for built in built {
            self.directories.prepare(built.hash, built.division.depth)?;
        }
        self.release(group);
        for (i, Built { division, hash, count, chunks: size }) in built.iter().copied().enumerate()
        {
            let number = if i == 0 { number } else { self.groups.allocate()? };
            let (own, others) = chunks.split_at(size);
            self.store(number, Group { chunks: size, division, count, ..*group }, own)?;
            self.directories.lead(hash, division.depth, number);
            chunks = others;
        }
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

    /// Places the pairs of a group into as many chunks as their number asks for, or into more, or else fewer, if they find no
    /// slots; returns the number of chunks, or `None` if one group cannot hold them. `chunks` are at least [`CHUNKS_MAX`].
    pub(super) fn fit(
        &mut self,
        division: Division,
        pairs: &[Pair],
        chunks: &mut [Chunk],
    ) -> Option<usize> {
        let format = self.shape.format(division.depth);
        let least = self.shape.chunks_for(format, pairs.len())?;
        // Keys that were chosen for it may fit only into as many chunks as they come from.
        let mut sizes = (least..=CHUNKS_MAX).chain((0..least).rev());
        sizes.find(|size| self.fill_all(format, division, pairs, &mut chunks[..*size]))
    }

    /// Places pairs into chunks; returns `false` if one finds no slot.
    fn fill_all(
        &mut self,
        format: Format,
        division: Division,
        pairs: &[Pair],
        chunks: &mut [Chunk],
    ) -> bool {
        let ends = sort(division, pairs, chunks.len(), &mut self.scratch.sorted);
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
fn sort(
    division: Division,
    pairs: &[Pair],
    count: usize,
    sorted: &mut [Pair],
) -> [usize; CHUNKS_MAX] {
    let chunk = |pair: &Pair| division.chunk(count, pair.hash);
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
