//! The inner loops of blocks with AVX-512: packing, decoding and finding fingerprints.

#[cfg(not(target_arch = "x86_64"))]
use super::layout::Bytes;
use super::{
    layout::{BLOCK_SIZE, Block},
    portable::Sizes,
};
use crate::filter::machine::Wide;

/// Words for the bits of all buckets, and one more.
pub(super) type BucketWords = [u64; BLOCK_SIZE / 8 + 2];

/// Maximum number of low bits for [`decode`]: with more, a low part might be in nine bytes.
pub(super) const LOW_BITS_MAX: u32 = 57;

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{bucket_start, decode, pack_wide};

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86 {
    use super::{
        super::{
            layout::{BLOCK_SIZE, Bytes, GROUP, HEAD, ITEMS_MAX, low_mask},
            portable::{bucket_start as bucket_start_anywhere, for_words},
        },
        Block, BucketWords, LOW_BITS_MAX, Sizes, Wide,
    };
    use std::{arch::x86_64::*, mem::MaybeUninit};

    /// Bytes in a register, and bits in a word.
    const LANES: usize = 64;

    /// Positions of bytes in a register, for each number of low bits.
    type Places64 = [[u8; LANES]; LOW_BITS_MAX as usize + 1];

    /// Lane i, of 8 bytes, gets the bytes from the one in which low part i starts.
    static SPREAD: Places64 = {
        let mut table = [[0; LANES]; LOW_BITS_MAX as usize + 1];
        let mut low_bits = 0;
        while low_bits <= LOW_BITS_MAX as usize {
            let mut i = 0;
            while i < LANES {
                table[low_bits][i] = (i / 8 * low_bits / 8 + i % 8) as u8;
                i += 1;
            }
            low_bits += 1;
        }
        table
    };

    /// Returns the reverse permutation: byte j gets the lane of its bit 0, or the lane of its bit
    /// 7. With at least 8 low bits, a byte has bits of at most two lanes.
    const fn joined(bit: usize) -> Places64 {
        let mut table = [[0; LANES]; LOW_BITS_MAX as usize + 1];
        let mut low_bits = 8;
        while low_bits <= LOW_BITS_MAX as usize {
            let mut j = 0;
            while j < low_bits {
                let lane = (8 * j + bit) / low_bits;
                table[low_bits][j] = (8 * lane + j - lane * low_bits / 8) as u8;
                j += 1;
            }
            low_bits += 1;
        }
        table
    }

    static JOIN_FIRST: Places64 = joined(0);
    static JOIN_LAST: Places64 = joined(7);

    /// Packs items as [`super::super::portable::pack`] does, for at most `LOW_BITS_MAX` low bits.
    #[inline]
    pub(in super::super) fn pack_wide(
        _: Wide,
        items: &[u64],
        sizes: &Sizes,
        words: &mut BucketWords,
        block: &mut Bytes,
    ) {
        assert!(sizes.low_bits <= LOW_BITS_MAX);
        // SAFETY: `Wide` proves that the machine has the instructions.
        unsafe {
            if sizes.low_bits < 8 {
                pack_small_lows(items, sizes.low_bits, block);
            } else {
                pack_lows(items, sizes.low_bits, block);
            }
            let used = (sizes.buckets_end - sizes.buckets_start).div_ceil(8);
            words[..used].fill(0);
            pack_buckets(items, sizes.low_bits, words);
        }
        let out = &mut block[sizes.buckets_start..sizes.buckets_end];
        let (chunks, rest) = out.as_chunks_mut::<8>();
        for (out, word) in chunks.iter_mut().zip(&*words) {
            *out = word.to_le_bytes();
        }
        rest.copy_from_slice(&words[chunks.len()].to_le_bytes()[..rest.len()]);
    }

    /// With fewer than 8 low bits, the low parts of 8 items fit in 8 bytes.
    #[target_feature(enable = "avx512f,bmi2")]
    fn pack_small_lows(items: &[u64], low_bits: u32, block: &mut Bytes) {
        let kept = low_mask(low_bits) * 0x0101_0101_0101_0101;
        for (number, group) in items.chunks(GROUP).enumerate() {
            let bytes = _mm512_cvtepi64_epi8(load(group));
            let lows = _pext_u64(_mm_cvtsi128_si64(bytes) as u64, kept);
            let start = HEAD + number * low_bits as usize;
            block[start..start + 8].copy_from_slice(&lows.to_le_bytes());
        }
    }

    /// Loads at most 8 items, followed by zeros.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(group: &[u64]) -> __m512i {
        let here = low_mask(group.len().min(GROUP) as u32) as u8;
        // SAFETY: only the lanes of existing items are read.
        unsafe { _mm512_maskz_loadu_epi64(here, group.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn pack_lows(items: &[u64], low_bits: u32, block: &mut Bytes) {
        let size = low_bits as usize;
        let mask = _mm512_set1_epi64(low_mask(low_bits) as i64);
        let shifts: [u64; GROUP] = std::array::from_fn(|i| (i * size % 8) as u64);
        // SAFETY: the reads are within arrays of 64 bytes.
        let (shifts, first, last) = unsafe {
            (
                _mm512_loadu_si512(shifts.as_ptr().cast()),
                _mm512_loadu_si512(JOIN_FIRST[size].as_ptr().cast()),
                _mm512_loadu_si512(JOIN_LAST[size].as_ptr().cast()),
            )
        };
        let here = low_mask(low_bits);
        let join = |group| {
            let lows = _mm512_sllv_epi64(_mm512_and_si512(group, mask), shifts);
            let first = _mm512_maskz_permutexvar_epi8(here, first, lows);
            let last = _mm512_maskz_permutexvar_epi8(here, last, lows);
            _mm512_or_si512(first, last)
        };
        let (groups, rest) = items.as_chunks::<GROUP>();
        // Groups for which a whole register fits in the block: the next group overwrites the excess
        // bytes.
        let plain = groups.len().min((BLOCK_SIZE - HEAD - LANES) / size);
        let out = block[HEAD..].as_mut_ptr();
        for (number, group) in groups[..plain].iter().enumerate() {
            // SAFETY: the last 64 bytes written end at `(plain - 1) * size + 64`, which is within
            // the block.
            unsafe { _mm512_storeu_si512(out.add(number * size).cast(), join(load(group))) };
        }
        let rest = (!rest.is_empty()).then_some(rest);
        let others = groups[plain..].iter().map(|group| &group[..]).chain(rest);
        for (number, group) in (plain..).zip(others) {
            let mut bytes = [0_u8; LANES];
            // SAFETY: the write is within an array of 64 bytes.
            unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), join(load(group))) };
            block[HEAD + number * size..][..size].copy_from_slice(&bytes[..size]);
        }
    }

    /// Sets bits in ascending order, in words that are zero.
    struct BitWriter<'a> {
        words: &'a mut BucketWords,
        /// The index of the current word; `low` holds its bits, `high` the bits of the next word.
        at: usize,
        low: u64,
        high: u64,
    }

    impl BitWriter<'_> {
        /// Sets the bits of `bits`, from bit `first` on. The lowest bit of `bits` is set.
        ///
        /// A branch on whether a new word begins would be mispredicted, so there is none. Each word
        /// is written whenever it changes, and never read back.
        #[inline(always)]
        fn set(&mut self, first: usize, bits: u64) {
            let (at, shift) = (first / 64, first % 64);
            let stays = u64::from(at == self.at).wrapping_neg();
            let moves = u64::from(at == self.at + 1).wrapping_neg();
            self.low = (self.low & stays) | (self.high & moves) | bits << shift;
            self.high = (self.high & stays) | bits >> 1 >> (63 - shift);
            self.at = at;
            let words = &mut self.words[at..at + 2];
            words[0] = self.low;
            words[1] = self.high;
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2")]
    fn pack_buckets(items: &[u64], low_bits: u32, words: &mut BucketWords) {
        let mut writer = BitWriter { words, at: 0, low: 0, high: 0 };
        let up = _mm_cvtsi64_si128(i64::from(low_bits));
        let first_bucket = (items[0] >> low_bits) as i64;
        // The number of the item minus the first bucket.
        let mut base = _mm512_sub_epi64(
            _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0),
            _mm512_set1_epi64(first_bucket),
        );
        let (step, one) = (_mm512_set1_epi64(GROUP as i64), _mm512_set1_epi64(1));
        let (groups, rest) = items.as_chunks::<GROUP>();
        for group in groups {
            let places = _mm512_add_epi64(_mm512_srl_epi64(load(group), up), base);
            base = _mm512_add_epi64(base, step);
            let first = _mm512_castsi512_si128(places);
            let apart = _mm512_sub_epi64(places, _mm512_broadcastq_epi64(first));
            let far = _mm512_cmpgt_epu64_mask(apart, _mm512_set1_epi64(63));
            if far == 0 {
                let bits = _mm512_reduce_or_epi64(_mm512_sllv_epi64(one, apart)) as u64;
                writer.set(_mm_cvtsi128_si64(first) as usize, bits);
                continue;
            }
            let mut each = [0_u64; GROUP];
            // SAFETY: the write is within an array of 64 bytes.
            unsafe { _mm512_storeu_si512(each.as_mut_ptr().cast(), places) };
            for place in each {
                writer.set(place as usize, 1);
            }
        }
        for (i, item) in (groups.len() * GROUP..).zip(rest) {
            writer.set(i + ((item >> low_bits) - first_bucket as u64) as usize, 1);
        }
    }

    /// Returns the result of [`super::super::portable::bucket_start`].
    #[inline]
    pub(in super::super) fn bucket_start(_: Wide, bytes: &[u8], bucket: usize) -> Option<usize> {
        // SAFETY: `Wide` proves that the machine has the instructions.
        unsafe { bucket_start_wide(bytes, bucket) }
    }

    #[target_feature(enable = "popcnt,bmi1,bmi2")]
    fn bucket_start_wide(bytes: &[u8], bucket: usize) -> Option<usize> {
        bucket_start_anywhere(bytes, bucket)
    }

    /// Appends the items of a block with at most `LOW_BITS_MAX` low bits. Returns `false` if they
    /// are invalid; then the appended numbers are invalid.
    #[inline]
    pub(in super::super) fn decode(_: Wide, block: &Block<'_>, out: &mut Vec<u64>) -> bool {
        assert!(block.low_bits <= LOW_BITS_MAX);
        // SAFETY: `Wide` proves that the machine has the instructions.
        unsafe { decode_wide(block, out) }
    }

    /// The positions of the items' bits, and space for a full register after them.
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
        // SAFETY: `spread` has written the positions of all items.
        let last = unsafe { places[block.items - 1].assume_init() };
        block.are_buckets_legal(u64::from(last)) && combine(block, &places, out)
    }

    /// Writes the positions of the set bits, one per item, and zeros for the rest of the last
    /// group.
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
        // SAFETY: the read is within an array of 64 bytes.
        let iota = unsafe { _mm512_loadu_si512(IOTA.as_ptr().cast()) };
        let mut first = _mm512_setzero_si512();
        let step = _mm512_set1_epi16(LANES as i16);
        let to = places.as_mut_ptr();
        let mut used = 0;
        for_words(block.buckets(), |word| {
            let bits = _mm512_maskz_compress_epi8(word, iota);
            let front = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(bits));
            let back = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64::<1>(bits));
            // SAFETY: at most `items` <= `ITEMS_MAX` bits are set, so `used` is at most
            // `ITEMS_MAX`, and the array has `LANES` more elements.
            unsafe {
                _mm512_storeu_si512(to.add(used).cast(), _mm512_add_epi16(front, first));
                _mm512_storeu_si512(to.add(used + 32).cast(), _mm512_add_epi16(back, first));
            }
            used += word.count_ones() as usize;
            first = _mm512_add_epi16(first, step);
            true
        });
        // SAFETY: as above, with the largest `used`.
        unsafe { _mm512_storeu_si512(to.add(used).cast(), _mm512_setzero_si512()) };
    }

    /// Appends the items, combined from bit positions and low parts. Returns whether they ascend.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt,bmi1,bmi2")]
    fn combine(block: &Block<'_>, places: &Places, out: &mut Vec<u64>) -> bool {
        let low_bits = block.low_bits as usize;
        let groups = block.items.div_ceil(GROUP);
        let shifts: [u64; GROUP] = std::array::from_fn(|i| (i * low_bits % 8) as u64);
        // SAFETY: the reads are within arrays of 64 bytes.
        let (bytes, shifts) = unsafe {
            (
                _mm512_loadu_si512(SPREAD[low_bits].as_ptr().cast()),
                _mm512_loadu_si512(shifts.as_ptr().cast()),
            )
        };
        let mask = _mm512_set1_epi64(low_mask(block.low_bits) as i64);
        let up = _mm_cvtsi64_si128(low_bits as i64);
        // The first bucket minus the number of the item.
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
            // SAFETY: each group reads `low_bits` bytes of the block; positions are written up to
            // the end of the last group; `out` has capacity for all groups.
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
            // The first item has no predecessor.
            let compared = (low_mask(here as u32) as u8) & !u8::from(group == 0);
            disorder |= compared & !_mm512_cmplt_epu64_mask(neighbours, items);
            before = items;
        }
        // SAFETY: the loop has written at least this number of items.
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
    super::portable::bucket_start(bytes, bucket)
}

/// Never called: there is no [`Wide`] machine of this kind.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn pack_wide(_: Wide, _: &[u64], _: &Sizes, _: &mut BucketWords, _: &mut Bytes) {}
