//! A line: a cache line of 64 bytes with four or five slots, each with the rest of a hash and a value.
//!
//! | format | bytes 0 to 29 | values | bytes 56 to 59 | bytes 60 to 63 |
//! |---|---|---|---|---|
//! | narrow, 5 slots | 48 bits of each hash | 48 bits each, from byte 30 on | the last value | 5 bits: which slots are in use; 5 × 5 bits: bits 48 to 52 of each hash |
//! | wide, 4 slots | 48 bits of each hash (24 bytes) | 64 bits each, from byte 24 on | bits 48 to 55 of each hash | 4 bits: which slots are in use |
//!
//! A narrow line has the last 53 bits of a hash, a wide one the last 56. The place of a group implies the others: a
//! region its first 8 bits, and a group of depth 3 at least the first 11. Numbers are little-endian.

/// Size of a line in bytes.
pub(super) const LINE_BYTES: usize = 64;

/// Bytes of a line, aligned to its size.
pub(super) type Line = [u8; LINE_BYTES];

/// Number of lines in a chunk, a power of two.
pub(super) const CHUNK_LINES: usize = 32;
/// The lines of a chunk.
pub(super) type Chunk = [Line; CHUNK_LINES];
/// Size of a chunk in bytes.
pub(super) const CHUNK_BYTES: usize = CHUNK_LINES * LINE_BYTES;

/// Maximum number of slots in a line.
pub(super) const SLOTS_MAX: usize = 5;

/// Bits of a hash that a slot has in its first bytes.
pub(super) const LOW_BITS: u32 = 48;

/// The last [`LOW_BITS`] bits.
pub(super) const LOW: u64 = (1 << LOW_BITS) - 1;

/// The largest value of a narrow line.
pub(super) const NARROW_VALUE_MAX: u64 = (1 << 48) - 1;

const LOW_SIZE: usize = 6;
const META: usize = 60;
const IN_USE: u32 = (1 << SLOTS_MAX) - 1;
pub(super) const NARROW_VALUES: usize = SLOTS_MAX * LOW_SIZE;
pub(super) const NARROW_HIGH_BITS: u32 = 5;
pub(super) const NARROW_HIGH: u32 = (1 << NARROW_HIGH_BITS) - 1;
const WIDE_VALUES: usize = 4 * LOW_SIZE;
const WIDE_HIGH: usize = 56;

const _: () = assert!(NARROW_VALUES + SLOTS_MAX * 6 <= META && WIDE_VALUES + 4 * 8 <= WIDE_HIGH);

/// A hash with its value, in this order.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    pub(super) hash: u64,
    pub(super) value: u64,
}

/// The layout of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Five slots with 53 bits of a hash and values of 48 bits.
    Narrow,
    /// Four slots with 56 bits of a hash and values of 64 bits.
    Wide,
}

/// Returns the 8 bytes from `start` on, as a number.
#[inline]
fn word(line: &Line, start: usize) -> u64 {
    let bytes = line[start..start + 8].try_into();
    u64::from_le_bytes(bytes.expect("the slice has 8 bytes"))
}

/// Writes the last `SIZE` bytes of a number.
#[inline]
fn put<const SIZE: usize>(line: &mut Line, start: usize, number: u64) {
    line[start..start + SIZE].copy_from_slice(&number.to_le_bytes()[..SIZE]);
}

#[inline]
pub(super) fn meta(line: &Line) -> u32 {
    u32::from_le_bytes(line[META..].try_into().expect("the slice has 4 bytes"))
}

#[inline]
pub(super) fn set_meta(line: &mut Line, meta: u32) {
    line[META..].copy_from_slice(&meta.to_le_bytes());
}

/// Returns the last [`LOW_BITS`] bits of the hash in a slot.
#[inline]
pub(super) fn low(line: &Line, slot: usize) -> u64 {
    word(line, slot * LOW_SIZE) & LOW
}

/// Returns the slots in use, a bit each.
#[inline]
pub(super) fn in_use(line: &Line) -> u32 {
    meta(line) & IN_USE
}

