//! From keys to chunks, by slot, as in Redis Cluster.
//!
//! The slot of a key is its CRC-16 modulo 16384. If the key has braces with at least one byte
//! between them, only these bytes count: `{user1}.name` and `{user1}.age` are in the same slot.
//! Chunk `i` of C holds the slots from ⌈i · 16384 / C⌉ up to, but without, ⌈(i + 1) · 16384 / C⌉.

use crate::error::{Error, Result};
use std::ops::Range;

/// The number of slots.
pub const SLOTS: u32 = 1 << 14;

/// Number of bytes that a step of [`crc16`] takes at once.
const STEP: usize = 8;

/// The remainder of each byte with 0 to 7 zeros after it in CRC-16: polynomial x¹⁶ + x¹² + x⁵ + 1, high
/// bits first, initial value 0.
static CRC16: [[u16; 256]; STEP] = {
    let mut tables = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < STEP {
        let mut byte = 0;
        while byte < 256 {
            let crc: u16 = tables[zeros - 1][byte];
            tables[zeros][byte] = crc << 8 ^ tables[0][(crc >> 8) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
};

/// Returns the CRC-16 of some bytes. The remainders of eight bytes do not depend on each other, so the
/// processor looks them up at the same time.
fn crc16(bytes: &[u8]) -> u16 {
    let remainder = |zeros: usize, byte: u8| CRC16[zeros][usize::from(byte)];
    let (steps, rest) = bytes.as_chunks::<STEP>();
    let mut crc: u16 = 0;
    for step in steps {
        let mut step = *step;
        let [high, low] = crc.to_be_bytes();
        step[0] ^= high;
        step[1] ^= low;
        let parts = step.iter().enumerate();
        crc = parts.fold(0, |crc, (i, byte)| crc ^ remainder(STEP - 1 - i, *byte));
    }
    rest.iter().fold(crc, |crc, byte| crc << 8 ^ remainder(0, (crc >> 8) as u8 ^ byte))
}

/// Returns the slot of a key, below [`SLOTS`].
///
/// ```
/// use hashfold::store::slot_of;
/// assert_eq!(slot_of(b"foo"), 12182);
/// assert_eq!(slot_of(b"{foo}.bar"), 12182);
/// ```
pub fn slot_of(key: &[u8]) -> u32 {
    u32::from(crc16(tag(key))) % SLOTS
}

/// Returns the part of a key that decides its slot: the bytes between its first `{` and the next
/// `}`, if there are any, else the whole key.
fn tag(key: &[u8]) -> &[u8] {
    // Compiles to vector code, as a search for the first brace does not. Most keys have none.
    if !key.iter().fold(false, |has_brace, byte| has_brace | (*byte == b'{')) {
        return key;
    }
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let inside = &key[open + 1..];
    match inside.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(close) => &inside[..close],
    }
}

/// The division of the slots into chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotMap {
    chunks: u32,
}

impl SlotMap {
    /// Divides the slots into `chunks` equal ranges, 1 to [`SLOTS`].
    pub fn new(chunks: u32) -> Result<SlotMap> {
        if !(1..=SLOTS).contains(&chunks) {
            return Err(Error::argument("number of chunks", format!("1 to {SLOTS}"), chunks));
        }
        Ok(SlotMap { chunks })
    }

    /// Returns the number of chunks.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Returns the chunk of a key.
    #[inline]
    pub fn chunk_of(&self, key: &[u8]) -> u32 {
        if self.chunks == 1 { 0 } else { self.chunk_of_slot(slot_of(key)) }
    }

    /// Returns the chunk of a slot.
    #[inline]
    pub fn chunk_of_slot(&self, slot: u32) -> u32 {
        slot * self.chunks / SLOTS
    }

    /// Returns the slots of a range of chunks.
    pub fn slots(&self, chunks: &Range<u32>) -> Range<u32> {
        let start = |chunk: u32| (chunk * SLOTS).div_ceil(self.chunks);
        start(chunks.start)..start(chunks.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // The check value of this CRC.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // The answers of Redis' `CLUSTER KEYSLOT`.
        for (key, slot) in [("", 0), ("foo", 12182), ("bar", 5061), ("somekey", 11058)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn eight_bytes_at_once_have_the_remainder_that_they_have_one_by_one() {
        let bytes: Vec<u8> = (0..100_u32).map(|i| (i * i * 7 / 8) as u8).collect();
        for len in 0..bytes.len() {
            let bytes = &bytes[..len];
            let one_by_one = bytes.iter().fold(0_u16, |crc, byte| {
                crc << 8 ^ CRC16[0][usize::from(crc >> 8) ^ usize::from(*byte)]
            });
            assert_eq!(crc16(bytes), one_by_one, "{len} bytes");
        }
    }

    #[test]
    fn text_in_the_first_braces_decides_the_slot_unless_empty() {
        let same =
            [("{user1000}.following", "user1000"), ("foo{{bar}}zap", "{bar"), ("a{b}{c}", "b")];
        for (key, tag) in same {
            assert_eq!(slot_of(key.as_bytes()), u32::from(crc16(tag.as_bytes())) % SLOTS, "{key}");
        }
        for whole in ["foo{}{bar}", "foo{bar", "foo}bar{", "{}"] {
            let slot = u32::from(crc16(whole.as_bytes())) % SLOTS;
            assert_eq!(slot_of(whole.as_bytes()), slot, "{whole}");
        }
    }

    #[test]
    fn every_slot_is_in_one_chunk() {
        for chunks in (1..200).chain([1000, 4096, 5000, SLOTS - 1, SLOTS]) {
            let map = SlotMap::new(chunks).unwrap();
            let mut next = 0;
            for chunk in 0..chunks {
                let slots = map.slots(&(chunk..chunk + 1));
                assert_eq!(slots.start, next);
                assert!(!slots.is_empty());
                for slot in slots.clone() {
                    assert_eq!(map.chunk_of_slot(slot), chunk);
                }
                next = slots.end;
            }
            assert_eq!(next, SLOTS);
        }
        assert!(SlotMap::new(0).is_err());
        assert!(SlotMap::new(SLOTS + 1).is_err());
    }
}
