//! The places of the hashes of a batch, found ahead of time, so that their cache misses overlap with each other and with
//! the work.

use super::{index::Index, place::Place};

/// Number of hashes of a burst: their addresses are computed before any of them is prefetched. A prefetch whose page is not in the
/// TLB stays in the reorder buffer while the page tables are read, and the instructions behind it fill the buffer. A processor
/// reads the page tables for a few pages at a time: with as many prefetches together, the times overlap; with more of them,
/// the others wait, and the work with them. On an Intel processor of 2023, two and eight were slower.
pub(super) const BURST: usize = 4;
/// How many bursts ahead of the one in use groups are found. Entries of the directory are prefetched one burst earlier, and lines found
/// one burst later.
const GROUPS_AHEAD: usize = 4;
/// How many bursts ahead of the one in use what its lines lead to is prefetched: the lines have come by then.
const REACHED_AHEAD: usize = 2;
/// Lines are known before what they lead to is prefetched.
const _: () = assert!(REACHED_AHEAD < GROUPS_AHEAD);
/// Number of bursts whose places are known, a power of two.
const BURSTS: usize = (GROUPS_AHEAD + 1).next_power_of_two();

/// The places of the hashes of a batch, one after the other. While those of a burst are used, the directory's entries of a later
/// burst are prefetched, the descriptors of the one before it, whose entries have come meanwhile, then the lines of the one before
/// that, and at last what these lead to. Lines and what they lead to miss the TLB most:
/// half of a burst is used between prefetching the one and the other.
pub(super) struct Ahead<'a> {
    batch: &'a [(usize, u64)],
    bursts: [[Place; BURST]; BURSTS],
    /// Number of hashes whose place is used, from the first one on.
    used: usize,
}

impl<'a> Ahead<'a> {
    /// Makes the places of a batch: positions and hashes.
    #[inline]
    pub(super) fn new(batch: &'a [(usize, u64)]) -> Ahead<'a> {
        const UNKNOWN: Place = Place::unknown(0);
        Ahead { batch, bursts: [const { [UNKNOWN; BURST] }; BURSTS], used: 0 }
    }

    /// Returns the position and the place of the next hash of the batch.
    #[inline]
    pub(super) fn next(&mut self, index: &Index) -> Option<(usize, &Place)> {
        self.next_and_reach(index, |_| ())
    }

    /// Does what [`Ahead::next`] does, and prefetches the lines that pairs may move to if both lines of a place are full.
    #[inline]
    pub(super) fn next_to_insert(&mut self, index: &Index) -> Option<(usize, &Place)> {
        self.next_and_reach(index, |places| {
            places.iter().for_each(|place| index.prefetch_others_if_crowded(place));
        })
    }

    /// Does what [`Ahead::next`] does; a while before the places of a burst are returned, when their lines have come, `reach`
    /// prefetches what these lead to.
    #[inline(always)]
    pub(super) fn next_and_reach(
        &mut self,
        index: &Index,
        reach: impl Fn(&mut [Place; BURST]),
    ) -> Option<(usize, &Place)> {
        let (position, _) = *self.batch.get(self.used)?;
        let (burst, i) = (self.used / BURST, self.used % BURST);
        if i == 0 {
            let first = if burst == 0 { 0 } else { GROUPS_AHEAD };
            for ahead in first..=GROUPS_AHEAD {
                self.prefetch_entries(index, burst + ahead + 1);
                self.find_groups(index, burst + ahead);
                self.find_lines(index, (burst + ahead).wrapping_sub(1));
            }
            if burst == 0 {
                (0..REACHED_AHEAD).for_each(|near| self.reach_burst(near, &reach));
            }
        }
        if i == BURST / 2 {
            self.reach_burst(burst + REACHED_AHEAD, &reach);
        }
        self.used += 1;
        Some((position, &self.bursts[burst % BURSTS][i]))
    }

    /// Returns the hashes of a burst; `None` behind the last one. A last burst that is not full is filled up with its last hash.
    #[inline(always)]
    fn hashes(&self, burst: usize) -> Option<[u64; BURST]> {
        let rest = self.batch.get(burst * BURST..)?;
        if let Some(full) = rest.first_chunk::<BURST>() {
            return Some(full.map(|(_, hash)| hash));
        }
        let (_, last) = *rest.last()?;
        Some(std::array::from_fn(|i| rest.get(i).map_or(last, |(_, hash)| *hash)))
    }

    /// Prefetches the entries of the directory for a burst.
    #[inline(always)]
    fn prefetch_entries(&self, index: &Index, burst: usize) {
        if let Some(hashes) = self.hashes(burst) {
            hashes.into_iter().for_each(|hash| index.prefetch_entry(hash));
        }
    }

    /// Finds the groups of a burst, and prefetches their descriptors.
    #[inline(always)]
    fn find_groups(&mut self, index: &Index, burst: usize) {
        let Some(hashes) = self.hashes(burst) else { return };
        let places = &mut self.bursts[burst % BURSTS];
        for (place, hash) in places.iter_mut().zip(hashes) {
            place.hash = hash;
            index.find_group(place);
        }
        places.iter().for_each(|place| index.prefetch_group(place));
    }

    /// Finds the lines of a burst, and prefetches them.
    #[inline(always)]
    fn find_lines(&mut self, index: &Index, burst: usize) {
        let Some(places) = self.places(burst) else { return };
        places.iter_mut().for_each(|place| index.find_lines(place));
        // The two lines of a place are on one page: the TLB miss of the first one is over when the second one is prefetched.
        for which in 0..2 {
            places.iter().for_each(|place| index.prefetch_line(place, which));
        }
    }

    /// Calls `reach` with the places of a burst, if it is in the batch.
    #[inline(always)]
    fn reach_burst(&mut self, burst: usize, reach: impl Fn(&mut [Place; BURST])) {
        if let Some(places) = self.places(burst) {
            reach(places);
        }
    }

    /// Returns the places of a burst; `None` for bursts that are not in the batch.
    #[inline(always)]
    fn places(&mut self, burst: usize) -> Option<&mut [Place; BURST]> {
        let is_there = burst < self.batch.len().div_ceil(BURST);
        is_there.then(|| &mut self.bursts[burst % BURSTS])
    }
}
