//! Rice codes of the gaps between ascending numbers (Rice, "Some practical universal noiseless coding
//! techniques", 1979): a gap is a quotient in ones, a zero, and a remainder of a fixed number of bits.

use crate::{
    codec::{Decoder, within},
    error::{Error, Result},
};

/// Returns the number of bits of remainders that makes codes of `count` gaps, `sum` together, shortest: that
/// of the mean times ln 2 or a little less.
pub(super) fn remainder_bits(sum: u64, count: usize) -> u32 {
    let mean = sum as f64 / count.max(1) as f64;
    ((mean * std::f64::consts::LN_2).max(1.0) as u64).ilog2()
}

/// Appends ascending numbers. Bytes are filled from their lowest bits on.
pub(super) fn put(out: &mut Vec<u8>, numbers: &[u64], remainder_bits: u32) {
    let (mut word, mut len, mut next) = (0_u128, 0, 0);
    let mut push = |bits: u64, count: u32, out: &mut Vec<u8>| {
        word |= u128::from(bits) << len;
        len += count;
        while len >= 8 {
            out.push(word as u8);
            (word, len) = (word >> 8, len - 8);
        }
    };
    for number in numbers {
        let gap = number - next;
        (0..gap >> remainder_bits).for_each(|_| push(1, 1, out));
        push(0, 1, out);
        push(gap & ((1 << remainder_bits) - 1), remainder_bits, out);
        next = number + 1;
    }
    push(0, 7, out);
}

/// Takes `count` ascending numbers up to `max`, which must end in the last byte.
pub(super) fn take(
    fields: &mut Decoder<'_>,
    count: u64,
    remainder_bits: u32,
    max: u64,
) -> Result<Vec<u64>> {
    let bytes = fields.rest();
    let mut bits = Bits { bytes, at: 0 };
    // Each number takes this many bits, so the memory is not more than a multiple of the bytes.
    let bits_max = bytes.len() as u64 * 8 / (u64::from(remainder_bits) + 1);
    within("number of hashes in a sketch", 0..=bits_max, count)?;
    let (mut numbers, mut next) = (Vec::with_capacity(count as usize), 0_u64);
    for _ in 0..count {
        let mut quotient = 0;
        while bits.take(1)? == 1 {
            quotient += 1;
        }
        let quotient = within("gap of hashes", 0..=max >> remainder_bits, quotient)?;
        let gap = quotient << remainder_bits | bits.take(remainder_bits)?;
        let number = within("hash of a sketch", 0..=max, next + gap)?;
        numbers.push(number);
        next = number + 1;
    }
    let len = bits.at.div_ceil(8);
    let rest = bits.take((8 * len - bits.at) as u32)?;
    within("last bits of the hashes", 0..=0, rest)?;
    fields.bytes(len as u64)?;
    Ok(numbers)
}

/// Bits of some bytes, from the lowest one of each on.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: u32) -> Result<u64> {
        let mut value = 0;
        for i in 0..count {
            let Some(byte) = self.bytes.get(self.at / 8) else {
                return Err(Error::field("bytes of hashes", "more", self.bytes.len()));
            };
            value |= u64::from(byte >> (self.at % 8) & 1) << i;
            self.at += 1;
        }
        Ok(value)
    }
}
