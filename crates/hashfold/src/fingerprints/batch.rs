//! A batch of fingerprints in ascending order, with counts.

use crate::error::{Error, Result};
use std::ops::Range;

/// A list of fingerprints in strictly ascending order, each with a count.
///
/// Nearly all counts are 1, so only other counts are stored: a batch takes 8 bytes per fingerprint,
/// and 16 more for each fingerprint whose count is not 1. Counts are never 0.
///
/// ```
/// use hashfold::fingerprints::FingerprintBatch;
/// let mut batch = FingerprintBatch::from_sorted(vec![3, 5])?;
/// batch.push(9, -1)?;
/// assert!(batch.push(9, 1).is_err());
/// assert_eq!(batch.iter().collect::<Vec<_>>(), [(3, 1), (5, 1), (9, -1)]);
/// assert_eq!(batch.fingerprints(), [3, 5, 9]);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FingerprintBatch {
    /// The fingerprints, strictly ascending.
    pub(crate) fingerprints: Vec<u64>,
    /// The counts other than 1, strictly ascending by position.
    pub(crate) exceptions: Vec<Exception>,
}

/// The count of a fingerprint, if it is not 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exception {
    /// Index of the fingerprint in the batch.
    pub(crate) position: usize,
    /// The count, neither 0 nor 1.
    pub(crate) count: i64,
}

/// Consecutive fingerprints of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchSlice<'a> {
    pub(crate) fingerprints: &'a [u64],
    /// The exceptions, with positions in the whole batch.
    exceptions: &'a [Exception],
    /// Position of the first fingerprint.
    start: usize,
}

impl FingerprintBatch {
    /// Returns an empty batch.
    pub fn new() -> FingerprintBatch {
        FingerprintBatch::default()
    }

    /// Returns a batch of fingerprints with the count 1.
    ///
    /// # Errors
    /// If the fingerprints do not ascend strictly.
    pub fn from_sorted(fingerprints: Vec<u64>) -> Result<FingerprintBatch> {
        match fingerprints.windows(2).find(|pair| pair[0] >= pair[1]) {
            Some(pair) => Err(disorder(pair[0], pair[1])),
            None => Ok(FingerprintBatch { fingerprints, exceptions: Vec::new() }),
        }
    }

    /// Returns the number of fingerprints.
    pub fn len(&self) -> usize {
        self.fingerprints.len()
    }

    /// Whether there are no fingerprints.
    pub fn is_empty(&self) -> bool {
        self.fingerprints.is_empty()
    }

    /// Returns the smallest fingerprint.
    pub fn first(&self) -> Option<u64> {
        self.fingerprints.first().copied()
    }

    /// Returns the largest fingerprint.
    pub fn last(&self) -> Option<u64> {
        self.fingerprints.last().copied()
    }

    /// Returns all fingerprints, without their counts.
    pub fn fingerprints(&self) -> &[u64] {
        &self.fingerprints
    }

