//! The part of a run whose keys are in some slots.

use super::slot::{SLOTS, slot_of};
use crate::{
    error::Result,
    key::Seed,
    run::{Entry, Run, Summary},
};
use std::ops::Range;

/// A set of slots, one bit each.
pub(super) struct SlotSet {
    bits: Vec<u64>,
    count: u32,
}

impl SlotSet {
    /// Makes a set of ranges of slots that do not overlap.
    pub(super) fn of(ranges: impl Iterator<Item = Range<u32>>) -> SlotSet {
        let mut set = SlotSet { bits: vec![0; SLOTS as usize / 64], count: 0 };
        for slot in ranges.flatten() {
            set.bits[slot as usize / 64] |= 1 << (slot % 64);
            set.count += 1;
        }
        set
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    #[inline]
    fn contains(&self, slot: u32) -> bool {
        self.bits[slot as usize / 64] >> (slot % 64) & 1 == 1
    }
}

/// A run without the entries whose keys are in other slots. The run has the given summary.
pub(super) struct InSlots<R> {
    run: R,
    slots: SlotSet,
    summary: Summary,
}

impl<R: Run> InSlots<R> {
    pub(super) fn new(run: R, slots: SlotSet, summary: Summary) -> InSlots<R> {
        InSlots { run, slots, summary }
    }
}

impl<R: Run> Run for InSlots<R> {
    fn seed(&self) -> Seed {
        self.run.seed()
    }

    fn summary(&self) -> Summary {
        self.summary
    }

    #[inline]
    fn advance(&mut self) -> Result<bool> {
        while self.run.advance()? {
            if self.slots.contains(slot_of(self.run.entry().key)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        self.run.entry()
    }
}
