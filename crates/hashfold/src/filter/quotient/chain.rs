//! Searching: the chain of a quotient, a remainder in a chain, the end of a cluster.
//!
//! The chains of the occupied quotients are in the order of the quotients. Each starts in its own
//! slot or, if that slot is taken, in the first slot after the chain before it. So the n-th
//! occupied quotient of a block has the n-th end after the block's offset. Damaged bytes lead to
//! wrong answers, but never to accesses outside the blocks or to endless loops.

use super::{
    block::{SlotBlock, SlotBlocks},
    kernel::{Kernel, KernelTask, mask},
    layout::{BLOCK_SLOTS, SHIFT_MAX},
};

/// The first and the last slot of a quotient's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainSlots {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The position at which a remainder is in its chain, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InChain {
    /// The first slot whose remainder is not less; the slot after the chain if there is none.
    pub(super) slot: usize,
    /// Number of slots with this remainder, from `slot` on.
    pub(super) copies: u64,
}

/// The position at which a remainder is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InsertPosition {
    /// The first slot of the quotient's chain, or the slot in which a chain would start.
    pub(super) start: usize,
    /// The slot before which the remainder belongs: the first slot of the chain whose remainder is
    /// not less.
    pub(super) slot: usize,
    /// Number of copies in the chain.
    pub(super) copies: u64,
    /// 1 if the quotient has a chain, else 0.
    pub(super) is_occupied: u64,
}

/// The task of counting the copies of a remainder in the chain of a quotient.
struct Copies<'a> {
    blocks: SlotBlocks<'a>,
    quotient: usize,
    remainder: u64,
}

impl KernelTask for Copies<'_> {
    type Output = u64;

    #[inline(always)]
    fn run<K: Kernel>(self) -> u64 {
        let block = self.blocks.block(self.quotient / BLOCK_SLOTS);
        if block.occupied() >> (self.quotient % BLOCK_SLOTS) & 1 == 0 {
            return 0;
        }
        let chain = self.blocks.chain::<K>(self.quotient);
        chain.map_or(0, |chain| self.blocks.find::<K>(chain, self.remainder).copies)
    }
}

/// Maximum number of blocks of a chain, and maximum distance of its start.
const BLOCKS_MAX: usize = SHIFT_MAX / BLOCK_SLOTS + 4;

/// Returns the bits below `i`, which is below 64.
#[inline(always)]
fn below(i: usize) -> u64 {
    (1 << i) - 1
}

/// The chains of a block's own quotients, as far as they are in the block. All ends from the offset
/// on belong to them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    /// The quotients with chains: a bit per quotient.
    pub(super) occupied: u64,
    /// Bits of the slots in which chains end.
    ends: u64,
    /// Bits of the first slot after the chains of earlier blocks, and of the slots after the ends:
    /// the n-th bit is the earliest slot at which the n-th chain may start.
    starts: u64,
}

impl Own {
    /// Returns the block's own chains; `None` if chains of earlier blocks fill the block.
    #[inline(always)]
    pub(super) fn of(block: SlotBlock<'_>) -> Option<Own> {
        let offset = block.offset();
        if offset >= BLOCK_SLOTS {
            return None;
        }
        let ends = block.ends() & u64::MAX << offset;
        Some(Own { occupied: block.occupied(), ends, starts: ends << 1 | 1 << offset })
    }

    /// Returns the bit of the slot at which the chain of the i-th quotient starts, or would start;
    /// 0 if the slot is in a later block.
    #[inline(always)]
    pub(super) fn start<K: Kernel>(self, i: usize) -> u64 {
        match K::select(self.starts, (self.occupied & below(i)).count_ones()) {
            0 => 0,
            first => first.max(1 << i),
        }
    }

    /// Returns the bits of the chain that starts at `start`, as far as it is in the block.
    #[inline(always)]
    pub(super) fn chain(self, start: u64) -> u64 {
        let from_start = start.wrapping_neg();
        let later = self.ends & from_start;
        (later ^ later.wrapping_sub(1)) & from_start
    }

    /// Returns the first free slot from `from` on; 64 if there is none.
    #[inline(always)]
    pub(super) fn free_slot<K: Kernel>(self, from: usize) -> usize {
        K::gap(self.starts, self.occupied, from)
    }

