//! Fingerprints in ascending order, a stretch of them at a time.

use super::{Universe, items::Items};
use crate::error::Result;

/// A fingerprint that stands for something else than one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Which one.
    pub fingerprint: u64,
    /// In a multiset how many keys to add, or to take away if it is negative; in a set -1, a
    /// tombstone. Never 0 or 1.
    pub count: i64,
}

/// Fingerprints of a stretch of the hash order: those of one key each, which nearly all are, apart
/// from the others. Both ascend strictly, and no fingerprint is in both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Fingerprints of one key.
    pub ones: Vec<u64>,
    /// Counts and tombstones.
    pub counted: Vec<Counted>,
}

impl Span {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.ones.is_empty() && self.counted.is_empty()
    }

    /// How many fingerprints it has.
    pub fn len(&self) -> usize {
        self.ones.len() + self.counted.len()
    }

    /// This span alone, as a run.
    pub fn into_run(self, universe: Universe) -> impl Fingerprints {
        OneSpan { universe, span: Some(self) }
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.ones.clear();
        self.counted.clear();
    }

    /// The smallest fingerprint.
    pub fn first(&self) -> Option<u64> {
        let counted = self.counted.first().map(|first| first.fingerprint);
        self.ones.first().copied().into_iter().chain(counted).min()
    }

    /// The largest fingerprint.
    pub fn last(&self) -> Option<u64> {
        let counted = self.counted.last().map(|last| last.fingerprint);
        self.ones.last().copied().max(counted)
    }
}

/// A run of one span.
struct OneSpan {
    universe: Universe,
    /// Until it is given out.
    span: Option<Span>,
}

impl Fingerprints for OneSpan {
    fn universe(&self) -> Universe {
        self.universe
    }

    fn next_span(&mut self, span: &mut Span) -> Result<bool> {
        *span = self.span.take().unwrap_or_default();
        Ok(!span.is_empty())
    }
}

/// A run of fingerprints: ascending, none twice. An error ends it.
///
/// Filters of all kinds give one (`scan`) and can be made of one, so that each can become any other.
pub trait Fingerprints: Send {
    /// Where the fingerprints are from.
    fn universe(&self) -> Universe;

    /// Replaces what `span` holds by the next fingerprints, all larger than those before; `false`,
    /// with an empty span, at the end.
    fn next_span(&mut self, span: &mut Span) -> Result<bool>;

    /// The same in the form that filters use among themselves, appended to what is there.
    fn append_items(&mut self, items: &mut Items) -> Result<bool> {
        let mut span = Span::default();
        let is_some = self.next_span(&mut span)?;
        items.append_span(&span)?;
        Ok(is_some)
    }
}

impl<F: Fingerprints + ?Sized> Fingerprints for Box<F> {
    fn universe(&self) -> Universe {
        (**self).universe()
    }

    fn next_span(&mut self, span: &mut Span) -> Result<bool> {
        (**self).next_span(span)
    }

    fn append_items(&mut self, items: &mut Items) -> Result<bool> {
        (**self).append_items(items)
    }
}

impl<F: Fingerprints + ?Sized> Fingerprints for &mut F {
    fn universe(&self) -> Universe {
        (**self).universe()
    }

    fn next_span(&mut self, span: &mut Span) -> Result<bool> {
        (**self).next_span(span)
    }

    fn append_items(&mut self, items: &mut Items) -> Result<bool> {
        (**self).append_items(items)
    }
}
