//! Runs in, one run out.

use super::{Merger, Rule};
use crate::{
    error::{Error, ErrorKind, Result},
    filter::{
        Fingerprints, Items, Mode, Span, Universe,
        items::{ItemsRef, check_follows, next_span},
    },
};

/// As many fingerprints of each run are at hand in each step, unless fewer are left or there is not
/// enough memory. The more, the fewer steps; all of them and the result should fit the processor's
/// second cache.
const AHEAD_MAX: usize = 1 << 13;
/// Fewer than this would make a merge much slower.
const AHEAD_MIN: usize = 1 << 8;
/// The memory of a merge for each fingerprint that is at hand, in bytes: itself and two steps of its
/// way through the lists of the merger, what is merged, and room to grow.
const AHEAD_BYTES: usize = 64;

/// Several runs as one: of equal fingerprints the newest holds, or their counts are summed up.
///
/// ```
/// use hashfold::filter::{Fingerprints, Merge, Mode, PackedRun, Span, Universe};
/// # fn main() -> hashfold::Result<()> {
/// let run = |ones: &[u64]| {
///     let span = Span { ones: ones.to_vec(), counted: Vec::new() };
///     PackedRun::build(&mut span.into_run(Universe::EXACT))
/// };
/// let (newer, older) = (run(&[2, 5])?, run(&[1, 5])?);
/// let mut both = Merge::new(vec![newer.scan(), older.scan()], Mode::Set)?;
/// let mut span = Span::default();
/// assert!(both.next_span(&mut span)?);
/// assert_eq!(span.ones, [1, 2, 5]);
/// # Ok(())
/// # }
/// ```
pub struct Merge<F> {
    universe: Universe,
    rule: Rule,
    sources: Vec<Source<F>>,
    merger: Merger,
    /// Fingerprints of each source that are at hand in each step.
    ahead: usize,
}

/// A run, and what of it was not merged yet.
struct Source<F> {
    run: F,
    buffer: Items,
    /// Where in the buffer what is left starts.
    start: usize,
    /// The largest fingerprint so far.
    last: Option<u64>,
    is_done: bool,
}

impl<F: Fingerprints> Merge<F> {
    /// Merges runs, the newest first, none of which is the oldest: tombstones and counts below
    /// zero stay, for what they take away is in a run that is not here.
    pub fn new(runs: Vec<F>, mode: Mode) -> Result<Merge<F>> {
        Merge::with_rule(runs, Rule { mode, is_last: false })
    }

    /// Merges runs, the newest first, beside which there is no older one: what only takes away is
    /// dropped.
    pub fn last(runs: Vec<F>, mode: Mode) -> Result<Merge<F>> {
        Merge::with_rule(runs, Rule { mode, is_last: true })
    }

    /// Has the merge take no more than about this memory, in bytes, beside what its runs take.
    pub(crate) fn within(self, memory_bytes: usize) -> Merge<F> {
        let ahead = memory_bytes / AHEAD_BYTES / self.sources.len();
        Merge { ahead: ahead.clamp(AHEAD_MIN, AHEAD_MAX), ..self }
    }

    fn with_rule(runs: Vec<F>, rule: Rule) -> Result<Merge<F>> {
        let Some(first) = runs.first() else {
            return Err(Error::argument("runs to merge", "at least 1", 0));
        };
        let universe = first.universe();
        for run in &runs {
            let (expected, got) = (universe.last(), run.universe().last());
            if got != expected {
                let what = "largest fingerprint";
                return Err(ErrorKind::Mismatch { what, expected, got }.into());
            }
        }
        let sources = runs.into_iter().map(Source::new).collect();
        Ok(Merge { universe, rule, sources, merger: Merger::default(), ahead: AHEAD_MAX })
    }
}

impl<F: Fingerprints> Source<F> {
    fn new(run: F) -> Source<F> {
        Source { run, buffer: Items::default(), start: 0, last: None, is_done: false }
    }

    fn left(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Reads on until enough is at hand.
    fn fill(&mut self, ahead: usize) -> Result<()> {
        if self.is_done || self.left() >= ahead {
            return Ok(());
        }
        self.buffer.remove_first(self.start);
        self.start = 0;
        while self.left() < ahead {
            let before = self.buffer.len();
            if !self.run.append_items(&mut self.buffer)? {
                self.is_done = true;
                break;
            }
            self.last = check_follows(&self.buffer.fingerprints[before..], self.last)?;
        }
        Ok(())
    }

    /// Takes what is not above `limit`.
    fn take(&mut self, limit: u64) -> ItemsRef<'_> {
        let items = self.buffer.from(self.start);
        let count = items.fingerprints.partition_point(|&it| it <= limit);
        self.start += count;
        items.split_at(count).0
    }
}

impl<F: Fingerprints> Fingerprints for Merge<F> {
    fn universe(&self) -> Universe {
        self.universe
    }

    fn next_span(&mut self, span: &mut Span) -> Result<bool> {
        next_span(span, |items| self.append_items(items))
    }

    fn append_items(&mut self, items: &mut Items) -> Result<bool> {
        let before = items.len();
        // What is merged may all go: then the next stretch has its turn.
        while items.len() == before {
            for source in &mut self.sources {
                source.fill(self.ahead)?;
            }
            // Beyond the last fingerprint at hand of a source there may be more of it.
            let unfinished = self.sources.iter().filter(|source| !source.is_done);
            let limit = unfinished.filter_map(|source| source.buffer.last()).min();
            let limit = limit.unwrap_or(u64::MAX);
            if self.sources.iter().all(|source| source.left() == 0) {
                return Ok(false);
            }
            let parts: Vec<_> = self.sources.iter_mut().map(|source| source.take(limit)).collect();
            self.merger.merge(&parts, self.rule, items);
        }
        Ok(true)
    }
}
