//! What a filter and its background work share, and how a new state becomes the current one.

use super::{
    memtable::Memtable,
    options::{CascadeSettings, Shares},
    resident::Room,
    run::RunName,
    state::{Identity, View},
    wal,
};
use crate::{
    error::{Error, Result},
    io::{Disk, Lock},
    manifest::Manifest,
};
use std::{
    collections::BTreeSet,
    io, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

/// Shared by a filter and its background work.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) folder: PathBuf,
    pub(super) identity: Identity,
    pub(super) settings: CascadeSettings,
    pub(super) shares: Shares,
    pub(super) room: Arc<Room>,
    shared: Mutex<Shared>,
    /// Something in [`Shared`] changed, or background work went on.
    changed: Condvar,
    /// Held while a manifest is written: one after the other.
    publishing: Mutex<Publishing>,
    /// Files that could not be removed.
    leftovers: Mutex<Vec<PathBuf>>,
    progress: Progress,
    /// Nobody else writes in the folder.
    _lock: Box<dyn Lock>,
}

/// What became of manifests before.
#[derive(Debug, Default)]
struct Publishing {
    /// The highest generation that was tried.
    generation: u64,
    /// Runs of manifests that may be on the device, or not: publishing them failed halfway.
    doubtful: Vec<u64>,
}

/// How far background work is.
#[derive(Debug, Default)]
struct Progress {
    /// Fingerprints that were moved.
    moved: AtomicU64,
    /// Somebody waits for it.
    is_awaited: AtomicBool,
}

/// What changes while the filter is open.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) view: Arc<View>,
    /// A full table that is being flushed.
    pub(super) frozen: Option<Frozen>,
    pub(super) flush: Flush,
    /// A table to be used next.
    pub(super) spare: Option<Memtable>,
    pub(super) next_number: u64,
    /// Runs that are being merged above the last level.
    pub(super) merging: Vec<u64>,
    /// Whether work on the last level is under way.
    pub(super) is_merging_down: bool,
    /// Runs that are being merged into the last level, a shard at a time.
    pub(super) going_down: Vec<u64>,
    /// All runs are to go down.
    pub(super) is_compacting: bool,
    /// Why the last merge failed.
    pub(super) merge_error: Option<Error>,
    /// No new merges are started.
    pub(super) is_closing: bool,
}

/// A table that takes nothing more, and how much was told when it was full.
#[derive(Clone, Debug)]
pub(super) struct Frozen {
    pub(super) table: Arc<Memtable>,
    pub(super) told: u64,
    /// The first log that holds what came after it.
    pub(super) next_log: u64,
}

/// How the flush of the frozen table is getting on.
#[derive(Debug, Default)]
pub(super) enum Flush {
    #[default]
    Idle,
    Running,
    Failed(Error),
}

