//! The inner loops of blocks without special machine instructions.

use super::layout::{BLOCK_SIZE, Bytes, GROUP, HEAD, ITEMS_MAX, low_mask};

/// Maximum number of bits of the buckets, rounded up.
const BUCKET_MARKS: usize = 1 << 15;
const _: () = assert!(8 * (BLOCK_SIZE - HEAD) < BUCKET_MARKS);

/// A byte for each bit of the buckets: bits are set by plain byte stores, and gathered later.
pub(super) type BucketMarks = [u8; BUCKET_MARKS];

/// The positions of the parts of a block.
pub(super) struct Sizes {
    pub(super) low_bits: u32,
    pub(super) buckets_start: usize,
    pub(super) buckets_end: usize,
}

/// Defines a function for each number of low bits, which is a constant in it.
macro_rules! each_number_of_low_bits {
    ($function:ident: $($low_bits:literal)*) => {
        [$($function::<$low_bits>),*]
    };
    ($function:ident) => {
        each_number_of_low_bits!(
            $function: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27
            28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56
            57 58 59 60 61 62 63
        )
    };
}

type Pack = fn(&[u64], &mut BucketMarks, &mut [u8]);
static PACK: [Pack; 64] = each_number_of_low_bits!(pack_items);

type Unpack = fn(u64, &[u8], &mut [u64]);
static UNPACK: [Unpack; 64] = each_number_of_low_bits!(unpack_items);

/// Calls [`unpack_items`] for this number of low bits.
pub(super) fn unpack(low_bits: u32, first_bucket: u64, bytes: &[u8], items: &mut [u64]) {
    UNPACK[low_bits as usize](first_bucket, bytes, items);
}

/// Writes the low parts and the buckets of items to a block in which both fit.
pub(super) fn pack(items: &[u64], sizes: &Sizes, marks: &mut BucketMarks, block: &mut Bytes) {
    PACK[sizes.low_bits as usize](items, marks, &mut block[HEAD..]);
    gather(marks, &mut block[sizes.buckets_start..sizes.buckets_end]);
}