/// Returns the number of slots in use of a line with this meta.
#[inline]
pub(super) fn count_in(meta: u32) -> usize {
    const COUNTS: [u8; 1 << SLOTS_MAX] = {
        let mut counts = [0; 1 << SLOTS_MAX];
        let mut i = 0;
        while i < counts.len() {
            counts[i] = (i as u32).count_ones() as u8;
            i += 1;
        }
        counts
    };
    // Not every processor has an instruction for this.
    usize::from(COUNTS[(meta & IN_USE) as usize])
}

/// Marks a slot as free.
#[inline]
pub(super) fn remove(line: &mut Line, slot: usize) {
    set_meta(line, meta(line) & !(1 << slot));
}

/// Marks slots as free, a bit each.
#[inline]
pub(super) fn remove_all(line: &mut Line, slots: u8) {
    set_meta(line, meta(line) & !u32::from(slots));
}

/// Returns where the first bits of the hash in a slot are in the meta of a narrow line.
#[inline]
fn high_shift(slot: usize) -> u32 {
    SLOTS_MAX as u32 + NARROW_HIGH_BITS * slot as u32
}

impl Format {
    /// Number of slots in a line.
    #[inline]
    pub(super) const fn slots(self) -> usize {
        match self {
            Format::Narrow => SLOTS_MAX,
            Format::Wide => 4,
        }
    }

    /// Number of bits of a hash that a slot has.
    pub(super) const fn hash_bits(self) -> u32 {
        match self {
            Format::Narrow => LOW_BITS + NARROW_HIGH_BITS,
            Format::Wide => LOW_BITS + 8,
        }
    }

    /// Returns the bits of a hash that are above the [`LOW_BITS`] last bits and in a slot.
    #[inline]
    fn high(self, line: &Line, slot: usize) -> u64 {
        match self {
            Format::Narrow => u64::from(meta(line) >> high_shift(slot) & NARROW_HIGH),
            Format::Wide => u64::from(line[WIDE_HIGH + slot]),
        }
    }

    /// Whether a slot, whose last bits are those of `hash`, has its other bits too.
    #[inline]
    pub(super) fn is_of(self, line: &Line, slot: usize, hash: u64) -> bool {
        let mask = (1 << (self.hash_bits() - LOW_BITS)) - 1;
        self.high(line, slot) == (hash >> LOW_BITS) & mask
    }

    /// Returns the bits of a hash that are in a slot.
    #[inline]
    pub(super) fn hash(self, line: &Line, slot: usize) -> u64 {
        self.high(line, slot) << LOW_BITS | low(line, slot)
    }

    /// Returns the value in a slot.
    #[inline]
    pub(super) fn value(self, line: &Line, slot: usize) -> u64 {
        match self {
            Format::Narrow => word(line, NARROW_VALUES + slot * 6) & NARROW_VALUE_MAX,
            Format::Wide => word(line, WIDE_VALUES + slot * 8),
        }
    }

    /// Replaces the value in a slot.
    #[inline]
    pub(super) fn set_value(self, line: &mut Line, slot: usize, value: u64) {
        // Two calls: copies of a constant size are one or two instructions.
        match self {
            Format::Narrow => put::<6>(line, NARROW_VALUES + slot * 6, value),
            Format::Wide => put::<8>(line, WIDE_VALUES + slot * 8, value),
        }
    }

    /// Whether all slots of both lines with these metas are in use: one question, since each alone is often answered with yes.
    #[inline]
    pub(super) fn are_full(self, [first, second]: [u32; 2]) -> bool {
        self.is_full(first & second)
    }

    /// Whether all slots of a line with this meta are in use.
    #[inline]
    pub(super) fn is_full(self, meta: u32) -> bool {
        let all = (1 << self.slots()) - 1;
        meta & all == all
    }

    /// Writes a pair to a free slot.
    #[inline]
    pub(super) fn set(self, line: &mut Line, slot: usize, pair: Pair) {
        self.set_in(line, meta(line), slot, pair);
    }

