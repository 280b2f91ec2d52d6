//! Blocks in a run of bytes: their fields, and comparing and moving the slots of one.

use super::{
    kernel::{Bytes, Compared, Kernel},
    layout::{BLOCK_SLOTS, ENDS, Layout, OCCUPIED, OFFSET, PLANES},
};

/// What a slot holds: a remainder, and whether it is the last one of its chain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    pub(super) remainder: u64,
    pub(super) ends: bool,
}

/// The blocks of a filter. Nothing is assumed of the bytes but how many they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) layout: Layout,
}

impl<'a> Blocks<'a> {
    /// The block with this index, below `all_blocks`.
    #[inline(always)]
    pub(super) fn block(self, index: usize) -> Block<'a> {
        let size = self.layout.block_bytes();
        Block { bytes: &self.bytes[index * size..][..size], layout: self.layout }
    }
}

/// One block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

/// The bits from `low` to `high`, both included and below 64.
#[inline(always)]
pub(super) fn mask(low: usize, high: usize) -> u64 {
    (u64::MAX << low) & (u64::MAX >> (BLOCK_SLOTS - 1 - high))
}

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[inline(always)]
fn byte_plane_start(layout: Layout, plane: usize) -> usize {
    PLANES + 8 * layout.bit_planes() + BLOCK_SLOTS * plane
}

impl<'a> Block<'a> {
    #[inline(always)]
    pub(super) fn occupied(self) -> u64 {
        word(self.bytes, OCCUPIED)
    }

    #[inline(always)]
    pub(super) fn ends(self) -> u64 {
        word(self.bytes, ENDS)
    }

    #[inline(always)]
    pub(super) fn offset(self) -> usize {
        usize::from(u16::from_le_bytes([self.bytes[OFFSET], self.bytes[OFFSET + 1]]))
    }

    #[inline(always)]
    fn bit_plane(self, plane: usize) -> u64 {
        word(self.bytes, PLANES + 8 * plane)
    }

    #[inline(always)]
    fn byte_plane(self, plane: usize) -> &'a Bytes {
        let start = byte_plane_start(self.layout, plane);
        self.bytes[start..start + BLOCK_SLOTS].try_into().expect("one byte a slot")
    }

    /// How the remainders of all slots compare with this one.
    #[inline(always)]
    pub(super) fn compare<K: Kernel>(self, remainder: u64) -> Compared {
        let (mut less, mut equal) = (0, u64::MAX);
        let byte_bits = 8 * self.layout.byte_planes();
        for plane in (0..self.layout.bit_planes()).rev() {
            let bits = self.bit_plane(plane);
            // All ones if the remainder has this bit.
            let wanted = 0_u64.wrapping_sub(remainder >> (byte_bits + plane) & 1);
            less |= equal & wanted & !bits;
            equal &= !(bits ^ wanted);
        }
        for plane in (0..self.layout.byte_planes()).rev() {
            let compared = K::compare(self.byte_plane(plane), (remainder >> (8 * plane)) as u8);
            less |= equal & compared.less;
            equal &= compared.equal;
        }
        Compared { less, equal }
    }

    /// Which remainders are this one.
    #[inline(always)]
    pub(super) fn equal<K: Kernel>(self, remainder: u64) -> u64 {
        let mut equal = u64::MAX;
        let byte_bits = 8 * self.layout.byte_planes();
        for plane in 0..self.layout.bit_planes() {
            let wanted = 0_u64.wrapping_sub(remainder >> (byte_bits + plane) & 1);
            equal &= !(self.bit_plane(plane) ^ wanted);
        }
        for plane in 0..self.layout.byte_planes() {
            equal &= K::compare(self.byte_plane(plane), (remainder >> (8 * plane)) as u8).equal;
        }
        equal
    }

    /// The remainders of all slots.
    #[inline(always)]
    pub(super) fn remainders<K: Kernel>(self, out: &mut [u64; BLOCK_SLOTS]) {
        let mut high = [0; BLOCK_SLOTS];
        for plane in 0..self.layout.bit_planes() {
            K::scatter(self.bit_plane(plane), plane as u32, &mut high);
        }
        let byte_planes = self.layout.byte_planes();
        for (out, &high) in out.iter_mut().zip(&high) {
            *out = u64::from(high) << (8 * byte_planes);
        }
        for plane in 0..byte_planes {
            for (out, &byte) in out.iter_mut().zip(self.byte_plane(plane)) {
                *out |= u64::from(byte) << (8 * plane);
            }
        }
    }

    #[inline(always)]
    fn slot(self, i: usize) -> Slot {
        let byte_planes = self.layout.byte_planes();
        let mut remainder = 0;
        for plane in 0..byte_planes {
            remainder |= u64::from(self.byte_plane(plane)[i]) << (8 * plane);
        }
        for plane in 0..self.layout.bit_planes() {
            remainder |= (self.bit_plane(plane) >> i & 1) << (8 * byte_planes + plane);
        }
        Slot { remainder, ends: self.ends() >> i & 1 == 1 }
    }
}

