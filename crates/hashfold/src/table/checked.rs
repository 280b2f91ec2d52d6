//! The blocks of a mapped file whose checksums have been checked.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A bit for each block: whether it has been checked since the file was opened.
#[derive(Debug)]
pub(super) struct CheckedBlocks(Box<[AtomicU64]>);

impl CheckedBlocks {
    /// Returns the bits of a file of which no block has been checked.
    pub(super) fn none_of(blocks: u64) -> CheckedBlocks {
        CheckedBlocks((0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether it is noted that a block was checked.
    pub(super) fn keeps(&self, block: u64) -> bool {
        block / 64 < self.0.len() as u64
    }

    #[inline]
    pub(super) fn contains(&self, block: u64) -> bool {
        let word = self.0.get((block / 64) as usize);
        word.is_some_and(|word| word.load(Relaxed) >> (block % 64) & 1 == 1)
    }

    /// Notes that a block is sound. Blocks do not change, so no order of memory accesses is needed.
    #[inline]
    pub(super) fn insert(&self, block: u64) {
        if let Some(word) = self.0.get((block / 64) as usize) {
            word.fetch_or(1 << (block % 64), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_checked_once_it_was_inserted() {
        let checked = CheckedBlocks::none_of(130);
        for block in [0, 63, 64, 129] {
            assert!(!checked.contains(block));
            checked.insert(block);
            checked.insert(block);
        }
        let all: Vec<u64> = (0..200).filter(|block| checked.contains(*block)).collect();
        assert_eq!(all, [0, 63, 64, 129]);
    }
}
