//! The fields of blocks, and comparing and moving the slots of a block.

use super::{
    kernel::{Compared, Kernel, Plane, mask},
    layout::{BLOCK_SLOTS, ENDS, OCCUPIED, OFFSET, PLANES, SlotLayout},
};

/// The content of a slot: a remainder, and whether the slot ends a chain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlotContent {
    pub(super) remainder: u64,
    pub(super) ends: bool,
}

/// The blocks of a filter. The bytes may be damaged; only their number is checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotBlocks<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) layout: SlotLayout,
}

impl<'a> SlotBlocks<'a> {
    /// Returns the block with this index, below `all_blocks`.
    #[inline(always)]
    pub(super) fn block(self, index: usize) -> SlotBlock<'a> {
        let size = self.layout.block_bytes();
        let block = &self.bytes[index * size..][..size];
        let (head, planes) = block.split_first_chunk().expect(HEAD_FIRST);
        let (bit_planes, byte_planes) = planes.split_at(8 * self.layout.bit_planes());
        SlotBlock {
            head,
            bit_planes: bit_planes.as_chunks().0,
            byte_planes: byte_planes.as_chunks().0,
        }
    }
}

const HEAD_FIRST: &str = "a block starts with its head";

/// The bytes of a block before its planes.
type HeadBytes = [u8; PLANES];

/// A bit of each slot.
type Bits = [u8; BLOCK_SLOTS / 8];

/// A block of 64 slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotBlock<'a> {
    head: &'a HeadBytes,
    bit_planes: &'a [Bits],
    byte_planes: &'a [Plane],
}

/// Moves the bits under `moved` up by one; the highest one is 0 or is lost.
#[inline(always)]
fn shift_up(bits: u64, moved: u64) -> u64 {
    bits.wrapping_add(bits & moved)
}

#[inline(always)]
fn word(head: &HeadBytes, at: usize) -> u64 {
    u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"))
}

/// Returns the bits of a remainder that are in bit planes.
#[inline(always)]
fn high_bits(remainder: u64, byte_planes: &[Plane]) -> u64 {
    remainder >> (8 * byte_planes.len())
}

impl SlotBlock<'_> {
    #[inline(always)]
    pub(super) fn occupied(self) -> u64 {
        word(self.head, OCCUPIED)
    }

    #[inline(always)]
    pub(super) fn ends(self) -> u64 {
        word(self.head, ENDS)
    }

    #[inline(always)]
    pub(super) fn offset(self) -> usize {
        usize::from(u16::from_le_bytes([self.head[OFFSET], self.head[OFFSET + 1]]))
    }

    /// Compares the remainders of all slots with `remainder`.
    #[inline(always)]
    pub(super) fn compare<K: Kernel>(self, remainder: u64) -> Compared {
        let (mut less, mut equal) = (0, u64::MAX);
        let high = high_bits(remainder, self.byte_planes);
        for (plane, bits) in self.bit_planes.iter().enumerate().rev() {
            let bits = u64::from_le_bytes(*bits);
            // All ones if the remainder has this bit.
            let wanted = (high >> plane & 1).wrapping_neg();
            less |= equal & wanted & !bits;
            equal &= !(bits ^ wanted);
        }
        for (plane, bytes) in self.byte_planes.iter().enumerate().rev() {
            let compared = K::compare(bytes, (remainder >> (8 * plane)) as u8);
            less |= equal & compared.less;
            equal &= compared.equal;
        }
        Compared { less, equal }
    }

    /// Finds the slots with this remainder. Returns a bit per slot.
    #[inline(always)]
    pub(super) fn equal<K: Kernel>(self, remainder: u64) -> u64 {
        let mut equal = u64::MAX;
        let high = high_bits(remainder, self.byte_planes);
        for (plane, bits) in self.bit_planes.iter().enumerate() {
            equal &= !(u64::from_le_bytes(*bits) ^ (high >> plane & 1).wrapping_neg());
        }
        for (plane, bytes) in self.byte_planes.iter().enumerate() {
            equal &= K::compare(bytes, (remainder >> (8 * plane)) as u8).equal;
        }
        equal
    }

    /// Writes the remainders of all slots to `out`.
    #[inline(always)]
    pub(super) fn remainders<K: Kernel>(self, out: &mut [u64; BLOCK_SLOTS]) {
        let mut high = [0; BLOCK_SLOTS];
        for (plane, bits) in self.bit_planes.iter().enumerate() {
            K::scatter(u64::from_le_bytes(*bits), plane as u32, &mut high);
        }
        for (out, &high) in out.iter_mut().zip(&high) {
            *out = u64::from(high) << (8 * self.byte_planes.len());
        }
        for (plane, bytes) in self.byte_planes.iter().enumerate() {
            for (out, &byte) in out.iter_mut().zip(bytes) {
                *out |= u64::from(byte) << (8 * plane);
            }
        }
    }

    /// Returns the remainder in a slot.
    #[inline(always)]
    pub(super) fn remainder(self, i: usize) -> u64 {
        let mut high = 0;
        for (plane, bits) in self.bit_planes.iter().enumerate() {
            high |= (u64::from_le_bytes(*bits) >> i & 1) << plane;
        }
        let mut remainder = high << (8 * self.byte_planes.len());
        for (plane, bytes) in self.byte_planes.iter().enumerate() {
            remainder |= u64::from(bytes[i]) << (8 * plane);
        }
        remainder
    }
}

