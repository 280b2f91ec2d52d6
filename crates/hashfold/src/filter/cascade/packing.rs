//! The state of the immutable memtable: a memtable that takes no more changes, on its way to a run
//! in RAM.
//!
//! ```text
//! Idle ── queue ─→ Queued ── begin ─→ Running ── packed ─→ Recycling ── recycled ─→ Idle
//!                    ↑                   │ failed
//!                    └── retry ── Failed ←┘
//! ```

use super::memtable::Memtable;
use crate::error::Error;
use std::{mem, sync::Arc};

/// A memtable that takes no more changes.
#[derive(Clone, Debug)]
pub(super) struct Immutable {
    pub(super) memtable: Arc<Memtable>,
    /// Sequence number of the last change in the memtable.
    pub(super) seq: u64,
}

/// The state machine of the immutable memtable. A refused transition changes nothing.
#[derive(Debug)]
pub(super) struct Packing(Phase);

#[derive(Debug)]
enum Phase {
    /// There is no immutable memtable. The memory of the last one may be kept for the next.
    Idle {
        spare: Option<Memtable>,
    },
    /// No thread has begun to pack the memtable.
    Queued(Immutable),
    Running(Immutable),
    /// The run in RAM has replaced the memtable, whose memory is being cleared.
    Recycling,
    /// The packing failed and can be retried. The error stays until a caller takes it.
    Failed(Immutable, Option<Error>),
}

impl Packing {
    pub(super) fn new() -> Packing {
        Packing(Phase::Idle { spare: None })
    }

    /// Returns the immutable memtable, until a run in RAM has replaced it.
    pub(super) fn immutable(&self) -> Option<&Immutable> {
        match &self.0 {
            Phase::Queued(it) | Phase::Running(it) | Phase::Failed(it, _) => Some(it),
            Phase::Idle { .. } | Phase::Recycling => None,
        }
    }

