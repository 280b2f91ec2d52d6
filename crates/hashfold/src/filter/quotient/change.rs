//! Putting a remainder into its chain, and taking it out again.

use super::{
    block::{BlockMut, Blocks, Slot, Wanted},
    chain::Chain,
    kernel::Kernel,
    layout::{BLOCK_SLOTS, Layout, SHIFT_MAX},
};
use std::ops::RangeInclusive;

/// The blocks of a filter, to be changed: what this library wrote, not bytes from outside.
#[derive(Debug)]
pub(super) struct BlocksMut<'a> {
    pub(super) bytes: &'a mut [u8],
    pub(super) layout: Layout,
}

/// What came of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    /// It took a slot, beside so many copies.
    Beside(u64),
    /// There are as many copies as there may be: nothing changed.
    Enough,
    /// Its cluster would get too long: nothing changed.
    NoRoom,
}

/// Where in a block the slots from `first` to `last` lie.
#[inline(always)]
fn part(index: usize, first: usize, last: usize) -> (usize, usize) {
    let low = if index == first / BLOCK_SLOTS { first % BLOCK_SLOTS } else { 0 };
    let high = if index == last / BLOCK_SLOTS { last % BLOCK_SLOTS } else { BLOCK_SLOTS - 1 };
    (low, high)
}

impl BlocksMut<'_> {
    #[inline(always)]
    fn view(&self) -> Blocks<'_> {
        Blocks { bytes: self.bytes, layout: self.layout }
    }

    #[inline(always)]
    fn block(&mut self, index: usize) -> BlockMut<'_> {
        BlockMut::of(self.bytes, self.layout, index)
    }

    #[inline(always)]
    fn occupied(&self, quotient: usize) -> bool {
        let occupied = self.view().block(quotient / BLOCK_SLOTS).occupied();
        occupied >> (quotient % BLOCK_SLOTS) & 1 == 1
    }

    /// Inserts a remainder, unless there are `copies_max` copies of it.
    #[inline(always)]
    pub(super) fn insert<K: Kernel>(
        &mut self,
        quotient: usize,
        remainder: u64,
        copies_max: u64,
    ) -> Inserted {
        let place = self.view().place::<K>(quotient, remainder);
        if place.copies >= copies_max {
            return Inserted::Enough;
        }
        let free = self.view().free_slot::<K>(place.slot);
        let Some(free) = free.filter(|free| free - quotient <= SHIFT_MAX) else {
            return Inserted::NoRoom;
        };
        // Behind a chain's last slot a remainder becomes its last.
        let behind = u64::from(place.is_last & place.is_occupied);
        let before = place.slot.saturating_sub(1);
        let ends = self.view().block(before / BLOCK_SLOTS).ends();
        self.block(before / BLOCK_SLOTS).set_ends(ends & !(behind << (before % BLOCK_SLOTS)));
        self.shift_up::<K>(place.slot..=free, Slot { remainder, ends: place.is_last });
        let (index, i) = (quotient / BLOCK_SLOTS, quotient % BLOCK_SLOTS);
        let occupied = self.view().block(index).occupied();
        self.block(index).set_occupied(occupied | 1 << i);
        for index in index + 1..=free / BLOCK_SLOTS {
            let offset = self.view().block(index).offset();
            self.block(index).set_offset(offset as u16 + 1);
        }
        Inserted::Beside(place.copies)
    }

    /// Moves slots up by one, over the free one at the end, and puts `carry` in the first.
    #[inline(always)]
    fn shift_up<K: Kernel>(&mut self, slots: RangeInclusive<usize>, mut carry: Slot) {
        let (first, last) = slots.into_inner();
        for index in first / BLOCK_SLOTS..=last / BLOCK_SLOTS {
            let (low, high) = part(index, first, last);
            let wanted = if index == last / BLOCK_SLOTS { Wanted::No } else { Wanted::Yes };
            carry = self.block(index).shift_up::<K>(low, high, carry, wanted);
        }
    }

    /// Takes out one copy of a remainder. Returns how many there were.
    #[inline(always)]
    pub(super) fn remove<K: Kernel>(&mut self, quotient: usize, remainder: u64) -> u64 {
        const SOUND: &str = "chains are whole";
        if !self.occupied(quotient) {
            return 0;
        }
        let chain = self.view().chain::<K>(quotient).expect(SOUND);
        let found = self.view().find::<K>(chain, remainder);
        if found.copies == 0 {
            return 0;
        }
        self.take_out::<K>(quotient, chain, found.slot);
        found.copies
    }

    #[inline(always)]
    fn take_out<K: Kernel>(&mut self, quotient: usize, chain: Chain, slot: usize) {
        let end = (self.layout.all_blocks() * BLOCK_SLOTS) - 1;
        let last = self.view().unshifted_slot::<K>(chain.end + 1).map_or(end, |next| next - 1);
        let mut carry = Slot::default();
        for index in (slot / BLOCK_SLOTS..=last / BLOCK_SLOTS).rev() {
            let (low, high) = part(index, slot, last);
            carry = self.block(index).shift_down::<K>(low, high, carry);
        }
        if chain.start == chain.end {
            self.flip_occupied(quotient);
        } else if slot == chain.end {
            self.set_end(slot - 1, 1);
        }
        for index in quotient / BLOCK_SLOTS + 1..=last / BLOCK_SLOTS {
            let offset = self.view().block(index).offset();
            self.block(index).set_offset(offset as u16 - 1);
        }
    }

    #[inline(always)]
    fn flip_occupied(&mut self, quotient: usize) {
        let index = quotient / BLOCK_SLOTS;
        let occupied = self.view().block(index).occupied();
        self.block(index).set_occupied(occupied ^ 1 << (quotient % BLOCK_SLOTS));
    }

    /// Sets whether a chain ends in this slot: 0 or 1.
    #[inline(always)]
    fn set_end(&mut self, slot: usize, end: u64) {
        let (index, i) = (slot / BLOCK_SLOTS, slot % BLOCK_SLOTS);
        let ends = self.view().block(index).ends();
        self.block(index).set_ends(ends & !(1 << i) | end << i);
    }
}
