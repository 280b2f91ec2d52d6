//! The parameters of a trie.

use super::{code::CODING_LIMIT_MAX, directory::BUCKET_SIZE_MAX, tables::CODING_LIMIT_DEFAULT};
use crate::error::{Error, Result};
use std::ops::Range;

/// Range of the mean number of keys in a bucket.
pub const BUCKET_SIZES: Range<u32> = 8..BUCKET_SIZE_MAX + 1;

/// The parameters of the paper's section 4.5. Smaller buckets are faster and take more bits; so do
/// lower limits on Huffman coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) struct TrieOptions {
    /// Mean number of keys in a bucket (the paper's g), in [`BUCKET_SIZES`].
    pub(in crate::table) bucket_size: u32,
    /// Keys of the largest trie node with a Huffman code (the paper's hmax), at most
    /// [`CODING_LIMIT_MAX`]; larger nodes have Rice codes.
    pub(in crate::table) coding_limit: u32,
}

impl Default for TrieOptions {
    fn default() -> TrieOptions {
        TrieOptions { bucket_size: 64, coding_limit: CODING_LIMIT_DEFAULT }
    }
}

impl TrieOptions {
    /// Refuses parameters outside their ranges.
    pub(in crate::table) fn check(&self) -> Result<()> {
        if !BUCKET_SIZES.contains(&self.bucket_size) {
            let expected = format!("{} to {BUCKET_SIZE_MAX}", BUCKET_SIZES.start);
            return Err(Error::argument("bucket size", expected, self.bucket_size));
        }
        if self.coding_limit > CODING_LIMIT_MAX {
            let expected = format!("at most {CODING_LIMIT_MAX}");
            return Err(Error::argument("coding limit", expected, self.coding_limit));
        }
        Ok(())
    }
}
