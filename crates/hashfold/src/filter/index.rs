//! The block index: maps a fingerprint to the blocks that may hold it, in at most 4 bytes of RAM
//! per block.

use crate::{
    error::{Error, Result},
    fingerprints::Universe,
};
use std::ops::Range;

/// The first 32 bits of the first fingerprint of each block of a run.
///
/// Blocks end where these bits change, if possible: see [`super::block::Encoder::encode`]. So a
/// fingerprint is in the last block whose bits are at most its own bits. Only if several blocks
/// have exactly its bits, it may be in any of them.
///
/// A *thin* index stores one block in `stride`. A lookup gets `stride` candidates, or a few more,
/// where a full index gives one.
#[derive(Clone, Debug)]
pub(super) struct BlockIndex {
    universe: Universe,
    /// The prefixes of the blocks whose numbers are multiples of `stride`.
    prefixes: Vec<u32>,
    stride: usize,
    /// Number of blocks in the run.
    blocks: usize,
}

impl BlockIndex {
    /// Returns an empty index.
    pub(super) fn new(universe: Universe) -> BlockIndex {
        BlockIndex { universe, prefixes: Vec::new(), stride: 1, blocks: 0 }
    }

    /// Returns an index of blocks with these first bits, which ascend unless the run is damaged.
    pub(super) fn from_prefixes(universe: Universe, prefixes: Vec<u32>) -> Result<BlockIndex> {
        if prefixes.is_sorted() {
            let blocks = prefixes.len();
            return Ok(BlockIndex { universe, prefixes, stride: 1, blocks });
        }
        Err(Error::field("index of the blocks", "ascending numbers", "not ascending"))
    }

    /// Returns the first bits of each block, to be written to a file.
    pub(super) fn prefixes(&self) -> &[u32] {
        assert_eq!(self.stride, 1, "a thin index does not know them");
        &self.prefixes
    }

    /// Returns the size of a full index of this many blocks, in bytes.
    pub(super) fn bytes_of(blocks: usize) -> usize {
        blocks * size_of::<u32>()
    }

    /// Keeps one block in `stride`, and frees the other memory.
    pub(super) fn thin(self, stride: usize) -> BlockIndex {
        assert!(stride.is_power_of_two());
        assert_eq!(self.stride, 1, "it is thin already");
        let mut prefixes = self.prefixes;
        if stride > 1 {
            prefixes = prefixes.into_iter().step_by(stride).collect();
        }
        prefixes.shrink_to_fit();
        BlockIndex { prefixes, stride, ..self }
    }

    /// Returns the number of low bits of a fingerprint that the index ignores.
    pub(super) fn cut_shift(&self) -> u32 {
        self.universe.bits().saturating_sub(u32::BITS)
    }

    fn prefix(&self, fingerprint: u64) -> u32 {
        (fingerprint >> self.cut_shift()) as u32
    }

    /// Adds a block whose first fingerprint is not below those before.
    pub(super) fn push(&mut self, first: u64) {
        debug_assert_eq!(self.stride, 1);
        let prefix = self.prefix(first);
        debug_assert!(self.prefixes.last().is_none_or(|&last| last <= prefix));
        self.prefixes.push(prefix);
        self.blocks += 1;
    }

    /// Removes all blocks, and keeps the memory.
    pub(super) fn clear(&mut self, universe: Universe) {
        self.universe = universe;
        self.prefixes.clear();
        (self.stride, self.blocks) = (1, 0);
    }

    /// Returns the blocks that may hold a fingerprint.
    pub(super) fn candidates(&self, fingerprint: u64) -> Range<usize> {
        let last = self.prefix(self.universe.last());
        if fingerprint > self.universe.last() {
            return 0..0;
        }
        let prefix = self.prefix(fingerprint);
        let blocks = self.prefixes.len() as u128;
        let guess = u128::from(prefix) * blocks / (u128::from(last) + 1);
        // The number of blocks that start with at most these bits.
        let end = partition_near(&self.prefixes, guess as usize, |&it| it <= prefix);
        let mut start = end.saturating_sub(1);
        if self.prefixes.get(start) == Some(&prefix) {
            while start > 0 && self.prefixes[start - 1] == prefix {
                start -= 1;
            }
            // Blocks before the first stored block with these bits may also start with these bits.
            if self.stride > 1 {
                start = start.saturating_sub(1);
            }
        }
        start * self.stride..(end * self.stride).min(self.blocks)
    }

    /// Returns the size in RAM, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.prefixes.capacity() * size_of::<u32>()
    }
}

/// Returns the number of items at the front for which `below` is true; `guess` is near the result.
pub(super) fn partition_near<T>(
    items: &[T],
    guess: usize,
    mut below: impl FnMut(&T) -> bool,
) -> usize {
    let guess = guess.min(items.len());
    let (mut from, mut to, mut step) = (guess, guess, 1);
    while to < items.len() && below(&items[to]) {
        from = to + 1;
        to = (to + step).min(items.len());
        step *= 2;
    }
    while from > 0 && !below(&items[from - 1]) {
        to = from - 1;
        from = from.saturating_sub(step);
        step *= 2;
    }
    from + items[from..to.max(from)].partition_point(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_found_from_every_guess() {
        for len in 0..40 {
            let items: Vec<usize> = (0..len).collect();
            for place in 0..=len {
                for guess in 0..=len + 3 {
                    let found = partition_near(&items, guess, |&item| item < place);
                    assert_eq!(found, place, "{len} {guess}");
                }
            }
        }
    }

    #[test]
    fn blocks_that_share_their_first_bits_are_all_candidates() {
        let mut index = BlockIndex::new(Universe::EXACT);
        for prefix in [0, 5, 5, 5, 9_u64] {
            index.push(prefix << 32 | 7);
        }
        for (prefix, blocks) in [(0, 0..1), (4, 0..1), (5, 1..4), (6, 3..4), (9, 4..5), (99, 4..5)]
        {
            for low in [0, 7, u64::from(u32::MAX)] {
                assert_eq!(index.candidates(prefix << 32 | low), blocks, "{prefix}");
            }
        }
        assert_eq!(BlockIndex::new(Universe::EXACT).candidates(1), 0..0);
    }

    #[test]
    fn a_thin_index_gives_all_candidates_of_a_full_one_and_few_more() {
        for step in 0..5 {
            let mut full = BlockIndex::new(Universe::EXACT);
            (0..100_u64).for_each(|i| full.push((i * step / 3) << 32));
            for stride in [2, 4, 32, 256] {
                let thin = full.clone().thin(stride);
                assert_eq!(thin.bytes(), BlockIndex::bytes_of(100_usize.div_ceil(stride)));
                for prefix in 0..150 {
                    let (few, many) =
                        (full.candidates(prefix << 32), thin.candidates(prefix << 32));
                    assert!(many.start <= few.start && few.end <= many.end, "{prefix} {stride}");
                    assert!(many.end <= 100);
                    assert!(many.len() <= few.len() + 3 * stride, "{prefix} {stride}");
                }
            }
        }
    }
}
