//! Where things are: the chain of a quotient, a remainder in it, the end of a cluster.
//!
//! The chains of the occupied quotients lie in the order of the quotients, each from its own slot
//! on or, where that is taken, from the first one after the chain before it. So the n-th occupied
//! quotient of a block has the n-th of the ends that come after the block's offset. Damaged bytes
//! lead to wrong answers here, never out of the blocks and never round in circles.

use super::{
    block::{Blocks, mask},
    kernel::Kernel,
    layout::{BLOCK_SLOTS, SHIFT_MAX},
};

/// The slots of one quotient: the first and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Where a remainder is in its chain, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The first slot whose remainder is not less; one past the chain if there is none.
    pub(super) slot: usize,
    /// How many slots from there on hold this one.
    pub(super) copies: u64,
}

/// Where a remainder goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Before the first slot of its chain whose remainder is not less.
    pub(super) slot: usize,
    /// How many copies are there.
    pub(super) copies: u64,
    /// Whether it becomes the last, or the only one, of its chain.
    pub(super) is_last: bool,
    /// Whether its quotient has a chain.
    pub(super) is_occupied: bool,
}

/// No chain takes more blocks than this, and none starts further away.
const BLOCKS_MAX: usize = SHIFT_MAX / BLOCK_SLOTS + 4;

/// The bits below `i`, which is below 64.
#[inline(always)]
fn below(i: usize) -> u64 {
    (1 << i) - 1
}

