//! Memory for rebuilding groups, which is used again and again.

use super::{
    division::CHUNKS_MAX,
    line::{CHUNK_LINES, Chunk, LINE_BYTES, Pair, SLOTS_MAX},
};

/// Maximum number of pairs in a chunk.
pub(super) const CHUNK_PAIRS_MAX: usize = CHUNK_LINES * SLOTS_MAX;

/// A chunk without pairs.
pub(super) const EMPTY: Chunk = [[0; LINE_BYTES]; CHUNK_LINES];

/// Maximum number of pairs in a group.
pub(super) const PAIRS_MAX: usize = CHUNKS_MAX * CHUNK_PAIRS_MAX;

/// Memory for rebuilding groups.
#[derive(Debug)]
pub(super) struct Scratch {
    /// The pairs of the group.
    pub(super) pairs: Vec<Pair>,
    /// The pairs by their chunk.
    pub(super) sorted: Vec<Pair>,
    /// Pairs whose chosen line has no free slot.
    pub(super) left: Vec<Pair>,
    /// The chunks of the new group, or of all parts of a group that splits; or the further chunk of a group that grows, as the
    /// first one.
    pub(super) chunks: Vec<Chunk>,
}

impl Scratch {
    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let pairs = self.pairs.capacity() + self.sorted.capacity() + self.left.capacity();
        pairs * size_of::<Pair>() + self.chunks.capacity() * size_of::<Chunk>()
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch {
            pairs: Vec::with_capacity(PAIRS_MAX + SLOTS_MAX),
            sorted: vec![Pair { hash: 0, value: 0 }; PAIRS_MAX],
            left: Vec::new(),
            chunks: vec![EMPTY; CHUNKS_MAX],
        }
    }
}
