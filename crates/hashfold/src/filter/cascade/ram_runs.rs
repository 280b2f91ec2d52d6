//! Runs in RAM: packed memtables, which a flush writes as one run file.
//!
//! ```text
//! Idle ── begin ─→ Running ── next_batch: nothing is due ─→ Idle
//!   ↑                 │ failed
//!   └── begin ── Failed ←┘
//! ```

use super::options::Shares;
use crate::{error::Error, filter::PackedRun};
use std::sync::Arc;

/// A run in RAM.
#[derive(Clone, Debug)]
pub(super) struct RamRun {
    pub(super) run: Arc<PackedRun>,
    /// Sequence number of the last change in the run.
    pub(super) seq: u64,
}

/// The runs in RAM of a filter, and the state of the flush that writes them.
#[derive(Debug)]
pub(super) struct RamRuns {
    /// The runs, newest first.
    runs: Arc<Vec<RamRun>>,
    /// Memory of flushed runs, kept for later runs.
    spares: Vec<PackedRun>,
    flush: Flush,
    /// Runs with changes up to this sequence number are flushed at once. Newer runs are flushed when
    /// all runs fill half of their memory.
    through: u64,
    /// Whether the filter is being closed: nothing is flushed any more.
    is_closed: bool,
}

#[derive(Debug)]
enum Flush {
    Idle,
    Running,
    /// The flush failed. The error stays until a caller takes it.
    Failed(Option<Error>),
}

impl RamRuns {
    pub(super) fn new() -> RamRuns {
        let (runs, spares) = (Arc::default(), Vec::new());
        RamRuns { runs, spares, flush: Flush::Idle, through: 0, is_closed: false }
    }

    /// Returns all runs, newest first.
    pub(super) fn runs(&self) -> &Arc<Vec<RamRun>> {
        &self.runs
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the memory of all runs, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.runs.iter().map(|it| it.run.bytes()).sum()
    }

    /// Returns the memory that is kept for later runs, in bytes.
    pub(super) fn spare_bytes(&self) -> usize {
        self.spares.iter().map(PackedRun::bytes).sum()
    }

    /// Whether there is memory for one more run.
    pub(super) fn fits(&self, shares: &Shares) -> bool {
        let count = self.runs.len();
        count == 0
            || count < shares.ram_runs_max && self.bytes() + shares.ram_run <= shares.ram_runs
    }

    /// Adds the newest run.
    pub(super) fn push(&mut self, run: RamRun) {
        Arc::make_mut(&mut self.runs).insert(0, run);
    }

    /// Takes memory for a run.
    pub(super) fn take_spare(&mut self) -> Option<PackedRun> {
        self.spares.pop()
    }

    /// Keeps the memory of runs for later runs, as far as the budget of runs in RAM allows.
    pub(super) fn keep_spares(&mut self, runs: impl Iterator<Item = PackedRun>, shares: &Shares) {
        self.spares.extend(runs);
        let free = shares.ram_runs.saturating_sub(self.bytes());
        let mut bytes = 0;
        self.spares.retain(|run| {
            bytes += run.bytes();
            bytes <= free
        });
    }

    /// Makes the flush of all runs with changes up to this sequence number due.
    pub(super) fn flush_through(&mut self, seq: u64) {
        self.through = self.through.max(seq);
    }

    /// Ends all flushing.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether runs must be flushed.
    pub(super) fn is_due(&self, shares: &Shares) -> bool {
        let Some(oldest) = self.runs.last() else { return false };
        let is_half_full = self.runs.len() >= shares.ram_runs_max.div_ceil(2)
            || self.bytes() >= shares.ram_runs / 2;
        !self.is_closed && (oldest.seq <= self.through || is_half_full)
    }

    pub(super) fn is_flushing(&self) -> bool {
        matches!(self.flush, Flush::Running)
    }

    /// Begins a flush; refused while a flush is running.
    #[must_use]
    pub(super) fn begin_flush(&mut self) -> bool {
        let is_legal = !self.is_flushing();
        self.flush = Flush::Running;
        is_legal
    }

