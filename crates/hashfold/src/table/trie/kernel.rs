//! The two operations of a lookup that have machine instructions of their own, in a portable and in
//! an x86-64-v3 version.

/// Number of bytes at the front of a line that prefix sums are taken of.
pub(super) const SUMMED: usize = 32;

/// Summing bytes and gathering bits.
pub(super) trait BitOps {
    /// Returns the sum of the first `count` bytes; `count` is below [`SUMMED`].
    fn sum(bytes: &[u8; SUMMED], count: usize) -> u64;

    /// Returns the bits of `value` under `mask`, moved together to the low end.
    fn extract(value: u64, mask: u64) -> u64;
}

/// The kernel that runs on every processor.
pub(super) struct Portable;

impl BitOps for Portable {
    #[inline(always)]
    fn sum(bytes: &[u8; SUMMED], count: usize) -> u64 {
        const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
        let (words, _) = bytes.as_chunks::<8>();
        let mut sums = 0;
        for (i, word) in words.iter().enumerate() {
            let wanted = (count.saturating_sub(8 * i)).min(8) as u32;
            let mask = if wanted == 8 { u64::MAX } else { (1 << (8 * wanted)) - 1 };
            let word = u64::from_le_bytes(*word) & mask;
            sums += (word & EVEN) + (word >> 8 & EVEN);
        }
        // Four 16-bit sums, each at most 8 * 255.
        sums.wrapping_mul(0x0001_0001_0001_0001) >> 48
    }

    #[inline(always)]
    fn extract(value: u64, mut mask: u64) -> u64 {
        let mut out = 0;
        let mut place = 0;
        while mask != 0 {
            out |= (value >> mask.trailing_zeros() & 1) << place;
            place += 1;
            mask &= mask - 1;
        }
        out
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::V3;

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use super::{BitOps, SUMMED};
    use std::arch::x86_64::{
        __m256i, _mm_add_epi64, _mm_cvtsi128_si64, _mm_unpackhi_epi64, _mm256_and_si256,
        _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_sad_epu8,
        _mm256_setzero_si256, _pext_u64,
    };

    /// The kernel for AVX2 and BMI2. Must be used only on processors that have them: see
    /// `Machine::best`.
    pub(in super::super) struct V3;

    /// From offset `SUMMED - count` on, `count` bytes of ones, then zeros.
    static MASK: [u8; 2 * SUMMED] = {
        let mut mask = [0; 2 * SUMMED];
        let mut i = 0;
        while i < SUMMED {
            mask[i] = 0xff;
            i += 1;
        }
        mask
    };

    impl BitOps for V3 {
        #[inline(always)]
        fn sum(bytes: &[u8; SUMMED], count: usize) -> u64 {
            let mask = &MASK[SUMMED - count.min(SUMMED)..][..SUMMED];
            // SAFETY: both loads read `SUMMED` = 32 bytes of a slice or array of that length. The
            // type promises the instructions.
            unsafe {
                let bytes = _mm256_loadu_si256(bytes.as_ptr().cast::<__m256i>());
                let mask = _mm256_loadu_si256(mask.as_ptr().cast::<__m256i>());
                let sums = _mm256_sad_epu8(_mm256_and_si256(bytes, mask), _mm256_setzero_si256());
                let sums = _mm_add_epi64(
                    _mm256_castsi256_si128(sums),
                    _mm256_extracti128_si256::<1>(sums),
                );
                let sums = _mm_add_epi64(sums, _mm_unpackhi_epi64(sums, sums));
                _mm_cvtsi128_si64(sums) as u64
            }
        }

        #[inline(always)]
        fn extract(value: u64, mask: u64) -> u64 {
            // SAFETY: the type promises the instruction.
            unsafe { _pext_u64(value, mask) }
        }
    }
}
