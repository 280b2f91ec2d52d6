//! Writing the trie of one bucket.
//!
//! The order is the paper's (section 2.4: a node, its left subtrie, its right subtrie), but the
//! code has two ends: the root's chain and its left subtrie run forward from the start, its right
//! subtrie runs backward from the end. A lookup reads one of the two subtries, and skips nothing at
//! the root, where half of all skipping would be.

use super::{
    bits::BitVec,
    code::{CodeBook, Direction, KEYS_MAX, SMALL_MAX},
};

/// Maximum number of pending right subtries: the decoder's 64-bit stack holds 12 sizes of 5 bits,
/// and one is in use.
const PENDING_MAX: u32 = 11;

/// The keys of one trie, in order.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    /// The bits of each key, the first bit highest.
    pub(super) fractions: &'a [u64],
    /// The block number of each key, for a sparse trie, which leaves out subtries inside one block;
    /// else empty.
    pub(super) blocks: &'a [u64],
}

impl<'a> Keys<'a> {
    fn len(self) -> usize {
        self.fractions.len()
    }

    /// Whether no further node is needed to tell the keys apart.
    fn is_done(self) -> bool {
        self.len() < 2 || self.blocks.first().is_some_and(|first| self.blocks.last() == Some(first))
    }

    fn split_at(self, left: usize) -> (Keys<'a>, Keys<'a>) {
        let (a, b) = self.fractions.split_at(left);
        let (c, d) = self.blocks.split_at(left.min(self.blocks.len()));
        (Keys { fractions: a, blocks: c }, Keys { fractions: b, blocks: d })
    }

    /// Returns the bit at which the first and the last key part, and the number of keys to the left
    /// there; `None` if the keys are equal.
    #[inline]
    fn split(self) -> Option<(u32, usize)> {
        let (first, last) = (self.fractions.first()?, self.fractions.last()?);
        let depth = (first ^ last).leading_zeros();
        if depth == u64::BITS {
            return None;
        }
        let bit = 1 << (63 - depth);
        let left = if self.len() <= 16 {
            self.fractions.iter().take_while(|&key| key & bit == 0).count()
        } else {
            self.fractions.partition_point(|key| key & bit == 0)
        };
        Some((depth, left))
    }
}

/// Appends the code of a bucket to `out`. `None`, possibly with some bits appended, if the bucket
/// has no code: keys are equal, too many, or in a shape that the decoder's stack cannot hold.
/// `right` is scratch space.
pub(super) fn bucket(
    book: &CodeBook,
    keys: Keys<'_>,
    out: &mut BitVec,
    right: &mut BitVec,
) -> Option<()> {
    if keys.len() > KEYS_MAX {
        return None;
    }
    if keys.is_done() {
        return Some(());
    }
    let (depth, left) = keys.split()?;
    chain(book, keys.len(), depth, Direction::Forward, out);
    out.push(book.word(keys.len(), left, Direction::Forward));
    let (left, right_keys) = keys.split_at(left);
    let below = Below { depth: depth + 1, pending: 0 };
    subtrie(book, left, below, Direction::Forward, out)?;
    right.truncate(0);
    subtrie(book, right_keys, below, Direction::Backward, right)?;
    out.push_reversed(right);
    Some(())
}

/// The state of the trie above a subtrie.
#[derive(Clone, Copy)]
struct Below {
    /// Number of key bits that are used up.
    depth: u32,
    /// Number of right subtries of two and more keys that come later, inside a small subtrie.
    pending: u32,
}

/// Appends a subtrie. The recursion is at most 64 deep, because each call uses up a key bit.
fn subtrie(
    book: &CodeBook,
    keys: Keys<'_>,
    below: Below,
    direction: Direction,
    out: &mut BitVec,
) -> Option<()> {
    if keys.is_done() {
        return Some(());
    }
    if below.pending > PENDING_MAX {
        return None;
    }
    let (depth, left) = keys.split()?;
    chain(book, keys.len(), depth - below.depth, direction, out);
    out.push(book.word(keys.len(), left, direction));
    let (left, right) = keys.split_at(left);
    let pending = if keys.len() > SMALL_MAX { 0 } else { below.pending };
    let waits = u32::from(keys.len() <= SMALL_MAX && right.len() > 1);
    let depth = depth + 1;
    subtrie(book, left, Below { depth, pending: pending + waits }, direction, out)?;
    subtrie(book, right, Below { depth, pending }, direction, out)
}

/// Appends `nodes` nodes that have all keys on one side.
#[inline]
fn chain(book: &CodeBook, keys: usize, nodes: u32, direction: Direction, out: &mut BitVec) {
    if nodes > 0 {
        let word = book.word(keys, 0, direction);
        (0..nodes).for_each(|_| out.push(word));
    }
}
