//! Building a group anew: larger, split in two, or smaller. The pairs of the group are gathered, placed into lines in
//! a buffer that fits in the first cache, and copied to their chunks. Until they are placed, nothing is changed.

use super::{
    arena::crowded,
    fill::fill,
    group::{CHUNK_BYTES, CHUNK_LINES, CHUNKS_MAX, DEPTH_MAX, Group, LINES_MAX, REGION_BITS},
    index::{Index, RECENT, group_at},
    kernel,
    line::{Format, LINE_BYTES, Line, Pair, SLOTS_MAX},
    shape::next_size,
};
use crate::error::Result;

/// Number of chunks that are prefetched ahead of the one that is read.
const AHEAD: usize = 2;

impl Index {
    /// Lets the group of `hash` grow, or splits it.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted; `Limit` if it cannot grow. Nothing is changed then.
    #[cold]
    #[inline(never)]
    pub(super) fn grow(&mut self, number: u32, hash: u64) -> Result<()> {
        let group = Group::decode(self.groups.line(group_at(number)));
        let mut scratch = std::mem::take(&mut self.scratch.pairs);
        scratch.clear();
        self.gather(&group, hash, &mut scratch);
        let min = next_size(group.chunks);
        let grown = match min.map(|min| self.rebuild(number, group, &scratch, min)) {
            None | Some(Ok(false)) => self.split(number, group, hash, &mut scratch),
            Some(grown) => grown.map(drop),
        };
        self.scratch.pairs = scratch;
        grown
    }

    /// Lets a group shrink, if its pairs find their places in fewer lines.
    #[cold]
    #[inline(never)]
    pub(super) fn shrink(&mut self, number: u32, hash: u64) {
        let group = Group::decode(self.groups.line(group_at(number)));
        let mut scratch = std::mem::take(&mut self.scratch.pairs);
        scratch.clear();
        self.gather(&group, hash, &mut scratch);
        let format = self.shape.format(group.depth);
        let chunks = self.shape.chunks_for(format, scratch.len(), 0);
        if let Some(chunks) = chunks.filter(|chunks| *chunks < group.chunks) {
            // Rarely, the pairs find their places in more chunks only. Without memory for these, the group stays as it is.
            let _ = self.rebuild(number, group, &scratch, chunks);
            self.chunks.give_back();
        }
        self.scratch.pairs = scratch;
    }

    /// Adds the pairs of a group to `pairs`; `hash` is any hash in the group's range.
    pub(super) fn gather(&self, group: &Group, hash: u64, pairs: &mut Vec<Pair>) {
        let mut count = pairs.len();
        pairs.resize(count + group.count + SLOTS_MAX, Pair { hash: 0, value: 0 });
        let format = self.shape.format(group.depth);
        for (i, id) in group.ids().iter().enumerate() {
            if let Some(later) = group.ids().get(i + AHEAD) {
                self.chunks.prefetch_unit(*later);
            }
            let lines = self.chunks.unit(*id).as_chunks().0;
            kernel::gather(self.instructions, format, lines, hash, pairs, &mut count);
        }
        pairs.truncate(count);
    }

    /// Moves the pairs of a group to at least `min` new chunks; returns `false`, and changes nothing, if they do not
    /// fit in a group.
    fn rebuild(&mut self, number: u32, group: Group, pairs: &[Pair], min: usize) -> Result<bool> {
        let format = self.shape.format(group.depth);
        let [mut lines, other] = std::mem::take(&mut self.scratch.lines);
        let chunks = self.fit(format, pairs, min, &mut lines);
        let done = chunks.map(|chunks| {
            self.chunks.ensure(chunks.saturating_sub(group.chunks))?;
            self.release(&group);
            self.store(number, Group { chunks, count: pairs.len(), ..group }, &lines)
        });
        self.scratch.lines = [lines, other];
        done.transpose().map(|done| done.is_some())
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
        let mut lines = std::mem::take(&mut self.scratch.lines);
        let sizes =
            [self.fit(format, low, 0, &mut lines[0]), self.fit(format, high, 0, &mut lines[1])];
        let done = self.store_halves(
            number,
            Group { depth, ..group },
            hash,
            [low.len(), high.len()],
            sizes,
            &lines,
        );
        self.scratch.lines = lines;
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
        lines: &[Vec<Line>; 2],
    ) -> Result<()> {
        let [Some(low), Some(high)] = sizes else {
            let crowded_half = counts[usize::from(sizes[0].is_some())];
            return Err(crowded("number of keys with nearly equal hashes", crowded_half as u64));
        };
        self.chunks.ensure((low + high).saturating_sub(group.chunks))?;
        let upper = self.groups.allocate()?;
        self.release(&group);
        self.store(number, Group { chunks: low, count: counts[0], ..group }, &lines[0])?;
        self.store(upper, Group { chunks: high, count: counts[1], ..group }, &lines[1])?;
        self.point(hash, group.depth, upper);
        Ok(())
    }

    /// Lets the directory lead to `upper` for the upper half of the hashes that share `depth - 1` bits with `hash`.
    fn point(&mut self, hash: u64, depth: u32, upper: u32) {
        let at = self.region(hash);
        let region = &mut self.regions[at];
        if depth > region.bits {
            region.directory = region.directory.iter().flat_map(|group| [*group; 2]).collect();
            region.bits += 1;
        }
        let size = 1 << (region.bits - depth);
        let prefix = (hash << REGION_BITS >> (u64::BITS - depth)) as usize | 1;
        region.directory[prefix * size..][..size].fill(upper);
    }

    /// Returns the chunks of a group to the arena, so that of those in one step, the first one is used first.
    fn release(&mut self, group: &Group) {
        group.ids().iter().rev().for_each(|id| self.chunks.release(*id));
    }

    /// Copies lines to new chunks and writes the descriptor. The chunks must have been ensured.
    fn store(&mut self, number: u32, mut group: Group, lines: &[Line]) -> Result<()> {
        let bytes = lines.as_flattened().as_chunks::<CHUNK_BYTES>().0;
        for (id, bytes) in group.ids[..group.chunks].iter_mut().zip(bytes) {
            *id = self.chunks.allocate()?;
            self.chunks.unit_mut(*id).copy_from_slice(bytes);
        }
        group.encode(self.groups.line_mut(group_at(number)));
        self.rebuilds += 1;
        self.rebuilt[self.rebuilds as usize % RECENT] = number;
        self.moved += group.count as u64;
        Ok(())
    }

    /// Places pairs into the fewest lines, of at least `min` chunks, in which all find a slot; returns the number of
    /// chunks, or `None` if one group cannot hold them.
    fn fit(
        &mut self,
        format: Format,
        pairs: &[Pair],
        min: usize,
        lines: &mut [Line],
    ) -> Option<usize> {
        let mut size = self.shape.chunks_for(format, pairs.len(), min)?;
        loop {
            let lines = &mut lines[..size * CHUNK_LINES];
            if fill(self.instructions, format, pairs, lines, &mut self.scratch.left) {
                return Some(size);
            }
            size = next_size(size)?;
        }
    }
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

const _: () = assert!(CHUNKS_MAX * CHUNK_BYTES == LINES_MAX * LINE_BYTES);
