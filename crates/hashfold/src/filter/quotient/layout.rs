//! Where the slots of a quotient filter lie.
//!
//! Slots come in blocks of 64. A block with remainders of `8 B + b` bits has `18 + 8 b + 64 B`
//! bytes, in memory and on disk alike (the same table stands in `docs/formats/quotient.md`):
//!
//! | field       | size       |                                                                   |
//! |-------------|-----------:|-------------------------------------------------------------------|
//! | occupied    |          8 | bit i: some fingerprint has the i-th quotient of the block        |
//! | ends        |          8 | bit i: the chain of a quotient ends in slot i                     |
//! | offset      |          2 | slots that earlier blocks' quotients take from this block's first |
//! |             |            | one on; they may reach into later blocks                          |
//! | bit planes  |      `8 b` | the highest `b` bits of the remainders: 8 bytes with bit `8 B` of |
//! |             |            | all slots, then 8 with bit `8 B + 1` ...                          |
//! | byte planes |     `64 B` | the other bits: 64 bytes with bits 0 to 7 of all slots, then 64   |
//! |             |            | with bits 8 to 15 ...                                             |

/// Slots of a block.
pub(super) const BLOCK_SLOTS: usize = 64;

/// The longest remainders, in bits.
pub(super) const REMAINDER_BITS_MAX: u32 = 56;

/// Slots that a fingerprint may be away from its own one, and more: an offset must fit its field.
pub(super) const SHIFT_MAX: usize = u16::MAX as usize - BLOCK_SLOTS;

/// Blocks after those of the quotients, into which the last chains are shifted. A cluster of 4096
/// slots is as unlikely as `e^-400` where 95 of 100 slots are full.
const SPARE_BLOCKS_MAX: usize = 64;

pub(super) const OCCUPIED: usize = 0;
pub(super) const ENDS: usize = OCCUPIED + size_of::<u64>();
pub(super) const OFFSET: usize = ENDS + size_of::<u64>();
pub(super) const PLANES: usize = OFFSET + size_of::<u16>();
const _: () = assert!(PLANES == 18);

/// The shape of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotLayout {
    /// That have quotients.
    pub(super) blocks: usize,
    /// 1 to [`REMAINDER_BITS_MAX`].
    pub(super) remainder_bits: u32,
}

impl SlotLayout {
    /// Returns the layout with so many slots, rounded up to whole blocks; `None` if it would not
    /// fit in memory addresses.
    pub(super) fn new(slots: u128, remainder_bits: u32) -> Option<SlotLayout> {
        assert!((1..=REMAINDER_BITS_MAX).contains(&remainder_bits));
        let blocks = usize::try_from(slots.div_ceil(BLOCK_SLOTS as u128)).ok()?.max(1);
        let layout = SlotLayout { blocks, remainder_bits };
        let all = blocks.checked_add(SPARE_BLOCKS_MAX)?;
        all.checked_mul(layout.block_bytes()).filter(|&bytes| isize::try_from(bytes).is_ok())?;
        Some(layout)
    }

    /// Twice the slots for the same fingerprints, if their remainders have a bit to spare.
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

    /// Blocks with quotients, and those after them.
    #[inline(always)]
    pub(super) fn all_blocks(self) -> usize {
        self.blocks + self.blocks.min(SPARE_BLOCKS_MAX)
    }

    /// Returns the size of all blocks, in bytes.
    pub(super) fn bytes(self) -> usize {
        self.all_blocks() * self.block_bytes()
    }

    /// Slots, and quotients.
    pub(super) fn slots(self) -> u64 {
        (self.blocks * BLOCK_SLOTS) as u64
    }

    /// Returns a fingerprint's own slot. Below `slots` for those of the filter's universe.
    #[inline(always)]
    pub(super) fn quotient(self, fingerprint: u64) -> usize {
        (fingerprint >> self.remainder_bits) as usize
    }

    /// Returns the part of a fingerprint that its slot keeps.
    #[inline(always)]
    pub(super) fn remainder(self, fingerprint: u64) -> u64 {
        fingerprint & ((1 << self.remainder_bits) - 1)
    }
}
