//! The directories of the regions of a shard: from the first bits of a hash to its group.
//!
//! ```text
//! memory    ■■□□□□■■■■□□□□■■■■■■■■□□□□□□□□·······        ■ a directory, □ one that has doubled since, · not in use
//! regions   start ─┘      └─ start                       of each region, with the number of bits of its directory
//! ```
//!
//! A directory doubles when a group splits whose hashes share all of its bits. It is copied behind the others, to addresses
//! that are reserved: memory of the heap would sometimes have to be requested from the system, which waits meanwhile for the job
//! that populates other memory. The place of the old one is not used again: all of these are smaller together than the
//! directories.

use super::{
    division::{DEPTH_MAX, REGION_BITS},
    group,
};
use crate::{
    error::Result,
    io::{SEGMENT_BYTES, Segment},
    run::prefetch::prefetch,
};

/// Size of an entry in bytes.
const ENTRY_BYTES: usize = size_of::<u32>();
/// Number of entries in a segment of memory.
const SEGMENT_ENTRIES: usize = SEGMENT_BYTES / ENTRY_BYTES;
/// A directory is in one segment, and the number of an entry of any has 32 bits.
const _: () = assert!(1 << DEPTH_MAX <= SEGMENT_ENTRIES && REGION_BITS + DEPTH_MAX + 1 < 32);
/// The memory in use is counted in pages of this size.
const PAGE_BYTES: usize = 4 << 10;

/// Where the directory of a region is.
#[derive(Clone, Copy, Debug)]
struct Region {
    /// Number of the first entry, among those of all segments.
    start: u32,
    /// Number of bits, after those that select the region, for each value of which there is an entry.
    bits: u32,
}

impl Region {
    /// Returns the number of the entry of a hash.
    #[inline(always)]
    fn entry(self, hash: u64) -> usize {
        // Two shifts: `bits` may be 0.
        self.start as usize + ((hash << REGION_BITS) >> 1 >> (u64::BITS - 1 - self.bits)) as usize
    }
}

/// The directories of some regions.
#[derive(Debug)]
pub(super) struct Directories {
    regions: Vec<Region>,
    /// The number of the first region among those of all shards.
    first: usize,
    memory: Vec<Segment>,
    /// Number of entries that are, or were, those of directories.
    used: usize,
}

impl Directories {
    /// Makes directories of one entry: the groups of regions from number `first` on.
    ///
    /// # Errors
    /// `Io` if the system refuses addresses.
    pub(super) fn new(first: usize, groups: &[u32]) -> Result<Directories> {
        let mut directories = Directories {
            regions: Vec::with_capacity(groups.len()),
            first,
            memory: Vec::new(),
            used: 0,
        };
        for group in groups {
            directories.ensure(1)?;
            let start = directories.take(1);
            directories.set(start, *group);
            directories.regions.push(Region { start: start as u32, bits: 0 });
        }
        Ok(directories)
    }

    /// Returns the first and the last hash of the regions.
    pub(super) fn range(&self) -> (u64, u64) {
        let shift = u64::BITS - REGION_BITS;
        let last = self.first + self.regions.len() - 1;
        ((self.first as u64) << shift, (last as u64) << shift | u64::MAX >> REGION_BITS)
    }

    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        let entries = (self.used * ENTRY_BYTES).next_multiple_of(PAGE_BYTES);
        entries + self.regions.capacity() * size_of::<Region>()
    }

    /// Returns the region of a hash.
    #[inline(always)]
    fn region(&self, hash: u64) -> Region {
        self.regions[self.region_number(hash)]
    }

    #[inline(always)]
    fn region_number(&self, hash: u64) -> usize {
        (hash >> (u64::BITS - REGION_BITS)) as usize - self.first
    }

    /// Returns the group of a hash.
    #[inline(always)]
    pub(super) fn group(&self, hash: u64) -> u32 {
        self.get(self.region(hash).entry(hash))
    }

    /// Prefetches what [`Directories::group`] reads.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        let entry = self.region(hash).entry(hash);
        if let Some(segment) = self.memory.get(entry / SEGMENT_ENTRIES) {
            prefetch(entries(segment), entry % SEGMENT_ENTRIES);
        }
    }

    /// Doubles the directory of a hash until it can lead to a group of this depth. Each hash leads to the group that it led to.
    ///
    /// # Errors
    /// `Io` if the system refuses addresses.
    pub(super) fn prepare(&mut self, hash: u64, depth: u32) -> Result<()> {
        while depth > self.region(hash).bits {
            self.ensure(2 << self.region(hash).bits)?;
            self.double(hash);
        }
        Ok(())
    }

    /// Leads to a group for the hashes that share `depth` bits with `hash` after those of the region. The directory must be
    /// prepared for it.
    pub(super) fn lead(&mut self, hash: u64, depth: u32, group: u32) {
        let region = self.region(hash);
        debug_assert!(depth <= region.bits, "the directory is prepared");
        let (first, last) = group::range(hash, depth);
        (region.entry(first)..=region.entry(last)).for_each(|entry| self.set(entry, group));
    }

    /// Doubles the directory of a hash.
    fn double(&mut self, hash: u64) {
        let (number, old) = (self.region_number(hash), self.region(hash));
        let start = self.take(2 << old.bits);
        for i in 0..1 << old.bits {
            let group = self.get(old.start as usize + i);
            self.set(start + 2 * i, group);
            self.set(start + 2 * i + 1, group);
        }
        self.regions[number] = Region { start: start as u32, bits: old.bits + 1 };
    }

    /// Makes sure that so many entries can be taken, which are at most a segment.
    fn ensure(&mut self, count: usize) -> Result<()> {
        if self.next(count) / SEGMENT_ENTRIES == self.memory.len() {
            // In small pages: few of them may be in use.
            self.memory.push(Segment::reserve(SEGMENT_BYTES)?);
        }
        Ok(())
    }

    /// Takes entries, which were ensured; returns the first one.
    fn take(&mut self, count: usize) -> usize {
        let start = self.next(count);
        self.used = start + count;
        start
    }

    /// Returns the first one of the next entries, all of which are in one segment.
    fn next(&self, count: usize) -> usize {
        let end = self.used.next_multiple_of(SEGMENT_ENTRIES);
        if self.used + count <= end { self.used } else { end }
    }

    #[inline(always)]
    fn get(&self, entry: usize) -> u32 {
        u32::from_le_bytes(entries(&self.memory[entry / SEGMENT_ENTRIES])[entry % SEGMENT_ENTRIES])
    }

    fn set(&mut self, entry: usize, group: u32) {
        let entries = self.memory[entry / SEGMENT_ENTRIES].as_chunks_mut().0;
        entries[entry % SEGMENT_ENTRIES] = group.to_le_bytes();
    }
}

