//! Fingerprints of both kinds in one order.

use super::{
    merge::{append_some, ascends, for_ranks},
    span::{Counted, Span},
};
use crate::error::{Error, Result};
use std::{mem, ops::Range};

/// A stretch of a run in the form in which filters hand it on among themselves: all fingerprints in
/// one order, as they stand in blocks, and what some of them stand for apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Items {
    /// Ascend strictly.
    pub(super) fingerprints: Vec<u64>,
    /// Those that stand for something else than one key; their positions ascend strictly.
    pub(super) exceptions: Vec<Exception>,
}

/// What stands for something else than one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exception {
    /// Its place among the fingerprints.
    pub(super) position: usize,
    /// As [`Counted::count`].
    pub(super) count: i64,
}

/// Some of the items that someone has, one behind the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemsRef<'a> {
    pub(super) fingerprints: &'a [u64],
    /// With positions among all.
    exceptions: &'a [Exception],
    /// The position of the first one.
    start: usize,
}

impl Items {
    pub(super) fn len(&self) -> usize {
        self.fingerprints.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fingerprints.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.fingerprints.clear();
        self.exceptions.clear();
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.fingerprints.first().copied()
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.fingerprints.last().copied()
    }

    /// Those from a position on.
    pub(super) fn from(&self, start: usize) -> ItemsRef<'_> {
        self.all().split_at(start).1
    }

    pub(super) fn all(&self) -> ItemsRef<'_> {
        ItemsRef { fingerprints: &self.fingerprints, exceptions: &self.exceptions, start: 0 }
    }

    /// Appends one, above all that are there.
    pub(super) fn push(&mut self, fingerprint: u64, count: i64) {
        if count != 1 {
            self.exceptions.push(Exception { position: self.len(), count });
        }
        self.fingerprints.push(fingerprint);
    }

    /// Appends others, all above those that are there.
    pub(super) fn append(&mut self, others: ItemsRef<'_>) {
        let start = self.len();
        self.fingerprints.extend_from_slice(others.fingerprints);
        self.exceptions.extend(
            others.exceptions().map(|it| Exception { position: start + it.position, ..it }),
        );
    }

    /// Appends a span, all above those that are there. Refuses one that does not ascend, or that
    /// has a fingerprint in both of its parts, or a count that is none.
    pub(super) fn append_span(&mut self, span: &Span) -> Result<()> {
        let Span { ones, counted } = span;
        let ascend = ascends(ones) && counted.is_sorted_by(|a, b| a.fingerprint < b.fingerprint);
        let mut used = 0;
        let are_apart = for_ranks(
            ones,
            counted,
            |item| item.fingerprint,
            |item, rank| {
                append_some(&mut self.fingerprints, &ones[used..], rank - used);
                used = rank;
                self.push(item.fingerprint, item.count);
                ones.get(rank) != Some(&item.fingerprint)
            },
        );
        self.fingerprints.extend_from_slice(&ones[used..]);
        if !(ascend && are_apart) {
            return Err(disorder());
        }
        if counted.iter().any(|item| matches!(item.count, 0 | 1)) {
            return Err(Error::field("count of a fingerprint", "neither 0 nor 1", "one of them"));
        }
        Ok(())
    }

    /// Replaces what `span` holds by all of them.
    pub(super) fn into_span(self, span: &mut Span) {
        let Items { fingerprints: mut ones, exceptions } = self;
        span.counted.clear();
        span.counted.reserve(exceptions.len());
        // Those before `from` are in place, or gone.
        let (mut from, mut to) = (0, 0);
        for Exception { position, count } in exceptions {
            span.counted.push(Counted { fingerprint: ones[position], count });
            shift(&mut ones, from..position, to);
            (from, to) = (position + 1, to + position - from);
        }
        if from > 0 {
            ones.copy_within(from.., to);
            ones.truncate(ones.len() - (from - to));
        }
        span.ones = ones;
    }

    /// Takes the first ones out.
    pub(super) fn remove_first(&mut self, count: usize) {
        self.fingerprints.drain(..count);
        let gone = self.exceptions.partition_point(|exception| exception.position < count);
        self.exceptions.drain(..gone);
        self.exceptions.iter_mut().for_each(|exception| exception.position -= count);
    }

    /// Leaves of those from a position on the ones between two fingerprints, both included.
    pub(super) fn trim(&mut self, start: usize, (first, last): (u64, u64)) {
        let new = self.from(start).fingerprints;
        if new.first().is_none_or(|&it| it >= first) && new.last().is_none_or(|&it| it <= last) {
            return;
        }
        let before = new.partition_point(|&it| it < first);
        let end = new.partition_point(|&it| it <= last).max(before);
        let mut kept = Items::default();
        kept.append(self.from(start).split_at(end).0.split_at(before).1);
        let gone = self.exceptions.partition_point(|exception| exception.position < start);
        self.exceptions.truncate(gone);
        self.fingerprints.truncate(start);
        self.append(kept.all());
    }
}

