//! The two loops of merges: two lists into one, and finding what comes more than once; with
//! portable twins.

use super::super::{Mode, machine::Wide};
use std::ops::Range;

/// Parts of a merge of two that go on at the same time: a step of one waits for its own last step
/// only.
const CHAINS: usize = 4;

/// Replaces `out` by all numbers of two ascending lists, in order.
pub(super) fn merge(a: &[u64], b: &[u64], out: &mut Vec<u64>) {
    out.resize(a.len() + b.len(), 0);
    merge_into(a, b, out);
}

/// One chain of a merge: what it has yet to take, and where it goes.
#[derive(Clone, Copy)]
struct Chain {
    a: usize,
    b: usize,
    out: usize,
    end: usize,
}

/// The place in `a` where the first `count` numbers of the merge end; of equal ones those of `a`
/// come first.
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

fn chains(a: &[u64], b: &[u64]) -> [Chain; CHAINS] {
    let len = a.len() + b.len();
    let starts: [usize; CHAINS] = std::array::from_fn(|i| len * i / CHAINS);
    std::array::from_fn(|i| {
        let (out, end) = (starts[i], starts.get(i + 1).copied().unwrap_or(len));
        let in_a = split(a, b, out);
        Chain { a: in_a, b: out - in_a, out, end }
    })
}

#[allow(unsafe_code)]
fn merge_into(a: &[u64], b: &[u64], out: &mut [u64]) {
    assert_eq!(out.len(), a.len() + b.len());
    let mut chains = chains(a, b);
    loop {
        // Steps that no chain can take beyond the end of a list, or its own: each takes one number.
        let safe =
            |chain: &Chain| (chain.end - chain.out).min(a.len() - chain.a).min(b.len() - chain.b);
        let steps = chains.iter().map(safe).min().unwrap_or(0);
        if steps < 8 {
            break;
        }
        let [mut c0, mut c1, mut c2, mut c3] = chains;
        let (a, b, out) = (a.as_ptr(), b.as_ptr(), out.as_mut_ptr());
        for i in 0..steps {
            for chain in [&mut c0, &mut c1, &mut c2, &mut c3] {
                // SAFETY: each of these steps adds one to `chain.a` or to `chain.b`, so that after
                // fewer than `steps` of them both are inside their lists, and `chain.out + i` is
                // before the chain's end, which is at most the length of `out`.
                unsafe {
                    let (x, y) = (*a.add(chain.a), *b.add(chain.b));
                    let is_a = usize::from(x <= y);
                    *out.add(chain.out + i) = x.min(y);
                    chain.a += is_a;
                    chain.b += 1 - is_a;
                }
            }
        }
        for chain in [&mut c0, &mut c1, &mut c2, &mut c3] {
            chain.out += steps;
        }
        chains = [c0, c1, c2, c3];
    }
    for chain in chains {
        finish(chain, a, b, out);
    }
}

/// Takes the rest of a chain.
fn finish(mut chain: Chain, a: &[u64], b: &[u64], out: &mut [u64]) {
    while chain.out < chain.end {
        let (x, y) = (a.get(chain.a), b.get(chain.b));
        let (Some(&x), Some(&y)) = (x, y) else {
            break;
        };
        let is_a = usize::from(x <= y);
        out[chain.out] = x.min(y);
        chain.a += is_a;
        chain.b += 1 - is_a;
        chain.out += 1;
    }
    // One of the lists may be at its end.
    let out = &mut out[chain.out..chain.end];
    let rest = if chain.a < a.len() { &a[chain.a..] } else { &b[chain.b..] };
    out.copy_from_slice(&rest[..out.len()]);
}

/// What [`merge`] does, one number after the other.
#[cfg(test)]
pub(super) fn merge_safely(a: &[u64], b: &[u64], out: &mut [u64]) {
    finish(Chain { a: 0, b: 0, out: 0, end: out.len() }, a, b, out);
}

