//! From blocks to fingerprints: all of them, or one.

use super::{
    super::{
        machine::Wide,
        span::{Counted, Span},
    },
    Block, GROUP, HEAD, kernel, low_mask,
};
use crate::error::{Error, Result};

impl Block<'_> {
    /// Appends all fingerprints, or nothing if they are not what a block may have.
    pub(in super::super) fn decode(&self, span: &mut Span) -> Result<()> {
        self.decode_on(Wide::detect(), span)
    }

    /// The same, with what the processor has.
    pub(super) fn decode_on(&self, wide: Option<Wide>, span: &mut Span) -> Result<()> {
        let (ones, counted) = (span.ones.len(), span.counted.len());
        let decoded = match wide {
            Some(wide) if self.low_bits <= kernel::LOW_BITS_MAX => {
                kernel::decode(wide, self, &mut span.ones)
            }
            _ => self.decode_anywhere(&mut span.ones),
        };
        let result = if !decoded {
            let expected = format!("those of {} ascending items", self.items);
            Err(Error::field("buckets of the block", expected, "others"))
        } else if self.exceptions().fields.rest().is_empty() {
            Ok(())
        } else {
            self.take_exceptions(ones, span)
        };
        if result.is_err() {
            span.ones.truncate(ones);
            span.counted.truncate(counted);
        }
        result
    }

    /// Appends the items, all as ones. Whether they are legal; if not, what was appended is of no
    /// use.
    fn decode_anywhere(&self, out: &mut Vec<u64>) -> bool {
        let start = out.len();
        out.resize(start + self.items, 0);
        let items = &mut out[start..];
        if !spread(self.buckets(), items) || !self.are_buckets_legal(items[self.items - 1]) {
            return false;
        }
        let mask = low_mask(self.low_bits);
        for (number, group) in items.chunks_mut(GROUP).enumerate() {
            let first = number * GROUP;
            for (i, item) in group.iter_mut().enumerate() {
                let bit = i * self.low_bits as usize;
                let at = HEAD + number * self.low_bits as usize + bit / 8;
                let low = match self.bytes[at..].first_chunk() {
                    Some(word) if bit % 8 + self.low_bits as usize <= 64 => {
                        u64::from_le_bytes(*word) >> (bit % 8) & mask
                    }
                    _ => self.low(first + i),
                };
                let bucket = self.first_bucket + (*item - (first + i) as u64);
                *item = bucket << self.low_bits | low;
            }
        }
        items.windows(2).fold(true, |ascend, pair| ascend & (pair[0] < pair[1]))
    }

    /// Whether the last item, whose bit in the buckets is this one, has a bucket that can be.
    #[inline]
    pub(super) fn are_buckets_legal(&self, last: u64) -> bool {
        let passed = last - (self.items - 1) as u64;
        self.first_bucket.checked_add(passed).is_some_and(|it| it <= u64::MAX >> self.low_bits)
    }

    /// Moves the exceptions out of the ones, which start at `start`.
    fn take_exceptions(&self, start: usize, span: &mut Span) -> Result<()> {
        let items = &mut span.ones[start..];
        let mut exceptions = self.exceptions();
        // Items up to `from` are in place, or gone.
        let (mut from, mut to) = (0, 0);
        while let Some((position, count)) = exceptions.next()? {
            if position >= self.items as u64 {
                let expected = format!("below {}", self.items);
                return Err(Error::field("exception of the block", expected, position));
            }
            if matches!(count, 0 | 1) {
                return Err(Error::field("count of an exception", "neither 0 nor 1", count));
            }
            let position = position as usize;
            span.counted.push(Counted { fingerprint: items[position], count });
            items.copy_within(from..position, to);
            to += position - from;
            from = position + 1;
        }
        items.copy_within(from.., to);
        span.ones.truncate(start + self.items - (from - to));
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

/// Writes the places of all set bits to `places`; whether there are exactly so many.
fn spread(bytes: &[u8], places: &mut [u64]) -> bool {
    let (mut used, mut first) = (0, 0);
    for_words(bytes, |mut word| {
        let count = word.count_ones() as usize;
        let Some(places) = places.get_mut(used..used + count) else {
            return false;
        };
        for place in places {
            *place = first + u64::from(word.trailing_zeros());
            word &= word - 1;
        }
        used += count;
        first += 64;
        true
    }) && used == places.len()
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
