//! Decoding all fingerprints of a block, or one of them.

use super::{
    kernel,
    layout::{Block, HEAD, low_mask},
    portable::{self, PLACES, spread},
};
use crate::{
    error::{Error, Result},
    filter::machine::Wide,
    fingerprints::{Exception, FingerprintBatch},
};

impl Block<'_> {
    /// Appends all items. Appends nothing if the block is damaged.
    pub(in super::super) fn decode(&self, items: &mut FingerprintBatch) -> Result<()> {
        self.decode_on(Wide::detect(), items)
    }

    /// Decodes as [`Block::decode`] does, with AVX-512 or without.
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

    /// Appends the fingerprints. Returns `false` if they are damaged; then the appended numbers are
    /// invalid.
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
        portable::unpack(self.low_bits, self.first_bucket, &self.bytes[HEAD..], items);
        items.windows(2).fold(true, |ascend, pair| ascend & (pair[0] < pair[1]))
    }

    /// Appends the exceptions of the block, whose items start at `start`.
    fn decode_exceptions(&self, start: usize, out: &mut Vec<Exception>) -> Result<()> {
        let mut exceptions = self.exceptions();
        // An exception takes at least two bytes.
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

    /// Returns the count of a fingerprint; `None` if it is not in the block.
    #[inline]
    pub(in super::super) fn find(&self, fingerprint: u64) -> Result<Option<i64>> {
        self.find_on(Wide::detect(), fingerprint)
    }

    /// Finds as [`Block::find`] does, with AVX-512 or without.
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
            None => portable::bucket_start(buckets, bucket),
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

    /// Returns the count of an item.
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
