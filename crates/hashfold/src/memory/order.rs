//! Sorting the pairs of a group by hash.

use super::line::Pair;

/// Sorts pairs by their hashes; `buffer` is memory for it.
pub(super) fn by_hash(pairs: &mut Vec<Pair>, buffer: &mut Vec<Pair>) {
    let _ = buffer;
    pairs.sort_unstable_by_key(|pair| pair.hash);
}
