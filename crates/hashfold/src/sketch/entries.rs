//! Registers as numbers and as bytes.
//!
//! An entry is `index << 8 | value`. As bytes, each is a variable-length integer:
//! 64 · (number of zeros before it) + value, with 6 bits for the value.

use crate::{
    codec::{Decoder, put_varint, within},
    error::Result,
};
use std::ops::RangeInclusive;

/// Number of bits for the value of an entry.
pub(super) const VALUE_BITS: u32 = 8;

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

/// Reads the next entry of ascending ones, whose index is `next` or more. Values are in `values`.
pub(super) fn take(
    bytes: &mut Decoder<'_>,
    next: u32,
    precision: u8,
    values: RangeInclusive<u64>,
) -> Result<u32> {
    let registers = 1_u64 << precision;
    let packed = bytes.varint()?;
    let gap = within("register of a sketch", 0..=registers - 1, packed >> PACKED_VALUE_BITS)?;
    let index = within("register of a sketch", 0..=registers - 1, u64::from(next) + gap)?;
    let value = packed & ((1 << PACKED_VALUE_BITS) - 1);
    within("value of a register", values, value)?;
    Ok((index as u32) << VALUE_BITS | value as u32)
}

/// Returns the index after that of an entry.
pub(super) fn after(entry: u32) -> u32 {
    (entry >> VALUE_BITS) + 1
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
            let (mut fields, mut next) = (Decoder::new(&bytes), 0);
            while !fields.rest().is_empty() {
                back.push(take(&mut fields, next, 14, 1..=51).unwrap());
                next = after(back[back.len() - 1]);
            }
            assert_eq!(back, entries);
        }
        let take = |bytes: &[u8], next| take(&mut Decoder::new(bytes), next, 4, 1..=61);
        assert!(take(&[0], 0).is_err() && take(&[62], 0).is_err() && take(&[128], 0).is_err());
        assert!(take(&[15 << 6 & 127 | 128 | 1, 7], 0).is_ok());
        assert!(take(&[1 | 128, 8], 0).is_err() && take(&[1], 16).is_err());
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
