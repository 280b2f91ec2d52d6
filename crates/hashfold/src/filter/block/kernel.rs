//! The inner loops of blocks: packing for each number of low bits; gathering, decoding and finding
//! with AVX-512, beside the portable twins.

use super::{
    super::machine::Wide,
    Block,
    encode::{Marks, pack_items},
};

/// The most low bits that [`decode`] takes: one more might lie in nine bytes.
pub(super) const LOW_BITS_MAX: u32 = 57;

/// A function for each number of low bits, which are constants in it.
macro_rules! each_number_of_low_bits {
    ($($low_bits:literal)*) => {
        [$(pack_items::<$low_bits>),*]
    };
}

type Pack = fn(&[u64], &mut Marks, &mut [u8]);

static PACK: [Pack; 64] = each_number_of_low_bits!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
);

/// Packs the low parts of items, and marks their buckets. `out` is the rest of a block that has
/// room for both.
#[inline]
pub(super) fn pack(items: &[u64], low_bits: u32, marks: &mut Marks, out: &mut [u8]) {
    PACK[low_bits as usize](items, marks, out);
}

/// Moves the marks to the bits of `out`.
#[inline]
pub(super) fn gather(marks: &mut Marks, out: &mut [u8]) {
    match Wide::detect() {
        #[cfg(target_arch = "x86_64")]
        Some(wide) => x86::gather(wide, marks, out),
        _ => gather_anywhere(marks, out),
    }
}

