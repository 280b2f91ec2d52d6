//! Sets of chunks.

use std::{fmt, ops::Range};

/// A set of chunks: ranges in ascending order that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkSet {
    ranges: Vec<Range<u32>>,
}

impl ChunkSet {
    /// Returns the ranges of the set, in ascending order.
    pub fn ranges(&self) -> &[Range<u32>] {
        &self.ranges
    }

    /// Whether the set has no chunk.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the first chunk of the set and the chunk after the last one; `0..0` if the set is
    /// empty.
    pub fn bounds(&self) -> Range<u32> {
        match (self.ranges.first(), self.ranges.last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..0,
        }
    }

    /// Returns the chunks of the set, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.ranges.iter().cloned().flatten()
    }

    /// Returns the number of chunks in the set.
    pub fn count(&self) -> u32 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns the number of chunks of a range that are in the set.
    pub fn count_in(&self, range: &Range<u32>) -> u32 {
        self.ranges.iter().map(|own| common(own, range)).map(|both| both.end - both.start).sum()
    }

    /// Adds a range that is after all chunks of the set.
    pub(super) fn push(&mut self, range: Range<u32>) {
        match self.ranges.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            last => {
                assert!(last.is_none_or(|last| last.end < range.start));
                self.ranges.push(range);
            }
        }
    }

    /// Returns the chunks of this set that are not in `other`.
    pub(super) fn without(&self, other: &ChunkSet) -> ChunkSet {
        let mut left = ChunkSet::default();
        for range in &self.ranges {
            let mut start = range.start;
            for hole in other.ranges.iter().map(|hole| common(hole, range)) {
                if !hole.is_empty() {
                    left.push(start..hole.start);
                    start = hole.end;
                }
            }
            left.push(start..range.end);
        }
        left
    }
}

impl From<Range<u32>> for ChunkSet {
    fn from(range: Range<u32>) -> ChunkSet {
        let mut set = ChunkSet::default();
        set.push(range);
        set
    }
}

impl fmt::Display for ChunkSet {
    /// Writes the set as `0 to 4, 7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.ranges.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            match range.end - range.start {
                1 => write!(f, "{comma}{}", range.start)?,
                _ => write!(f, "{comma}{} to {}", range.start, range.end - 1)?,
            }
        }
        Ok(())
    }
}

/// Returns the numbers that are in both ranges.
pub(super) fn common(one: &Range<u32>, other: &Range<u32>) -> Range<u32> {
    let start = one.start.max(other.start);
    start..one.end.min(other.end).max(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// All pairs of sets over seven chunks, against sets of numbers.
    #[test]
    fn every_small_set_agrees_with_a_set_of_numbers() {
        let set = |bits: u32| {
            let mut set = ChunkSet::default();
            (0..7).filter(|i| bits >> i & 1 == 1).for_each(|i| set.push(i..i + 1));
            set
        };
        let numbers = |set: &ChunkSet| -> BTreeSet<u32> { set.iter().collect() };
        for (one, other) in (0..128).flat_map(|one| (0..128).map(move |other| (one, other))) {
            let (a, b) = (set(one), set(other));
            let (left, right) = (numbers(&a), numbers(&b));
            assert_eq!(a.without(&b), set(one & !other));
            assert_eq!(a.count(), left.len() as u32);
            assert_eq!(a.is_empty(), left.is_empty());
            let bounds = b.bounds();
            let expected = left.iter().filter(|chunk| bounds.contains(chunk)).count();
            assert_eq!(a.count_in(&bounds), expected as u32);
            assert!(right.iter().all(|chunk| bounds.contains(chunk)));
        }
        assert_eq!(set(0b101_1011).to_string(), "0 to 1, 3 to 4, 6");
    }
}
