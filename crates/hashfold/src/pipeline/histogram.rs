//! Quantiles with a relative error: a histogram whose bounds grow exponentially.
//!
//! Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable quantile sketch with relative-error guarantees" (2019).
//! Bucket i has the values from γ^(i-1) to γ^i, and the middle of a bucket is within [`RELATIVE_ERROR`] of
//! all its values. The order of values makes no difference, and the state can be written and read.

use super::budget::ALLOCATION_BYTES;
use crate::{
    codec::{Decoder, put_varint},
    error::{Error, Result},
};
use std::collections::BTreeMap;

/// Relative error of quantiles.
pub const RELATIVE_ERROR: f64 = 0.01;
/// Magnitudes below this count as 0.
const SMALLEST: f64 = 1e-9;
/// Largest number of the bucket of a finite number, and a bound of what is read from a checkpoint.
const BUCKET_MAX: i64 = 40_000;

/// Memory of the first node of a sorted map with 11 pairs of numbers in each node, in bytes.
const NODE_BYTES: u64 = 11 * 16 + 16 + ALLOCATION_BYTES;

/// Numbers of values in buckets of all magnitudes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogHistogram {
    /// Negative values by the bucket of their magnitude, the largest magnitude first; 0; positive values.
    negative: BTreeMap<i64, u64>,
    zeros: u64,
    positive: BTreeMap<i64, u64>,
}

fn log_gamma() -> f64 {
    ((1.0 + RELATIVE_ERROR) / (1.0 - RELATIVE_ERROR)).ln()
}

fn bucket(magnitude: f64) -> i64 {
    (magnitude.ln() / log_gamma()).ceil() as i64
}

fn middle(bucket: i64) -> f64 {
    let upper = (bucket as f64 * log_gamma()).exp();
    // The bound of the last bucket is beyond all numbers.
    upper.min(f64::MAX) * (1.0 - RELATIVE_ERROR)
}

impl LogHistogram {
    /// Memory of a bucket in bytes, at most: nodes have at least 5 pairs, and an inner node with 12 links has 6 nodes.
    pub(super) const BUCKET_BYTES: u64 = NODE_BYTES.div_ceil(5) + (NODE_BYTES + 96).div_ceil(30);

    /// Returns the memory of the buckets, in bytes, as a budget counts it.
    pub(super) fn bytes(&self) -> u64 {
        2 * NODE_BYTES + (self.negative.len() + self.positive.len()) as u64 * Self::BUCKET_BYTES
    }

    /// Returns whether a value lets the histogram grow.
    pub(super) fn may_grow(&self, value: f64) -> bool {
        let side = if value > 0.0 { &self.positive } else { &self.negative };
        value.abs() >= SMALLEST && !side.contains_key(&bucket(value.abs()))
    }

    pub(super) fn insert(&mut self, value: f64) {
        if value.abs() < SMALLEST {
            self.zeros += 1;
        } else if value > 0.0 {
            *self.positive.entry(bucket(value)).or_default() += 1;
        } else {
            *self.negative.entry(bucket(-value)).or_default() += 1;
        }
    }

    fn count(&self) -> u64 {
        let counts = self.negative.values().chain(self.positive.values());
        counts.fold(self.zeros, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the value of rank ⌊at · (count - 1)⌋ in ascending order, about; `None` if there are no values.
    pub(super) fn quantile(&self, at: f64) -> Option<f64> {
        let count = self.count();
        let rank = (at * count.checked_sub(1)? as f64).floor() as u64;
        let negative = self.negative.iter().rev().map(|(bucket, count)| (-middle(*bucket), *count));
        let positive = self.positive.iter().map(|(bucket, count)| (middle(*bucket), *count));
        let mut before = 0;
        let mut found = 0.0;
        for (value, count) in negative.chain([(0.0, self.zeros)]).chain(positive) {
            before = u64::saturating_add(before, count);
            found = value;
            if before > rank {
                break;
            }
        }
        Some(found)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.zeros);
        for buckets in [&self.negative, &self.positive] {
            put_varint(out, buckets.len() as u64);
            for (bucket, count) in buckets {
                put_varint(out, (bucket + BUCKET_MAX) as u64);
                put_varint(out, *count);
            }
        }
    }

    pub(super) fn take(fields: &mut Decoder<'_>) -> Result<LogHistogram> {
        let zeros = count(fields)?;
        let mut sides = [BTreeMap::new(), BTreeMap::new()];
        for side in &mut sides {
            for _ in 0..fields.varint()? {
                let number = fields.varint()?;
                if number > 2 * BUCKET_MAX as u64 {
                    let expected = format!("0 to {}", 2 * BUCKET_MAX);
                    return Err(Error::field("bucket of a histogram", expected, number));
                }
                side.insert(number as i64 - BUCKET_MAX, count(fields)?);
            }
        }
        let [negative, positive] = sides;
        Ok(LogHistogram { negative, zeros, positive })
    }
}

/// Takes a number of values, so small that sums do not overflow.
fn count(fields: &mut Decoder<'_>) -> Result<u64> {
    let count = fields.varint()?;
    match count {
        0..=0xffff_ffff_ffff => Ok(count),
        _ => Err(Error::field("number of values", "less than 2^48", count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_the_relative_error() {
        let mut values: Vec<f64> =
            (0..5000).map(|i| f64::from(i * 7919 % 5000 - 1000) * 1.37e3).collect();
        values.extend([f64::MAX, f64::MIN, 1e-300, -1e-300]);
        let mut histogram = LogHistogram::default();
        values.iter().for_each(|value| histogram.insert(*value));
        let mut bytes = Vec::new();
        histogram.put(&mut bytes);
        assert_eq!(LogHistogram::take(&mut Decoder::new(&bytes)).unwrap(), histogram);
        values.sort_by(f64::total_cmp);
        for at in [0.0, 0.01, 0.2, 0.5, 0.9, 0.99, 1.0] {
            let truth = values[(at * (values.len() - 1) as f64).floor() as usize];
            let got = histogram.quantile(at).unwrap();
            let error = (got - truth).abs();
            assert!(
                error <= truth.abs() * (RELATIVE_ERROR + 1e-9) + SMALLEST,
                "{at}: {got} for {truth}"
            );
        }
        assert_eq!(LogHistogram::default().quantile(0.5), None);
    }
}