impl Core {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        folder: PathBuf,
        (identity, settings): (Identity, CascadeSettings),
        view: View,
        lock: Box<dyn Lock>,
    ) -> Core {
        let shares = settings.shares(identity.mode);
        let shared = Shared {
            frozen: None,
            flush: Flush::Idle,
            spare: None,
            next_number: view.next_number,
            merging: Vec::new(),
            is_merging_down: false,
            going_down: Vec::new(),
            is_compacting: false,
            merge_error: None,
            is_closing: false,
            view: Arc::new(view),
        };
        Core {
            disk,
            folder,
            identity,
            settings,
            room: Room::new(shares.runs),
            shares,
            shared: Mutex::new(shared),
            changed: Condvar::new(),
            publishing: Mutex::default(),
            leftovers: Mutex::default(),
            progress: Progress::default(),
            _lock: lock,
        }
    }

    pub(super) fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("nothing panics under this lock")
    }

    /// Tells those who wait that something changed.
    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits for a change.
    pub(super) fn wait<'a>(&self, shared: MutexGuard<'a, Shared>) -> MutexGuard<'a, Shared> {
        self.changed.wait(shared).expect("nothing panics under this lock")
    }

    /// Fingerprints that background work moved so far.
    pub(super) fn moved(&self) -> u64 {
        self.progress.moved.load(SeqCst)
    }

    /// Background work moved so many fingerprints.
    pub(super) fn add_moved(&self, count: u64) {
        self.progress.moved.fetch_add(count, SeqCst);
        if self.progress.is_awaited.swap(false, SeqCst) {
            drop(self.shared());
            self.notify();
        }
    }

    /// Waits until background work moved so many fingerprints in all; `false` if there is none.
    pub(super) fn wait_for_moved(&self, count: u64) -> bool {
        let mut shared = self.shared();
        loop {
            // First the flag: whoever moves more from now on sees it.
            self.progress.is_awaited.store(true, SeqCst);
            if self.moved() >= count {
                return true;
            }
            if !shared.is_merging() {
                return false;
            }
            shared = self.wait(shared);
        }
    }

    /// The number of a new file.
    pub(super) fn new_number(&self) -> u64 {
        let mut shared = self.shared();
        shared.next_number += 1;
        shared.next_number - 1
    }

    /// The run with this number.
    pub(super) fn run_name(&self, number: u64) -> RunName {
        let Identity { seed, id, universe, .. } = self.identity;
        RunName { seed, id, universe, number }
    }

    /// Makes what `change` says the current state, on the device and then for lookups, and removes
    /// the files that it no longer names. `change` gives `None` if it is no longer wanted; then,
    /// and after an error, the runs that were `made` for it are removed.
    pub(super) fn publish(
        &self,
        made: &[u64],
        change: impl FnOnce(&View) -> Option<View>,
        install: impl FnOnce(&mut Shared),
    ) -> Result<bool> {
        let mut publishing = self.publishing.lock().expect("nothing panics under this lock");
        let (old, next_number) = {
            let shared = self.shared();
            (shared.view.clone(), shared.next_number)
        };
        let Some(mut new) = change(&old) else {
            self.discard(made);
            return Ok(false);
        };
        // No two manifests have the same one, also if the first could not be published.
        publishing.generation = old.generation.max(publishing.generation) + 1;
        new.generation = publishing.generation;
        new.next_number = next_number;
        let published = new.manifest(&self.identity).publish(&*self.disk, &self.folder);
        published.inspect_err(|_| {
            // It may have become the current one for all that: then its files stay.
            let current = Manifest::read(&*self.disk, &self.folder);
            if current.is_ok_and(|current| current.generation != new.generation) {
                self.discard(made);
            } else {
                publishing.doubtful.extend(made);
            }
        })?;
        let new = Arc::new(new);
        let mut shared = self.shared();
        shared.view = new.clone();
        install(&mut shared);
        drop(shared);
        self.notify();
        let doubtful = mem::take(&mut publishing.doubtful);
        drop(publishing);
        let leftovers = mem::take(&mut *self.leftovers());
        leftovers.into_iter().for_each(|path| self.remove(path));
        self.discard(&doubtful);
        self.remove_old(&old, &new);
        Ok(true)
    }

    /// Removes the files of one state that are not part of the next.
    fn remove_old(&self, old: &View, new: &View) {
        let kept: BTreeSet<u64> = new.runs().map(|run| run.number()).collect();
        for run in old.runs().filter(|run| !kept.contains(&run.number())) {
            run.set_resident(None);
            self.discard(&[run.number()]);
        }
        for number in old.first_log..new.first_log {
            let path = self.folder.join(wal::name(number));
            if self.disk.exists(&path).unwrap_or(true) {
                self.remove(path);
            }
        }
    }

    /// Removes runs.
    pub(super) fn discard(&self, runs: &[u64]) {
        runs.iter().for_each(|&number| self.remove(self.folder.join(super::run::name(number))));
    }

    /// Removes a file; if that fails, the next state that is published tries again, or else whoever
    /// opens the filter.
    fn remove(&self, path: PathBuf) {
        if self.disk.remove(&path).is_err() && self.disk.exists(&path).unwrap_or(true) {
            self.leftovers().push(path);
        }
    }

    fn leftovers(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.leftovers.lock().expect("nothing panics under this lock")
    }
}

impl Shared {
    pub(super) fn is_merging(&self) -> bool {
        self.is_merging_down || !self.merging.is_empty()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.is_merging() || matches!(self.flush, Flush::Running)
    }

    /// Whether any runs are above the last level.
    pub(super) fn has_uppers(&self) -> bool {
        self.view.epochs.iter().any(|epoch| !epoch.uppers.is_empty())
    }

    /// Forgets plans for runs that are gone.
    pub(super) fn forget_missing(&mut self) {
        let view = self.view.clone();
        self.going_down.retain(|number| view.runs().any(|run| run.number() == *number));
        self.is_compacting &= self.has_uppers();
    }

    /// Takes the error of a flush that failed.
    pub(super) fn take_flush_error(&mut self) -> Option<Error> {
        if !matches!(self.flush, Flush::Failed(_)) {
            return None;
        }
        match mem::take(&mut self.flush) {
            Flush::Failed(error) => Some(error),
            Flush::Idle | Flush::Running => None,
        }
    }
}

/// Does background work; a panic is an error, for those who wait for its end.
pub(super) fn caught(what: &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::io(what, io::Error::other("a panic in the background"))))
}