/// Appends to `out` the numbers that come once in an ascending list, and in a set also the others,
/// once. In a multiset the places where the others begin are appended to `heads`.
pub(super) fn unique(numbers: &[u64], mode: Mode, out: &mut Vec<u64>, heads: &mut Vec<u32>) {
    unique_on(Wide::detect(), numbers, mode, out, heads);
}

/// The same, with what the processor has.
#[inline]
pub(super) fn unique_on(
    wide: Option<Wide>,
    numbers: &[u64],
    mode: Mode,
    out: &mut Vec<u64>,
    heads: &mut Vec<u32>,
) {
    match wide {
        #[cfg(target_arch = "x86_64")]
        Some(wide) => x86::unique(wide, numbers, mode, out, heads),
        _ => unique_in(0..numbers.len(), numbers, mode, out, heads),
    }
}

/// The same on any machine, of the numbers in this range.
fn unique_in(
    range: Range<usize>,
    numbers: &[u64],
    mode: Mode,
    out: &mut Vec<u64>,
    heads: &mut Vec<u32>,
) {
    for i in range {
        let number = numbers[i];
        let is_head = i == 0 || numbers[i - 1] != number;
        let is_tail = numbers.get(i + 1) != Some(&number);
        if is_head && (is_tail || mode == Mode::Set) {
            out.push(number);
        } else if is_head {
            heads.push(i as u32);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use super::{Mode, Wide, unique_in};
    use std::arch::x86_64::{
        _mm512_cmpneq_epu64_mask, _mm512_loadu_si512, _mm512_maskz_compress_epi64,
        _mm512_storeu_si512,
    };

    const LANES: usize = 8;

    #[inline]
    pub(super) fn unique(
        _: Wide,
        numbers: &[u64],
        mode: Mode,
        out: &mut Vec<u64>,
        heads: &mut Vec<u32>,
    ) {
        // SAFETY: the instructions are there, as `Wide` shows.
        unsafe { unique_wide(numbers, mode, out, heads) }
    }

    #[target_feature(enable = "avx512f,popcnt")]
    fn unique_wide(numbers: &[u64], mode: Mode, out: &mut Vec<u64>, heads: &mut Vec<u32>) {
        // Numbers with one before and eight behind.
        let len = numbers.len().saturating_sub(1 + LANES) / LANES * LANES;
        unique_in(0..numbers.len().min(1), numbers, mode, out, heads);
        out.reserve(numbers.len() + LANES);
        let (from, to) = (numbers.as_ptr(), out.spare_capacity_mut().as_mut_ptr());
        let mut used = 0;
        let is_multiset = mode == Mode::Multiset;
        for i in (1..=len).step_by(LANES) {
            // SAFETY: `i + LANES < numbers.len()` by the choice of `len`; at most one number is
            // written for each that is read, and `LANES` more.
            let heads_here = unsafe {
                let here = _mm512_loadu_si512(from.add(i).cast());
                let before = _mm512_loadu_si512(from.add(i - 1).cast());
                let is_head = _mm512_cmpneq_epu64_mask(before, here);
                let mut kept = is_head;
                if is_multiset {
                    let behind = _mm512_loadu_si512(from.add(i + 1).cast());
                    kept &= _mm512_cmpneq_epu64_mask(here, behind);
                }
                let singles = _mm512_maskz_compress_epi64(kept, here);
                _mm512_storeu_si512(to.add(used).cast(), singles);
                used += kept.count_ones() as usize;
                is_head & !kept
            };
            if heads_here != 0 {
                let places = (0..LANES).filter(|lane| heads_here >> lane & 1 == 1);
                heads.extend(places.map(|lane| (i + lane) as u32));
            }
        }
        // SAFETY: that many have been written.
        unsafe { out.set_len(out.len() + used) };
        unique_in(1 + len..numbers.len(), numbers, mode, out, heads);
    }
}
