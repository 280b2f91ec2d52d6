//! Tags: one byte of the hash of each entry of a block. Comparing sixteen at a time leaves about one
//! entry in 256 to compare besides the right one.

use crate::{key::KeyHash, run::prefetch::CACHE_LINE_BYTES};

/// Number of tags that are compared at once.
const WIDTH: usize = 16;

/// Returns the tag of an entry: the lowest byte of its hash, which places do not depend on.
#[inline]
pub(super) fn tag_of(hash: KeyHash) -> u8 {
    hash.low() as u8
}

/// The numbers of the entries of a block that have a tag, in ascending order.
#[derive(Clone, Debug)]
pub(super) struct Matches<'a> {
    block: &'a [u8],
    /// Offset of the tags in the block.
    start: usize,
    /// Number of tags.
    count: usize,
    tag: u8,
    /// Number of tags that have been compared.
    compared: usize,
    /// Bit i is set if the tag i after `base` is equal and not yet returned.
    equal: u32,
    base: usize,
}

impl<'a> Matches<'a> {
    /// Makes an iterator over the `count` tags at `start` of a block, which has at least [`WIDTH`]
    /// bytes.
    #[inline]
    pub(super) fn new(block: &'a [u8], start: usize, count: usize, tag: u8) -> Matches<'a> {
        Matches { block, start, count, tag, compared: 0, equal: 0, base: 0 }
    }

    /// Compares the next tags.
    #[inline]
    fn compare(&mut self) {
        let at = self.start + self.compared;
        // The last tags may be at the end of the block.
        let from = at.min(self.block.len() - WIDTH);
        let tags = self.block[from..].first_chunk().expect("the block is longer");
        let left = self.count - self.compared;
        let wanted = if left < WIDTH { (1 << left) - 1 } else { u32::MAX };
        self.equal = (equal(tags, self.tag) >> (at - from)) & wanted;
        self.base = self.compared;
        self.compared += WIDTH;
    }
}

impl Iterator for Matches<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.equal == 0 {
            if self.compared >= self.count {
                return None;
            }
            self.compare();
        }
        let number = self.base + self.equal.trailing_zeros() as usize;
        self.equal &= self.equal - 1;
        Some(number)
    }
}

/// Returns the number of the first of the `count` tags at `start` of a block that is equal to `tag`, and
/// not one of the first `skipped`. Compares a whole cache line at once: a block consists of cache lines,
/// and a branch that depends on where the tag is would often be mispredicted. `None` if there is none,
/// or if the tags are not in the block.
#[inline]
pub(super) fn first_equal(
    block: &[u8],
    (start, count): (usize, usize),
    skipped: usize,
    tag: u8,
) -> Option<usize> {
    let (lines, _) = block.as_chunks::<CACHE_LINE_BYTES>();
    let mut at = start + skipped;
    while at < start + count {
        let (line, offset) = (at / CACHE_LINE_BYTES, at % CACHE_LINE_BYTES);
        let equal = equal_in_line(lines.get(line)?, tag) >> offset;
        let first = at + equal.trailing_zeros() as usize;
        if equal != 0 {
            return (first < start + count).then_some(first - start);
        }
        at += CACHE_LINE_BYTES - offset;
    }
    None
}

/// Returns a bit for each byte of a cache line: whether it is equal to `tag`.
#[inline]
fn equal_in_line(line: &[u8; CACHE_LINE_BYTES], tag: u8) -> u64 {
    let (parts, _) = line.as_chunks::<WIDTH>();
    let bits = |(i, part)| u64::from(equal(part, tag)) << (i * WIDTH);
    parts.iter().enumerate().map(bits).sum()
}

/// Returns a bit for each byte: whether it is equal to `tag`.
#[cfg(target_arch = "x86_64")]
#[inline]
#[allow(unsafe_code)]
fn equal(tags: &[u8; WIDTH], tag: u8) -> u32 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    // SAFETY: every x86-64 processor has SSE2, which the instructions belong to; the load reads the
    // 16 bytes of the array.
    unsafe {
        let tags = _mm_loadu_si128(tags.as_ptr().cast());
        _mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8(tag.cast_signed()))).cast_unsigned()
    }
}

/// Returns a bit for each byte: whether it is equal to `tag`.
#[cfg(target_arch = "aarch64")]
#[inline]
#[allow(unsafe_code)]
fn equal(tags: &[u8; WIDTH], tag: u8) -> u32 {
    use std::arch::aarch64::{
        vaddv_u8, vandq_u8, vceqq_u8, vdupq_n_u8, vget_high_u8, vget_low_u8, vld1q_u8,
    };
    /// The bit of each byte, in its half of the result.
    const BITS: [u8; WIDTH] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: every AArch64 processor has NEON, which the instructions belong to; the loads read the
    // 16 bytes of the arrays.
    unsafe {
        let is_equal = vceqq_u8(vld1q_u8(tags.as_ptr()), vdupq_n_u8(tag));
        let bits = vandq_u8(is_equal, vld1q_u8(BITS.as_ptr()));
        let half = |bits| u32::from(vaddv_u8(bits));
        half(vget_low_u8(bits)) | half(vget_high_u8(bits)) << 8
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use portable as equal;

/// Returns a bit for each byte: whether it is equal to `tag`.
#[cfg(any(test, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn portable(tags: &[u8; WIDTH], tag: u8) -> u32 {
    let bit = |(i, &other): (usize, &u8)| u32::from(other == tag) << i;
    tags.iter().enumerate().map(bit).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::{Random as _, SeededRandom};

    #[test]
    fn matches_are_the_numbers_of_equal_tags_anywhere_in_a_block() {
        let random = SeededRandom::new(9);
        for len in [WIDTH, 17, 40, 100] {
            let block: Vec<u8> = (0..len).map(|_| random.next_u64() as u8 % 3).collect();
            for start in 0..len {
                for count in 0..=len - start {
                    let expected: Vec<usize> =
                        (0..count).filter(|i| block[start + i] == 1).collect();
                    let got: Vec<usize> = Matches::new(&block, start, count, 1).collect();
                    assert_eq!(got, expected, "{count} tags at {start} of {len} bytes");
                }
            }
        }
    }

    #[test]
    fn the_first_equal_tag_is_the_first_match_after_those_skipped() {
        let random = SeededRandom::new(7);
        for (len, values) in [(64, 3), (128, 9), (192, 100)] {
            let block: Vec<u8> = (0..len).map(|_| (random.next_u64() % values) as u8).collect();
            for start in 0..len {
                for count in 0..=len - start {
                    let all: Vec<usize> = Matches::new(&block, start, count, 1).collect();
                    for skipped in 0..=count {
                        let expected = all.iter().copied().find(|nth| *nth >= skipped);
                        let got = first_equal(&block, (start, count), skipped, 1);
                        assert_eq!(got, expected, "{count} tags at {start}, {skipped} skipped");
                    }
                }
            }
            assert_eq!(first_equal(&block, (len + 1, 70), 0, 1), None);
        }
    }

    #[test]
    fn kernels_agree() {
        let random = SeededRandom::new(8);
        for _ in 0..1000 {
            let tags = std::array::from_fn(|_| random.next_u64() as u8 % 4 * 0x55);
            for tag in [0, 0x55, 0xaa, 0xff, 7] {
                assert_eq!(equal(&tags, tag), portable(&tags, tag));
            }
        }
    }
}
