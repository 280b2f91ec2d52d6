//! Inserting a remainder into its chain, and removing it.

use super::{
    block::{SlotBlockMut, SlotBlocks, SlotContent},
    chain::{ChainSlots, Own},
    kernel::{Kernel, KernelTask},
    layout::{BLOCK_SLOTS, SHIFT_MAX, SlotLayout},
};
use std::{mem, ops::RangeInclusive};

/// The blocks of a filter in memory, to be changed. Their bytes are valid.
#[derive(Debug)]
pub(super) struct SlotBlocksMut<'a> {
    pub(super) bytes: &'a mut [u8],
    pub(super) layout: SlotLayout,
}

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    /// The remainder was inserted beside this number of copies.
    Beside(u64),
    /// The maximum number of copies is present; nothing changed.
    Enough,
    /// The cluster would become too long; nothing changed.
    NoRoom,
}

/// Returns the slots from `first` to `last` that are in a block.
#[inline(always)]
fn part(index: usize, first: usize, last: usize) -> (usize, usize) {
    let low = if index == first / BLOCK_SLOTS { first % BLOCK_SLOTS } else { 0 };
    let high = if index == last / BLOCK_SLOTS { last % BLOCK_SLOTS } else { BLOCK_SLOTS - 1 };
    (low, high)
}

/// An insertion that moves slots of more than one block.
struct InsertAcross<'a> {
    blocks: SlotBlocksMut<'a>,
    quotient: usize,
    remainder: u64,
    copies_max: u64,
}

impl KernelTask for InsertAcross<'_> {
    type Output = Inserted;

    #[inline(always)]
    fn run<K: Kernel>(mut self) -> Inserted {
        self.blocks.insert_across::<K>(self.quotient, self.remainder, self.copies_max)
    }
}

impl SlotBlockMut<'_> {
    /// Inserts a remainder under the i-th quotient if no other block is involved. In that case, a
    /// slot at or after the home slot is free, and the whole chain is in this block.
    ///
    /// There is no branch on whether the quotient is occupied: it would be mispredicted half of the
    /// time.
    #[inline(always)]
    fn insert<K: Kernel>(&mut self, i: usize, remainder: u64, copies_max: u64) -> Option<Inserted> {
        let own = Own::of(self.block())?;
        let free = own.free_slot::<K>(i);
        if free == BLOCK_SLOTS {
            return None;
        }
        let is_occupied = own.occupied >> i & 1;
        let start = own.start::<K>(i);
        let chain = own.chain(start) & is_occupied.wrapping_neg();
        let compared = self.block().compare::<K>(remainder);
        let copies = u64::from((compared.equal & chain).count_ones());
        if copies >= copies_max {
            return Some(Inserted::Enough);
        }
        let start = start.trailing_zeros() as usize;
        let slot = start + (compared.less & chain).count_ones() as usize;
        self.set_occupied(own.occupied | 1 << i);
        self.shift_ends_up(start, free, 1 - is_occupied);
        self.shift_remainders_up::<K>(slot, free, remainder);
        Some(Inserted::Beside(copies))
    }
}

impl SlotBlocksMut<'_> {
    #[inline(always)]
    fn view(&self) -> SlotBlocks<'_> {
        SlotBlocks { bytes: self.bytes, layout: self.layout }
    }

    #[inline(always)]
    fn block(&mut self, index: usize) -> SlotBlockMut<'_> {
        SlotBlockMut::of(self.bytes, self.layout, index)
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
        let index = quotient / BLOCK_SLOTS;
        let within = self.block(index).insert::<K>(quotient % BLOCK_SLOTS, remainder, copies_max);
        let blocks = SlotBlocksMut { bytes: self.bytes, layout: self.layout };
        within.unwrap_or_else(|| K::call(InsertAcross { blocks, quotient, remainder, copies_max }))
    }

    /// Inserts a remainder if slots of several blocks move.
    #[inline(always)]
    fn insert_across<K: Kernel>(
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
        self.shift_ends_up(place.start..=free, 1 - place.is_occupied);
        self.shift_remainders_up::<K>(place.slot..=free, remainder);
        let (index, i) = (quotient / BLOCK_SLOTS, quotient % BLOCK_SLOTS);
        let occupied = self.view().block(index).occupied();
        self.block(index).set_occupied(occupied | 1 << i);
        for index in index + 1..=free / BLOCK_SLOTS {
            let offset = self.view().block(index).offset();
            self.block(index).set_offset(offset as u16 + 1);
        }
        Inserted::Beside(place.copies)
    }

    /// Moves the ends of slots up by one, over the last slot, which is free. Then sets the end of
    /// the first slot.
    #[inline(always)]
    fn shift_ends_up(&mut self, slots: RangeInclusive<usize>, mut end: u64) {
        let (first, last) = slots.into_inner();
        for index in first / BLOCK_SLOTS..=last / BLOCK_SLOTS {
            let (low, high) = part(index, first, last);
            let mut block = self.block(index);
            let pushed_out = block.block().ends() >> (BLOCK_SLOTS - 1);
            block.shift_ends_up(low, high, mem::replace(&mut end, pushed_out));
        }
    }

    /// Moves remainders up by one, over the last slot, which is free. Then writes `remainder` to
    /// the first slot.
    #[inline(always)]
    fn shift_remainders_up<K: Kernel>(&mut self, slots: RangeInclusive<usize>, mut remainder: u64) {
        let (first, last) = slots.into_inner();
        for index in first / BLOCK_SLOTS..=last / BLOCK_SLOTS {
            let (low, high) = part(index, first, last);
            let mut block = self.block(index);
            let pushed_out = block.block().remainder(BLOCK_SLOTS - 1);
            let first = mem::replace(&mut remainder, pushed_out);
            block.shift_remainders_up::<K>(low, high, first);
        }
    }

    /// Removes one copy of a remainder. Returns the number of copies before.
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
    fn take_out<K: Kernel>(&mut self, quotient: usize, chain: ChainSlots, slot: usize) {
        let end = (self.layout.all_blocks() * BLOCK_SLOTS) - 1;
        let last = self.view().unshifted_slot::<K>(chain.end + 1).map_or(end, |next| next - 1);
        let mut carry = SlotContent::default();
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

    /// Sets the end bit of a slot: 0 or 1.
    #[inline(always)]
    fn set_end(&mut self, slot: usize, end: u64) {
        let (index, i) = (slot / BLOCK_SLOTS, slot % BLOCK_SLOTS);
        let ends = self.view().block(index).ends();
        self.block(index).set_ends(ends & !(1 << i) | end << i);
    }
}