/// Moves the marks to the bits of `out`.
#[inline(always)]
fn gather(marks: &mut BucketMarks, out: &mut [u8]) {
    let (bytes, _) = marks.as_chunks_mut::<8>();
    for (out, bytes) in out.iter_mut().zip(bytes) {
        let ones = u64::from_le_bytes(*bytes) & 0x0101_0101_0101_0101;
        *bytes = [0; 8];
        // One byte moves to bit 56, the next to bit 57, and so on.
        *out = (ones.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
    }
}

/// Packs the low parts of items, and marks their buckets. `out` has space for the low parts and
/// [`GROUP`] more bytes, or for fewer items than a group.
#[inline(always)]
fn pack_items<const LOW_BITS: u32>(items: &[u64], marks: &mut BucketMarks, out: &mut [u8]) {
    let first_bucket = items[0] >> LOW_BITS;
    let (groups, rest) = items.as_chunks::<GROUP>();
    let mut first = 0;
    for (number, group) in groups.iter().enumerate() {
        for (i, item) in group.iter().enumerate() {
            let mark = (item >> LOW_BITS).wrapping_sub(first_bucket) as usize + first + i;
            marks[mark % BUCKET_MARKS] = 0xff;
        }
        first += GROUP;
        store::<LOW_BITS>(group, &mut out[number * LOW_BITS as usize..]);
    }
    if !rest.is_empty() {
        let mut group = [0; GROUP];
        group[..rest.len()].copy_from_slice(rest);
        for (i, item) in rest.iter().enumerate() {
            let mark = (item >> LOW_BITS).wrapping_sub(first_bucket) as usize + first + i;
            marks[mark % BUCKET_MARKS] = 0xff;
        }
        store::<LOW_BITS>(&group, &mut out[groups.len() * LOW_BITS as usize..]);
    }
}

/// Writes `LOW_BITS` bytes, and zeros up to a multiple of 8 bytes if they fit.
#[inline(always)]
fn store<const LOW_BITS: u32>(group: &[u64; GROUP], out: &mut [u8]) {
    let mut words = [0_u64; GROUP];
    for (i, item) in group.iter().enumerate() {
        let low = item & low_mask(LOW_BITS);
        let (word, shift) = (i * LOW_BITS as usize / 64, i as u32 * LOW_BITS % 64);
        words[word] |= low << shift;
        if shift + LOW_BITS > 64 {
            words[word + 1] |= low >> (64 - shift);
        }
    }
    let size = (LOW_BITS as usize).div_ceil(8);
    // The compiler must know the size, or it would call a function for a few bytes.
    let out = &mut out[..8 * size];
    for (out, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(&words[..size]) {
        *out = word.to_le_bytes();
    }
}

/// Combines fingerprints from the positions of the items' bits in the buckets and the low parts at
/// the start of `bytes`.
#[inline(always)]
fn unpack_items<const LOW_BITS: u32>(first_bucket: u64, bytes: &[u8], items: &mut [u64]) {
    let size = LOW_BITS as usize;
    let (groups, rest) = items.as_chunks_mut::<GROUP>();
    let mut first = first_bucket;
    for (number, group) in groups.iter_mut().enumerate() {
        unpack_group::<LOW_BITS>(first, &bytes[number * size..], group);
        first = first.wrapping_sub(GROUP as u64);
    }
    if !rest.is_empty() {
        let mut group = [0; GROUP];
        group[..rest.len()].copy_from_slice(rest);
        unpack_group::<LOW_BITS>(first, &bytes[groups.len() * size..], &mut group);
        rest.copy_from_slice(&group[..rest.len()]);
    }
}

#[inline(always)]
fn unpack_group<const LOW_BITS: u32>(first: u64, bytes: &[u8], group: &mut [u64; GROUP]) {
    let mut words = [0_u64; GROUP];
    let used = (LOW_BITS as usize).div_ceil(8);
    if let Some(bytes) = bytes.get(..8 * used) {
        for (word, bytes) in words[..used].iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
    } else {
        // Reached only at the end of a forged block.
        for (i, byte) in bytes.iter().enumerate() {
            words[i / 8] |= u64::from(*byte) << (8 * (i % 8));
        }
    }
    for (i, item) in group.iter_mut().enumerate() {
        let bit = i * LOW_BITS as usize;
        let (word, shift) = (bit / 64, (bit % 64) as u32);
        let mut low = words[word] >> shift;
        if shift + LOW_BITS > 64 {
            low |= words[word + 1] << (64 - shift);
        }
        let bucket = first.wrapping_add(*item).wrapping_sub(i as u64);
        *item = bucket << LOW_BITS | low & low_mask(LOW_BITS);
    }
}

/// Capacity for the positions of all items, and of the bits of one more byte.
pub(super) const PLACES: usize = ITEMS_MAX + 8;

/// The positions of the set bits of each byte, then zeros.
static BITS: [[u16; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut used) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                table[byte][used] = bit;
                used += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    table
};

/// The number of set bits in each byte.
static COUNTS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).count_ones() as u8;
        byte += 1;
    }
    table
};

/// Writes the positions of all set bits to `places`. Returns whether there are `count` of them.
pub(super) fn spread(bytes: &[u8], count: usize, places: &mut [u16; PLACES]) -> bool {
    let mut used = 0;
    for (i, &byte) in bytes.iter().enumerate() {
        let Some(out) = places[used..].first_chunk_mut::<8>() else {
            return false;
        };
        // The positions of all bits of a block fit in 16 bits.
        *out = BITS[usize::from(byte)].map(|bit| bit + 8 * i as u16);
        used += usize::from(COUNTS[usize::from(byte)]);
    }
    used == count
}

/// Returns the first bit of the items of a bucket, if any: the bit after `bucket` zeros.
#[inline(always)]
pub(super) fn bucket_start(bytes: &[u8], bucket: usize) -> Option<usize> {
    if bucket == 0 {
        return Some(0);
    }
    let (mut left, mut first, mut found) = (bucket - 1, 0, None);
    for_words(bytes, |word| {
        let zeros = word.count_zeros() as usize;
        if left < zeros {
            found = Some(first + select(!word, left) + 1);
            return false;
        }
        left -= zeros;
        first += 64;
        true
    });
    found
}

/// Returns the position of the set bit with `rank` set bits below it.
#[inline(always)]
fn select(mut word: u64, rank: usize) -> usize {
    for _ in 0..rank {
        word &= word - 1;
    }
    word.trailing_zeros() as usize
}

/// Calls `each` with all words, the last one padded with zeros, until `each` returns `false`.
/// Returns whether it never did.
#[inline(always)]
pub(super) fn for_words(bytes: &[u8], mut each: impl FnMut(u64) -> bool) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        if !each(u64::from_le_bytes(*word)) {
            return false;
        }
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    rest.is_empty() || each(u64::from_le_bytes(last))
}
