//! Comparing the slots of two lines with a hash at once, with and without special machine instructions.

use super::line::{self, LOW, Line, SLOTS_MAX};
use crate::cpu::Instructions;

/// Returns the slots of two lines whose last 48 bits are those of `hash`, a bit each, those of the second line from bit 8
/// on; slots that are not in use are left out.
#[inline(always)]
pub(super) fn equal(instructions: Instructions, lines: [&Line; 2], hash: u64) -> u32 {
    let in_use = line::in_use(lines[0]) | line::in_use(lines[1]) << 8;
    #[cfg(target_arch = "x86_64")]
    if let Some(found) = x86::equal(instructions, lines, hash & LOW) {
        return found & in_use;
    }
    let _ = instructions;
    let [first, second] = lines;
    (equal_portable(first, hash & LOW) | equal_portable(second, hash & LOW) << 8) & in_use
}

/// Compares all slots of a line without special instructions.
fn equal_portable(line: &Line, low: u64) -> u32 {
    (0..SLOTS_MAX).fold(0, |mask, slot| mask | u32::from(line::low(line, slot) == low) << slot)
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use super::{Instructions, Line, SLOTS_MAX, line};
    use std::arch::x86_64::*;

    /// Compares the slots of two lines, used or not; returns `None` if the instructions for it may not be used.
    #[inline(always)]
    pub(super) fn equal(instructions: Instructions, lines: [&Line; 2], low: u64) -> Option<u32> {
        match instructions {
            Instructions::Portable => None,
            Instructions::V3 => {
                // SAFETY: the processor has AVX2: `Instructions` are detected.
                Some(unsafe { equal_v3(lines[0], low) | equal_v3(lines[1], low) << 8 })
            }
            // SAFETY: the processor has AVX-512 with VBMI: `Instructions` are detected.
            Instructions::V4 => Some(unsafe { equal_v4(lines[0], lines[1], low) }),
        }
    }

    /// Spreads five numbers of 48 bits to lanes of 64 bits, and compares all with one instruction.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
    fn equal_v4(first: &Line, second: &Line, low: u64) -> u32 {
        const PLACES: [u8; 64] = {
            let mut places = [0; 64];
            let mut i = 0;
            while i < 64 {
                places[i] = (i / 8 * 6 + i % 8) as u8 % 64;
                i += 1;
            }
            places
        };
        const USED: u64 = 0x003F_3F3F_3F3F;
        // SAFETY: 64 bytes are read, of an array of this size each.
        let (places, first, second) = unsafe {
            let load = |bytes: &[u8; 64]| _mm512_loadu_si512(bytes.as_ptr().cast());
            (load(&PLACES), load(first), load(second))
        };
        let low = _mm512_set1_epi64(low as i64);
        let first = _mm512_maskz_permutexvar_epi8(USED, places, first);
        let second = _mm512_maskz_permutexvar_epi8(USED, places, second);
        let all = (1 << SLOTS_MAX) - 1;
        let second = _mm512_mask_cmpeq_epi64_mask(all, second, low);
        u32::from(_mm512_mask_cmpeq_epi64_mask(all, first, low)) | u32::from(second) << 8
    }

    /// Compares four slots in a register, and the fifth by itself.
    #[target_feature(enable = "avx2")]
    fn equal_v3(line: &Line, low: u64) -> u32 {
        // SAFETY: 16 bytes from byte 0 and from byte 12 on are read, of a line of 64.
        let halves = unsafe {
            let load = |start: usize| _mm_loadu_si128(line.as_ptr().add(start).cast());
            _mm256_set_m128i(load(12), load(0))
        };
        let places = _mm256_setr_epi8(
            0, 1, 2, 3, 4, 5, -1, -1, 6, 7, 8, 9, 10, 11, -1, -1, 0, 1, 2, 3, 4, 5, -1, -1, 6, 7,
            8, 9, 10, 11, -1, -1,
        );
        let slots = _mm256_shuffle_epi8(halves, places);
        let equal = _mm256_cmpeq_epi64(slots, _mm256_set1_epi64x(low as i64));
        let four = _mm256_movemask_pd(_mm256_castsi256_pd(equal)) as u32;
        four | u32::from(line::low(line, SLOTS_MAX - 1) == low) << (SLOTS_MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{KeyHash, Seed};

    #[test]
    fn all_instructions_find_the_same_slots() {
        for i in 0..20_000_u64 {
            let mut lines = [[0_u8; 64]; 2];
            for (place, bytes) in lines.as_flattened_mut().chunks_mut(16).enumerate() {
                let seed = Seed(i * 8 + place as u64);
                bytes.copy_from_slice(&KeyHash::of(b"line", seed).bits().to_le_bytes());
            }
            let hash = KeyHash::of(&i.to_le_bytes(), Seed(1)).high();
            // Some slots have the hash, and some all but one bit of it.
            for slot in 0..SLOTS_MAX {
                let bytes = match i >> (2 * slot) & 3 {
                    0 => continue,
                    1 => hash ^ 1 << (i % 48),
                    _ => hash,
                };
                let line = &mut lines[slot % 2];
                line[slot * 6..slot * 6 + 6].copy_from_slice(&bytes.to_le_bytes()[..6]);
            }
            let [a, b] = &lines;
            let portable = equal(Instructions::Portable, [a, b], hash);
            for instructions in [Instructions::V3, Instructions::V4] {
                let instructions = instructions.min(Instructions::in_use());
                assert_eq!(equal(instructions, [a, b], hash), portable, "{instructions:?} {i}");
            }
        }
    }
}
