//! Key ranges of groups: all hashes that begin with the same bits.

use crate::key::KeyHash;
use std::ops::{Range, RangeInclusive};

/// The longest prefix, in bits. Fences take the 32 bits after it.
pub(super) const DEPTH_MAX: u8 = 64;

/// The hashes whose first `depth` bits are those of `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    /// The high 64 bits of the first hash; bits after the prefix are 0.
    pub(super) start: u64,
    /// Number of bits, at most [`DEPTH_MAX`].
    pub(super) depth: u8,
}

impl Prefix {
    /// All hashes.
    pub(super) const ALL: Prefix = Prefix { start: 0, depth: 0 };

    /// Returns the two halves of the range.
    pub(super) fn halves(self) -> [Prefix; 2] {
        assert!(self.depth < DEPTH_MAX);
        let depth = self.depth + 1;
        let middle = self.start | 1 << (DEPTH_MAX - depth);
        [Prefix { depth, ..self }, Prefix { start: middle, depth }]
    }

    /// Returns the range that is this one and its other half; `None` for all hashes.
    pub(super) fn parent(self) -> Option<Prefix> {
        let depth = self.depth.checked_sub(1)?;
        Some(Prefix { start: self.start & !(1 << (DEPTH_MAX - self.depth)), depth })
    }

    /// Returns all prefixes of this length in bits, in order.
    pub(super) fn all(depth: u8) -> Vec<Prefix> {
        let mut prefixes = vec![Prefix::ALL];
        for _ in 0..depth {
            prefixes = prefixes.into_iter().flat_map(Prefix::halves).collect();
        }
        prefixes
    }

    /// Returns the hashes of the range.
    pub(super) fn hashes(self) -> RangeInclusive<KeyHash> {
        let after = self.end().map_or(0, |end| u128::from(end) << 64);
        self.first()..=KeyHash::from_bits(after.wrapping_sub(1))
    }

    /// Returns the first hash.
    pub(super) fn first(self) -> KeyHash {
        KeyHash::from_bits(u128::from(self.start) << 64)
    }

    /// Returns the high 64 bits of the first hash after the range; `None` if there is none.
    pub(super) fn end(self) -> Option<u64> {
        let width = 1_u64.checked_shl(u32::from(DEPTH_MAX - self.depth))?;
        self.start.checked_add(width)
    }

    pub(super) fn contains(self, hash: KeyHash) -> bool {
        hash.high() >= self.start && self.end().is_none_or(|end| hash.high() < end)
    }

    /// Returns the 32 bits of a hash after the prefix.
    pub(super) fn fence(self, hash: KeyHash) -> u32 {
        ((hash.bits() << self.depth) >> 96) as u32
    }

    /// Returns the first hash with this fence.
    pub(super) fn first_with(self, fence: u32) -> KeyHash {
        KeyHash::from_bits(self.first().bits() | (u128::from(fence) << 96) >> self.depth)
    }

    /// Returns the range as text, for errors.
    pub(super) fn name(self) -> String {
        format!("{:#018x} to {:#018x}", self.start, self.end().map_or(u64::MAX, |end| end - 1))
    }

    /// Returns the part of a sorted list of hashes that is in this range.
    pub(super) fn part<T>(self, sorted: &[T], hash: impl Fn(&T) -> KeyHash) -> Range<usize> {
        let start = sorted.partition_point(|item| hash(item).high() < self.start);
        let end = self
            .end()
            .map_or(sorted.len(), |end| sorted.partition_point(|item| hash(item).high() < end));
        start..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_divide_the_range() {
        let mut prefix = Prefix::ALL;
        for depth in 0..DEPTH_MAX {
            let [low, high] = prefix.halves();
            assert_eq!(
                (low.start, low.end(), high.end()),
                (prefix.start, Some(high.start), prefix.end())
            );
            assert_eq!((low.depth, high.depth), (depth + 1, depth + 1));
            assert!(low.contains(low.first()) && !high.contains(low.first()));
            assert_eq!([low, high].map(Prefix::parent), [Some(prefix); 2]);
            let ends = [*low.hashes().end(), *high.hashes().start()].map(KeyHash::bits);
            assert_eq!(ends[0] + 1, ends[1]);
            assert_eq!(high.hashes().end(), prefix.hashes().end());
            assert_eq!((high.fence(high.first()), prefix.fence(high.first())), (0, 1 << 31));
            assert_eq!(
                (prefix.first_with(0), prefix.first_with(1 << 31)),
                (low.first(), high.first())
            );
            assert!(
                low.contains(*low.hashes().end()) && prefix.hashes().end() == high.hashes().end()
            );
            assert_eq!(low.hashes().end().bits() + 1, high.first().bits());
            prefix = if depth % 2 == 0 { high } else { low };
        }
        assert_eq!(Prefix::ALL.parent(), None);
        assert_eq!(prefix.start, 0xaaaa_aaaa_aaaa_aaaa);
        assert_eq!(prefix.end(), Some(prefix.start + 1));
        assert_eq!(Prefix::ALL.hashes().end().bits(), u128::MAX);
        assert_eq!(Prefix::all(3).len(), 8);
        assert_eq!(Prefix::all(3)[5], Prefix { start: 5 << 61, depth: 3 });
    }
}
