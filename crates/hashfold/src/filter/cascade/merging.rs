//! The running merges, and whether another merge may start.
//!
//! ```text
//! Balance ── merge_all ─→ All ── no run is left above the last level ─→ Balance
//!    ↑  └───────┬──────────┘
//!    │          ↓ a merge failed                      any ── close ─→ Closed
//!    └─ retry ─ Failed
//! ```

use super::{catalog::View, key_range::KeyRange};
use crate::error::{Error, Result};

/// A merge of a key range of some runs of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RangeMerge {
    pub(super) epoch: u64,
    /// The numbers of the runs.
    pub(super) runs: Vec<u64>,
    pub(super) range: KeyRange,
    pub(super) target: Target,
}

/// The target of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A new run above the last level.
    Upper { tier: u8 },
    /// The shards of the last level in the key range; they are merged with the runs.
    LastLevel,
}

impl RangeMerge {
    /// Whether both merges touch the same fingerprints of the same runs or shards.
    fn conflicts_with(&self, other: &RangeMerge) -> bool {
        let are_down = self.target == Target::LastLevel && other.target == Target::LastLevel;
        let are_close = self.epoch == other.epoch && self.range.overlaps(other.range);
        are_close && (are_down || self.runs.iter().any(|run| other.runs.contains(run)))
    }
}

/// The merges of a filter. A refused transition changes nothing.
#[derive(Debug)]
pub(super) struct Merging {
    running: Vec<RangeMerge>,
    /// Maximum number of concurrent merges.
    running_max: usize,
    /// The runs that are being merged into the last level, one key range after the other.
    descending: Vec<u64>,
    plan: Plan,
}

#[derive(Debug)]
enum Plan {
    /// Merges start when there are too many runs.
    Balance,
    /// All runs are merged into the last level.
    All,
    /// A merge failed. The error stays until a caller takes it. No merge starts.
    Failed(Option<Error>),
    /// The filter is being closed. No merge starts.
    Closed,
}

impl Merging {
    pub(super) fn new(running_max: usize) -> Merging {
        let (running, descending) = (Vec::new(), Vec::new());
        Merging { running, running_max, descending, plan: Plan::Balance }
    }

    pub(super) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Whether another merge into this target may start. Merges into the last level, of which there
    /// are many, leave one place to merges above it.
    pub(super) fn may_start(&self, target: Target) -> bool {
        let down = self.running.iter().filter(|it| it.target == Target::LastLevel).count();
        let has_place = match target {
            Target::Upper { .. } => true,
            Target::LastLevel => down < self.running_max.saturating_sub(1).max(1),
        };
        let is_open = matches!(self.plan, Plan::Balance | Plan::All);
        is_open && has_place && self.running.len() < self.running_max
    }

