//! The places in a bucket at which blocks begin.

use super::code::KEYS_MAX;
use std::ops::Range;

/// Number of 64-bit words with a bit for each key of a bucket.
const MARK_WORDS: usize = KEYS_MAX.div_ceil(64);

/// The keys of a bucket at which a block begins.
#[derive(Debug)]
pub(in crate::table) struct Marks {
    first: u64,
    words: [u64; MARK_WORDS],
}

impl Marks {
    /// Makes marks for a bucket whose first key has this rank, with no key marked.
    pub(super) fn new(first: u64) -> Marks {
        Marks { first, words: [0; MARK_WORDS] }
    }

    /// Marks the key with this rank, which must be in the bucket.
    #[inline]
    pub(in crate::table) fn add(&mut self, rank: u64) {
        let i = (rank - self.first) as usize;
        self.words[i / 64] |= 1 << (i % 64);
    }

    /// Whether all these keys of the bucket are in one block.
    #[inline]
    pub(super) fn is_one_block(&self, keys: &Range<usize>) -> bool {
        let (first, last) = (keys.start + 1, keys.end - 1);
        let words = &self.words[first / 64..=last / 64];
        let head = u64::MAX << (first % 64);
        let tail = u64::MAX >> (63 - last % 64);
        match words {
            [word] => word & head & tail == 0,
            [start, middle @ .., end] => {
                start & head == 0 && end & tail == 0 && middle.iter().all(|&word| word == 0)
            }
            [] => true,
        }
    }
}
