//! The sizes of groups: how many pairs a group of each size holds.

use super::{
    division::CHUNKS_MAX,
    line::{CHUNK_LINES, Format},
};

/// Depth from which on a group has narrow lines, if values have 48 bits: its place implies 11 bits of a hash.
const NARROW_DEPTH: u32 = 3;

/// Part of its limit that a group may fill when it is built, so that it does not grow again at once.
const FILL: f64 = 0.95;

/// Part of the limit of the next smaller size below which a group shrinks.
const SHRINK: f64 = 0.6;

/// A group of one chunk is asked to merge at the multiples of this number of pairs: not each time, since the other group may have
/// many.
const MERGE: usize = 16;

/// The number of pairs that groups of all sizes hold.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    wide_values: bool,
    /// By format and number of chunks.
    limits: [[usize; CHUNKS_MAX + 1]; 2],
}

impl Shape {
    /// Makes a shape for this maximum load of a group, and for values of 64 bits or 48.
    pub(super) fn new(load: f64, wide_values: bool) -> Shape {
        let limits = [Format::Narrow, Format::Wide].map(|format| {
            std::array::from_fn(|chunks| {
                (load * (chunks * CHUNK_LINES * format.slots()) as f64) as usize
            })
        });
        Shape { wide_values, limits }
    }

    /// Returns the format of the lines of groups of this depth.
    #[inline]
    pub(super) fn format(&self, depth: u32) -> Format {
        if self.wide_values || depth < NARROW_DEPTH { Format::Wide } else { Format::Narrow }
    }

    /// Returns the maximum number of pairs in a group.
    #[inline]
    pub(super) fn limit(&self, format: Format, chunks: usize) -> usize {
        self.limits[format as usize][chunks]
    }

    /// Returns the number of chunks for a new group of `count` pairs; `None` if they are too many.
    pub(super) fn chunks_for(&self, format: Format, count: usize) -> Option<usize> {
        let fits = |chunks: &usize| count as f64 <= self.limit(format, *chunks) as f64 * FILL;
        let is_full = count <= self.limit(format, CHUNKS_MAX);
        (0..=CHUNKS_MAX).find(fits).or(is_full.then_some(CHUNKS_MAX))
    }

    /// Whether a group has so few pairs that it should shrink.
    #[inline]
    pub(super) fn shrinks(&self, format: Format, chunks: usize, count: usize) -> bool {
        (count as f64) < self.limit(format, chunks - 1) as f64 * SHRINK || count == 0
    }

    /// Whether a group that need not shrink should be asked to merge with another one.
    #[inline]
    pub(super) fn merges(chunks: usize, count: usize) -> bool {
        chunks == 1 && count.is_multiple_of(MERGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_built_neither_grows_nor_shrinks_at_once() {
        for (load, wide) in [(0.5, false), (0.87, false), (0.87, true), (0.95, true)] {
            let shape = Shape::new(load, wide);
            for format in [Format::Narrow, Format::Wide] {
                let full = shape.limit(format, CHUNKS_MAX);
                for count in 0..=full {
                    let chunks = shape.chunks_for(format, count).unwrap();
                    assert!(count <= shape.limit(format, chunks));
                    assert!(chunks == 0 || count > 0 && !shape.shrinks(format, chunks, count));
                }
                assert_eq!(shape.chunks_for(format, full + 1), None);
            }
        }
    }
}
