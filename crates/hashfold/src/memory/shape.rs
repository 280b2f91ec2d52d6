//! The sizes of groups: how many pairs a group of each size holds, and what size follows.

use super::{
    group::{CHUNK_LINES, CHUNKS_MAX},
    line::Format,
};

/// Depth from which on a group has narrow lines, if values have 48 bits: its place implies 11 bits of a hash.
const NARROW_DEPTH: u32 = 3;

/// Part of its limit that a group may fill when it is built, so that it does not grow again at once.
const FILL: f64 = 0.95;

/// Part of the limit of the next smaller size below which a group shrinks.
const SHRINK: f64 = 0.6;

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

    /// Returns the number of chunks for a new group of `count` pairs, at least `min`; `None` if they are too many.
    pub(super) fn chunks_for(&self, format: Format, count: usize, min: usize) -> Option<usize> {
        let fits = |chunks: &usize| count as f64 <= self.limit(format, *chunks) as f64 * FILL;
        let mut large_enough = sizes().filter(|chunks| *chunks >= min);
        let is_full = min <= CHUNKS_MAX && count <= self.limit(format, CHUNKS_MAX);
        large_enough.find(fits).or(is_full.then_some(CHUNKS_MAX))
    }

    /// Whether a group has so few pairs that it should shrink.
    #[inline]
    pub(super) fn shrinks(&self, format: Format, chunks: usize, count: usize) -> bool {
        let smaller = if chunks > 8 { chunks - 2 } else { chunks - 1 };
        (count as f64) < self.limit(format, smaller) as f64 * SHRINK || count == 0
    }
}

/// Returns the numbers of chunks that groups may have: 1 to 8, 10, 12, 14.
pub(super) fn sizes() -> impl Iterator<Item = usize> {
    (0..=8).chain((10..=CHUNKS_MAX).step_by(2))
}

/// Returns the number of chunks of a group after it grows; `None` if it splits instead.
pub(super) fn next_size(chunks: usize) -> Option<usize> {
    sizes().find(|size| *size > chunks)
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
                    let chunks = shape.chunks_for(format, count, 0).unwrap();
                    assert!(count <= shape.limit(format, chunks));
                    assert!(chunks == 0 || count > 0 && !shape.shrinks(format, chunks, count));
                    let more = shape.chunks_for(format, count, chunks + 1);
                    assert!(more == next_size(chunks).filter(|_| chunks < CHUNKS_MAX), "{count}");
                }
                assert_eq!(shape.chunks_for(format, full + 1, 0), None);
            }
        }
    }

    #[test]
    fn sizes_grow_by_a_quarter() {
        let mut chunks = vec![0];
        while let Some(next) = next_size(*chunks.last().unwrap()) {
            chunks.push(next);
        }
        assert_eq!(chunks, [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14]);
    }
}
