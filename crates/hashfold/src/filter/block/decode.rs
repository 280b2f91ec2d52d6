//! From blocks to fingerprints: all of them, or one.

use super::{super::machine::Wide, Block, GROUP, HEAD, ITEMS_MAX, kernel, low_mask};
use crate::{
    error::{Error, Result},
    fingerprints::{Exception, FingerprintBatch},
};

impl Block<'_> {
    /// Appends all items, or nothing if they are not what a block may have.
    pub(in super::super) fn decode(&self, items: &mut FingerprintBatch) -> Result<()> {
        self.decode_on(Wide::detect(), items)
    }

    /// The same, with what the processor has.
    pub(super) fn decode_on(&self, wide: Option<Wide>, items: &mut FingerprintBatch) -> Result<()> {
        let (start, exceptions) = (items.len(), items.exceptions.len());
        let decoded = match wide {
            Some(wide) if self.low_bits <= kernel::LOW_BITS_MAX => {
                kernel::decode(wide, self, &mut items.fingerprints)
            }
            _ => self.decode_anywhere(&mut items.fingerprints),
        };
        let result = if decoded {
            self.decode_exceptions(start, &mut items.exceptions)
        } else {
            let expected = format!("those of {} ascending items", self.items);
            Err(Error::field("buckets of the block", expected, "others"))
        };
        if result.is_err() {
            items.fingerprints.truncate(start);
            items.exceptions.truncate(exceptions);
        }
        result
    }

    /// Appends the fingerprints. Whether they are legal; if not, what was appended is of no
    /// use.
    fn decode_anywhere(&self, out: &mut Vec<u64>) -> bool {
        let mut places = [0; PLACES];
        if !spread(self.buckets(), self.items, &mut places)
            || !self.are_buckets_legal(u64::from(places[self.items - 1]))
        {
            return false;
        }
        let start = out.len();
        out.extend(places[..self.items].iter().map(|&place| u64::from(place)));
        let items = &mut out[start..];
        kernel::unpack(self.low_bits, self.first_bucket, &self.bytes[HEAD..], items);
        items.windows(2).fold(true, |ascend, pair| ascend & (pair[0] < pair[1]))
    }

    /// Whether the last item, whose bit in the buckets is this one, has a bucket that can be.
    #[inline]
    pub(super) fn are_buckets_legal(&self, last: u64) -> bool {
        let passed = last - (self.items - 1) as u64;
        self.first_bucket.checked_add(passed).is_some_and(|it| it <= u64::MAX >> self.low_bits)
    }

    /// Appends the exceptions of the block, whose items start at `start`.
    fn decode_exceptions(&self, start: usize, out: &mut Vec<Exception>) -> Result<()> {
        let mut exceptions = self.exceptions();
        // One takes two bytes at least.
        out.reserve(exceptions.bytes.len() / 2);
        while let Some((position, count)) = exceptions.next()? {
            if position >= self.items as u64 {
                let expected = format!("below {}", self.items);
                return Err(Error::field("exception of the block", expected, position));
            }
            if matches!(count, 0 | 1) {
                return Err(Error::field("count of an exception", "neither 0 nor 1", count));
            }
            out.push(Exception { position: start + position as usize, count });
        }
        Ok(())
    }

    /// How many keys a fingerprint stands for, if it is here.
    #[inline]
    pub(in super::super) fn find(&self, fingerprint: u64) -> Result<Option<i64>> {
        self.find_on(Wide::detect(), fingerprint)
    }

    /// The same, with what the processor has.
    #[inline]
    pub(super) fn find_on(&self, wide: Option<Wide>, fingerprint: u64) -> Result<Option<i64>> {
        let Some(bucket) = (fingerprint >> self.low_bits).checked_sub(self.first_bucket) else {
            return Ok(None);
        };
        let buckets = self.buckets();
        if bucket >= 8 * buckets.len() as u64 {
            return Ok(None);
        }
        let bucket = bucket as usize;
        let start = match wide {
            Some(wide) => kernel::bucket_start(wide, buckets, bucket),
            None => bucket_start(buckets, bucket),
        };
        let Some(mut bit) = start else {
            return Ok(None);
        };
        let low = fingerprint & low_mask(self.low_bits);
        while buckets.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1) {
            let item = bit - bucket;
            if item >= self.items || self.low(item) > low {
                break;
            }
            if self.low(item) == low {
                return self.count(item).map(Some);
            }
            bit += 1;
        }
        Ok(None)
    }

    /// How many keys an item stands for.
    fn count(&self, item: usize) -> Result<i64> {
        let mut exceptions = self.exceptions();
        while let Some((position, count)) = exceptions.next()? {
            if position >= item as u64 {
                return Ok(if position == item as u64 { count } else { 1 });
            }
        }
        Ok(1)
    }
}

/// Makes fingerprints of the places of the items' bits in the buckets, and of the low parts at the
/// start of `bytes`.
#[inline(always)]
pub(super) fn unpack_items<const LOW_BITS: u32>(
    first_bucket: u64,
    bytes: &[u8],
    items: &mut [u64],
) {
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
        // At the end of a block that a stranger made.
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

/// Room for the places of all items, and of as many as a byte has bits.
const PLACES: usize = ITEMS_MAX + 8;

/// The places of the set bits of a byte, then zeros.
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

/// How many bits of a byte are set.
static COUNTS: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).count_ones() as u8;
        byte += 1;
    }
    table
};

/// Writes the places of all set bits to `places`; whether there are `count` of them.
fn spread(bytes: &[u8], count: usize, places: &mut [u16; PLACES]) -> bool {
    let mut used = 0;
    for (i, &byte) in bytes.iter().enumerate() {
        let Some(out) = places[used..].first_chunk_mut::<8>() else {
            return false;
        };
        // Places of all of a block's bits fit 16 bits.
        *out = BITS[usize::from(byte)].map(|bit| bit + 8 * i as u16);
        used += usize::from(COUNTS[usize::from(byte)]);
    }
    used == count
}

/// The first bit of the items of a bucket, if any: the one behind so many zeros.
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

/// The place of the set bit that has `rank` others below it.
#[inline(always)]
fn select(mut word: u64, rank: usize) -> usize {
    for _ in 0..rank {
        word &= word - 1;
    }
    word.trailing_zeros() as usize
}

/// Calls `each` with all words, the last one filled up with zeros, until it says `false`; whether
/// it never did.
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
