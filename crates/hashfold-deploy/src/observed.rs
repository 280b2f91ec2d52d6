//! The state of a follower, for other threads.

use crate::{error::Error, ready::Readiness};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The state of a follower, which other threads may look at at any time, also during a transfer. Clones
/// are the same state.
#[derive(Clone, Debug, Default)]
pub struct FollowState(Arc<Mutex<Observed>>);

/// The state of a follower at one moment.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The report of the node, with the progress of a transfer.
    pub report: Readiness,
    /// The time, by the clock, when the last look at the pointer began. The follower looks at least twice a minute,
    /// also during transfers, unless the system holds it up.
    pub looked_at: Option<Duration>,
    /// The time, by the clock, since which the pointer cannot be read; `None` while it can be.
    pub unreachable_since: Option<Duration>,
    /// The versions that the node should answer from and does not, by store, and the time, by the clock, from which on
    /// it should; `None` if there are none.
    pub late: Option<(BTreeMap<String, u64>, Duration)>,
    /// The error of the last step: of the pointer, a transfer, or an activation.
    pub error: Option<String>,
}

impl FollowState {
    /// Returns the state at this moment.
    pub fn get(&self) -> Observed {
        self.lock().clone()
    }

    pub(crate) fn report(&self, report: &Readiness) {
        self.lock().report.clone_from(report);
    }

    /// Notes that a look at the pointer begins.
    pub(crate) fn looking(&self, now: Duration) {
        self.lock().looked_at = Some(now);
    }

    /// Notes whether the pointer could be read.
    pub(crate) fn looked(&self, is_read: bool, now: Duration) {
        let mut state = self.lock();
        state.unreachable_since = match is_read {
            true => None,
            false => Some(state.unreachable_since.unwrap_or(now)),
        };
    }

    /// Notes the versions that the node does not answer from yet, by store, and the time from which on it should.
    pub(crate) fn expected(&self, versions: BTreeMap<String, u64>, due: Duration, now: Duration) {
        let mut state = self.lock();
        // A node that is late already is not excused by a newer version.
        let late_since = state.late.take().map(|(_, since)| since).filter(|since| *since <= now);
        state.late = (!versions.is_empty()).then_some((versions, late_since.unwrap_or(due)));
    }

    /// Notes the end of a step.
    pub(crate) fn ended(&self, error: Option<&Error>) {
        self.lock().error = error.map(Error::to_string);
    }

    /// A state is never half written, so it can be used after a panic.
    fn lock(&self) -> MutexGuard<'_, Observed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
