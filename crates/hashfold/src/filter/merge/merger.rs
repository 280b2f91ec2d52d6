//! Merging batches of one range of fingerprints.
//!
//! Lists of numbers are merged by a tree of two-way merges, whose loops have no branches that
//! depend on the numbers. Then equal numbers are neighbours. If all counts are 1, the numbers are
//! the fingerprints themselves; if not, they are tagged: see [`Tags`].

use super::{
    kernel::{self, Repeated},
    tags::Tags,
};
use crate::{
    filter::mode::Mode,
    fingerprints::{BatchSlice, Exception, FingerprintBatch},
};

/// The treatment of equal fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) mode: Mode,
    /// Whether no older run exists, so that counts below 1 can be dropped.
    pub(super) is_last: bool,
}

impl Rule {
    /// Returns the count to keep; `None` if the fingerprint is dropped.
    fn settle(self, count: i64) -> Option<i64> {
        let is_dropped = count == 0 || self.is_last && count < 0;
        // In a set, a fingerprint is present or absent.
        let count = if self.mode == Mode::Set { count.signum() } else { count };
        (!is_dropped).then_some(count)
    }
}

/// A merger of batches, which keeps its memory between calls.
#[derive(Default)]
pub(super) struct Merger {
    /// Lists that are not in use.
    free: Vec<Vec<u64>>,
    repeated: Vec<Repeated>,
    tombstones: Vec<u32>,
}

/// Ascending numbers, borrowed or merged.
enum List<'a> {
    Given(&'a [u64]),
    /// Merged numbers: a list, and its number of valid elements.
    Made(Vec<u64>, usize),
}

impl List<'_> {
    fn numbers(&self) -> &[u64] {
        match self {
            List::Given(numbers) => numbers,
            List::Made(numbers, len) => &numbers[..*len],
        }
    }
}

impl Merger {
    /// Merges batches of one range of fingerprints, newest first, and appends the result to `out`.
    pub(super) fn merge(
        &mut self,
        parts: &[BatchSlice<'_>],
        rule: Rule,
        out: &mut FingerprintBatch,
    ) {
        if parts.iter().all(|part| part.exceptions_len() == 0) {
            return self.merge_ones(parts, rule.mode, out);
        }
        let bits = 1 + parts.len().next_power_of_two().ilog2();
        let mut rest = parts.to_vec();
        // Fingerprints that are too far apart for tags are merged in several steps.
        while let Some(&base) = rest.iter().filter_map(|part| part.fingerprints.first()).min() {
            let tags = Tags { base, bits };
            let mut parts = Vec::new();
            for part in &mut rest {
                let near = match part.fingerprints.last() {
                    Some(&last) if last > tags.last() => {
                        part.fingerprints.partition_point(|&it| it <= tags.last())
                    }
                    _ => part.fingerprints.len(),
                };
                let (now, later) = part.split_at(near);
                *part = later;
                parts.push(now);
            }
            self.merge_tagged(&parts, tags, rule, out);
        }
    }

    /// Merges batches whose counts are all 1.
    fn merge_ones(&mut self, parts: &[BatchSlice<'_>], mode: Mode, out: &mut FingerprintBatch) {
        let lists = parts.iter().map(|part| part.fingerprints).filter(|list| !list.is_empty());
        let (merged, len) = match self.merge_lists(lists.map(List::Given).collect()) {
            // A single list has no duplicates.
            List::Given(ones) => return out.fingerprints.extend_from_slice(ones),
            List::Made(numbers, len) => (numbers, len),
        };
        let numbers = &merged[..len];
        self.repeated.clear();
        kernel::unique(numbers, mode, &mut out.fingerprints, &mut self.repeated);
        out.exceptions.extend(self.repeated.iter().map(|repeated| {
            let group = &numbers[repeated.from..];
            let count = group.iter().take_while(|&&it| it == group[0]).count() as i64;
            Exception { position: repeated.to, count }
        }));
        self.free.push(merged);
    }

    /// Merges batches whose fingerprints leave enough bits for tags.
    fn merge_tagged(
        &mut self,
        parts: &[BatchSlice<'_>],
        tags: Tags,
        rule: Rule,
        out: &mut FingerprintBatch,
    ) {
        let lists = parts.iter().enumerate().filter(|(_, part)| !part.fingerprints.is_empty());
        let lists = lists.map(|(i, part)| {
            let mut numbers = self.take(part.fingerprints.len());
            kernel::tag(part.fingerprints, tags, i, &mut numbers);
            part.exceptions().for_each(|exception| numbers[exception.position] |= 1);
            List::Made(numbers, part.fingerprints.len())
        });
        let lists = lists.collect();
        let List::Made(merged, len) = self.merge_lists(lists) else { return };
        let numbers = &merged[..len];
        if rule.mode == Mode::Set && parts.iter().all(|part| part.are_tombstones()) {
            self.tombstones.clear();
            let kept = if rule.is_last { None } else { Some(&mut self.tombstones) };
            kernel::newest(numbers, tags, &mut out.fingerprints, kept);
            let positions = self.tombstones.iter().map(|&position| position as usize);
            out.exceptions.extend(positions.map(|position| Exception { position, count: -1 }));
        } else {
            settle(numbers, parts, tags, rule, out);
        }
        self.free.push(merged);
    }

    /// Takes memory for `len` numbers: the smallest free list that is large enough, or else the
    /// largest. With any other choice, all free lists would in time grow to the size of the largest
    /// merge.
    fn take(&mut self, len: usize) -> Vec<u64> {
        let size = |numbers: &Vec<u64>| match numbers.len() {
            size if size >= len => (0, size - len),
            size => (1, len - size),
        };
        let best = (0..self.free.len()).min_by_key(|&i| size(&self.free[i]));
        best.map_or_else(Vec::new, |i| self.free.swap_remove(i))
    }

    /// Merges all lists into one. The shortest lists are merged first, so that a long list is
    /// merged once.
    fn merge_lists<'a>(&mut self, mut lists: Vec<List<'a>>) -> List<'a> {
        // The shortest lists are at the end.
        lists.sort_by_key(|list| std::cmp::Reverse(list.numbers().len()));
        while let Some(a) = lists.pop() {
            let Some(b) = lists.pop() else {
                return a;
            };
            let len = a.numbers().len() + b.numbers().len();
            let mut out = self.take(len);
            kernel::merge(a.numbers(), b.numbers(), &mut out);
            for list in [a, b] {
                if let List::Made(numbers, _) = list {
                    self.free.push(numbers);
                }
            }
            let place = lists.partition_point(|list| list.numbers().len() > len);
            lists.insert(place, List::Made(out, len));
        }
        List::Given(&[])
    }
}

/// Appends one fingerprint for each group of equal tagged fingerprints.
fn settle(
    numbers: &[u64],
    parts: &[BatchSlice<'_>],
    tags: Tags,
    rule: Rule,
    out: &mut FingerprintBatch,
) {
    // The exceptions of a part are taken in order.
    let mut exceptions: Vec<_> = parts.iter().map(|part| part.exceptions()).collect();
    for group in numbers.chunk_by(|&a, &b| tags.are_equal(a, b)) {
        let mut counts = group.iter().map(|&number| match number & 1 {
            0 => 1,
            _ => exceptions[tags.part(number)].next().map_or(1, |exception| exception.count),
        });
        let newest = counts.next().unwrap_or_default();
        let sum = counts.fold(newest, i64::saturating_add);
        let count = if rule.mode == Mode::Set { newest } else { sum };
        if let Some(count) = rule.settle(count) {
            out.push_next(tags.fingerprint(group[0]), count);
        }
    }
}