    /// Writes a pair to a free slot of a line with this meta.
    #[inline]
    pub(super) fn set_in(self, line: &mut Line, meta: u32, slot: usize, pair: Pair) {
        debug_assert!(slot < self.slots() && meta >> slot & 1 == 0);
        let bits = self.write(line, slot, pair);
        // Bits of the pair that was in the slot before may be left.
        let others = match self {
            Format::Narrow => !(NARROW_HIGH << high_shift(slot)),
            Format::Wide => u32::MAX,
        };
        set_meta(line, meta & others | bits);
    }

    /// Writes a pair to a slot, but for its bits of the meta, which are returned.
    #[inline]
    pub(super) fn write(self, line: &mut Line, slot: usize, pair: Pair) -> u32 {
        put::<LOW_SIZE>(line, slot * LOW_SIZE, pair.hash);
        self.set_value(line, slot, pair.value);
        let high = (pair.hash >> LOW_BITS) as u8;
        match self {
            Format::Narrow => 1 << slot | (u32::from(high) & NARROW_HIGH) << high_shift(slot),
            Format::Wide => {
                line[WIDE_HIGH + slot] = high;
                1 << slot
            }
        }
    }

    /// Returns the pair in a slot; `base` has the first bits of its hash, which the line does not have.
    #[inline]
    pub(super) fn pair(self, line: &Line, slot: usize, base: u64) -> Pair {
        let bits = self.hash_bits();
        let hash = base >> bits << bits | self.hash(line, slot);
        Pair { hash, value: self.value(line, slot) }
    }

    /// Adds the pairs of a line to `pairs`, of which `count` are filled, without a branch that depends on the line; there must be
    /// places for [`SLOTS_MAX`] more.
    #[inline]
    pub(super) fn gather(self, line: &Line, base: u64, pairs: &mut [Pair], count: &mut usize) {
        let mask = in_use(line);
        for slot in 0..self.slots() {
            pairs[*count] = self.pair(line, slot, base);
            *count += (mask >> slot & 1) as usize;
        }
    }

    /// Returns the first free slot.
    #[inline]
    pub(super) fn free_slot(self, line: &Line) -> Option<usize> {
        let slot = in_use(line).trailing_ones() as usize;
        (slot < self.slots()).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every slot keeps its pair, whatever is written to and removed from the others.
    #[test]
    fn slots_do_not_touch_each_other() {
        for format in [Format::Narrow, Format::Wide] {
            let (mut line, mut expected) = ([0xAB; LINE_BYTES], [None; SLOTS_MAX]);
            set_meta(&mut line, 0);
            let base = 0x1234_5678_9ABC_DEF0_u64;
            let values = if format == Format::Narrow { NARROW_VALUE_MAX } else { u64::MAX };
            for step in 0..4000_u64 {
                let random = step.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
                let slot = (random % format.slots() as u64) as usize;
                let bits = format.hash_bits();
                let hash = base >> bits << bits | random.wrapping_mul(31) & ((1 << bits) - 1);
                if expected[slot].take().is_some() {
                    remove(&mut line, slot);
                } else {
                    let pair = Pair { hash, value: random.wrapping_mul(77) & values };
                    format.set(&mut line, slot, pair);
                    expected[slot] = Some(pair);
                }
                for (slot, expected) in expected.iter().enumerate() {
                    let is_used = in_use(&line) >> slot & 1 == 1;
                    let found = is_used.then(|| format.pair(&line, slot, base));
                    assert_eq!(found, *expected, "{format:?} {step} {slot}");
                    if let Some(pair) = expected {
                        assert!(format.is_of(&line, slot, pair.hash));
                        assert!(!format.is_of(&line, slot, pair.hash ^ 1 << LOW_BITS));
                        assert_eq!(low(&line, slot), pair.hash & LOW);
                    }
                }
                let free = expected[..format.slots()].iter().position(Option::is_none);
                assert_eq!(format.free_slot(&line), free);
                assert_eq!(count_in(meta(&line)), expected.iter().flatten().count());
            }
        }
    }
}