    /// Whether the next memtable may become the immutable one.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.0, Phase::Idle { .. })
    }

    /// Whether packing has begun and not ended.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.0, Phase::Running(_) | Phase::Recycling)
    }

    /// Whether the packing failed, and a caller can retry it.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self.0, Phase::Failed(..))
    }

    /// Takes the memory of an earlier memtable, as an empty memtable.
    pub(super) fn take_spare(&mut self) -> Option<Memtable> {
        match &mut self.0 {
            Phase::Idle { spare } => spare.take(),
            _ => None,
        }
    }

    /// Queues a full memtable; refused while there is an immutable memtable.
    #[must_use]
    pub(super) fn queue(&mut self, immutable: Immutable) -> bool {
        self.step(|state| match state {
            Phase::Idle { .. } => Ok(Phase::Queued(immutable)),
            other => Err(other),
        })
    }

    /// Begins to pack the queued memtable.
    pub(super) fn begin(&mut self) -> Option<Immutable> {
        let begun = self.step(|state| match state {
            Phase::Queued(it) => Ok(Phase::Running(it)),
            other => Err(other),
        });
        self.immutable().filter(|_| begun).cloned()
    }

    /// Drops the memtable, which a run in RAM has replaced.
    #[must_use]
    pub(super) fn packed(&mut self) -> bool {
        self.step(|state| match state {
            Phase::Running(_) => Ok(Phase::Recycling),
            other => Err(other),
        })
    }

    /// Ends the packing. `spare` is the memory of the memtable, if no lookup uses it.
    #[must_use]
    pub(super) fn recycled(&mut self, spare: Option<Memtable>) -> bool {
        self.step(|state| match state {
            Phase::Recycling => Ok(Phase::Idle { spare }),
            other => Err(other),
        })
    }

    /// Ends the packing with an error. The memtable stays if no run has replaced it.
    #[must_use]
    pub(super) fn failed(&mut self, error: Error) -> bool {
        self.step(|state| match state {
            Phase::Running(it) => Ok(Phase::Failed(it, Some(error))),
            Phase::Recycling => Ok(Phase::Idle { spare: None }),
            other => Err(other),
        })
    }

    /// Queues a memtable again after a failed packing.
    #[must_use]
    pub(super) fn retry(&mut self) -> bool {
        self.step(|state| match state {
            Phase::Failed(it, _) => Ok(Phase::Queued(it)),
            other => Err(other),
        })
    }

    /// Takes the error of the last failure.
    pub(super) fn take_error(&mut self) -> Option<Error> {
        match &mut self.0 {
            Phase::Failed(_, error) => error.take(),
            _ => None,
        }
    }

    /// Moves to the next state, or keeps the state that `next` returns as an error.
    fn step(&mut self, next: impl FnOnce(Phase) -> Result<Phase, Phase>) -> bool {
        let next = next(mem::replace(&mut self.0, Phase::Recycling));
        let is_legal = next.is_ok();
        self.0 = next.unwrap_or_else(|same| same);
        is_legal
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::ErrorKind, filter::Mode};

    fn immutable() -> Immutable {
        let memtable = Arc::new(Memtable::new(Mode::Set, 1 << 10));
        Immutable { memtable, seq: 7 }
    }

    fn error() -> Error {
        ErrorKind::Panicked { job: "pack" }.into()
    }

    /// Returns the machine after the first `steps` of `queue`, `begin`, `packed`.
    fn after(steps: usize) -> Packing {
        let mut packing = Packing::new();
        assert!(steps < 1 || packing.queue(immutable()));
        assert!(steps < 2 || packing.begin().is_some());
        assert!(steps < 3 || packing.packed());
        packing
    }

    fn failed() -> Packing {
        let mut packing = after(2);
        assert!(packing.failed(error()));
        packing
    }

    #[test]
    fn a_memtable_goes_through_all_states() {
        let mut packing = after(3);
        assert!(packing.is_running() && packing.immutable().is_none());
        assert!(packing.recycled(Some(Memtable::new(Mode::Set, 1 << 10))));
        assert!(packing.is_idle());
        assert!(packing.take_spare().is_some() && packing.take_spare().is_none());
    }

    #[test]
    fn a_memtable_that_could_not_be_packed_stays_and_is_tried_again() {
        let mut packing = failed();
        assert!(packing.has_failed() && packing.immutable().is_some());
        assert!(packing.take_error().is_some() && packing.take_error().is_none());
        assert!(packing.retry());
        assert_eq!(packing.begin().unwrap().seq, 7);
        assert!(packing.packed() && packing.failed(error()));
        assert!(packing.is_idle(), "its run is there");
    }

    /// Each state refuses all transitions but its own, and does not change.
    #[test]
    fn illegal_transitions_are_refused() {
        type Step = fn(&mut Packing) -> bool;
        let steps: [(&str, Step); 6] = [
            ("queue", |it| it.queue(immutable())),
            ("begin", |it| it.begin().is_some()),
            ("packed", Packing::packed),
            ("recycled", |it| it.recycled(None)),
            ("failed", |it| it.failed(error())),
            ("retry", Packing::retry),
        ];
        type Make = fn() -> Packing;
        let states: [(Make, &[&str]); 5] = [
            (|| after(0), &["queue"]),
            (|| after(1), &["begin"]),
            (|| after(2), &["packed", "failed"]),
            (|| after(3), &["recycled", "failed"]),
            (failed, &["retry"]),
        ];
        for (make, legal) in states {
            for (name, step) in steps {
                let mut packing = make();
                let before = mem::discriminant(&packing.0);
                assert_eq!(step(&mut packing), legal.contains(&name), "{name} of {packing:?}");
                let is_same = mem::discriminant(&packing.0) == before;
                assert_eq!(is_same, !legal.contains(&name), "{name} of {packing:?}");
            }
        }
    }
}
