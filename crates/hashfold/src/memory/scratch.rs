//! Memory for building groups anew, which is used again and again.

use super::{
    group::LINES_MAX,
    line::{LINE_BYTES, Line, Pair, SLOTS_MAX},
};

/// Maximum number of pairs in a group.
pub(super) const PAIRS_MAX: usize = LINES_MAX * SLOTS_MAX;

/// Memory for building groups anew.
#[derive(Debug)]
pub(super) struct Scratch {
    /// The pairs of the group.
    pub(super) pairs: Vec<Pair>,
    /// Those of them that no line has a free slot for at first.
    pub(super) left: Vec<Pair>,
    /// The lines of the new group, or of both parts of a group that splits.
    pub(super) lines: [Vec<Line>; 2],
}

impl Scratch {
    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let lines: usize = self.lines.iter().map(Vec::capacity).sum();
        let pairs = self.pairs.capacity() + self.left.capacity();
        pairs * size_of::<Pair>() + lines * LINE_BYTES
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        let lines = || vec![[0; LINE_BYTES]; LINES_MAX];
        Scratch {
            pairs: Vec::with_capacity(PAIRS_MAX + SLOTS_MAX),
            left: Vec::new(),
            lines: [lines(), lines()],
        }
    }
}
