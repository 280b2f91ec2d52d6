//! Fingerprints of several runs in one order, each once: the newest holds, or all are summed up.
//!
//! A stretch of the hash order at a time: nearly all fingerprints stand for one key each, and are
//! merged as plain numbers, by a tree of merges of two whose loops have no branches that depend on
//! the numbers. What stands for something else is applied to the result.

mod kernel;
mod sources;
#[cfg(test)]
mod tests;

pub(super) use self::kernel::{append_some, ascends, for_ranks};
pub use self::sources::Merge;

use super::{
    Mode,
    span::{Counted, Span},
};

/// What becomes of equal fingerprints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) mode: Mode,
    /// Whether nothing is older than what is merged, so that what only takes away can go.
    pub(super) is_last: bool,
}

impl Rule {
    /// What a count becomes, if anything.
    fn settle(self, count: i64) -> Option<i64> {
        let nothing = self.mode == Mode::Multiset && count == 0;
        let goes = nothing || self.is_last && count <= 0;
        (!goes).then_some(count)
    }
}

/// Fingerprints that belong to someone else: see [`Span`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpanRef<'a> {
    pub(super) ones: &'a [u64],
    pub(super) counted: &'a [Counted],
}

impl<'a> From<&'a Span> for SpanRef<'a> {
    fn from(span: &'a Span) -> SpanRef<'a> {
        SpanRef { ones: &span.ones, counted: &span.counted }
    }
}

/// Merges spans. Keeps the memory that it takes.
#[derive(Default)]
pub(super) struct Merger {
    /// Memory that is not in use.
    free: Vec<Vec<u64>>,
    /// Exceptions of all spans: see [`gather`].
    changes: Vec<Change>,
    heads: Vec<u32>,
    repeated: Vec<Counted>,
    edits: Vec<Edit>,
}

/// A counted fingerprint of one of the spans, or of all.
#[derive(Clone, Copy, Debug)]
struct Change {
    fingerprint: u64,
    /// The newest span that has it counted.
    span: usize,
    count: i64,
}

/// A one that is taken out of the merged ones, or put in before the one at its place.
#[derive(Clone, Copy)]
struct Edit {
    place: usize,
    insert: Option<u64>,
}

/// Ascending numbers, given or made.
enum List<'a> {
    Given(&'a [u64]),
    /// So many at the front.
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
    /// Appends to `out` what spans of one stretch of the order make, the newest first.
    pub(super) fn merge(&mut self, spans: &[SpanRef<'_>], rule: Rule, out: &mut Span) {
        let start = out.ones.len();
        let lists = spans.iter().map(|span| span.ones).filter(|ones| !ones.is_empty());
        let merged = self.merge_lists(lists.map(List::Given).collect());
        self.heads.clear();
        self.repeated.clear();
        match merged {
            // One list alone has nothing twice.
            List::Given(ones) => out.ones.extend_from_slice(ones),
            List::Made(ones, len) => {
                kernel::unique(&ones[..len], rule.mode, &mut out.ones, &mut self.heads);
                self.repeated
                    .extend(self.heads.iter().map(|&head| run_at(&ones[..len], head as usize)));
                self.free.push(ones);
            }
        }
        if spans.iter().all(|span| span.counted.is_empty()) {
            out.counted.extend_from_slice(&self.repeated);
            return;
        }
        self.gather_changes(spans, rule.mode);
        self.apply(spans, rule, start, out);
    }

    /// One list of all; the shortest are merged first, so that a long one is merged once.
    fn merge_lists<'a>(&mut self, mut lists: Vec<List<'a>>) -> List<'a> {
        // The shortest at the end.
        lists.sort_by_key(|list| std::cmp::Reverse(list.numbers().len()));
        while let Some(a) = lists.pop() {
            let Some(b) = lists.pop() else {
                return a;
            };
            let mut out = self.free.pop().unwrap_or_default();
            let len = a.numbers().len() + b.numbers().len();
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

    /// Makes one list of the counted fingerprints of all spans, each once.
    fn gather_changes(&mut self, spans: &[SpanRef<'_>], mode: Mode) {
        self.changes.clear();
        for (number, span) in spans.iter().enumerate() {
            self.changes.extend(span.counted.iter().map(|item| Change {
                fingerprint: item.fingerprint,
                span: number,
                count: item.count,
            }));
        }
        // Stable: of equal ones the newest stays in front. It finds the runs that are there.
        if spans.iter().filter(|span| !span.counted.is_empty()).count() > 1 {
            self.changes.sort_by_key(|change| change.fingerprint);
        }
        self.changes.dedup_by(|older, newer| {
            let equal = older.fingerprint == newer.fingerprint;
            if equal && mode == Mode::Multiset {
                newer.count = newer.count.saturating_add(older.count);
            }
            equal
        });
    }

    /// Applies the changes to the ones of `out` from `start` on, and to what came more than once.
    fn apply(&mut self, spans: &[SpanRef<'_>], rule: Rule, start: usize, out: &mut Span) {
        let ones = &out.ones[start..];
        self.edits.clear();
        let mut repeated = self.repeated.iter().peekable();
        for_ranks(
            ones,
            &self.changes,
            |change| change.fingerprint,
            |change, place| {
                let Change { fingerprint, span, mut count } = *change;
                while let Some(item) = repeated.next_if(|it| it.fingerprint < fingerprint) {
                    out.counted.push(*item);
                }
                let is_one = ones.get(place) == Some(&fingerprint);
                if rule.mode == Mode::Multiset {
                    let same = repeated.next_if(|it| it.fingerprint == fingerprint);
                    let keys = same.map_or(i64::from(is_one), |it| it.count);
                    count = count.saturating_add(keys);
                } else if is_one && is_newer(&spans[..span], fingerprint) {
                    return true;
                }
                let count = rule.settle(count);
                match (is_one, count) {
                    (true, Some(1)) => return true,
                    (true, _) => self.edits.push(Edit { place, insert: None }),
                    (false, Some(1)) => self.edits.push(Edit { place, insert: Some(fingerprint) }),
                    (false, _) => {}
                }
                if let Some(count) = count.filter(|&count| count != 1) {
                    out.counted.push(Counted { fingerprint, count });
                }
                true
            },
        );
        out.counted.extend(repeated);
        self.edit(start, &mut out.ones);
    }

    /// Makes the edits of the ones from `start` on.
    fn edit(&mut self, start: usize, ones: &mut Vec<u64>) {
        if self.edits.is_empty() {
            return;
        }
        let mut made = self.free.pop().unwrap_or_default();
        made.clear();
        let mut from = start;
        for edit in &self.edits {
            append_some(&mut made, &ones[from..], start + edit.place - from);
            from = start + edit.place;
            match edit.insert {
                Some(fingerprint) => made.push(fingerprint),
                None => from += 1,
            }
        }
        made.extend_from_slice(&ones[from..]);
        ones.truncate(start);
        ones.extend_from_slice(&made);
        self.free.push(made);
    }
}

/// Whether one of the spans has this fingerprint among its ones.
fn is_newer(spans: &[SpanRef<'_>], fingerprint: u64) -> bool {
    spans.iter().any(|span| span.ones.binary_search(&fingerprint).is_ok())
}

/// How often the number at `head` comes in a row.
fn run_at(numbers: &[u64], head: usize) -> Counted {
    let fingerprint = numbers[head];
    let count = numbers[head..].iter().take_while(|&&number| number == fingerprint).count();
    Counted { fingerprint, count: count as i64 }
}
