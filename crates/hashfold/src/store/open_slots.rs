//! The slots that are open in a version: a set that grows while the version is read.

use super::slot::SLOTS;
use std::{
    ops::Range,
    sync::atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Release},
    },
};

/// A set of slots, one bit each, which other threads read while slots are added.
#[derive(Debug)]
pub(super) struct OpenSlots {
    bits: Box<[AtomicU64]>,
    is_all: AtomicBool,
}

impl OpenSlots {
    /// Makes a set of ranges of slots.
    pub(super) fn new(ranges: &[Range<u32>]) -> OpenSlots {
        let bits = (0..SLOTS / 64).map(|_| AtomicU64::new(0)).collect();
        let slots = OpenSlots { bits, is_all: AtomicBool::new(false) };
        slots.add(ranges);
        slots
    }

    /// Adds slots. Whoever finds one in the set sees what was written before the call.
    pub(super) fn add(&self, ranges: &[Range<u32>]) {
        for slot in ranges.iter().cloned().flatten() {
            self.bits[slot as usize / 64].fetch_or(1 << (slot % 64), Release);
        }
        self.is_all.store(self.has_all(&(0..SLOTS)), Release);
    }

    /// Whether all slots are in the set.
    #[inline]
    pub(super) fn is_all(&self) -> bool {
        self.is_all.load(Acquire)
    }

    /// Whether a slot is in the set.
    #[inline]
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.bits[slot as usize / 64].load(Acquire) >> (slot % 64) & 1 == 1
    }

    /// Returns the first slot of a range that is not in the set.
    pub(super) fn first_closed(&self, range: &Range<u32>) -> Option<u32> {
        range.clone().find(|slot| !self.contains(*slot))
    }

    /// Whether all slots of a range are in the set.
    pub(super) fn has_all(&self, range: &Range<u32>) -> bool {
        self.first_closed(range).is_none()
    }

    /// Returns the number of slots of a range that are in the set.
    pub(super) fn count_in(&self, range: &Range<u32>) -> u32 {
        range.clone().filter(|slot| self.contains(*slot)).count() as u32
    }

    /// Returns the slots as ranges in ascending order that do not touch.
    pub(super) fn ranges(&self) -> Vec<Range<u32>> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for slot in (0..SLOTS).filter(|slot| self.contains(*slot)) {
            match ranges.last_mut() {
                Some(last) if last.end == slot => last.end += 1,
                _ => ranges.push(slot..slot + 1),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_added_and_never_leave() {
        let slots = OpenSlots::new(&[63..65, 100..200]);
        assert_eq!(slots.ranges(), [63..65, 100..200]);
        assert!(slots.contains(64) && !slots.contains(65) && !slots.is_all());
        assert_eq!((slots.count_in(&(0..150)), slots.count_in(&(200..300))), (52, 0));
        assert_eq!((slots.first_closed(&(63..70)), slots.first_closed(&(5..5))), (Some(65), None));
        slots.add(&[65..100, 90..120]);
        assert_eq!((slots.ranges().len(), slots.ranges().first()), (1, Some(&(63..200))));
        slots.add(&[0..63, 200..SLOTS]);
        assert!(slots.is_all() && slots.has_all(&(0..SLOTS)));
    }
}
