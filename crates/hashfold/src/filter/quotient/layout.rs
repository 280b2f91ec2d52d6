//! The layout of a quotient filter's blocks.
//!
//! A block has 64 slots. With remainders of `8 B + b` bits, it has `18 + 8 b + 64 B` bytes, in
//! memory and on disk alike (the same table stands in `docs/formats/quotient.md`):
//!
//! | field       | size       |                                                                   |
//! |-------------|-----------:|-------------------------------------------------------------------|
//! | occupied    |          8 | bit i: at least one fingerprint has the i-th quotient of the block |
//! | ends        |          8 | bit i: a chain ends in slot i                                     |
//! | offset      |          2 | number of slots, from the block's first slot on, that hold chains |
//! |             |            | of earlier blocks' quotients; they may reach into later blocks    |
//! | bit planes  |      `8 b` | the highest `b` bits of the remainders: 8 bytes with bit `8 B` of |
//! |             |            | all slots, then 8 bytes with bit `8 B + 1`, and so on             |
//! | byte planes |     `64 B` | the other bits: 64 bytes with bits 0 to 7 of all slots, then 64   |
//! |             |            | bytes with bits 8 to 15, and so on                                |

/// Number of slots in a block.
pub(super) const BLOCK_SLOTS: usize = 64;

/// Maximum number of bits in a remainder.
pub(super) const REMAINDER_BITS_MAX: u32 = 56;

/// Maximum distance of a fingerprint from the slot of its quotient, in slots: the field `offset`
/// must hold it.
pub(super) const SHIFT_MAX: usize = u16::MAX as usize - BLOCK_SLOTS;

/// Maximum number of spare blocks, into which the last chains are shifted. At a load of 95 %, the
/// probability of a cluster of 4096 slots is about `e^-400`.
const SPARE_BLOCKS_MAX: usize = 64;

pub(super) const OCCUPIED: usize = 0;
pub(super) const ENDS: usize = OCCUPIED + size_of::<u64>();
pub(super) const OFFSET: usize = ENDS + size_of::<u64>();
pub(super) const PLANES: usize = OFFSET + size_of::<u16>();
const _: () = assert!(PLANES == 18);

/// The number and the size of a filter's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotLayout {
    /// Number of blocks with quotients.
    pub(super) blocks: usize,
    /// Bits in a remainder, 1 to [`REMAINDER_BITS_MAX`].
    pub(super) remainder_bits: u32,
}

impl SlotLayout {
    /// Returns a layout with `slots` slots, rounded up to whole blocks; `None` if it does not fit
    /// in the address space.
    pub(super) fn new(slots: u128, remainder_bits: u32) -> Option<SlotLayout> {
        assert!((1..=REMAINDER_BITS_MAX).contains(&remainder_bits));
        let blocks = usize::try_from(slots.div_ceil(BLOCK_SLOTS as u128)).ok()?.max(1);
        let layout = SlotLayout { blocks, remainder_bits };
        let all = blocks.checked_add(SPARE_BLOCKS_MAX)?;
        all.checked_mul(layout.block_bytes()).filter(|&bytes| isize::try_from(bytes).is_ok())?;
        Some(layout)
    }

    /// Returns a layout with twice the slots for the same fingerprints, if remainders have more
    /// than one bit.
    pub(super) fn doubled(self) -> Option<SlotLayout> {
        let remainder_bits = self.remainder_bits.checked_sub(1).filter(|&bits| bits > 0)?;
        SlotLayout::new(u128::from(self.slots()) * 2, remainder_bits)
    }

    #[inline(always)]
    pub(super) fn bit_planes(self) -> usize {
        (self.remainder_bits % 8) as usize
    }

    #[inline(always)]
    pub(super) fn byte_planes(self) -> usize {
        (self.remainder_bits / 8) as usize
    }

    #[inline(always)]
    pub(super) fn block_bytes(self) -> usize {
        PLANES + 8 * self.bit_planes() + BLOCK_SLOTS * self.byte_planes()
    }

    /// Returns the number of all blocks, spare blocks included.
    #[inline(always)]
    pub(super) fn all_blocks(self) -> usize {
        self.blocks + self.blocks.min(SPARE_BLOCKS_MAX)
    }

    /// Returns the size of all blocks, in bytes.
    pub(super) fn bytes(self) -> usize {
        self.all_blocks() * self.block_bytes()
    }

    /// Returns the number of slots, which is also the number of quotients.
    pub(super) fn slots(self) -> u64 {
        (self.blocks * BLOCK_SLOTS) as u64
    }

    /// Returns a fingerprint's home slot, which is below `slots` for fingerprints of the filter's
    /// universe.
    #[inline(always)]
    pub(super) fn quotient(self, fingerprint: u64) -> usize {
        (fingerprint >> self.remainder_bits) as usize
    }

    /// Returns the part of a fingerprint that its slot stores.
    #[inline(always)]
    pub(super) fn remainder(self, fingerprint: u64) -> u64 {
        fingerprint & ((1 << self.remainder_bits) - 1)
    }
}