/// Returns the entries of a segment.
#[inline(always)]
fn entries(segment: &Segment) -> &[[u8; ENTRY_BYTES]] {
    segment.as_chunks().0
}

#[cfg(test)]
mod tests {
    use super::{super::mix::mix, *};
    use crate::key::Seed;
    use std::collections::BTreeMap;

    /// Groups split, each hash leads to its group, and the directories of other regions stay.
    #[test]
    fn directories_agree_with_a_map_of_ranges() {
        let mut directories = Directories::new(4, &[0, 1, 2, 3]).unwrap();
        // The depth and the group of each range, by its first hash.
        let mut expected: BTreeMap<u64, (u32, u32)> =
            (0..4).map(|region| ((region + 4) << (64 - REGION_BITS), (0, region as u32))).collect();
        for group in 4..3000 {
            let random = mix(group, Seed(3));
            // Some ranges are split often.
            let rest = random >> REGION_BITS >> (random % 3 * 9);
            let hash = (4 + (random & 3)) << (u64::BITS - REGION_BITS) | rest;
            let (_, (depth, _)) = expected.range_mut(..=hash).next_back().unwrap();
            if *depth == DEPTH_MAX {
                continue;
            }
            *depth += 1;
            let depth = *depth;
            directories.prepare(hash, depth).unwrap();
            let upper = group::range(hash, depth - 1).0 | 1 << (u64::BITS - REGION_BITS - depth);
            directories.lead(upper, depth, group as u32);
            expected.insert(upper, (depth, group as u32));
            for (first, (depth, group)) in expected.iter().step_by(1 + expected.len() / 50) {
                let (_, last) = group::range(*first, *depth);
                assert_eq!([*first, last].map(|hash| directories.group(hash)), [*group; 2]);
            }
        }
        assert!(directories.regions.iter().all(|region| region.bits > 10));
    }

    /// A directory that is prepared for a deep group leads where it led, and then to groups of any depth up to that.
    #[test]
    fn a_directory_doubles_until_it_can_lead_to_a_group() {
        let mut directories = Directories::new(0, &[7]).unwrap();
        directories.used = SEGMENT_ENTRIES - 40;
        let hash = |first: u64| first << (u64::BITS - REGION_BITS - 5);
        directories.prepare(0, 5).unwrap();
        assert!((0..32).all(|first| directories.group(hash(first)) == 7));
        directories.lead(hash(0b00101), 5, 5);
        directories.lead(hash(0b11000), 2, 2);
        directories.lead(hash(0b00100), 5, 4);
        directories.lead(hash(0b01000), 3, 3);
        let expected = |first: u64| match first {
            0b00100 => 4,
            0b00101 => 5,
            0b01000..=0b01011 => 3,
            0b11000.. => 2,
            _ => 7,
        };
        assert!((0..32).all(|first| directories.group(hash(first)) == expected(first)));
    }

    /// The first directory that does not fit in the rest of a segment is in the next one.
    #[test]
    fn a_directory_is_in_one_segment() {
        let mut directories = Directories::new(0, &[7]).unwrap();
        directories.used = SEGMENT_ENTRIES - 3;
        for depth in 1..=3 {
            directories.prepare(0, depth).unwrap();
            directories.lead(u64::MAX >> REGION_BITS, depth, depth);
            let start = directories.regions[0].start as usize;
            assert_eq!(start / SEGMENT_ENTRIES, (start + (1 << depth) - 1) / SEGMENT_ENTRIES);
        }
        assert_eq!(directories.memory.len(), 2);
        let groups = (0..8).map(|entry| directories.group(entry << (u64::BITS - REGION_BITS - 3)));
        assert_eq!(groups.collect::<Vec<_>>(), [7, 7, 7, 7, 1, 1, 2, 3]);
    }
}