impl<'a> ItemsRef<'a> {
    /// How many exceptions there are.
    pub(super) fn exceptions_len(self) -> usize {
        self.exceptions.len()
    }

    /// Whether all exceptions are tombstones.
    pub(super) fn are_tombstones(self) -> bool {
        self.exceptions.iter().fold(true, |are, exception| are & (exception.count == -1))
    }

    /// The exceptions, with positions among these.
    pub(super) fn exceptions(self) -> impl Iterator<Item = Exception> {
        self.exceptions_in(0..self.exceptions.len())
    }

    /// Some of them, by number.
    #[inline]
    pub(super) fn exceptions_in(self, numbers: Range<usize>) -> impl Iterator<Item = Exception> {
        let start = self.start;
        let some = self.exceptions[numbers].iter();
        some.map(move |it| Exception { position: it.position - start, ..*it })
    }

    /// Calls `each` with each fingerprint and its count.
    pub(super) fn for_each(self, mut each: impl FnMut(u64, i64)) {
        let mut exceptions = self.exceptions().peekable();
        for (i, &fingerprint) in self.fingerprints.iter().enumerate() {
            let exception = exceptions.next_if(|exception| exception.position == i);
            each(fingerprint, exception.map_or(1, |exception| exception.count));
        }
    }

    /// The first ones, so many, and the others.
    pub(super) fn split_at(self, count: usize) -> (ItemsRef<'a>, ItemsRef<'a>) {
        let (first, rest) = self.fingerprints.split_at(count);
        let end = self.start + count;
        let exceptions = match self.exceptions {
            [] => 0,
            exceptions => exceptions.partition_point(|exception| exception.position < end),
        };
        let (of_first, of_rest) = self.exceptions.split_at(exceptions);
        (
            ItemsRef { fingerprints: first, exceptions: of_first, start: self.start },
            ItemsRef { fingerprints: rest, exceptions: of_rest, start: end },
        )
    }
}

/// Moves some numbers to `to`, which is not behind them.
#[inline]
fn shift(numbers: &mut [u64], from: Range<usize>, to: usize) {
    // Often they are few, and a move of a fixed size costs less than finding out how many.
    const FEW: usize = 16;
    let is_apart = to + FEW <= from.start;
    match numbers[from.start..].first_chunk::<FEW>() {
        Some(&few) if from.len() <= FEW && is_apart => numbers[to..to + FEW].copy_from_slice(&few),
        _ => numbers.copy_within(from, to),
    }
}

/// Calls `append` with no items but with the memory of a span, which becomes those that are then
/// there; returns what it does.
pub(super) fn next_span(
    span: &mut Span,
    append: impl FnOnce(&mut Items) -> Result<bool>,
) -> Result<bool> {
    let mut items = Items { fingerprints: mem::take(&mut span.ones), exceptions: Vec::new() };
    items.clear();
    span.clear();
    let is_some = append(&mut items)?;
    items.into_span(span);
    Ok(is_some)
}

/// Refuses new items if they do not follow on the fingerprint before. Returns the largest so far.
pub(super) fn check_follows(new: &[u64], previous: Option<u64>) -> Result<Option<u64>> {
    match (previous, new.first()) {
        (Some(previous), Some(&first)) if first <= previous => Err(disorder()),
        _ => Ok(new.last().copied().or(previous)),
    }
}

pub(super) fn disorder() -> Error {
    Error::field("fingerprint", "above the one before", "another")
}
