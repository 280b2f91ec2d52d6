//! The inner loop of inserts: many hashes of [`Family::Hashfold`](super::Family::Hashfold) raise registers.

use super::family::rest_of;
#[cfg(target_arch = "x86_64")]
use crate::cpu::Instructions;

/// Raises registers by hashes, whose first `precision` bits number a register. There are 2^precision
/// registers.
pub(super) fn raise(registers: &mut [u8], precision: u8, hashes: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    if x86::raise(registers, precision, hashes) {
        return;
    }
    raise_portable(registers, precision, hashes);
}

/// Raises registers without special instructions.
fn raise_portable(registers: &mut [u8], precision: u8, hashes: &[u64]) {
    for hash in hashes {
        let rest = rest_of(*hash, precision);
        let register = &mut registers[(hash >> (64 - precision)) as usize];
        // The value is more than the register if there are that many zeros at least; which is rare, and well
        // predicted.
        if rest >> 1 >> (63 - (*register).min(63)) == 0 {
            *register = rest.leading_zeros() as u8 + 1;
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use super::{Instructions, raise_portable, rest_of};
    use std::arch::x86_64::*;

    /// Number of hashes in a register of the processor.
    const LANES: usize = 8;
    /// Number of hashes that are selected together.
    const BLOCK: usize = 512;
    /// The smallest register is looked for before the inserts of at least one hash for so many registers, which
    /// take much longer.
    const REGISTERS_PER_HASH: usize = 16;

    /// Raises registers with AVX-512; returns `false` if the processor lacks it, or it must not be used.
    pub(super) fn raise(registers: &mut [u8], precision: u8, hashes: &[u64]) -> bool {
        let can = Instructions::in_use() >= Instructions::V4;
        if can {
            // SAFETY: the processor has these instructions.
            unsafe { raise_wide(registers, precision, hashes) }
        }
        can
    }

    /// Raises registers by the hashes whose values are above the smallest register: the others, which soon are
    /// most, are dropped without a look at their registers.
    #[target_feature(enable = "avx512f,avx512vl")]
    fn raise_wide(registers: &mut [u8], precision: u8, hashes: &[u64]) {
        assert_eq!(registers.len(), 1 << precision);
        let least = registers.len() / REGISTERS_PER_HASH;
        if hashes.len() < least {
            return raise_all(registers, precision, hashes);
        }
        for hashes in hashes.chunks(least.max(2 * BLOCK)) {
            // Registers only grow, so the smallest one stays a bound.
            let smallest = registers.iter().copied().fold(u8::MAX, u8::min);
            if smallest == 0 {
                raise_all(registers, precision, hashes);
                continue;
            }
            let mut selected = [0; BLOCK + LANES];
            for hashes in hashes.chunks(BLOCK) {
                let count = select(precision, smallest, hashes, &mut selected);
                raise_all(registers, precision, &selected[..count]);
            }
        }
    }

    /// Copies the hashes with values above a bound, 1 or more, to `selected`. Returns their number.
    #[target_feature(enable = "avx512f,avx512vl")]
    fn select(
        precision: u8,
        bound: u8,
        hashes: &[u64],
        selected: &mut [u64; BLOCK + LANES],
    ) -> usize {
        assert!(hashes.len() <= BLOCK);
        // The bits of a hash that are 0 if its value is above the bound; or if it is the largest of all.
        let zeros = (u64::MAX << (64 - bound.min(63))) >> precision;
        let (ones, mut count) = (_mm512_set1_epi64(zeros as i64), 0);
        let (chunks, rest) = hashes.as_chunks::<LANES>();
        for hashes in chunks {
            // SAFETY: eight hashes are read.
            let all = unsafe { _mm512_loadu_si512(hashes.as_ptr().cast()) };
            let above = _mm512_testn_epi64_mask(all, ones);
            let packed = _mm512_maskz_compress_epi64(above, all);
            // SAFETY: at most as many hashes were selected as were read, and behind them is space for eight.
            unsafe { _mm512_storeu_si512(selected.as_mut_ptr().add(count).cast(), packed) };
            count += above.count_ones() as usize;
        }
        for hash in rest.iter().filter(|hash| **hash & zeros == 0) {
            selected[count] = *hash;
            count += 1;
        }
        count
    }

    /// Compares eight hashes with their registers at once. Those that raise one, which are few, are inserted one by
    /// one.
    #[target_feature(enable = "avx512f,avx512vl")]
    fn raise_all(registers: &mut [u8], precision: u8, hashes: &[u64]) {
        assert_eq!(registers.len(), 1 << precision);
        let (to_word, to_rest) = (u32::from(62 - precision + 4), u32::from(precision));
        let bound = _mm512_set1_epi64(1 << (precision - 1));
        let (sixty_four, byte) = (_mm512_set1_epi64(64), _mm512_set1_epi64(255));
        let (eights, chunks) = (_mm512_set1_epi64(24), hashes.as_chunks::<LANES>());
        for hashes in chunks.0 {
            // SAFETY: eight hashes are read.
            let all = unsafe { _mm512_loadu_si512(hashes.as_ptr().cast()) };
            // A word of four registers, and the place of the register in it, in bits.
            let words = _mm512_srl_epi64(all, _mm_cvtsi32_si128(to_word as i32));
            let bits = _mm512_srl_epi64(all, _mm_cvtsi32_si128(to_word as i32 - 5));
            let bits = _mm512_and_si512(bits, eights);
            // SAFETY: a word is below 2^(precision − 2), a quarter of the number of registers.
            let found = unsafe { _mm512_i64gather_epi32::<4>(words, registers.as_ptr().cast()) };
            let found = _mm512_srlv_epi64(_mm512_cvtepu32_epi64(found), bits);
            let zeros = _mm512_sub_epi64(sixty_four, _mm512_and_si512(found, byte));
            let rest = _mm512_sll_epi64(all, _mm_cvtsi32_si128(to_rest as i32));
            let rest = _mm512_srlv_epi64(_mm512_or_si512(rest, bound), zeros);
            let mut raising = _mm512_testn_epi64_mask(rest, rest);
            while raising != 0 {
                // Two of them may have one register.
                let hash = hashes[raising.trailing_zeros() as usize];
                let register = &mut registers[(hash >> (64 - precision)) as usize];
                *register = (*register).max(rest_of(hash, precision).leading_zeros() as u8 + 1);
                raising &= raising - 1;
            }
        }
        raise_portable(registers, precision, chunks.1);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Family, *};
    use crate::key::{KeyHash, Seed};

    /// Hashes with up to 64 zeros at the end of their first bits.
    fn hashes(count: u64) -> Vec<u64> {
        let hash = |i: u64| KeyHash::of(&i.to_le_bytes(), Seed(4));
        let some = |i| hash(i).high() & (u64::MAX << (hash(i).low() % 65).min(63));
        (0..count).map(|i| if i % 3 == 0 { some(i) } else { hash(i).high() }).collect()
    }

    #[test]
    fn all_instructions_give_the_registers_of_single_inserts() {
        for precision in 4..=18 {
            for count in [0, 1, 7, 8, 9, 5000, 20_000] {
                let (hashes, mut expected) = (hashes(count), vec![0_u8; 1 << precision]);
                for hash in &hashes {
                    let (index, value) = Family::Hashfold(Seed(0)).place(*hash, precision);
                    expected[index] = expected[index].max(value);
                }
                let mut registers = vec![0; 1 << precision];
                raise(&mut registers, precision, &hashes);
                assert!(registers == expected, "{precision}, {count}");
                raise_portable(&mut registers, precision, &hashes);
                assert!(registers == expected, "twice, {precision}, {count}");
                let mut registers = vec![0; 1 << precision];
                raise_portable(&mut registers, precision, &hashes);
                assert!(registers == expected, "portable, {precision}, {count}");
            }
        }
    }
}
