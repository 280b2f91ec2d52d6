//! Merging two quotient filters.

use super::{
    filter::QuotientFilter,
    options::Sizing,
    resize::Collector,
    scan::Feed,
    storage::{Memory, Storage},
};
use crate::{
    error::{Error, Result},
    filter::Mode,
    fingerprints::check_alike,
};

/// The fingerprints of one filter that are read and not merged yet.
#[derive(Debug)]
struct MergeSide<'a> {
    feed: Feed<'a>,
    stretch: Vec<u64>,
    /// Number of merged fingerprints of the stretch.
    merged: usize,
    at_end: bool,
}

impl<'a> MergeSide<'a> {
    fn new<S: Storage>(filter: &'a QuotientFilter<S>) -> MergeSide<'a> {
        MergeSide { feed: Feed::new(filter), stretch: Vec::new(), merged: 0, at_end: false }
    }

    /// Reads the next stretch if all fingerprints are merged.
    fn fill(&mut self) -> Result<()> {
        if self.merged == self.stretch.len() && !self.at_end {
            self.stretch.clear();
            self.merged = 0;
            self.feed.read(&mut self.stretch)?;
            self.at_end = self.stretch.is_empty();
        }
        Ok(())
    }

    fn last(&self) -> u64 {
        self.stretch.last().copied().unwrap_or(u64::MAX)
    }

    /// Takes the fingerprints up to `limit`.
    fn take(&mut self, limit: u64) -> &[u64] {
        let rest = &self.stretch[self.merged..];
        let taken = rest.partition_point(|&fingerprint| fingerprint <= limit);
        self.merged += taken;
        &rest[..taken]
    }
}

impl<S: Storage> QuotientFilter<S> {
    /// Merges two filters: the union of sets, the sum of multisets. The result has the options of
    /// this filter. It has this filter's number of slots, doubled until the keys of both filters
    /// fit even if they have no key in common.
    ///
    /// # Errors
    /// `WrongSeed`, `Mismatch` or `Argument` if the seeds, the universes or the modes differ.
    pub fn merge<T: Storage>(&self, other: &QuotientFilter<T>) -> Result<QuotientFilter<Memory>> {
        self.check_alike(other)?;
        let shape = self.shape_with(other);
        let mode = self.rules.mode;
        let mut collector = Collector::new(&shape, mode, self.machine)?;
        let (mut left, mut right) = (MergeSide::new(self), MergeSide::new(other));
        let mut both = Vec::new();
        loop {
            left.fill()?;
            right.fill()?;
            if left.at_end && right.at_end {
                break;
            }
            let limit = left.last().min(right.last());
            merge_into(left.take(limit), right.take(limit), &mut both);
            collector.collect(&both)?;
        }
        if mode == Mode::Multiset {
            for (fingerprint, more) in self.storage.all_more().chain(other.storage.all_more()) {
                collector.add_more(fingerprint, more)?;
            }
        }
        collector.finish(&shape, self.rules)
    }

    /// Returns the smallest size in this filter's universe with slots for the keys of both filters.
    /// If there is none, returns the largest size, because the filters may have many keys in
    /// common.
    fn shape_with<T: Storage>(&self, other: &QuotientFilter<T>) -> Sizing {
        let wanted = self.counts.slots.saturating_add(other.counts.slots);
        let (mut layout, mut slots_max) = (self.layout, self.counts.slots_max);
        while slots_max < wanted
            && let Some(doubled) = layout.doubled()
        {
            layout = doubled;
            slots_max *= 2;
        }
        Sizing { layout, universe: self.universe, slots_max }
    }

    fn check_alike<T: Storage>(&self, other: &QuotientFilter<T>) -> Result<()> {
        check_alike((self.seed(), self.universe()), (other.seed(), other.universe()))?;
        if self.rules.mode != other.rules.mode {
            let name = |mode| if mode == Mode::Set { "set" } else { "multiset" };
            let expected = format!("a {}", name(self.rules.mode));
            return Err(Error::argument("other filter", expected, name(other.rules.mode)));
        }
        Ok(())
    }
}

/// Replaces the content of `out` by all numbers of `a` and `b`, in order.
fn merge_into(a: &[u64], b: &[u64], out: &mut Vec<u64>) {
    out.clear();
    out.resize(a.len() + b.len(), 0);
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (x, y) = (a[i], b[j]);
        let first = usize::from(x <= y);
        out[i + j] = x.min(y);
        i += first;
        j += 1 - first;
    }
    let rest = i + j;
    let (left, right) = (&a[i..], &b[j..]);
    out[rest..][..left.len()].copy_from_slice(left);
    out[rest + left.len()..].copy_from_slice(right);
}