    /// Returns the first slot from `from` on that no chain of an earlier quotient reaches: a free
    /// slot, or the home slot of its quotient. 64 if there is none.
    #[inline(always)]
    pub(super) fn unshifted_slot<K: Kernel>(self, from: usize) -> usize {
        // Works as if the home slot of each quotient were the next slot.
        K::gap(self.starts, self.occupied << 1, from)
    }
}

impl SlotBlocks<'_> {
    /// Counts the copies of a remainder under a quotient.
    #[inline(always)]
    pub(super) fn copies<K: Kernel>(self, quotient: usize, remainder: u64) -> u64 {
        K::call(Copies { blocks: self, quotient, remainder })
    }

    /// Whether the filter contains this fingerprint.
    #[inline(always)]
    pub(super) fn contains<K: Kernel>(self, fingerprint: u64) -> bool {
        let quotient = self.layout.quotient(fingerprint);
        let remainder = self.layout.remainder(fingerprint);
        let (index, i) = (quotient / BLOCK_SLOTS, quotient % BLOCK_SLOTS);
        let block = self.block(index);
        if block.occupied() >> i & 1 == 0 {
            return false;
        }
        // Nearly every chain lies in its own block.
        if let Some(own) = Own::of(block) {
            let chain = own.chain(own.start::<K>(i));
            if own.ends & chain != 0 {
                return block.equal::<K>(remainder) & chain != 0;
            }
        }
        K::call(Copies { blocks: self, quotient, remainder }) > 0
    }

    /// Returns the position at which to insert a remainder. The blocks must not be damaged.
    #[inline(always)]
    pub(super) fn place<K: Kernel>(self, quotient: usize, remainder: u64) -> InsertPosition {
        const WHOLE: &str = "chains are whole";
        let block = self.block(quotient / BLOCK_SLOTS);
        let is_occupied = block.occupied() >> (quotient % BLOCK_SLOTS) & 1;
        if is_occupied == 0 {
            let start = self.chain_start::<K>(quotient).expect(WHOLE);
            return InsertPosition { start, slot: start, copies: 0, is_occupied };
        }
        let chain = self.chain::<K>(quotient).expect(WHOLE);
        let InChain { slot, copies } = self.find::<K>(chain, remainder);
        InsertPosition { start: chain.start, slot, copies, is_occupied }
    }

    /// Returns the chain of an occupied quotient. `None` only if the bytes are damaged.
    #[inline(always)]
    pub(super) fn chain<K: Kernel>(self, quotient: usize) -> Option<ChainSlots> {
        let start = self.chain_start::<K>(quotient)?;
        let end = self.nth_end::<K>(start, 0)?;
        Some(ChainSlots { start, end })
    }

    /// Returns the slot at which the chain of a quotient starts, or would start. `None` only if the
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

    /// Returns the slot of the `rank`-th end, counted from 0 and from slot `from` on. `rank` is
    /// below 64.
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

    /// Searches for a remainder in a chain.
    #[inline(always)]
    pub(super) fn find<K: Kernel>(self, chain: ChainSlots, remainder: u64) -> InChain {
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
        InChain { slot, copies }
    }

    /// Returns the first free slot from `slot` on. `None` if there is none.
    #[inline(always)]
    pub(super) fn free_slot<K: Kernel>(self, slot: usize) -> Option<usize> {
        self.first_slot(slot, Own::free_slot::<K>)
    }

    /// Returns the first slot from `slot` on that no chain of an earlier quotient reaches: a free
    /// slot, or the home slot of its quotient. `None` if there is none.
    #[inline(always)]
    pub(super) fn unshifted_slot<K: Kernel>(self, slot: usize) -> Option<usize> {
        self.first_slot(slot, Own::unshifted_slot::<K>)
    }

    /// Returns the first slot from `slot` on that `in_block` finds.
    #[inline(always)]
    fn first_slot(self, slot: usize, in_block: impl Fn(Own, usize) -> usize) -> Option<usize> {
        let mut from = slot % BLOCK_SLOTS;
        for index in slot / BLOCK_SLOTS..self.layout.all_blocks() {
            let found = Own::of(self.block(index)).map(|own| in_block(own, from));
            if let Some(i) = found.filter(|&i| i < BLOCK_SLOTS) {
                return Some(index * BLOCK_SLOTS + i);
            }
            from = 0;
        }
        None
    }
}