/// One block, to be changed.
#[derive(Debug)]
pub(super) struct BlockMut<'a> {
    bytes: &'a mut [u8],
    layout: Layout,
}

impl<'a> BlockMut<'a> {
    /// The block with this index of the filter with these bytes.
    #[inline(always)]
    pub(super) fn of(bytes: &'a mut [u8], layout: Layout, index: usize) -> BlockMut<'a> {
        let size = layout.block_bytes();
        BlockMut { bytes: &mut bytes[index * size..][..size], layout }
    }

    #[inline(always)]
    fn block(&self) -> Block<'_> {
        Block { bytes: self.bytes, layout: self.layout }
    }

    #[inline(always)]
    fn set_word(&mut self, at: usize, word: u64) {
        self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    #[inline(always)]
    pub(super) fn set_occupied(&mut self, occupied: u64) {
        self.set_word(OCCUPIED, occupied);
    }

    #[inline(always)]
    pub(super) fn set_ends(&mut self, ends: u64) {
        self.set_word(ENDS, ends);
    }

    #[inline(always)]
    pub(super) fn set_offset(&mut self, offset: u16) {
        self.bytes[OFFSET..OFFSET + 2].copy_from_slice(&offset.to_le_bytes());
    }

    /// Sets the remainders of all slots.
    #[inline(always)]
    pub(super) fn set_remainders<K: Kernel>(&mut self, remainders: &[u64; BLOCK_SLOTS]) {
        let byte_planes = self.layout.byte_planes();
        for plane in 0..byte_planes {
            for (byte, &remainder) in self.byte_plane_mut(plane).iter_mut().zip(remainders) {
                *byte = (remainder >> (8 * plane)) as u8;
            }
        }
        let mut high = [0; BLOCK_SLOTS];
        for (high, &remainder) in high.iter_mut().zip(remainders) {
            *high = (remainder >> (8 * byte_planes)) as u8;
        }
        for plane in 0..self.layout.bit_planes() {
            self.set_word(PLANES + 8 * plane, K::gather(&high, plane as u32));
        }
    }

    #[inline(always)]
    fn byte_plane_mut(&mut self, plane: usize) -> &mut Bytes {
        let start = byte_plane_start(self.layout, plane);
        (&mut self.bytes[start..start + BLOCK_SLOTS]).try_into().expect("one byte a slot")
    }

    /// Moves the slots `low..high` up by one and puts `first` in the lowest; what was in slot
    /// `high` is lost, and returned if `wanted`.
    #[inline(always)]
    pub(super) fn shift_up<K: Kernel>(
        &mut self,
        low: usize,
        high: usize,
        first: Slot,
        wanted: Wanted,
    ) -> Slot {
        let last = match wanted {
            Wanted::Yes => self.block().slot(high),
            Wanted::No => Slot::default(),
        };
        let moved = mask(low, high);
        let shift =
            |bits: u64, first: u64| bits & !moved | bits << 1 & moved & (moved << 1) | first << low;
        self.set_ends(shift(self.block().ends(), u64::from(first.ends)));
        let byte_planes = self.layout.byte_planes();
        for plane in 0..self.layout.bit_planes() {
            let bit = first.remainder >> (8 * byte_planes + plane) & 1;
            self.set_word(PLANES + 8 * plane, shift(self.block().bit_plane(plane), bit));
        }
        for plane in 0..byte_planes {
            let bytes = self.byte_plane_mut(plane);
            K::shift_up(bytes, moved & moved << 1);
            bytes[low] = (first.remainder >> (8 * plane)) as u8;
        }
        last
    }

    /// Moves the slots after `low`, up to `high`, down by one and puts `last` in the highest;
    /// returns what was in slot `low`.
    #[inline(always)]
    pub(super) fn shift_down<K: Kernel>(&mut self, low: usize, high: usize, last: Slot) -> Slot {
        let first = self.block().slot(low);
        let moved = mask(low, high);
        let shift = |bits: u64, last: u64| {
            bits & !moved | (bits & (moved & moved << 1)) >> 1 | last << high
        };
        self.set_ends(shift(self.block().ends(), u64::from(last.ends)));
        let byte_planes = self.layout.byte_planes();
        for plane in 0..self.layout.bit_planes() {
            let bit = last.remainder >> (8 * byte_planes + plane) & 1;
            self.set_word(PLANES + 8 * plane, shift(self.block().bit_plane(plane), bit));
        }
        for plane in 0..byte_planes {
            let bytes = self.byte_plane_mut(plane);
            K::shift_down(bytes, moved & moved >> 1);
            bytes[high] = (last.remainder >> (8 * plane)) as u8;
        }
        first
    }
}

/// Whether a slot that is pushed out of its block is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Yes,
    No,
}
