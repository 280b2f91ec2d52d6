//! Registers that are not 0, as numbers and as bytes of a segment.
//!
//! An entry is `index << 8 | value`. As bytes, each is a variable-length integer:
//! 64 · (number of zeros before it) + value, as in a sparse sketch.

use crate::{
    codec::{Decoder, put_varint, within},
    error::Result,
    sketch::hll::VALUE_BITS,
};

/// Number of bits for the value in the bytes of an entry.
const PACKED_VALUE_BITS: u32 = 6;

/// Removes all but the largest value of each register from ascending numbers whose low bits are an entry.
pub(super) fn keep_largest<T: Copy + Into<u64>>(sorted: &mut Vec<T>) {
    let register = |item: T| item.into() >> VALUE_BITS;
    let mut kept = 0;
    for i in 0..sorted.len() {
        let is_last = i + 1 == sorted.len() || register(sorted[i]) != register(sorted[i + 1]);
        sorted[kept] = sorted[i];
        kept += usize::from(is_last);
    }
    sorted.truncate(kept);
}

/// Appends ascending entries to bytes.
pub(super) fn put(entries: impl Iterator<Item = u32>, out: &mut Vec<u8>) {
    let mut next = 0;
    for entry in entries {
        let index = entry >> VALUE_BITS;
        let value = u64::from(entry & ((1 << VALUE_BITS) - 1));
        put_varint(out, u64::from(index - next) << PACKED_VALUE_BITS | value);
        next = index + 1;
    }
}

/// Appends the entries in bytes to a vector.
pub(super) fn take(bytes: &[u8], precision: u8, entries: &mut Vec<u32>) -> Result<()> {
    let registers = 1_u64 << precision;
    let (mut bytes, mut next) = (Decoder::new(bytes), 0);
    while !bytes.rest().is_empty() {
        let packed = bytes.varint()?;
        let gap = within("register of a segment", 0..=registers - 1, packed >> PACKED_VALUE_BITS)?;
        let index = within("register of a segment", 0..=registers - 1, next + gap)?;
        let value = packed & ((1 << PACKED_VALUE_BITS) - 1);
        within("value of a register", 1..=65 - u64::from(precision), value)?;
        entries.push((index as u32) << VALUE_BITS | value as u32);
        next = index + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_from_their_bytes() {
        let entry = |index: u32, value: u32| index << VALUE_BITS | value;
        for entries in
            [vec![], vec![entry(0, 1)], vec![entry(0, 51), entry(1, 1), entry(16_383, 2)]]
        {
            let (mut bytes, mut back) = (Vec::new(), Vec::new());
            put(entries.iter().copied(), &mut bytes);
            take(&bytes, 14, &mut back).unwrap();
            assert_eq!(back, entries);
        }
        let take = |bytes: &[u8]| take(bytes, 4, &mut Vec::new());
        assert!(take(&[0]).is_err() && take(&[62]).is_err() && take(&[128]).is_err());
        assert!(take(&[15 << 6 & 127 | 128 | 1, 7]).is_ok());
        assert!(take(&[1 | 128, 8]).is_err() && take(&[1 | 64 | 128, 7, 1]).is_err());
    }

    #[test]
    fn the_largest_value_of_each_register_stays() {
        let mut entries = vec![0x101_u32, 0x102, 0x105, 0x201, 0x303, 0x304];
        keep_largest(&mut entries);
        assert_eq!(entries, [0x105, 0x201, 0x304]);
        keep_largest(&mut entries);
        assert_eq!(entries, [0x105, 0x201, 0x304]);
        keep_largest(&mut Vec::<u64>::new());
    }
}
