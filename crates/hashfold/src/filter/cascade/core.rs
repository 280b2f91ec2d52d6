//! What a filter and its background work share, and how a new state becomes the current one.

use super::{
    catalog::{Identity, View},
    memtable::Memtable,
    obsolete::Obsolete,
    options::{CascadeSettings, Shares},
    resident::MemoryBudget,
    run_file::RunName,
    wal,
};
use crate::{
    error::{Error, ErrorKind, Result},
    filter::PackedRun,
    folder::LockedFolder,
    io::Disk,
    manifest::Manifest,
};
use std::{
    collections::BTreeSet,
    mem,
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
    pub(super) budget: Arc<MemoryBudget>,
    shared: Mutex<Shared>,
    /// Something in [`Shared`] changed, or background work went on.
    changed: Condvar,
    /// Held while a manifest is written: one after the other.
    publishing: Mutex<Publishing>,
    pub(super) obsolete: Arc<Obsolete>,
    progress: Progress,
    /// Nobody else writes in the folder.
    _lock: LockedFolder,
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
    /// The table that is being packed is to be done before anything else.
    is_pack_urgent: AtomicBool,
}

/// What changes while the filter is open.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) view: Arc<View>,
    /// A full table that is being packed.
    pub(super) frozen: Option<Frozen>,
    pub(super) pack: Errand,
    /// The packing has begun.
    is_packing: bool,
    /// Runs in memory only, the newest first.
    pub(super) packed: Arc<Vec<Packed>>,
    pub(super) flush: Errand,
    /// All of them are to be flushed, however few.
    pub(super) is_flush_wanted: bool,
    /// A table to be used next.
    pub(super) spare: Option<Memtable>,
    /// Memory for runs to be packed next.
    pub(super) spare_packed: Vec<PackedRun>,
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

/// A table that takes nothing more.
#[derive(Clone, Debug)]
pub(super) struct Frozen {
    pub(super) table: Arc<Memtable>,
    pub(super) end: End,
}

/// A run in memory only.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    pub(super) run: Arc<PackedRun>,
    pub(super) end: End,
}

/// Where what a table took ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// Changes told up to there, from the filter's beginning.
    pub(super) seq: u64,
    /// The first log that holds what came after it.
    pub(super) next_log: u64,
}

/// How something that is done in the background is getting on.
#[derive(Debug, Default)]
pub(super) enum Errand {
    #[default]
    Idle,
    Running,
    Failed(Error),
}

