//! The state that a filter shares with its background jobs: three state machines under one lock,
//! and ways to wait for their progress.

use super::{
    catalog::{Identity, View},
    jobs::{JobKind, Jobs},
    merging::Merging,
    options::{CascadeSettings, Shares},
    packing::Packing,
    publish::Publisher,
    ram_runs::RamRuns,
    resident::MemoryBudget,
};
use crate::{
    error::{ErrorKind, Result},
    folder::LockedFolder,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

/// The state that a filter and its background jobs share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) identity: Identity,
    pub(super) settings: CascadeSettings,
    pub(super) shares: Shares,
    pub(super) budget: Arc<MemoryBudget>,
    pub(super) publisher: Publisher,
    jobs: Arc<Jobs>,
    shared: Mutex<Shared>,
    /// Notified when [`Shared`] changes, and on [`Progress`] that a caller waits for.
    changed: Condvar,
    progress: Progress,
}

/// The state machines of a filter. A lookup sees all of them at one moment.
#[derive(Debug)]
pub(super) struct Shared {
    view: Arc<View>,
    pub(super) packing: Packing,
    pub(super) ram_runs: RamRuns,
    pub(super) merging: Merging,
    /// Sequence number of the last change that is known to be durable in the log; 0 if none is.
    pub(super) logged: u64,
}

/// The progress of background jobs.
#[derive(Debug, Default)]
struct Progress {
    /// Number of fingerprints that were written to run files.
    moved: AtomicU64,
    /// Whether a caller waits for the progress.
    is_awaited: AtomicBool,
    /// Whether a caller waits for the running packing.
    is_pack_urgent: AtomicBool,
}

impl Core {
    pub(super) fn new(
        folder: LockedFolder,
        (identity, settings): (Identity, CascadeSettings),
        (view, budget): (View, Arc<MemoryBudget>),
    ) -> Core {
        let shares = settings.shares(identity.mode, identity.universe);
        let (logged, view) = (view.logged, Arc::new(view));
        let executor = settings.env.executor.clone();
        let publisher = Publisher::new(folder, identity, executor, view.clone());
        let (packing, ram_runs) = (Packing::new(), RamRuns::new());
        let merging = Merging::new(shares.merges_max);
        Core {
            identity,
            settings,
            budget,
            shares,
            publisher,
            jobs: Arc::default(),
            shared: Mutex::new(Shared { view, packing, ram_runs, merging, logged }),
            changed: Condvar::new(),
            progress: Progress::default(),
        }
    }

    /// Locks the state machines.
    pub(super) fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("nothing panics under this lock")
    }

    /// Returns the current runs.
    pub(super) fn view(&self) -> Arc<View> {
        self.shared().view.clone()
    }

    /// Changes the state machines, and wakes waiting callers.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Shared) -> T) -> T {
        let result = change(&mut self.shared());
        self.changed.notify_all();
        result
    }

    /// Waits until `look` returns a value. Meanwhile, the caller runs jobs of this kind that no
    /// thread has begun.
    pub(super) fn wait_for<T>(
        &self,
        job: JobKind,
        mut look: impl FnMut(&mut Shared) -> Option<T>,
    ) -> T {
        let mut shared = self.shared();
        loop {
            if let Some(found) = look(&mut shared) {
                return found;
            }
            // Checked under the lock, so a job that is added later notifies this thread.
            if self.jobs.needs_help(job) {
                drop(shared);
                self.jobs.help(job);
                shared = self.shared();
            } else {
                shared = self.changed.wait(shared).expect("nothing panics under this lock");
            }
        }
    }

    /// Starts a background job.
    pub(super) fn spawn(
        self: &Arc<Self>,
        kind: JobKind,
        work: impl FnOnce(&Arc<Core>) + Send + 'static,
    ) {
        let core = self.clone();
        self.jobs.spawn(&*self.settings.env.executor, kind, Box::new(move || work(&core)));
        // A waiting caller may run the job.
        self.change(|_| ());
    }

    /// Waits until all background jobs have ended and have dropped their references to the core.
    pub(super) fn finish_jobs(&self) {
        self.jobs.finish_all();
    }

    /// Publishes a change of the catalog, as [`Publisher::publish`] does.
    pub(super) fn publish(&self, made: &[u64], change: impl FnOnce(&mut View)) -> Result<()> {
        let change = |view: &mut View| {
            change(view);
            Some(())
        };
        self.publish_if(made, change, |_| {}).map(drop)
    }

    /// Publishes a catalog as [`Publisher::publish`] does. `then` changes the state machines at the
    /// moment at which lookups begin to see the new runs.
    pub(super) fn publish_if(
        &self,
        made: &[u64],
        change: impl FnOnce(&mut View) -> Option<()>,
        then: impl FnOnce(&mut Shared),
    ) -> Result<bool> {
        self.publisher.publish(made, change, |view| {
            self.change(|shared| {
                shared.merging.refresh(&view);
                shared.view = view;
                then(shared);
            });
        })
    }

    /// Returns the number of fingerprints that background jobs have written to run files.
    pub(super) fn moved(&self) -> u64 {
        self.progress.moved.load(SeqCst)
    }

    /// Adds to the number of written fingerprints. Pauses while a packing is urgent.
    pub(super) fn add_moved(&self, count: u64) {
        self.progress.moved.fetch_add(count, SeqCst);
        if self.progress.is_awaited.swap(false, SeqCst) {
            self.change(|_| ());
        }
        let is_urgent = || self.progress.is_pack_urgent.load(SeqCst);
        if is_urgent() {
            let mut shared = self.shared();
            while shared.packing.is_running() && is_urgent() {
                shared = self.changed.wait(shared).expect("nothing panics under this lock");
            }
        }
    }

    /// Waits until background jobs have written `count` fingerprints in total; `false` if no merge
    /// is running.
    pub(super) fn wait_for_moved(&self, count: u64) -> bool {
        self.wait_for(JobKind::Merge, |shared| {
            // The flag is set first, so that a job that writes from now on sees it.
            self.progress.is_awaited.store(true, SeqCst);
            let is_reached = self.moved() >= count;
            (is_reached || !shared.merging.is_running()).then_some(is_reached)
        })
    }

    /// Gives a running packing priority over other jobs. Returns whether the immutable memtable
    /// still exists.
    pub(super) fn let_pack_go_first(&self) -> bool {
        let shared = self.shared();
        self.progress.is_pack_urgent.store(shared.packing.is_running(), SeqCst);
        !shared.packing.is_idle()
    }

    /// Ends the priority of the packing.
    pub(super) fn end_urgency(&self) {
        self.progress.is_pack_urgent.store(false, SeqCst);
        self.change(|_| ());
    }
}

impl Shared {
    /// Returns the current runs.
    pub(super) fn view(&self) -> &Arc<View> {
        &self.view
    }
}

/// Runs a background job; a panic becomes an error.
pub(super) fn caught(job: &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let caught = catch_unwind(AssertUnwindSafe(work));
    caught.unwrap_or_else(|_| Err(ErrorKind::Panicked { job }.into()))
}
