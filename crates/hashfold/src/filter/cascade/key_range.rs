//! Key ranges: intervals of fingerprints, which are in the order of the keys' hashes.

use crate::fingerprints::Universe;
use std::mem;

/// The fingerprints from the first to the last one, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyRange {
    pub(super) first: u64,
    pub(super) last: u64,
}

impl KeyRange {
    /// Returns the range of all fingerprints of a universe.
    pub(super) fn all(universe: Universe) -> KeyRange {
        KeyRange { first: 0, last: universe.last() }
    }

    pub(super) fn overlaps(self, other: KeyRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Returns the fingerprints that are in both ranges.
    pub(super) fn common(self, other: KeyRange) -> Option<KeyRange> {
        let common =
            KeyRange { first: self.first.max(other.first), last: self.last.min(other.last) };
        self.overlaps(other).then_some(common)
    }

    /// Cuts all fingerprints of a universe into `count` ranges of about equal size, or fewer if the
    /// universe is smaller.
    pub(super) fn cut(universe: Universe, count: usize) -> Vec<KeyRange> {
        let count = (count as u128).clamp(1, universe.size());
        let start = |i: u128| {
            // `size * i` would overflow.
            let (size, rest) = (universe.size() / count, universe.size() % count);
            size * i + rest * i / count
        };
        let range = |i| KeyRange { first: start(i) as u64, last: (start(i + 1) - 1) as u64 };
        (0..count).map(range).collect()
    }
}

/// Disjoint key ranges in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyRanges(Vec<KeyRange>);

impl From<KeyRange> for KeyRanges {
    fn from(range: KeyRange) -> KeyRanges {
        KeyRanges(vec![range])
    }
}

impl KeyRanges {
    /// Appends a range. Returns `false` if it is empty or not behind all others.
    #[must_use]
    pub(super) fn push(&mut self, range: KeyRange) -> bool {
        let follows = self.0.last().is_none_or(|before| before.last < range.first);
        self.0.push(range);
        follows && range.first <= range.last
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = KeyRange> {
        self.0.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn overlaps(&self, range: KeyRange) -> bool {
        self.0.iter().any(|it| it.overlaps(range))
    }

    /// Returns the fingerprints of these ranges that are also in `range`.
    pub(super) fn within(&self, range: KeyRange) -> impl Iterator<Item = KeyRange> {
        self.0.iter().filter_map(move |it| it.common(range))
    }

    /// Removes the fingerprints of `range`.
    pub(super) fn remove(&mut self, range: KeyRange) {
        for it in mem::take(&mut self.0) {
            if it.first < range.first {
                self.0.push(KeyRange { last: it.last.min(range.first - 1), ..it });
            }
            if it.last > range.last {
                self.0.push(KeyRange { first: it.first.max(range.last + 1), ..it });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn members(ranges: impl Iterator<Item = KeyRange>) -> Vec<u64> {
        ranges.flat_map(|it| it.first..=it.last).collect()
    }

    proptest! {
        #[test]
        fn ranges_agree_with_lists_of_numbers(
            removed in vec((0_u64..40, 0_u64..12), 0..6),
            first in 0_u64..40,
            len in 0_u64..12,
        ) {
            let mut ranges = KeyRanges::from(KeyRange { first: 0, last: 39 });
            let mut naive: Vec<u64> = (0..40).collect();
            for (first, len) in removed {
                let range = KeyRange { first, last: first + len };
                ranges.remove(range);
                naive.retain(|it| !(first..=range.last).contains(it));
                prop_assert_eq!(&members(ranges.iter()), &naive);
                let mut again = KeyRanges::default();
                prop_assert!(ranges.iter().all(|range| again.push(range)));
            }
            let range = KeyRange { first, last: first + len };
            naive.retain(|it| (first..=range.last).contains(it));
            prop_assert_eq!(ranges.overlaps(range), !naive.is_empty());
            prop_assert_eq!(members(ranges.within(range)), naive);
        }
    }

    #[test]
    fn parts_of_a_universe_are_disjoint_and_cover_it() {
        for size in [2, 3, 7, 1 << 20, (1 << 64) - 1, 1 << 64] {
            let universe = Universe::with_size(size).unwrap();
            for count in [0, 1, 2, 3, 5, 64] {
                let parts = KeyRange::cut(universe, count);
                assert_eq!(parts.len() as u128, size.min(count.max(1) as u128));
                assert_eq!((parts[0].first, parts[parts.len() - 1].last), (0, universe.last()));
                assert!(parts.windows(2).all(|two| two[0].last + 1 == two[1].first));
                assert!(parts.iter().all(|part| part.first <= part.last));
            }
        }
    }

    #[test]
    fn a_range_that_does_not_follow_is_refused() {
        let mut ranges = KeyRanges::from(KeyRange { first: 3, last: 5 });
        assert!(!ranges.clone().push(KeyRange { first: 5, last: 6 }));
        assert!(!ranges.clone().push(KeyRange { first: 7, last: 6 }));
        assert!(ranges.push(KeyRange { first: 6, last: 6 }));
    }
}
