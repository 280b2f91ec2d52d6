//! Merging a group with the other half of the group that both were split from, once they have few pairs.

use super::{
    division::REGION_BITS,
    group::{self, Group},
    index::{Index, group_at},
};

/// Maximum number of chunks of a group that was merged: far from the size at which it would split again.
const CHUNKS_MERGED_MAX: usize = 2;

/// Maximum number of groups that are merged, or found not to merge, at a time after a snapshot: some tens of microseconds.
const DUE_MAX: usize = 8;

/// A group, its number, and a hash in its range.
type Numbered = (Group, u32, u64);

impl Index {
    /// Merges the group of a hash with its other half, and the result with its other half, and so on, while they fit into few
    /// chunks; returns whether any did. While there is a snapshot, which knows groups by their ranges, nothing is merged:
    /// [`Index::merge_due`] makes up for that.
    #[cold]
    #[inline(never)]
    pub(super) fn merge(&mut self, hash: u64) -> bool {
        if !self.snapshots.active.is_empty() {
            self.unmerged = Some(self.unmerged.map_or(hash, |first| first.min(hash)));
            return false;
        }
        let mut has_merged = false;
        while self.merge_once(hash) {
            has_merged = true;
        }
        has_merged
    }

    /// Merges the group of a hash with its other half, if they fit into few chunks; returns whether they do.
    fn merge_once(&mut self, hash: u64) -> bool {
        self.halves(hash).is_some_and(|halves| self.merge_halves(halves))
    }

    /// Merges some of the groups that were not merged while there was a snapshot; returns whether there may be others. Groups are
    /// tried in the order of their hashes, and what was merged is tried again: so each is, when its other half is one group.
    pub(super) fn merge_due(&mut self) -> bool {
        if !self.snapshots.active.is_empty() {
            return false;
        }
        for _ in 0..DUE_MAX {
            let Some(hash) = self.unmerged else { return false };
            if !self.merge_once(hash) {
                let depth = group::depth(self.groups.line(group_at(self.group_of(hash))));
                let ((_, last), (_, end)) = (group::range(hash, depth), self.range());
                self.unmerged = (last < end).then(|| last + 1);
            }
        }
        self.unmerged.is_some()
    }

    /// Returns the lower and the upper half of the group that the group of a hash was split from; `None` if there is no such
    /// group, or its other half was split again.
    fn halves(&self, hash: u64) -> Option<[Numbered; 2]> {
        let numbered = |hash: u64| {
            let number = self.group_of(hash);
            (Group::decode(self.groups.line(group_at(number))), number, hash)
        };
        let one = numbered(hash);
        let depth = one.0.division.depth.checked_sub(1)?;
        let bit = 1 << (u64::BITS - REGION_BITS - 1 - depth);
        let other = numbered(hash ^ bit);
        let halves = if hash & bit == 0 { [one, other] } else { [other, one] };
        (one.0.division.depth == other.0.division.depth).then_some(halves)
    }

    /// Moves the pairs of both halves to one group; returns `false`, and changes nothing, if they need too many chunks.
    fn merge_halves(&mut self, [low, high]: [Numbered; 2]) -> bool {
        debug_assert_ne!(low.1, high.1, "halves are two groups");
        let (division, count) = (low.0.division.whole(), low.0.count + high.0.count);
        let format = self.shape.format(division.depth);
        let most = CHUNKS_MERGED_MAX.min(low.0.chunks + high.0.chunks);
        if self.shape.chunks_for(format, count).is_none_or(|chunks| chunks > most) {
            return false;
        }
        let mut pairs = std::mem::take(&mut self.scratch.pairs);
        let mut chunks = std::mem::take(&mut self.scratch.chunks);
        pairs.clear();
        self.gather(&low.0, low.2, &mut pairs);
        self.gather(&high.0, high.2, &mut pairs);
        let size = self.fit(division, &pairs, &mut chunks).filter(|size| *size <= most);
        if let Some(size) = size {
            self.release(&low.0);
            self.release(&high.0);
            // The number of the upper half may be used for another group: no place in it is current any more.
            self.set_group(high.1, &Group::default());
            self.groups.release(high.1);
            let stored =
                self.store(low.1, Group { chunks: size, division, count, ..low.0 }, &chunks);
            debug_assert!(stored.is_ok(), "as many chunks were released");
            self.directories.lead(low.2, division.depth, low.1);
            self.chunks.give_back();
            self.groups.give_back();
        }
        self.scratch.chunks = chunks;
        self.scratch.pairs = pairs;
        size.is_some()
    }
}
