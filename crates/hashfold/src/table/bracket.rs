//! Lookups without an index: interpolation search for a hash in the data file, as in the paper
//! (section 2.2), because hashes are uniform.
//!
//! One round: `low` and `high` are hashes and blocks that enclose the entry.
//!
//! ```text
//! low ─────────── guess ─────────────────── high
//!                 the block that is read
//!                 the hash is below its first one: high moves here; above its last one: low does
//! ```
//!
//! With N entries, the first guess is about √N / 2 entries away; the second guess starts from a hash
//! nearby and is usually right. So a lookup takes 2 to 4 reads.

use crate::key::KeyHash;
use std::ops::Range;

/// Number of guesses by interpolation. Further ones bisect: the hashes are not uniform.
const GUESSES: u8 = 8;

/// The blocks in which the entry of a hash may start, and the next ones of them to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bracket {
    /// Entries with hashes above this one start in this block or later. Hashes are their high bits.
    low: (u64, u64),
    /// Entries with hashes below this one start before this block.
    high: (u64, u64),
    guesses: u8,
    /// Number of blocks to read at once after the first guess.
    width: u64,
    next: Range<u64>,
}

impl Bracket {
    /// Returns the first guess for a hash in a file of at least one block.
    #[inline]
    pub(super) fn new(hash: KeyHash, blocks: u64, width: u64) -> Bracket {
        let (low, high) = ((0, 0), (u64::MAX, blocks));
        let bracket = Bracket { low, high, guesses: 0, width: 1, next: 0..0 };
        Bracket { width, ..bracket.guess(hash) }
    }

    /// Returns the blocks to read next.
    #[inline]
    pub(super) fn next(&self) -> Range<u64> {
        self.next.clone()
    }

    /// Returns the next guess if the entry starts before the blocks of this one, the first of which
    /// has the hash `before` before it; `None` if there are no such blocks.
    pub(super) fn below(&self, hash: KeyHash, before: u64) -> Option<Bracket> {
        Bracket { high: (before, self.next.start), ..self.clone() }.guess_inside(hash)
    }

    /// Returns the next guess if the entry starts after the blocks of this one, whose last hash is
    /// `last`; `None` if there are no such blocks.
    pub(super) fn above(&self, hash: KeyHash, last: u64) -> Option<Bracket> {
        Bracket { low: (last, self.next.end), ..self.clone() }.guess_inside(hash)
    }

    /// Returns the same guess with other blocks to read.
    pub(super) fn reading(&self, next: Range<u64>) -> Bracket {
        Bracket { next, ..self.clone() }
    }

    fn guess_inside(self, hash: KeyHash) -> Option<Bracket> {
        (self.low.1 < self.high.1).then(|| self.guess(hash))
    }

    /// Returns the bracket with its next guess. It is not empty.
    fn guess(self, hash: KeyHash) -> Bracket {
        let Bracket { low: (low_hash, low), high: (high_hash, high), guesses, width, .. } = self;
        let blocks = high - low;
        // In units of half a block.
        let halves = if guesses < GUESSES {
            let part = u128::from(hash.high().saturating_sub(low_hash));
            let all = u128::from(high_hash.saturating_sub(low_hash).max(1));
            (part * u128::from(2 * blocks) / all).min(u128::from(2 * blocks - 1)) as u64
        } else {
            blocks
        };
        // Of two blocks, the one that is closer to the guess is read besides.
        let before = if width > 1 && halves.is_multiple_of(2) { width - 1 } else { 0 };
        let start = low + (halves / 2).saturating_sub(before);
        let end = (start + width).min(high);
        Bracket { guesses: guesses.saturating_add(1), next: start..end, ..self }
    }
}