    /// Returns the oldest runs, at most `count`, to be written next by the running flush. Ends the
    /// flush if nothing is due. Returns `None` without a flush.
    pub(super) fn next_batch(&mut self, count: usize, shares: &Shares) -> Option<Vec<RamRun>> {
        if !self.is_flushing() {
            return None;
        }
        if !self.is_due(shares) {
            self.flush = Flush::Idle;
            return None;
        }
        Some(self.runs[self.runs.len().saturating_sub(count)..].to_vec())
    }

    /// Removes the oldest runs, which a run file has replaced.
    pub(super) fn flushed(&mut self, count: usize) {
        let left = self.runs.len() - count;
        Arc::make_mut(&mut self.runs).truncate(left);
    }

    /// Ends a flush with an error. Its runs stay. Refused without a flush.
    #[must_use]
    pub(super) fn flush_failed(&mut self, error: Error) -> bool {
        let is_legal = self.is_flushing();
        if is_legal {
            self.flush = Flush::Failed(Some(error));
        }
        is_legal
    }

    /// Takes the error of the last failure.
    pub(super) fn take_error(&mut self) -> Option<Error> {
        match &mut self.flush {
            Flush::Failed(error) => error.take(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        error::ErrorKind,
        filter::{
            Mode,
            cascade::{CascadeSettings, memtable::Memtable},
        },
        fingerprints::Universe,
        key::Seed,
    };

    fn shares() -> Shares {
        CascadeSettings::default().shares(Mode::Set, Universe::EXACT)
    }

    fn error() -> Error {
        ErrorKind::Panicked { job: "flush" }.into()
    }

    /// Returns runs in RAM with these sequence numbers.
    fn with(seqs: &[u64]) -> RamRuns {
        let mut runs = RamRuns::new();
        for &seq in seqs {
            let memtable = Arc::new(Memtable::new(Mode::Set, 1 << 10));
            let run =
                Arc::new(PackedRun::build(&mut memtable.scan(Seed(1), Universe::EXACT)).unwrap());
            runs.push(RamRun { run, seq });
        }
        runs
    }

    fn seqs(runs: &[RamRun]) -> Vec<u64> {
        runs.iter().map(|it| it.seq).collect()
    }

    #[test]
    fn the_oldest_runs_are_flushed_first_and_go_when_their_file_is_there() {
        let (mut runs, shares) = (with(&[1, 2, 3]), shares());
        runs.flush_through(3);
        assert!(runs.begin_flush());
        assert_eq!(seqs(&runs.next_batch(2, &shares).unwrap()), [2, 1]);
        runs.flushed(2);
        assert_eq!(seqs(&runs.next_batch(2, &shares).unwrap()), [3]);
        runs.flushed(1);
        assert!(runs.next_batch(2, &shares).is_none());
        assert!(!runs.is_flushing());
    }

    #[test]
    fn a_flush_is_begun_once_and_may_be_tried_again() {
        let mut runs = with(&[1]);
        assert!(!runs.flush_failed(error()));
        assert!(runs.begin_flush());
        assert!(!runs.begin_flush());
        assert!(runs.flush_failed(error()));
        assert!(!runs.flush_failed(error()));
        assert!(runs.take_error().is_some() && runs.take_error().is_none());
        assert!(runs.next_batch(1, &shares()).is_none());
        assert!(runs.begin_flush());
        assert_eq!(seqs(runs.runs()), [1]);
    }

    #[test]
    fn few_runs_wait_and_none_is_flushed_after_the_end() {
        let (mut runs, shares) = (with(&[1]), shares());
        assert!(!runs.is_due(&shares));
        runs.flush_through(1);
        assert!(runs.is_due(&shares));
        runs.close();
        runs.flush_through(2);
        assert!(!runs.is_due(&shares));
    }

    #[test]
    fn a_flush_up_to_a_change_leaves_newer_runs() {
        let (mut runs, shares) = (with(&[3, 5]), shares());
        runs.flush_through(4);
        assert!(runs.begin_flush());
        assert_eq!(seqs(&runs.next_batch(1, &shares).unwrap()), [3]);
        runs.flushed(1);
        assert!(runs.next_batch(1, &shares).is_none() && !runs.is_due(&shares));
    }
}