impl Blocks<'_> {
    /// How often the filter has this remainder under this quotient.
    #[inline(always)]
    pub(super) fn copies<K: Kernel>(self, quotient: usize, remainder: u64) -> u64 {
        let block = self.block(quotient / BLOCK_SLOTS);
        if block.occupied() >> (quotient % BLOCK_SLOTS) & 1 == 0 {
            return 0;
        }
        let chain = self.chain::<K>(quotient);
        chain.map_or(0, |chain| self.find::<K>(chain, remainder).copies)
    }

    /// Whether the filter has this fingerprint.
    #[inline(always)]
    pub(super) fn contains<K: Kernel>(self, fingerprint: u64) -> bool {
        let quotient = self.layout.quotient(fingerprint);
        let remainder = self.layout.remainder(fingerprint);
        let (index, i) = (quotient / BLOCK_SLOTS, quotient % BLOCK_SLOTS);
        let block = self.block(index);
        let occupied = block.occupied();
        if occupied >> i & 1 == 0 {
            return false;
        }
        // Nearly every chain lies in its own block.
        let offset = block.offset();
        if offset < BLOCK_SLOTS {
            let ends = block.ends() & u64::MAX << offset;
            let end = K::select(ends, (occupied & below(i)).count_ones());
            if end != 0 {
                let before = ends & (end - 1);
                let start = i.max(offset).max((u64::BITS - before.leading_zeros()) as usize);
                let chain = (end | (end - 1)) & u64::MAX << start;
                return block.equal::<K>(remainder) & chain != 0;
            }
        }
        self.chain::<K>(quotient).is_some_and(|chain| self.find::<K>(chain, remainder).copies > 0)
    }

    /// Where a remainder goes. The blocks must be whole.
    #[inline(always)]
    pub(super) fn place<K: Kernel>(self, quotient: usize, remainder: u64) -> Place {
        if let Some(place) = self.place_within::<K>(quotient, remainder) {
            return place;
        }
        const WHOLE: &str = "chains are whole";
        let block = self.block(quotient / BLOCK_SLOTS);
        if block.occupied() >> (quotient % BLOCK_SLOTS) & 1 == 0 {
            let slot = self.chain_start::<K>(quotient).expect(WHOLE);
            return Place { slot, copies: 0, is_last: true, is_occupied: false };
        }
        let chain = self.chain::<K>(quotient).expect(WHOLE);
        let Found { slot, copies } = self.find::<K>(chain, remainder);
        Place { slot, copies, is_last: slot > chain.end, is_occupied: true }
    }

    /// The same if the chain, or the slot where it would start, is in the quotient's own block.
    ///
    /// Whether the quotient is occupied decides no jump here: it is as good as random, and the
    /// processor would guess it wrongly every other time.
    #[inline(always)]
    fn place_within<K: Kernel>(self, quotient: usize, remainder: u64) -> Option<Place> {
        let (index, i) = (quotient / BLOCK_SLOTS, quotient % BLOCK_SLOTS);
        let block = self.block(index);
        let (occupied, offset) = (block.occupied(), block.offset());
        if offset >= BLOCK_SLOTS {
            return None;
        }
        let ends = block.ends() & u64::MAX << offset;
        let before = (occupied & below(i)).count_ones();
        let end_before = if before == 0 { 0 } else { K::select(ends, before - 1) };
        let start = i.max(offset).max((u64::BITS - end_before.leading_zeros()) as usize);
        if start >= BLOCK_SLOTS || (before > 0 && end_before == 0) {
            return None;
        }
        let is_occupied = occupied >> i & 1;
        let later = ends & u64::MAX << start;
        // The quotient's slots, if it has any: up to the next end, which must be here.
        let up_to_end = later ^ later.wrapping_sub(1);
        let chain = up_to_end & u64::MAX << start & 0_u64.wrapping_sub(is_occupied);
        if chain != 0 && later == 0 {
            return None;
        }
        let compared = block.compare::<K>(remainder);
        let i = start + (compared.less & chain).count_ones() as usize;
        Some(Place {
            slot: index * BLOCK_SLOTS + i,
            copies: u64::from((compared.equal & chain).count_ones()),
            is_last: i == BLOCK_SLOTS || chain >> i & 1 == 0,
            is_occupied: is_occupied == 1,
        })
    }

    /// The chain of a quotient that is occupied. `None` only if the bytes are damaged.
    #[inline(always)]
    pub(super) fn chain<K: Kernel>(self, quotient: usize) -> Option<Chain> {
        let start = self.chain_start::<K>(quotient)?;
        let end = self.nth_end::<K>(start, 0)?;
        Some(Chain { start, end })
    }

    /// Where the chain of a quotient starts, or would if it were occupied. `None` only if the
    /// bytes are damaged.
    #[inline(always)]
    pub(super) fn chain_start<K: Kernel>(self, quotient: usize) -> Option<usize> {
        let (index, i) = (quotient / BLOCK_SLOTS, quotient % BLOCK_SLOTS);
        let block = self.block(index);
        let first = index * BLOCK_SLOTS + block.offset();
        let before = (block.occupied() & below(i)).count_ones();
        let start = match before {
            0 => first,
            _ => self.nth_end::<K>(first, before - 1)? + 1,
        };
        Some(start.max(quotient))
    }

    /// The slot of the end that has `rank` others before it, from slot `from` on. `rank` is below
    /// 64.
    #[inline(always)]
    fn nth_end<K: Kernel>(self, from: usize, mut rank: u32) -> Option<usize> {
        let (first, mut i) = (from / BLOCK_SLOTS, from % BLOCK_SLOTS);
        for index in first..(first + BLOCKS_MAX).min(self.layout.all_blocks()) {
            let ends = self.block(index).ends() & u64::MAX << i;
            let end = K::select(ends, rank);
            if end != 0 {
                return Some(index * BLOCK_SLOTS + end.trailing_zeros() as usize);
            }
            rank -= ends.count_ones();
            i = 0;
        }
        None
    }

    /// Looks for a remainder in a chain.
    #[inline(always)]
    pub(super) fn find<K: Kernel>(self, chain: Chain, remainder: u64) -> Found {
        let (first, last) = (chain.start / BLOCK_SLOTS, chain.end / BLOCK_SLOTS);
        let (mut slot, mut copies) = (chain.start, 0);
        for index in first..=last {
            let low = if index == first { chain.start % BLOCK_SLOTS } else { 0 };
            let high = if index == last { chain.end % BLOCK_SLOTS } else { BLOCK_SLOTS - 1 };
            let slots = mask(low, high);
            let compared = self.block(index).compare::<K>(remainder);
            slot += (compared.less & slots).count_ones() as usize;
            copies += u64::from((compared.equal & slots).count_ones());
        }
        Found { slot, copies }
    }

    /// The first slot from `slot` on that is free. `None` if there is none.
    #[inline(always)]
    pub(super) fn free_slot<K: Kernel>(self, slot: usize) -> Option<usize> {
        // A quotient's own slot is taken if the quotient is occupied.
        self.gap::<K>(slot, |occupied, i| occupied & u64::MAX >> (BLOCK_SLOTS - 1 - i))
    }

    /// The first slot from `slot` on that no chain of an earlier quotient reaches: a free one, or
    /// the own one of a quotient.
    #[inline(always)]
    pub(super) fn unshifted_slot<K: Kernel>(self, slot: usize) -> Option<usize> {
        self.gap::<K>(slot, |occupied, i| occupied & below(i))
    }

    /// The first slot from `slot` on that comes after the chains of the quotients up to it:
    /// `up_to` takes the occupied quotients of a block and the slot in it, and keeps those which
    /// count.
    #[inline(always)]
    fn gap<K: Kernel>(self, slot: usize, up_to: impl Fn(u64, usize) -> u64) -> Option<usize> {
        let (first, mut i) = (slot / BLOCK_SLOTS, slot % BLOCK_SLOTS);
        for index in first..self.layout.all_blocks() {
            let block = self.block(index);
            let (occupied, offset) = (block.occupied(), block.offset());
            i = i.max(offset);
            let ends = if i < BLOCK_SLOTS { block.ends() & u64::MAX << offset } else { 0 };
            while i < BLOCK_SLOTS {
                let rank = up_to(occupied, i).count_ones();
                if rank == 0 {
                    return Some(index * BLOCK_SLOTS + i);
                }
                let end = K::select(ends, rank - 1);
                if end == 0 {
                    break;
                }
                let end = end.trailing_zeros() as usize;
                if end < i {
                    return Some(index * BLOCK_SLOTS + i);
                }
                i = end + 1;
            }
            i = 0;
        }
        None
    }
}