    /// Whether all runs are to be merged into the last level.
    pub(super) fn is_all_wanted(&self) -> bool {
        matches!(self.plan, Plan::All)
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.plan, Plan::Closed)
    }

    /// Whether a merge reads this run in this key range.
    pub(super) fn is_busy(&self, run: u64, range: KeyRange) -> bool {
        self.running.iter().any(|it| it.runs.contains(&run) && it.range.overlaps(range))
    }

    /// Whether a merge replaces shards of this key range.
    pub(super) fn is_last_level_busy(&self, epoch: u64, range: KeyRange) -> bool {
        let mut down = self.running.iter().filter(|it| it.target == Target::LastLevel);
        down.any(|it| it.epoch == epoch && it.range.overlaps(range))
    }

    pub(super) fn is_descending(&self, run: u64) -> bool {
        self.descending.contains(&run)
    }

    pub(super) fn has_descending(&self) -> bool {
        !self.descending.is_empty()
    }

    /// Plans to merge runs into the last level. Refused while other runs are planned.
    #[must_use]
    pub(super) fn descend(&mut self, runs: Vec<u64>) -> bool {
        let is_legal = self.descending.is_empty();
        if is_legal {
            self.descending = runs;
        }
        is_legal
    }

    /// Begins a merge. Refused if it must not start, or conflicts with a running merge.
    #[must_use]
    pub(super) fn begin(&mut self, merge: &RangeMerge) -> bool {
        let conflicts = self.running.iter().any(|it| it.conflicts_with(merge));
        let is_legal = self.may_start(merge.target) && !conflicts;
        if is_legal {
            self.running.push(merge.clone());
        }
        is_legal
    }

    /// Ends a merge. Refused if the merge did not begin.
    #[must_use]
    pub(super) fn end(&mut self, merge: &RangeMerge, result: Result<()>) -> bool {
        let Some(i) = self.running.iter().position(|it| it == merge) else { return false };
        self.running.remove(i);
        if let (Err(error), false) = (result, self.is_closed()) {
            self.plan = Plan::Failed(Some(error));
        }
        true
    }

    /// Removes runs that no longer exist from the plan, and ends `All` once all runs are merged.
    pub(super) fn refresh(&mut self, view: &View) {
        let uppers = || view.epochs.iter().flat_map(|epoch| &epoch.uppers);
        self.descending.retain(|&run| uppers().any(|upper| upper.run.number() == run));
        if self.is_all_wanted() && uppers().next().is_none() {
            self.plan = Plan::Balance;
        }
    }

    /// Plans to merge all runs into the last level. Refused while the filter is being closed.
    #[must_use]
    pub(super) fn merge_all(&mut self) -> bool {
        let is_legal = !self.is_closed();
        if is_legal {
            self.plan = Plan::All;
        }
        is_legal
    }

    /// Allows merges again after a failure.
    pub(super) fn retry(&mut self) {
        if matches!(self.plan, Plan::Failed(_)) {
            self.plan = Plan::Balance;
        }
    }

    /// Refuses all further merges.
    pub(super) fn close(&mut self) {
        self.plan = Plan::Closed;
    }

    /// Takes the error of the last failure.
    pub(super) fn take_error(&mut self) -> Option<Error> {
        match &mut self.plan {
            Plan::Failed(error) => error.take(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::ErrorKind, filter::cascade::catalog::Catalog};

    const UP: Target = Target::Upper { tier: 1 };

    fn merge(runs: &[u64], (first, last): (u64, u64), target: Target) -> RangeMerge {
        RangeMerge { epoch: 0, runs: runs.to_vec(), range: KeyRange { first, last }, target }
    }

    fn failure() -> Result<()> {
        Err(ErrorKind::Panicked { job: "merge" }.into())
    }

    #[test]
    fn merges_of_disjoint_ranges_or_runs_go_side_by_side() {
        let mut merging = Merging::new(9);
        for legal in [
            merge(&[1, 2], (0, 9), UP),
            merge(&[1, 2], (10, 19), UP),
            merge(&[3, 4], (0, 9), UP),
            merge(&[5, 6], (0, 9), Target::LastLevel),
            merge(&[5, 6], (10, 19), Target::LastLevel),
        ] {
            assert!(merging.begin(&legal), "{legal:?}");
        }
        for illegal in [
            merge(&[2, 7], (9, 9), UP),
            merge(&[1], (0, 100), Target::LastLevel),
            merge(&[7], (19, 30), Target::LastLevel),
        ] {
            assert!(!merging.begin(&illegal), "{illegal:?}");
        }
        let other = RangeMerge { epoch: 1, ..merge(&[7], (0, 9), Target::LastLevel) };
        assert!(merging.begin(&other));
        assert!(merging.is_busy(2, KeyRange { first: 5, last: 5 }));
        assert!(!merging.is_busy(2, KeyRange { first: 20, last: 25 }));
        assert!(merging.is_last_level_busy(1, KeyRange { first: 9, last: 10 }));
        assert!(!merging.is_last_level_busy(1, KeyRange { first: 10, last: 10 }));
    }

    #[test]
    fn no_more_merges_run_than_there_are_places() {
        let mut merging = Merging::new(3);
        let down = |i: u64| merge(&[i], (10 * i, 10 * i + 9), Target::LastLevel);
        assert!(merging.begin(&down(1)));
        assert!(merging.begin(&down(2)));
        assert!(!merging.begin(&down(3)), "one place is for merges above the last level");
        assert!(merging.begin(&merge(&[9], (0, 9), UP)));
        assert!(!merging.begin(&merge(&[8], (0, 9), UP)));
        assert!(merging.end(&down(1), Ok(())));
        assert!(!merging.end(&down(1), Ok(())), "it has ended");
        assert!(merging.begin(&down(3)));
        assert!(Merging::new(1).begin(&down(1)));
    }

    #[test]
    fn after_a_failure_no_merge_starts_until_a_retry() {
        let mut merging = Merging::new(4);
        let (first, second) = (merge(&[1], (0, 9), UP), merge(&[1], (10, 19), UP));
        assert!(merging.begin(&first) && merging.begin(&second));
        assert!(merging.end(&first, failure()));
        assert!(!merging.begin(&first));
        assert!(merging.end(&second, Ok(())));
        assert!(!merging.begin(&first), "the success of another one changes nothing");
        assert!(merging.take_error().is_some() && merging.take_error().is_none());
        merging.retry();
        assert!(merging.begin(&first));
    }

    #[test]
    fn all_runs_are_merged_until_none_is_left() {
        let mut merging = Merging::new(4);
        assert!(merging.merge_all() && merging.is_all_wanted());
        assert!(merging.descend(vec![1, 2]));
        assert!(!merging.descend(vec![3]));
        merging.retry();
        assert!(merging.is_all_wanted());
        merging.refresh(&Catalog::new(0));
        assert!(!merging.is_all_wanted() && !merging.has_descending());
    }

    #[test]
    fn nothing_starts_after_the_end() {
        let mut merging = Merging::new(4);
        let first = merge(&[1], (0, 9), UP);
        assert!(merging.begin(&first));
        merging.close();
        assert!(!merging.merge_all());
        merging.retry();
        assert!(!merging.begin(&merge(&[2], (0, 9), UP)));
        assert!(merging.end(&first, failure()));
        assert!(merging.is_closed() && !merging.is_running());
    }
}