/// The same, on any machine.
#[inline(always)]
pub(super) fn gather_anywhere(marks: &mut Marks, out: &mut [u8]) {
    let (bytes, _) = marks.as_chunks_mut::<8>();
    for (out, bytes) in out.iter_mut().zip(bytes) {
        let ones = u64::from_le_bytes(*bytes) & 0x0101_0101_0101_0101;
        *bytes = [0; 8];
        // One is moved to bit 56, the next one to bit 57, and so on.
        *out = (ones.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{bucket_start, decode};

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use super::{
        super::{
            GROUP, HEAD, ITEMS_MAX,
            decode::{bucket_start as bucket_start_anywhere, for_words},
            low_mask,
        },
        Block, Marks, Wide,
    };
    use std::{arch::x86_64::*, mem::MaybeUninit};

    /// Bits, and marks, that are taken at once.
    const LANES: usize = 64;

    #[inline]
    pub(super) fn gather(_: Wide, marks: &mut Marks, out: &mut [u8]) {
        // SAFETY: the instructions are there, as `Wide` shows.
        unsafe { gather_wide(marks, out) }
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    fn gather_wide(marks: &mut Marks, out: &mut [u8]) {
        let (lines, _) = marks.as_chunks_mut::<LANES>();
        let mut lines = lines.iter_mut();
        let (words, rest) = out.as_chunks_mut::<8>();
        let mut next = || {
            let line = lines.next()?;
            // SAFETY: 64 bytes are read of an array of that size.
            let bytes = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
            *line = [0; LANES];
            Some(_mm512_movepi8_mask(bytes).to_le_bytes())
        };
        for word in words {
            *word = next().unwrap_or_default();
        }
        if !rest.is_empty() {
            rest.copy_from_slice(&next().unwrap_or_default()[..rest.len()]);
        }
    }

    /// As [`super::super::decode::bucket_start`].
    #[inline]
    pub(in super::super) fn bucket_start(_: Wide, bytes: &[u8], bucket: usize) -> Option<usize> {
        // SAFETY: the instructions are there, as `Wide` shows.
        unsafe { bucket_start_wide(bytes, bucket) }
    }

    #[target_feature(enable = "popcnt,bmi1,bmi2")]
    fn bucket_start_wide(bytes: &[u8], bucket: usize) -> Option<usize> {
        bucket_start_anywhere(bytes, bucket)
    }

    /// Appends the items of a block with at most `LOW_BITS_MAX` low bits; whether they are legal.
    /// If not, what was appended is of no use.
    #[inline]
    pub(in super::super) fn decode(_: Wide, block: &Block<'_>, out: &mut Vec<u64>) -> bool {
        assert!(block.low_bits <= super::LOW_BITS_MAX);
        // SAFETY: the instructions are there, as `Wide` shows.
        unsafe { decode_wide(block, out) }
    }

    /// Where the bits of items are, and room for what comes in lines behind them.
    type Places = [MaybeUninit<u16>; ITEMS_MAX + LANES];

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt,bmi1,bmi2")]
    fn decode_wide(block: &Block<'_>, out: &mut Vec<u64>) -> bool {
        let mut count = 0;
        for_words(block.buckets(), |word| {
            count += word.count_ones() as usize;
            true
        });
        if count != block.items {
            return false;
        }
        let mut places: Places = [MaybeUninit::uninit(); ITEMS_MAX + LANES];
        spread(block, &mut places);
        // SAFETY: `spread` has written the places of all items.
        let last = unsafe { places[block.items - 1].assume_init() };
        block.are_buckets_legal(u64::from(last)) && combine(block, &places, out)
    }

    /// Writes the places of the set bits, of which there are as many as items, and zeros for the
    /// rest of the last group.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt,bmi1,bmi2")]
    fn spread(block: &Block<'_>, places: &mut Places) {
        const IOTA: [u8; LANES] = {
            let mut iota = [0; LANES];
            let mut i = 0;
            while i < LANES {
                iota[i] = i as u8;
                i += 1;
            }
            iota
        };
        // SAFETY: 64 bytes are read of an array of that size.
        let iota = unsafe { _mm512_loadu_si512(IOTA.as_ptr().cast()) };
        let mut first = _mm512_setzero_si512();
        let step = _mm512_set1_epi16(LANES as i16);
        let to = places.as_mut_ptr();
        let mut used = 0;
        for_words(block.buckets(), |word| {
            let bits = _mm512_maskz_compress_epi8(word, iota);
            let front = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(bits));
            let back = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64::<1>(bits));
            // SAFETY: no more than `items` <= `ITEMS_MAX` bits are set, so `used` is at most that,
            // and there is room for `LANES` more.
            unsafe {
                _mm512_storeu_si512(to.add(used).cast(), _mm512_add_epi16(front, first));
                _mm512_storeu_si512(to.add(used + 32).cast(), _mm512_add_epi16(back, first));
            }
            used += word.count_ones() as usize;
            first = _mm512_add_epi16(first, step);
            true
        });
        // SAFETY: as above, with `used` as large as it gets.
        unsafe { _mm512_storeu_si512(to.add(used).cast(), _mm512_setzero_si512()) };
    }

    /// Appends what the places of bits and the low parts make; whether the items ascend.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt,bmi1,bmi2")]
    fn combine(block: &Block<'_>, places: &Places, out: &mut Vec<u64>) -> bool {
        let low_bits = block.low_bits as usize;
        let groups = block.items.div_ceil(GROUP);
        let (mut bytes, mut shifts) = ([0_u8; LANES], [0_u64; GROUP]);
        for i in 0..GROUP {
            for byte in 0..8 {
                bytes[8 * i + byte] = (i * low_bits / 8 + byte) as u8;
            }
            shifts[i] = (i * low_bits % 8) as u64;
        }
        // SAFETY: 64 bytes are read of arrays of that size.
        let (bytes, shifts) = unsafe {
            (_mm512_loadu_si512(bytes.as_ptr().cast()), _mm512_loadu_si512(shifts.as_ptr().cast()))
        };
        let mask = _mm512_set1_epi64(low_mask(block.low_bits) as i64);
        let up = _mm_cvtsi64_si128(low_bits as i64);
        // First bucket less the number of the item.
        let mut base = _mm512_sub_epi64(
            _mm512_set1_epi64(block.first_bucket as i64),
            _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0),
        );
        let step = _mm512_set1_epi64(GROUP as i64);
        let from = block.bytes[HEAD..][..groups * low_bits].as_ptr();
        out.reserve(groups * GROUP);
        let to = out.spare_capacity_mut().as_mut_ptr();
        let (mut before, mut disorder) = (_mm512_setzero_si512(), 0);
        for group in 0..groups {
            // SAFETY: `low_bits` bytes are read, of as many as there are groups of them; places
            // are written up to the end of the last group; and there is room for all groups.
            let items = unsafe {
                let lows = _mm512_maskz_loadu_epi8(
                    low_mask(block.low_bits),
                    from.add(group * low_bits).cast(),
                );
                let lows = _mm512_srlv_epi64(_mm512_permutexvar_epi8(bytes, lows), shifts);
                let lows = _mm512_and_si512(lows, mask);
                let places = _mm_loadu_si128(places.as_ptr().add(group * GROUP).cast());
                let buckets = _mm512_add_epi64(_mm512_cvtepu16_epi64(places), base);
                let items = _mm512_or_si512(_mm512_sll_epi64(buckets, up), lows);
                _mm512_storeu_si512(to.add(group * GROUP).cast(), items);
                items
            };
            base = _mm512_sub_epi64(base, step);
            let neighbours = _mm512_alignr_epi64::<7>(items, before);
            let here = (block.items - group * GROUP).min(GROUP);
            // Nothing comes before the first.
            let compared = (low_mask(here as u32) as u8) & !u8::from(group == 0);
            disorder |= compared & !_mm512_cmplt_epu64_mask(neighbours, items);
            before = items;
        }
        // SAFETY: at least that many have been written.
        unsafe { out.set_len(out.len() + block.items) };
        disorder == 0
    }
}

/// Never called: there is no [`Wide`] machine of this kind.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn decode(_: Wide, _: &Block<'_>, _: &mut Vec<u64>) -> bool {
    false
}

/// Never called: there is no [`Wide`] machine of this kind.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn bucket_start(_: Wide, bytes: &[u8], bucket: usize) -> Option<usize> {
    super::decode::bucket_start(bytes, bucket)
}
