//! Reading hashes from a table with gaps: a loop with AVX-512, and its portable twin.

use crate::{
    filter::machine::Wide,
    fingerprints::{Exception, FingerprintBatch},
};

/// Marks a free slot. The largest hash is replaced by the one before it.
pub(super) const FREE: u64 = u64::MAX;
/// Number of slots whose marks share a word.
const WORD: usize = 64;

/// Appends the hashes in slots that are not free. A marked slot becomes a tombstone. `marks` has a
/// bit per slot; missing bits are 0.
pub(super) fn gather(slots: &[u64], marks: &[u64], out: &mut FingerprintBatch) {
    gather_on(Wide::detect(), slots, marks, out);
}

/// Runs [`gather`] with the given instructions.
#[inline]
fn gather_on(wide: Option<Wide>, slots: &[u64], marks: &[u64], out: &mut FingerprintBatch) {
    match wide {
        #[cfg(target_arch = "x86_64")]
        Some(wide) => x86::gather(wide, slots, marks, out),
        _ => gather_anywhere(slots, marks, out),
    }
}

/// Runs [`gather`] without special instructions.
fn gather_anywhere(slots: &[u64], marks: &[u64], out: &mut FingerprintBatch) {
    let hashes = &mut out.fingerprints;
    let start = hashes.len();
    hashes.resize(start + slots.len(), 0);
    let mut len = start;
    for (number, slots) in slots.chunks(WORD).enumerate() {
        let (first, mut taken) = (len, 0);
        for (i, &hash) in slots.iter().enumerate() {
            // A branch here could not be predicted.
            hashes[len] = hash;
            len += usize::from(hash != FREE);
            taken |= u64::from(hash != FREE) << i;
        }
        let mut marks = marks.get(number).map_or(0, |marks| marks & taken);
        while marks != 0 {
            let before = taken & (marks & marks.wrapping_neg()).wrapping_sub(1);
            let position = first + before.count_ones() as usize;
            out.exceptions.push(Exception { position, count: -1 });
            marks &= marks - 1;
        }
    }
    hashes.truncate(len);
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use super::{Exception, FREE, FingerprintBatch, WORD, Wide, gather_anywhere};
    use std::arch::x86_64::{
        _mm512_cmpneq_epu64_mask, _mm512_loadu_si512, _mm512_maskz_compress_epi64,
        _mm512_set1_epi64, _mm512_storeu_si512, _pext_u64,
    };

    const LANES: usize = 8;

    #[inline]
    pub(super) fn gather(_: Wide, slots: &[u64], marks: &[u64], out: &mut FingerprintBatch) {
        // SAFETY: `Wide` proves that the machine has the instructions.
        unsafe { gather_wide(slots, marks, out) }
    }

    #[target_feature(enable = "avx512f,bmi1,bmi2,popcnt")]
    fn gather_wide(slots: &[u64], marks: &[u64], out: &mut FingerprintBatch) {
        let (words, rest) = slots.as_chunks::<WORD>();
        let free = _mm512_set1_epi64(FREE as i64);
        let FingerprintBatch { fingerprints: hashes, exceptions } = out;
        hashes.reserve(words.len() * WORD + LANES);
        let to = hashes.spare_capacity_mut().as_mut_ptr();
        let (start, mut used) = (hashes.len(), 0);
        for (number, slots) in words.iter().enumerate() {
            let (first, mut taken) = (start + used, 0);
            for (i, line) in slots.as_chunks::<LANES>().0.iter().enumerate() {
                // SAFETY: the reads are within an array of 64 bytes. At most one hash is written
                // for each slot that is read, and `LANES` more.
                let here = unsafe {
                    let line = _mm512_loadu_si512(line.as_ptr().cast());
                    let here = _mm512_cmpneq_epu64_mask(line, free);
                    let line = _mm512_maskz_compress_epi64(here, line);
                    _mm512_storeu_si512(to.add(used).cast(), line);
                    here
                };
                taken |= u64::from(here) << (i * LANES);
                used += here.count_ones() as usize;
            }
            let Some(&marks) = marks.get(number) else { continue };
            let mut marks = _pext_u64(marks, taken);
            while marks != 0 {
                let position = first + marks.trailing_zeros() as usize;
                exceptions.push(Exception { position, count: -1 });
                marks &= marks - 1;
            }
        }
        // SAFETY: the loop has written all of these elements.
        unsafe { hashes.set_len(start + used) };
        let marks = marks.get(words.len()..).unwrap_or(&[]);
        gather_anywhere(rest, marks, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    proptest! {
        #[test]
        fn slots_are_read_alike_on_each_machine(
            slots in vec(prop_oneof![any::<u64>(), Just(FREE)], 0..300),
            marks in vec(any::<u64>(), 0..6),
        ) {
            let is_marked = |i: usize| marks.get(i / WORD).is_some_and(|it| it >> (i % WORD) & 1 == 1);
            let count = |i| if is_marked(i) { -1 } else { 1 };
            let mut expected = FingerprintBatch::new();
            expected.push_next(7, -3);
            for (i, &hash) in slots.iter().enumerate().filter(|slot| *slot.1 != FREE) {
                expected.push_next(hash, count(i));
            }
            for machine in [None, Wide::detect()] {
                let mut out = FingerprintBatch::new();
                out.push_next(7, -3);
                gather_on(machine, &slots, &marks, &mut out);
                prop_assert_eq!(&out, &expected, "{:?}", machine);
            }
        }
    }
}
