//! The inner loops of merges: merging two lists, and removing duplicates; with portable twins.

use super::tags::Tags;
use crate::filter::{machine::Wide, mode::Mode};
use std::ops::Range;

/// Number of interleaved parts in a merge of two lists. A step of one part depends only on the last
/// step of the same part.
const STRANDS: usize = 4;

/// Writes all numbers of two ascending lists to the front of `out`, in order. `out` grows if
/// needed, but never shrinks, so that its memory is not zeroed again.
pub(super) fn merge(a: &[u64], b: &[u64], out: &mut Vec<u64>) {
    let len = a.len() + b.len();
    if out.len() < len {
        out.resize(len, 0);
    }
    merge_into(a, b, &mut out[..len]);
}

/// One part of a merge: the positions in both lists, and the position and end of the output.
#[derive(Clone, Copy)]
struct Strand {
    a: usize,
    b: usize,
    out: usize,
    end: usize,
}

/// Returns the number of elements of `a` among the first `count` numbers of the merge. Of equal
/// numbers, those of `a` come first.
fn split(a: &[u64], b: &[u64], count: usize) -> usize {
    let (mut from, mut to) = (count.saturating_sub(b.len()), count.min(a.len()));
    while from < to {
        let middle = from.midpoint(to);
        if a[middle] <= b[count - middle - 1] {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    from
}

fn strands(a: &[u64], b: &[u64]) -> [Strand; STRANDS] {
    let len = a.len() + b.len();
    let starts: [usize; STRANDS] = std::array::from_fn(|i| len * i / STRANDS);
    std::array::from_fn(|i| {
        let (out, end) = (starts[i], starts.get(i + 1).copied().unwrap_or(len));
        let in_a = split(a, b, out);
        Strand { a: in_a, b: out - in_a, out, end }
    })
}

#[allow(unsafe_code)]
fn merge_into(a: &[u64], b: &[u64], out: &mut [u64]) {
    assert_eq!(out.len(), a.len() + b.len());
    let mut strands = strands(a, b);
    loop {
        // Number of steps that cannot reach the end of a list or of the strand: each step takes one
        // number.
        let safe = |strand: &Strand| {
            (strand.end - strand.out).min(a.len() - strand.a).min(b.len() - strand.b)
        };
        let steps = strands.iter().map(safe).min().unwrap_or(0);
        if steps < 8 {
            break;
        }
        let [mut c0, mut c1, mut c2, mut c3] = strands;
        let (a, b, out) = (a.as_ptr(), b.as_ptr(), out.as_mut_ptr());
        for i in 0..steps {
            for strand in [&mut c0, &mut c1, &mut c2, &mut c3] {
                // SAFETY: each step adds one to `strand.a` or to `strand.b`. So before `steps`
                // steps, both are inside their lists, and `strand.out + i` is before the strand's
                // end, which is at most the length of `out`.
                unsafe {
                    let (x, y) = (*a.add(strand.a), *b.add(strand.b));
                    let is_a = usize::from(x <= y);
                    *out.add(strand.out + i) = x.min(y);
                    strand.a += is_a;
                    strand.b += 1 - is_a;
                }
            }
        }
        for strand in [&mut c0, &mut c1, &mut c2, &mut c3] {
            strand.out += steps;
        }
        strands = [c0, c1, c2, c3];
    }
    for strand in strands {
        finish(strand, a, b, out);
    }
}

/// Merges the rest of a strand.
fn finish(mut strand: Strand, a: &[u64], b: &[u64], out: &mut [u64]) {
    while strand.out < strand.end {
        let (x, y) = (a.get(strand.a), b.get(strand.b));
        let (Some(&x), Some(&y)) = (x, y) else {
            break;
        };
        let is_a = usize::from(x <= y);
        out[strand.out] = x.min(y);
        strand.a += is_a;
        strand.b += 1 - is_a;
        strand.out += 1;
    }
    // One of the lists may be exhausted.
    let out = &mut out[strand.out..strand.end];
    let rest = if strand.a < a.len() { &a[strand.a..] } else { &b[strand.b..] };
    out.copy_from_slice(&rest[..out.len()]);
}

/// Merges as [`merge`] does, without interleaving.
#[cfg(test)]
pub(super) fn merge_safely(a: &[u64], b: &[u64], out: &mut [u64]) {
    finish(Strand { a: 0, b: 0, out: 0, end: out.len() }, a, b, out);
}

/// Whether numbers ascend strictly.
pub(in super::super) fn ascends(numbers: &[u64]) -> bool {
    match Wide::detect() {
        #[cfg(target_arch = "x86_64")]
        Some(wide) => x86::ascends(wide, numbers),
        _ => ascends_anywhere(numbers),
    }
}

/// Whether numbers ascend strictly; portable.
#[inline(always)]
pub(super) fn ascends_anywhere(numbers: &[u64]) -> bool {
    numbers.windows(2).fold(true, |ascend, pair| ascend & (pair[0] < pair[1]))
}

/// A repeated number: its first position in the input, and its position in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeated {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Appends the distinct numbers of an ascending list to `out`. In a multiset, numbers that occur
/// more than once are also appended to `repeated`.
pub(super) fn unique(
    numbers: &[u64],
    mode: Mode,
    out: &mut Vec<u64>,
    repeated: &mut Vec<Repeated>,
) {
    unique_on(Wide::detect(), numbers, mode, out, repeated);
}

/// Runs [`unique`] with AVX-512 or without.
#[inline]
pub(super) fn unique_on(
    wide: Option<Wide>,
    numbers: &[u64],
    mode: Mode,
    out: &mut Vec<u64>,
    repeated: &mut Vec<Repeated>,
) {
    match wide {
        #[cfg(target_arch = "x86_64")]
        Some(wide) => x86::unique(wide, numbers, mode, out, repeated),
        _ => unique_in(0..numbers.len(), numbers, mode, out, repeated),
    }
}

/// Runs [`unique`] on a range of the numbers; portable.
fn unique_in(
    range: Range<usize>,
    numbers: &[u64],
    mode: Mode,
    out: &mut Vec<u64>,
    repeated: &mut Vec<Repeated>,
) {
    for i in range {
        let number = numbers[i];
        if i > 0 && numbers[i - 1] == number {
            continue;
        }
        if mode == Mode::Multiset && numbers.get(i + 1) == Some(&number) {
            repeated.push(Repeated { from: i, to: out.len() });
        }
        out.push(number);
    }
}

/// Writes the fingerprints of a part, with tags for a count of 1, to the front of `out`, which
/// grows if needed.
pub(super) fn tag(fingerprints: &[u64], tags: Tags, part: usize, out: &mut Vec<u64>) {
    if out.len() < fingerprints.len() {
        out.resize(fingerprints.len(), 0);
    }
    for (out, fingerprint) in out.iter_mut().zip(fingerprints) {
        *out = (fingerprint - tags.base) << tags.bits | (part as u64) << 1;
    }
}

/// Appends the distinct fingerprints of ascending tagged numbers to `out`. The first number of a
/// fingerprint is the newest. If it is an exception, its position in `out` is appended to
/// `tombstones`; without `tombstones` it is dropped.
pub(super) fn newest(
    numbers: &[u64],
    tags: Tags,
    out: &mut Vec<u64>,
    tombstones: Option<&mut Vec<u32>>,
) {
    newest_on(Wide::detect(), numbers, tags, out, tombstones);
}

/// Runs [`newest`] with AVX-512 or without.
#[inline]
pub(super) fn newest_on(
    wide: Option<Wide>,
    numbers: &[u64],
    tags: Tags,
    out: &mut Vec<u64>,
    tombstones: Option<&mut Vec<u32>>,
) {
    match wide {
        #[cfg(target_arch = "x86_64")]
        Some(wide) => x86::newest(wide, numbers, tags, out, tombstones),
        _ => newest_in(0..numbers.len(), numbers, tags, out, tombstones),
    }
}

/// Runs [`newest`] on a range of the numbers; portable.
fn newest_in(
    range: Range<usize>,
    numbers: &[u64],
    tags: Tags,
    out: &mut Vec<u64>,
    mut tombstones: Option<&mut Vec<u32>>,
) {
    for i in range {
        let number = numbers[i];
        if i > 0 && tags.are_equal(numbers[i - 1], number) {
            continue;
        }
        if number & 1 == 1 {
            let Some(tombstones) = &mut tombstones else { continue };
            tombstones.push(out.len() as u32);
        }
        out.push(tags.fingerprint(number));
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use super::{Mode, Repeated, Tags, Wide, ascends_anywhere, newest_in, unique_in};
    use std::arch::x86_64::*;

    const LANES: usize = 8;

    #[inline]
    pub(super) fn ascends(_: Wide, numbers: &[u64]) -> bool {
        // SAFETY: `Wide` proves that the machine has the instructions.
        unsafe { ascends_wide(numbers) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn ascends_wide(numbers: &[u64]) -> bool {
        let len = numbers.len().saturating_sub(1) / LANES * LANES;
        let mut below = u8::MAX;
        for i in (0..len).step_by(LANES) {
            // SAFETY: `i + LANES < numbers.len()` by the choice of `len`.
            unsafe {
                let here = _mm512_loadu_si512(numbers.as_ptr().add(i).cast());
                let next = _mm512_loadu_si512(numbers.as_ptr().add(i + 1).cast());
                below &= _mm512_cmplt_epu64_mask(here, next);
            }
        }
        below == u8::MAX && ascends_anywhere(&numbers[len..])
    }

    #[inline]
    pub(super) fn unique(
        _: Wide,
        numbers: &[u64],
        mode: Mode,
        out: &mut Vec<u64>,
        repeated: &mut Vec<Repeated>,
    ) {
        // SAFETY: `Wide` proves that the machine has the instructions.
        unsafe { unique_wide(numbers, mode, out, repeated) }
    }

    #[target_feature(enable = "avx512f,popcnt")]
    fn unique_wide(numbers: &[u64], mode: Mode, out: &mut Vec<u64>, repeated: &mut Vec<Repeated>) {
        // The numbers that have one number before them and eight after them.
        let len = numbers.len().saturating_sub(1 + LANES) / LANES * LANES;
        unique_in(0..numbers.len().min(1), numbers, mode, out, repeated);
        out.reserve(numbers.len() + LANES);
        let (from, start) = (numbers.as_ptr(), out.len());
        let to = out.spare_capacity_mut().as_mut_ptr();
        let mut used = 0;
        let is_multiset = mode == Mode::Multiset;
        for i in (1..=len).step_by(LANES) {
            // SAFETY: `i + LANES < numbers.len()` by the choice of `len`. At most one number is
            // written for each number that is read, and `LANES` more.
            let (heads, mut repeated_here) = unsafe {
                let here = _mm512_loadu_si512(from.add(i).cast());
                let before = _mm512_loadu_si512(from.add(i - 1).cast());
                let heads = _mm512_cmpneq_epu64_mask(before, here);
                let firsts = _mm512_maskz_compress_epi64(heads, here);
                _mm512_storeu_si512(to.add(used).cast(), firsts);
                let behind = _mm512_loadu_si512(from.add(i + 1).cast());
                (heads, heads & !_mm512_cmpneq_epu64_mask(here, behind))
            };
            while is_multiset && repeated_here != 0 {
                let lane = repeated_here.trailing_zeros();
                let before = (heads & ((1 << lane) - 1)).count_ones() as usize;
                repeated.push(Repeated { from: i + lane as usize, to: start + used + before });
                repeated_here &= repeated_here - 1;
            }
            used += heads.count_ones() as usize;
        }
        // SAFETY: the loop has written this number of elements.
        unsafe { out.set_len(start + used) };
        unique_in(1 + len..numbers.len(), numbers, mode, out, repeated);
    }

    #[inline]
    pub(super) fn newest(
        _: Wide,
        numbers: &[u64],
        tags: Tags,
        out: &mut Vec<u64>,
        tombstones: Option<&mut Vec<u32>>,
    ) {
        // SAFETY: `Wide` proves that the machine has the instructions.
        unsafe { newest_wide(numbers, tags, out, tombstones) }
    }

    #[target_feature(enable = "avx512f,avx512vl,bmi2,popcnt")]
    fn newest_wide(
        numbers: &[u64],
        tags: Tags,
        out: &mut Vec<u64>,
        mut tombstones: Option<&mut Vec<u32>>,
    ) {
        // The numbers that have one number before them.
        let len = numbers.len().saturating_sub(1) / LANES * LANES;
        newest_in(0..numbers.len().min(1), numbers, tags, out, tombstones.as_deref_mut());
        out.reserve(len + LANES);
        let (from, start) = (numbers.as_ptr(), out.len());
        let to = out.spare_capacity_mut().as_mut_ptr();
        let mut none = Vec::new();
        let keeps = if tombstones.is_some() { u8::MAX } else { 0 };
        let places = tombstones.as_deref_mut().unwrap_or(&mut none);
        places.reserve(len + LANES);
        let places_to = places.spare_capacity_mut().as_mut_ptr();
        let up = _mm_cvtsi64_si128(i64::from(tags.bits));
        let (bases, ones) = (_mm512_set1_epi64(tags.base as i64), _mm512_set1_epi64(1));
        let fingerprint_bits = _mm512_set1_epi64((u64::MAX << tags.bits) as i64);
        let iota = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
        let (mut used, mut places_used) = (0, 0);
        for i in (1..=len).step_by(LANES) {
            // SAFETY: `i + LANES <= numbers.len()` by the choice of `len`. At most one number and
            // one position are written for each number that is read, and `LANES` more.
            unsafe {
                let here = _mm512_loadu_si512(from.add(i).cast());
                let before = _mm512_loadu_si512(from.add(i - 1).cast());
                let differ = _mm512_xor_si512(here, before);
                let heads = _mm512_test_epi64_mask(differ, fingerprint_bits);
                let marked = _mm512_test_epi64_mask(here, ones);
                let kept = heads & (keeps | !marked);
                let fingerprints = _mm512_add_epi64(_mm512_srl_epi64(here, up), bases);
                let firsts = _mm512_maskz_compress_epi64(kept, fingerprints);
                _mm512_storeu_si512(to.add(used).cast(), firsts);
                let marked = _pext_u32(u32::from(marked), u32::from(kept)) as u8;
                let place = _mm256_add_epi32(iota, _mm256_set1_epi32((start + used) as i32));
                let place = _mm256_maskz_compress_epi32(marked, place);
                _mm256_storeu_si256(places_to.add(places_used).cast(), place);
                used += kept.count_ones() as usize;
                places_used += marked.count_ones() as usize;
            }
        }
        // SAFETY: the loop has written this number of elements.
        unsafe {
            out.set_len(start + used);
            places.set_len(places.len() + places_used);
        }
        newest_in(1 + len..numbers.len(), numbers, tags, out, tombstones);
    }
}
