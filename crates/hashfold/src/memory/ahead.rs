//! The places of the hashes of a batch, found ahead of time, so that their cache misses overlap with each other and with
//! the work.

use super::{index::Index, place::Place};

/// Number of hashes between two steps of [`Ahead`].
const DISTANCE: usize = 16;
/// Number of places that are known at most: more than three distances.
const RING: usize = 64;

/// The places of the hashes of a batch, one after the other. While some are used, the descriptors of later ones are
/// prefetched, and the lines of those between, whose descriptors have come meanwhile.
pub(super) struct Ahead<'a> {
    batch: &'a [(usize, u64)],
    ring: [Place; RING],
    /// Number of hashes whose place is used, from the first one on.
    used: usize,
    /// Those for which `reach` was called, whose lines are prefetched, and whose descriptor is.
    reached: usize,
    placed: usize,
    grouped: usize,
}

impl<'a> Ahead<'a> {
    /// Makes the places of a batch: positions and hashes.
    #[inline]
    pub(super) fn new(batch: &'a [(usize, u64)]) -> Ahead<'a> {
        const UNKNOWN: Place = Place::unknown(0);
        Ahead { batch, ring: [UNKNOWN; RING], used: 0, reached: 0, placed: 0, grouped: 0 }
    }

    /// Returns the position and the place of the next hash of the batch.
    #[inline]
    pub(super) fn next(&mut self, index: &Index) -> Option<(usize, &Place)> {
        self.next_reached::<2>(index, |_| ())
    }

    /// Does what [`Ahead::next`] does, and prefetches the lines that pairs may move to if both lines of a place are full.
    #[inline]
    pub(super) fn next_to_insert(&mut self, index: &Index) -> Option<(usize, &Place)> {
        self.next_reached::<3>(index, |place| index.prefetch_others(place))
    }

    /// Does what [`Ahead::next`] does; a while before a place is returned, when its lines have come, `reach` prefetches
    /// what they lead to.
    #[inline]
    pub(super) fn next_and_reach(
        &mut self,
        index: &Index,
        reach: impl Fn(&Place),
    ) -> Option<(usize, &Place)> {
        self.next_reached::<3>(index, reach)
    }

    /// Returns the next place after it has done each of so many steps for later ones.
    #[inline(always)]
    fn next_reached<const STEPS: usize>(
        &mut self,
        index: &Index,
        reach: impl Fn(&Place),
    ) -> Option<(usize, &Place)> {
        let i = self.used;
        let (position, _) = *self.batch.get(i)?;
        let ahead = |steps: usize| self.batch.len().min(i + steps * DISTANCE + 1);
        let (grouped, placed, reached) = (ahead(STEPS), ahead(STEPS - 1), ahead(STEPS - 2));
        // One of each, but for the first place of a batch, and the last ones.
        while self.grouped < grouped {
            let place = &mut self.ring[self.grouped % RING];
            place.hash = self.batch[self.grouped].1;
            index.find_group(place);
            self.grouped += 1;
        }
        while self.placed < placed {
            index.find_lines(&mut self.ring[self.placed % RING]);
            self.placed += 1;
        }
        while STEPS == 3 && self.reached < reached {
            reach(&self.ring[self.reached % RING]);
            self.reached += 1;
        }
        self.used += 1;
        Some((position, &self.ring[i % RING]))
    }
}
