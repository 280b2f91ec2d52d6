//! What a follower does during a transfer: it reports the progress, looks at the pointer, and interrupts
//! the transfer if there is something more urgent.

use crate::{
    objects::Tag, observed::FollowState, ready::Readiness, remote::Remote, swap::read_pointer,
};
use hashfold::{
    ErrorKind as StoreErrorKind,
    work::{Clock, Signal, Watch},
};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// Time between two reports of the progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// The circumstances of a transfer.
pub(crate) struct Lookout {
    pub(crate) remote: Remote,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) group: String,
    pub(crate) node: String,
    /// Time between two looks at the pointer.
    pub(crate) poll: Duration,
    /// The pointer that named the version: its tag and its sequence number.
    pub(crate) tag: Option<Tag>,
    pub(crate) seq: u64,
    /// Time at which other versions, which are ready, must be activated, since 1970.
    pub(crate) due: Option<Duration>,
    /// Interrupts the transfer when it is sent: when its count is no longer `seen`.
    pub(crate) stop: Signal,
    pub(crate) seen: u64,
    pub(crate) state: FollowState,
    /// The store and the number of the version that is fetched.
    pub(crate) version: (String, u64),
    pub(crate) report: Readiness,
}

/// The progress of a transfer.
struct Progress {
    report: Readiness,
    bytes: u64,
    next_look: Duration,
    next_report: Duration,
}

impl Lookout {
    /// Returns a watch for the transfer, and a flag that says whether the transfer was interrupted for
    /// something more urgent.
    pub(crate) fn watch(mut self) -> (Watch, Arc<AtomicBool>) {
        let now = self.clock.now();
        let progress = Mutex::new(Progress {
            report: std::mem::take(&mut self.report),
            bytes: 0,
            next_look: now + self.poll,
            next_report: now + REPORT_INTERVAL,
        });
        let is_interrupted = Arc::new(AtomicBool::new(false));
        let interrupted = is_interrupted.clone();
        let watch = Watch::new(move |more| {
            // The numbers are only reported, so they may be slightly wrong after a panic.
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress.bytes += more;
            if self.stop.count() != self.seen {
                return Err(StoreErrorKind::Stopped.into());
            }
            if self.is_urgent(&mut progress) {
                interrupted.store(true, Relaxed);
                return Err(StoreErrorKind::Stopped.into());
            }
            self.report(&mut progress);
            Ok(())
        });
        (watch, is_interrupted)
    }

    /// Whether other versions are due, or the pointer has changed.
    fn is_urgent(&self, progress: &mut Progress) -> bool {
        if self.due.is_some_and(|due| self.clock.unix_time() >= due) {
            return true;
        }
        let now = self.clock.now();
        if now < progress.next_look {
            return false;
        }
        progress.next_look = now + self.poll;
        self.state.looking(now);
        // Without an answer the transfer goes on; it has its own errors.
        let seen = read_pointer(&self.remote, &self.group, self.tag.as_ref());
        self.state.looked(seen.is_ok(), now);
        matches!(seen, Ok(Some(seen)) if seen.pointer.seq > self.seq)
    }

    /// Reports the progress from time to time, so that controllers wait for this node.
    fn report(&self, progress: &mut Progress) {
        let now = self.clock.now();
        if now < progress.next_report {
            return;
        }
        progress.next_report = now + REPORT_INTERVAL;
        let (store, number) = &self.version;
        let versions = progress.report.versions.get_mut(store);
        if let Some(version) = versions.and_then(|versions| versions.get_mut(number)) {
            version.bytes = progress.bytes;
        }
        self.state.report(&progress.report);
        progress.report.at_ms = self.clock.unix_time().as_millis() as u64;
        // The report is a courtesy: a node that cannot write it may still be able to read.
        let _ = progress.report.write(&self.remote, &self.group, &self.node);
    }
}
