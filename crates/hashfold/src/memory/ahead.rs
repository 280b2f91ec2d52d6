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
}

impl<'a> Ahead<'a> {
    /// Makes the places of a batch: positions and hashes.
    #[inline]
    pub(super) fn new(batch: &'a [(usize, u64)]) -> Ahead<'a> {
        const UNKNOWN: Place = Place::unknown(0);
        Ahead { batch, ring: [UNKNOWN; RING], used: 0 }
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

    /// Returns the next place after it has done each of so many steps for a later one.
    #[inline(always)]
    fn next_reached<const STEPS: usize>(
        &mut self,
        index: &Index,
        reach: impl Fn(&Place),
    ) -> Option<(usize, &Place)> {
        let i = self.used;
        let (position, _) = *self.batch.get(i)?;
        if i == 0 {
            self.begin::<STEPS>(index, &reach);
        }
        self.step::<STEPS>(index, &reach, i + STEPS * DISTANCE);
        self.used += 1;
        Some((position, &self.ring[i % RING]))
    }

    /// Does the steps that come before the first place is used, few for a batch of few.
    #[inline(always)]
    fn begin<const STEPS: usize>(&mut self, index: &Index, reach: &impl Fn(&Place)) {
        let few = self.batch.len().min(DISTANCE);
        for start in (0..STEPS).map(|steps| steps * DISTANCE) {
            (start..start + few).for_each(|last| self.step::<STEPS>(index, reach, last));
        }
    }

    /// Does the first step for the hash at `last`, and each further step for a hash some places before it.
    #[inline(always)]
    fn step<const STEPS: usize>(&mut self, index: &Index, reach: &impl Fn(&Place), last: usize) {
        if let Some((_, hash)) = self.batch.get(last) {
            let place = &mut self.ring[last % RING];
            place.hash = *hash;
            index.find_group(place);
        }
        let before = |steps: usize| {
            let at = last.wrapping_sub(steps * DISTANCE);
            (at < self.batch.len()).then_some(at % RING)
        };
        let (placed, reached) = (before(1), before(2));
        if let Some(at) = placed {
            index.find_lines(&mut self.ring[at]);
        }
        if STEPS == 3
            && let Some(at) = reached
        {
            reach(&self.ring[at]);
        }
    }
}