    /// Returns all fingerprints with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (u64, i64)> + '_ {
        self.all().iter()
    }

    /// Appends a fingerprint with its count.
    ///
    /// # Errors
    /// If the fingerprint is not above the last one, or if the count is 0.
    pub fn push(&mut self, fingerprint: u64, count: i64) -> Result<()> {
        if let Some(last) = self.last().filter(|&last| last >= fingerprint) {
            return Err(disorder(last, fingerprint));
        }
        if count == 0 {
            return Err(Error::argument("count of a fingerprint", "any number but 0", count));
        }
        self.push_next(fingerprint, count);
        Ok(())
    }

    /// Removes all fingerprints, and keeps the memory.
    pub fn clear(&mut self) {
        self.fingerprints.clear();
        self.exceptions.clear();
    }

    /// Appends a fingerprint that is known to be above the last one, with a count that is not 0.
    pub(crate) fn push_next(&mut self, fingerprint: u64, count: i64) {
        debug_assert!(count != 0);
        if count != 1 {
            self.exceptions.push(Exception { position: self.len(), count });
        }
        self.fingerprints.push(fingerprint);
    }

    /// Returns the fingerprints from a position on.
    pub(crate) fn from(&self, start: usize) -> BatchSlice<'_> {
        self.all().split_at(start).1
    }

    /// Returns all fingerprints.
    pub(crate) fn all(&self) -> BatchSlice<'_> {
        BatchSlice { fingerprints: &self.fingerprints, exceptions: &self.exceptions, start: 0 }
    }

    /// Appends fingerprints that are all above the last one.
    pub(crate) fn append(&mut self, others: BatchSlice<'_>) {
        let start = self.len();
        self.fingerprints.extend_from_slice(others.fingerprints);
        self.exceptions.extend(
            others.exceptions().map(|it| Exception { position: start + it.position, ..it }),
        );
    }

    /// Removes the first `count` fingerprints.
    pub(crate) fn remove_first(&mut self, count: usize) {
        self.fingerprints.drain(..count);
        let gone = self.exceptions.partition_point(|exception| exception.position < count);
        self.exceptions.drain(..gone);
        self.exceptions.iter_mut().for_each(|exception| exception.position -= count);
    }

    /// Removes the fingerprints outside `first..=last` from position `start` on.
    pub(crate) fn trim(&mut self, start: usize, (first, last): (u64, u64)) {
        let new = self.from(start).fingerprints;
        if new.first().is_none_or(|&it| it >= first) && new.last().is_none_or(|&it| it <= last) {
            return;
        }
        let before = new.partition_point(|&it| it < first);
        let end = new.partition_point(|&it| it <= last).max(before);
        let mut kept = FingerprintBatch::default();
        kept.append(self.from(start).split_at(end).0.split_at(before).1);
        let gone = self.exceptions.partition_point(|exception| exception.position < start);
        self.exceptions.truncate(gone);
        self.fingerprints.truncate(start);
        self.append(kept.all());
    }
}

impl<'a> BatchSlice<'a> {
    /// Returns the number of counts other than 1.
    pub(crate) fn exceptions_len(self) -> usize {
        self.exceptions.len()
    }

    /// Whether all counts other than 1 are tombstones.
    pub(crate) fn are_tombstones(self) -> bool {
        self.exceptions.iter().fold(true, |are, exception| are & (exception.count == -1))
    }

    /// Returns the counts other than 1, with positions in this slice.
    pub(crate) fn exceptions(self) -> impl Iterator<Item = Exception> + 'a {
        self.exceptions_in(0..self.exceptions.len())
    }

    /// Returns the exceptions with these indexes among the counts other than 1.
    #[inline]
    pub(crate) fn exceptions_in(
        self,
        numbers: Range<usize>,
    ) -> impl Iterator<Item = Exception> + 'a {
        let start = self.start;
        let some = self.exceptions[numbers].iter();
        some.map(move |it| Exception { position: it.position - start, ..*it })
    }

    /// Returns the fingerprints with their counts.
    pub(crate) fn iter(self) -> impl Iterator<Item = (u64, i64)> + 'a {
        let mut exceptions = self.exceptions().peekable();
        self.fingerprints.iter().enumerate().map(move |(i, &fingerprint)| {
            let exception = exceptions.next_if(|exception| exception.position == i);
            (fingerprint, exception.map_or(1, |exception| exception.count))
        })
    }

    /// Returns the first `count` fingerprints, and the rest.
    pub(crate) fn split_at(self, count: usize) -> (BatchSlice<'a>, BatchSlice<'a>) {
        let (first, rest) = self.fingerprints.split_at(count);
        let end = self.start + count;
        let exceptions = match self.exceptions {
            [] => 0,
            exceptions => exceptions.partition_point(|exception| exception.position < end),
        };
        let (of_first, of_rest) = self.exceptions.split_at(exceptions);
        (
            BatchSlice { fingerprints: first, exceptions: of_first, start: self.start },
            BatchSlice { fingerprints: rest, exceptions: of_rest, start: end },
        )
    }
}

/// Returns the error for a fingerprint that is not above the previous one.
fn disorder(before: u64, got: u64) -> Error {
    Error::argument(
        "fingerprint",
        format!("above {before:#x}, the one before"),
        format!("{got:#x}"),
    )
}
