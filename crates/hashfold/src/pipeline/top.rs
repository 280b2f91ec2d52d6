//! The most frequent values: counters of bounded number, with a bound of their error.
//!
//! Misra and Gries, "Finding repeated elements" (1982), in the form of Anderson and others, "A high-performance
//! algorithm for identifying frequent items in data streams" (2017): when all counters are taken, the median of
//! their counts is subtracted from each, and those that have nothing left are removed. So counts of values
//! that left are forgotten up to `offset`, and the time of an insert is constant on average. The state depends on
//! the order of events only, not on that of a hash table.

use super::budget::{ALLOCATION_BYTES, slot_bytes};
use crate::{
    codec::{Decoder, put_bytes, put_varint},
    error::{Error, Result},
};
use std::collections::HashMap;

/// Counters for each value that is returned.
const COUNTERS_A_VALUE: usize = 8;
/// Least number of counters.
const COUNTERS_MIN: usize = 64;
/// Size of the longest value that is counted as it is, in bytes; the rest of longer ones is cut off.
const VALUE_BYTES_MAX: usize = 256;

/// A frequent value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopItem {
    /// The value as text, its first 256 bytes.
    pub value: Vec<u8>,
    /// Largest number of events that can have the value.
    pub count: u64,
    /// The number of events is at least `count - error`. 0 means that the count is exact.
    pub error: u64,
}

/// Counters of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Top {
    counters: HashMap<Box<[u8]>, u64>,
    /// Sum of what was subtracted from each counter.
    offset: u64,
    /// The largest number of counters so far: a table does not shrink.
    slots: usize,
    /// Size of all values, in bytes.
    value_bytes: u64,
}

/// Memory of a counter in its table, in bytes, at most.
const SLOT_BYTES: u64 = slot_bytes::<(Box<[u8]>, u64)>();
/// Removing half of the counters frees more than the longest value needs.
const _: () = assert!(
    ALLOCATION_BYTES * (COUNTERS_MIN as u64 / 2) > ALLOCATION_BYTES + VALUE_BYTES_MAX as u64
);

impl Top {
    pub(super) fn new() -> Top {
        Top { counters: HashMap::new(), offset: 0, slots: 0, value_bytes: 0 }
    }

    /// The most bytes by which a value lets the counters grow.
    pub(super) const GROWTH_MAX: u64 = SLOT_BYTES + ALLOCATION_BYTES + VALUE_BYTES_MAX as u64;

    /// Returns the memory of the counters, in bytes, as a budget counts it.
    pub(super) fn bytes(&self) -> u64 {
        let values = self.counters.len() as u64 * ALLOCATION_BYTES + self.value_bytes;
        self.slots as u64 * SLOT_BYTES + values
    }

    /// Returns whether a value lets the counters grow.
    pub(super) fn may_grow(&self, value: &[u8], count: usize) -> bool {
        let is_full = self.counters.len() >= Top::counters_max(count);
        !is_full && !self.counters.contains_key(cut(value))
    }

    /// The maximum number of counters for `count` values.
    pub(super) fn counters_max(count: usize) -> usize {
        (count * COUNTERS_A_VALUE).max(COUNTERS_MIN)
    }

    /// Counts a value; `count` is the number of values that will be returned.
    pub(super) fn insert(&mut self, value: &[u8], count: usize) {
        let value = cut(value);
        match self.counters.get_mut(value) {
            Some(counter) => *counter += 1,
            None => {
                if self.counters.len() >= Top::counters_max(count) {
                    self.purge();
                }
                self.counters.insert(value.into(), 1);
                self.slots = self.slots.max(self.counters.len());
                self.value_bytes += value.len() as u64;
            }
        }
    }

    /// Subtracts the median from all counters. At least half of them are gone then.
    fn purge(&mut self) {
        let mut counts: Vec<u64> = self.counters.values().copied().collect();
        let middle = counts.len() / 2;
        let (_, &mut median, _) = counts.select_nth_unstable(middle);
        self.offset += median;
        let value_bytes = &mut self.value_bytes;
        self.counters.retain(|value, counter| {
            *counter = counter.saturating_sub(median);
            let is_kept = *counter > 0;
            *value_bytes -= if is_kept { 0 } else { value.len() as u64 };
            is_kept
        });
    }

    /// Returns the most frequent values, the largest count first, equal ones by value.
    pub(super) fn items(&self, count: usize) -> Vec<TopItem> {
        let items = self.counters.iter().map(|(value, counter)| TopItem {
            value: value.to_vec(),
            count: counter + self.offset,
            error: self.offset,
        });
        let mut items: Vec<TopItem> = items.collect();
        items.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.value.cmp(&b.value)));
        items.truncate(count);
        items
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, self.counters.len() as u64);
        let mut counters: Vec<_> = self.counters.iter().collect();
        counters.sort_unstable();
        for (value, counter) in counters {
            put_bytes(out, value);
            put_varint(out, *counter);
        }
    }

    pub(super) fn take(fields: &mut Decoder<'_>, count: usize) -> Result<Top> {
        let offset = fields.varint()?;
        let len = fields.varint()?;
        let counters_max = Top::counters_max(count) as u64;
        if len > counters_max {
            return Err(Error::field("number of counters", format!("0 to {counters_max}"), len));
        }
        let mut counters = HashMap::<Box<[u8]>, u64>::new();
        for _ in 0..len {
            let value = cut(fields.sized_bytes()?).into();
            let counter = fields.varint()?;
            // Sums of so many such counts, and of as many events as there are, do not overflow.
            if counter > u64::MAX >> 16 || offset > u64::MAX >> 16 {
                return Err(Error::field(
                    "count of a value",
                    "less than 2^48",
                    counter.max(offset),
                ));
            }
            counters.insert(value, counter);
        }
        let value_bytes = counters.keys().map(|value| value.len() as u64).sum();
        let slots = counters.len();
        Ok(Top { counters, offset, slots, value_bytes })
    }
}

/// Returns the part of a value that is counted.
fn cut(value: &[u8]) -> &[u8] {
    &value[..value.len().min(VALUE_BYTES_MAX)]
}
