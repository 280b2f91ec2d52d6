//! The places of the hashes of a batch, found ahead of time, so that their cache misses overlap with each other and with
//! the work.

use super::{index::Index, place::Place};

/// Number of hashes of a burst: their addresses are computed before any of them is prefetched. The prefetches then follow each
/// other closely, so that several TLB misses overlap; with more instructions between them, the reorder buffer fills while the
/// first one waits.
pub(super) const BURST: usize = 8;
/// Number of places that are known at most: four bursts.
const RING: usize = 4 * BURST;

/// The places of the hashes of a batch, one after the other. While some are used, the directory's entries of later ones are
/// prefetched, the descriptors of those before these, whose entries have come meanwhile, and then their lines.
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
        self.next_reached::<3>(index, |places| {
            places.iter().for_each(|place| index.prefetch_others(place));
        })
    }

    /// Does what [`Ahead::next`] does; a while before the places of a burst are returned, when their lines have come, `reach`
    /// prefetches what these lead to.
    #[inline]
    pub(super) fn next_and_reach(
        &mut self,
        index: &Index,
        reach: impl Fn(&mut [Place]),
    ) -> Option<(usize, &Place)> {
        self.next_reached::<3>(index, reach)
    }

    /// Returns the next place. At the start of each burst, it first does a step for each of the bursts that follow, the
    /// farthest one first: it prefetches the entries of the directory, finds the groups, finds the lines, and, with three
    /// steps, calls `reach`.
    #[inline(always)]
    fn next_reached<const STEPS: usize>(
        &mut self,
        index: &Index,
        reach: impl Fn(&mut [Place]),
    ) -> Option<(usize, &Place)> {
        let i = self.used;
        let (position, _) = *self.batch.get(i)?;
        if i.is_multiple_of(BURST) {
            let last = i + STEPS * BURST;
            let first = if i == 0 { 0 } else { last };
            for start in (first..=last).step_by(BURST) {
                self.prefetch_entries(index, start + BURST);
                self.find_groups(index, start);
                self.find_lines(index, start.wrapping_sub(BURST));
                if STEPS == 3 {
                    reach(self.places(start.wrapping_sub(2 * BURST)));
                }
            }
        }
        self.used += 1;
        Some((position, &self.ring[i % RING]))
    }

    /// Prefetches the entries of the directory for the burst of hashes from `start` on.
    #[inline(always)]
    fn prefetch_entries(&self, index: &Index, start: usize) {
        let hashes = self.batch.iter().skip(start).take(BURST);
        hashes.for_each(|(_, hash)| index.prefetch_entry(*hash));
    }

    /// Finds the groups of the burst of hashes from `start` on, and prefetches their descriptors.
    #[inline(always)]
    fn find_groups(&mut self, index: &Index, start: usize) {
        let hashes = self.batch.get(start..).unwrap_or(&[]);
        let places = self.places(start);
        for (place, (_, hash)) in places.iter_mut().zip(hashes) {
            place.hash = *hash;
            index.find_group(place);
        }
        places.iter().for_each(|place| index.prefetch_group(place));
    }

    /// Finds the lines of the burst of hashes from `start` on, and prefetches them.
    #[inline(always)]
    fn find_lines(&mut self, index: &Index, start: usize) {
        let places = self.places(start);
        places.iter_mut().for_each(|place| index.find_lines(place));
        // The two lines of a place are on one page: the TLB miss of the first one is over when the second one is prefetched.
        for which in 0..2 {
            places.iter().for_each(|place| index.prefetch_line(place, which));
        }
    }

    /// Returns the places of the burst of hashes from `start` on: none if there are no such hashes.
    #[inline(always)]
    fn places(&mut self, start: usize) -> &mut [Place] {
        let count = self.batch.len().saturating_sub(start).min(BURST);
        let first = start % RING;
        &mut self.ring[first..first + count]
    }
}