impl Core {
    pub(super) fn new(
        folder: LockedFolder,
        (identity, settings): (Identity, CascadeSettings),
        (view, budget): (View, Arc<MemoryBudget>),
    ) -> Core {
        let shares = settings.shares(identity.mode, identity.universe);
        let shared = Shared {
            frozen: None,
            pack: Errand::Idle,
            is_packing: false,
            packed: Arc::default(),
            flush: Errand::Idle,
            is_flush_wanted: false,
            spare: None,
            spare_packed: Vec::new(),
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
            folder: folder.path.clone(),
            disk: folder.disk.clone(),
            identity,
            settings,
            budget,
            shares,
            shared: Mutex::new(shared),
            changed: Condvar::new(),
            publishing: Mutex::default(),
            obsolete: Obsolete::new(folder.disk.clone()),
            progress: Progress::default(),
            _lock: folder,
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

    /// Whether a table is being packed; if so, all other work waits for it from now on.
    pub(super) fn hurry_pack(&self) -> bool {
        let shared = self.shared();
        self.progress.is_pack_urgent.store(shared.is_packing, SeqCst);
        shared.has_table_to_pack()
    }

    /// Lets a table that somebody waits for be packed.
    pub(super) fn let_pack_go_first(&self) {
        if self.progress.is_pack_urgent.load(SeqCst) {
            let mut shared = self.shared();
            while shared.is_packing && self.progress.is_pack_urgent.load(SeqCst) {
                shared = self.wait(shared);
            }
        }
    }

    /// Begins to pack; the table to be packed.
    pub(super) fn begin_pack(&self) -> Option<Frozen> {
        let mut shared = self.shared();
        shared.is_packing = true;
        shared.frozen.clone()
    }

    /// Packing ended so.
    pub(super) fn end_pack(&self, result: Result<()>) {
        let mut shared = self.shared();
        shared.is_packing = false;
        self.progress.is_pack_urgent.store(false, SeqCst);
        shared.pack.end(result);
        drop(shared);
        self.notify();
    }

    /// The number of a new file.
    pub(super) fn new_number(&self) -> u64 {
        let mut shared = self.shared();
        shared.next_number += 1;
        shared.next_number - 1
    }

    /// The run with this number.
    pub(super) fn run_name(&self, number: u64) -> RunName {
        self.identity.run(number)
    }

    /// The generation of the manifest that is current, and on the device.
    pub(super) fn generation(&self) -> u64 {
        self.shared().view.generation
    }

    /// Makes what `change` says the current state, on the device and then for lookups; the files
    /// that it no longer names are removed soon. `change` gives `None` if it is no longer wanted; then,
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
        // Before anybody can wait for them to be removed.
        self.drop_runs(&mem::take(&mut publishing.doubtful));
        self.drop_old(&old, &new);
        let mut shared = self.shared();
        shared.view = Arc::new(new);
        install(&mut shared);
        drop((shared, publishing));
        self.notify();
        self.obsolete.start_removing(&*self.settings.executor);
        Ok(true)
    }

    /// Has the files removed of one state that are not part of the next.
    fn drop_old(&self, old: &View, new: &View) {
        let kept: BTreeSet<u64> = new.runs().map(|run| run.number()).collect();
        for run in old.runs().filter(|run| !kept.contains(&run.number())) {
            run.set_resident(None);
            self.drop_runs(&[run.number()]);
        }
        let logs = (old.first_log..new.first_log).map(|number| self.folder.join(wal::name(number)));
        self.obsolete.add(logs.filter(|path| self.disk.exists(path).unwrap_or(true)));
    }

    fn drop_runs(&self, runs: &[u64]) {
        let path = |&number: &u64| self.folder.join(super::run_file::name(number));
        self.obsolete.add(runs.iter().map(path));
    }

    /// Removes runs of something that failed.
    pub(super) fn discard(&self, runs: &[u64]) {
        self.drop_runs(runs);
        self.obsolete.remove_all();
    }
}

impl Shared {
    pub(super) fn is_merging(&self) -> bool {
        self.is_merging_down || !self.merging.is_empty()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.is_merging() || self.pack.is_running() || self.flush.is_running()
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

    /// Whether a table is being packed, or waits for that. Until the one that packs is done with
    /// it, also after the packed run has taken its place.
    pub(super) fn has_table_to_pack(&self) -> bool {
        self.frozen.is_some() || self.pack.is_running()
    }

    /// Of what is packed, in bytes.
    pub(super) fn packed_bytes(&self) -> usize {
        self.packed.iter().map(|packed| packed.run.bytes()).sum()
    }

    /// Memory that is kept for runs to be packed next, in bytes.
    pub(super) fn spare_bytes(&self) -> usize {
        self.spare_packed.iter().map(PackedRun::bytes).sum()
    }

    /// Whether there is memory for one more packed run.
    pub(super) fn fits(&self, shares: &Shares) -> bool {
        let count = self.packed.len();
        count == 0
            || count < shares.packed_max && self.packed_bytes() + shares.packed_one <= shares.packed
    }

    /// Keeps packed runs that are of no use any more for their memory, as far as the share of
    /// packed runs goes.
    pub(super) fn spare(&mut self, runs: impl Iterator<Item = PackedRun>, shares: &Shares) {
        self.spare_packed.extend(runs);
        let free = shares.packed.saturating_sub(self.packed_bytes());
        let mut bytes = 0;
        self.spare_packed.retain(|run| {
            bytes += run.bytes();
            bytes <= free
        });
    }

    /// Whether what is packed is to be flushed.
    pub(super) fn is_flush_due(&self, shares: &Shares) -> bool {
        let count = self.packed.len();
        count > 0
            && !self.is_closing
            && (self.is_flush_wanted
                || count >= shares.packed_max.div_ceil(2)
                || self.packed_bytes() >= shares.packed / 2)
    }
}

impl Errand {
    pub(super) fn is_running(&self) -> bool {
        matches!(self, Errand::Running)
    }

    /// It ended so.
    pub(super) fn end(&mut self, result: Result<()>) {
        *self = result.map_or_else(Errand::Failed, |()| Errand::Idle);
    }

    /// Takes the error, if it failed.
    pub(super) fn take_error(&mut self) -> Option<Error> {
        match mem::take(self) {
            Errand::Failed(error) => Some(error),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// Does background work; a panic is an error, for those who wait for its end.
pub(super) fn caught(job: &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let caught = catch_unwind(AssertUnwindSafe(work));
    caught.unwrap_or_else(|_| Err(ErrorKind::Panicked { job }.into()))
}
