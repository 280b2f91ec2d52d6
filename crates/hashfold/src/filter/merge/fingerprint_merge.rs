//! `FingerprintMerge`: several runs merged to one.

use super::merger::{Merger, Rule};
use crate::{
    error::{Error, Result},
    filter::mode::Mode,
    fingerprints::{BatchSlice, Checked, FingerprintBatch, Fingerprints, Universe, check_alike},
    key::Seed,
};

/// Number of fingerprints of each run that are buffered in a step, unless fewer are left or memory
/// is scarce. A larger number makes fewer steps; all buffers and the result should fit in the L2
/// cache.
const AHEAD_MAX: usize = 1 << 13;
/// Minimum number of buffered fingerprints: with fewer, a merge is much slower.
const AHEAD_MIN: usize = 1 << 8;
/// Memory of a merge for each buffered fingerprint, in bytes: the fingerprint, two copies in the
/// lists of the merger, the result, and spare capacity.
const AHEAD_BYTES: usize = 64;

/// A merge of several runs into one. Of equal fingerprints, a set keeps the newest; a multiset adds
/// up the counts.
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
    /// Number of fingerprints of each source that are buffered in a step.
    ahead: usize,
}

/// A run, and its fingerprints that are not merged yet.
struct Source<F> {
    run: Checked<F>,
    buffer: FingerprintBatch,
    /// The position of the first of these fingerprints in the buffer.
    start: usize,
    is_done: bool,
}

impl<F: Fingerprints> FingerprintMerge<F> {
    /// Merges runs, newest first, if older runs exist that are not part of the merge. Tombstones
    /// and counts below 0 are kept, because they change the older runs.
    pub fn new(runs: Vec<F>, mode: Mode) -> Result<FingerprintMerge<F>> {
        FingerprintMerge::with_rule(runs, Rule { mode, is_last: false })
    }

    /// Merges runs, newest first, if no older run exists. Tombstones and counts below 1 are
    /// dropped.
    pub fn last(runs: Vec<F>, mode: Mode) -> Result<FingerprintMerge<F>> {
        FingerprintMerge::with_rule(runs, Rule { mode, is_last: true })
    }

    /// Limits the memory of the merge, without that of its runs, to about this number of bytes.
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

    /// Reads until `ahead` fingerprints are buffered.
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

    /// Takes the buffered fingerprints up to `limit`.
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
        // If a range of merged fingerprints is dropped entirely, the next range is merged.
        while batch.len() == before {
            for source in &mut self.sources {
                source.fill(self.ahead)?;
            }
            // A source may have more fingerprints above its last buffered one.
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