/// A mutable block of 64 slots.
#[derive(Debug)]
pub(super) struct SlotBlockMut<'a> {
    head: &'a mut HeadBytes,
    bit_planes: &'a mut [Bits],
    byte_planes: &'a mut [Plane],
}

impl<'a> SlotBlockMut<'a> {
    /// Returns the block with this index of the filter with these bytes.
    #[inline(always)]
    pub(super) fn of(bytes: &'a mut [u8], layout: SlotLayout, index: usize) -> SlotBlockMut<'a> {
        let size = layout.block_bytes();
        let block = &mut bytes[index * size..][..size];
        let (head, planes) = block.split_first_chunk_mut().expect(HEAD_FIRST);
        let (bit_planes, byte_planes) = planes.split_at_mut(8 * layout.bit_planes());
        SlotBlockMut {
            head,
            bit_planes: bit_planes.as_chunks_mut().0,
            byte_planes: byte_planes.as_chunks_mut().0,
        }
    }

    #[inline(always)]
    pub(super) fn block(&self) -> SlotBlock<'_> {
        SlotBlock { head: self.head, bit_planes: self.bit_planes, byte_planes: self.byte_planes }
    }

    #[inline(always)]
    pub(super) fn set_occupied(&mut self, occupied: u64) {
        self.head[OCCUPIED..OCCUPIED + 8].copy_from_slice(&occupied.to_le_bytes());
    }

    #[inline(always)]
    pub(super) fn set_ends(&mut self, ends: u64) {
        self.head[ENDS..ENDS + 8].copy_from_slice(&ends.to_le_bytes());
    }

    #[inline(always)]
    pub(super) fn set_offset(&mut self, offset: u16) {
        self.head[OFFSET..OFFSET + 2].copy_from_slice(&offset.to_le_bytes());
    }

    /// Sets the remainders of all slots.
    #[inline(always)]
    pub(super) fn set_remainders<K: Kernel>(&mut self, remainders: &[u64; BLOCK_SLOTS]) {
        for (plane, bytes) in self.byte_planes.iter_mut().enumerate() {
            for (byte, &remainder) in bytes.iter_mut().zip(remainders) {
                *byte = (remainder >> (8 * plane)) as u8;
            }
        }
        let mut high = [0; BLOCK_SLOTS];
        for (high, &remainder) in high.iter_mut().zip(remainders) {
            *high = high_bits(remainder, self.byte_planes) as u8;
        }
        for (plane, bits) in self.bit_planes.iter_mut().enumerate() {
            *bits = K::gather(&high, plane as u32).to_le_bytes();
        }
    }

    /// Moves the ends of the slots from `low` on up by one. Then sets the end of `low` to `end`, 0
    /// or 1. Slot `high` is free, or the block's last slot, whose content is lost.
    #[inline(always)]
    pub(super) fn shift_ends_up(&mut self, low: usize, high: usize, end: u64) {
        self.set_ends(shift_up(self.block().ends(), mask(low, high)) | end << low);
    }

    /// Moves the remainders from `low` on up by one, and writes `first` to `low`.
    #[inline(always)]
    pub(super) fn shift_remainders_up<K: Kernel>(
        &mut self,
        low: usize,
        high: usize,
        remainder: u64,
    ) {
        let moved = mask(low, high);
        let high_bits = high_bits(remainder, self.byte_planes);
        for (plane, bits) in self.bit_planes.iter_mut().enumerate() {
            let bit = high_bits >> plane & 1;
            let shifted = shift_up(u64::from_le_bytes(*bits), moved) | bit << low;
            *bits = shifted.to_le_bytes();
        }
        for (plane, bytes) in self.byte_planes.iter_mut().enumerate() {
            K::shift_up(bytes, low, high, (remainder >> (8 * plane)) as u8);
        }
    }

    /// Moves the slots after `low`, up to `high`, down by one, and writes `last` to slot `high`.
    /// Returns the old content of slot `low`.
    #[inline(always)]
    pub(super) fn shift_down<K: Kernel>(
        &mut self,
        low: usize,
        high: usize,
        last: SlotContent,
    ) -> SlotContent {
        let first = SlotContent {
            remainder: self.block().remainder(low),
            ends: self.block().ends() >> low & 1 == 1,
        };
        let moved = mask(low, high);
        let shift = |bits: u64, last: u64| {
            bits & !moved | (bits & (moved & moved << 1)) >> 1 | last << high
        };
        self.set_ends(shift(self.block().ends(), u64::from(last.ends)));
        let high_bits = high_bits(last.remainder, self.byte_planes);
        for (plane, bits) in self.bit_planes.iter_mut().enumerate() {
            *bits = shift(u64::from_le_bytes(*bits), high_bits >> plane & 1).to_le_bytes();
        }
        for (plane, bytes) in self.byte_planes.iter_mut().enumerate() {
            K::shift_down(bytes, low, high, (last.remainder >> (8 * plane)) as u8);
        }
        first
    }
}
