//! Runs in, one run out.

use super::merger::{Merger, Rule};
use crate::{
    error::{Error, Result},
    filter::mode::Mode,
    fingerprints::{BatchSlice, Checked, FingerprintBatch, Fingerprints, Universe, check_alike},
    key::Seed,
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
/// use hashfold::{Seed, filter::{FingerprintMerge, Mode, PackedRun}};
/// use hashfold::fingerprints::{FingerprintBatch, Fingerprints, Universe};
/// # fn main() -> hashfold::Result<()> {
/// let run = |fingerprints: &[u64]| {
///     let batch = FingerprintBatch::from_sorted(fingerprints.to_vec())?;
///     PackedRun::build(&mut batch.into_run(Seed(1), Universe::EXACT))
/// };
/// let (newer, older) = (run(&[2, 5])?, run(&[1, 5])?);
/// let mut both = FingerprintMerge::new(vec![newer.scan(), older.scan()], Mode::Set)?;
/// let mut batch = FingerprintBatch::new();
/// assert!(both.append_to(&mut batch)?);
/// assert_eq!(batch.fingerprints(), [1, 2, 5]);
/// # Ok(())
/// # }
/// ```
pub struct FingerprintMerge<F> {
    seed: Seed,
    universe: Universe,
    rule: Rule,
    sources: Vec<Source<F>>,
    merger: Merger,
    /// Fingerprints of each source that are at hand in each step.
    ahead: usize,
}

/// A run, and what of it was not merged yet.
struct Source<F> {
    run: Checked<F>,
    buffer: FingerprintBatch,
    /// Where in the buffer what is left starts.
    start: usize,
    is_done: bool,
}

impl<F: Fingerprints> FingerprintMerge<F> {
    /// Merges runs, the newest first, none of which is the oldest: tombstones and counts below
    /// zero stay, for what they take away is in a run that is not here.
    pub fn new(runs: Vec<F>, mode: Mode) -> Result<FingerprintMerge<F>> {
        FingerprintMerge::with_rule(runs, Rule { mode, is_last: false })
    }

    /// Merges runs, the newest first, beside which there is no older one: what only takes away is
    /// dropped.
    pub fn last(runs: Vec<F>, mode: Mode) -> Result<FingerprintMerge<F>> {
        FingerprintMerge::with_rule(runs, Rule { mode, is_last: true })
    }

    /// Has the merge take no more than about this memory, in bytes, beside what its runs take.
    pub(crate) fn within(self, memory_bytes: usize) -> FingerprintMerge<F> {
        let ahead = memory_bytes / AHEAD_BYTES / self.sources.len();
        FingerprintMerge { ahead: ahead.clamp(AHEAD_MIN, AHEAD_MAX), ..self }
    }

    fn with_rule(runs: Vec<F>, rule: Rule) -> Result<FingerprintMerge<F>> {
        let Some(first) = runs.first() else {
            return Err(Error::argument("runs to merge", "at least 1", 0));
        };
        let (seed, universe) = (first.seed(), first.universe());
        for run in &runs {
            check_alike((seed, universe), (run.seed(), run.universe()))?;
        }
        let sources = runs.into_iter().map(Source::new).collect();
        Ok(FingerprintMerge {
            seed,
            universe,
            rule,
            sources,
            merger: Merger::default(),
            ahead: AHEAD_MAX,
        })
    }
}

impl<F: Fingerprints> Source<F> {
    fn new(run: F) -> Source<F> {
        Source { run: Checked::new(run), buffer: FingerprintBatch::new(), start: 0, is_done: false }
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
            if !self.run.append_to(&mut self.buffer)? {
                self.is_done = true;
                break;
            }
        }
        Ok(())
    }

    /// Takes what is not above `limit`.
    fn take(&mut self, limit: u64) -> BatchSlice<'_> {
        let items = self.buffer.from(self.start);
        let count = items.fingerprints.partition_point(|&it| it <= limit);
        self.start += count;
        items.split_at(count).0
    }
}

impl<F: Fingerprints> Fingerprints for FingerprintMerge<F> {
    fn seed(&self) -> Seed {
        self.seed
    }

    fn universe(&self) -> Universe {
        self.universe
    }

    fn append_to(&mut self, batch: &mut FingerprintBatch) -> Result<bool> {
        let before = batch.len();
        // What is merged may all go: then the next stretch has its turn.
        while batch.len() == before {
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
            self.merger.merge(&parts, self.rule, batch);
        }
        Ok(true)
    }
}
