//! The cascade filter: its writer, which also answers queries.

use super::{
    catalog::{Epoch, Identity, Upper, View},
    core::{Core, Shared},
    flush,
    jobs::JobKind,
    key_range::KeyRange,
    logs::{self, FilterLog},
    lookup::{Answers, Sources, look_up},
    memtable::{Change, Memtable},
    merges,
    options::{CascadeOptions, CascadeSettings, Shares},
    ordered::PIECE_MAX,
    packing::Immutable,
    ram_runs::RamRuns,
    rate_limit::RateLimit,
    recovery,
    snapshot::Snapshot,
    stats::CascadeStats,
    write::write_run,
};
use crate::{
    error::{Error, ErrorKind, Result},
    filter::Mode,
    fingerprints::{Checked, Fingerprints, Universe, check_alike},
    key::{KeyHash, Seed},
    work::Watch,
};
use std::{fmt, mem, path::Path, sync::Arc};

/// Fingerprints between two calls of a merge's progress callback.
const PROGRESS_STEP: u64 = 4 << 20;

/// A filter on flash for more keys than fit into RAM. In batches, it takes tens of millions of
/// insertions per second, and a lookup takes about one device read.
///
/// Changes go to a memtable first, then in the background to sorted runs, which are merged.
/// [`CascadeFilter::flush`] makes all changes durable. One filter can be open in a folder at a
/// time; [`Snapshot`]s read it at the same time, in this process and in others.
pub struct CascadeFilter {
    core: Arc<Core>,
    active: Memtable,
    /// Sequence number of the last change.
    seq: u64,
    /// Sequence number of the last change before the memtable.
    before: u64,
    /// The log. `None` without a log, and after a failure of the log until runs hold all changes.
    log: Option<FilterLog>,
    rate_limit: RateLimit,
    hashes: Vec<u64>,
}

impl CascadeFilter {
    /// Creates a filter in a folder, which is created if it does not exist.
    ///
    /// # Errors
    /// `Exists` if there is a data set in the folder, `Busy` if another process writes there.
    pub fn create(
        folder: &Path,
        options: &CascadeOptions,
        settings: CascadeSettings,
    ) -> Result<CascadeFilter> {
        settings.check()?;
        let core = recovery::create(folder, Identity::from(options), settings)?;
        core.publish(&[], |_| {})?;
        recovery::end_first(core.publisher.folder())?;
        CascadeFilter::start(Arc::new(core))
    }

    /// Opens the filter in a folder, with all changes that are durable.
    ///
    /// # Errors
    /// `Absent` if there is none, `Busy` if it is open already.
    pub fn open(folder: &Path, settings: CascadeSettings) -> Result<CascadeFilter> {
        settings.check()?;
        let core = recovery::open(folder, settings)?;
        CascadeFilter::start(Arc::new(core))
    }

    pub(super) fn start(core: Arc<Core>) -> Result<CascadeFilter> {
        let view = core.view();
        let seq = view.seq;
        let mut filter = CascadeFilter {
            active: Memtable::new(core.identity.mode, core.shares.slots),
            seq,
            before: seq,
            log: None,
            rate_limit: RateLimit::default(),
            hashes: Vec::new(),
            core,
        };
        filter.replay()?;
        merges::start(&filter.core);
        Ok(filter)
    }

    /// Replays log records that are newer than the manifest, and flushes them.
    fn replay(&mut self) -> Result<()> {
        let core = self.core.clone();
        let wal = logs::open(&core, &mut |change, hashes| self.apply_replayed(change, hashes))?;
        self.flush()?;
        wal.truncate(self.seq)?;
        self.log = core.settings.wal.then(|| FilterLog::new(wal));
        if self.log.is_none() && core.view().logged > 0 {
            self.note_logged(0)?;
        }
        Ok(())
    }

    /// Returns the seed that keys are hashed with.
    pub fn seed(&self) -> Seed {
        self.core.identity.seed
    }

    /// Returns the universe of the fingerprints.
    pub fn universe(&self) -> Universe {
        self.core.identity.universe
    }

    /// Returns whether the filter is a set or a multiset.
    pub fn mode(&self) -> Mode {
        self.core.identity.mode
    }

    /// Hashes a key with the filter's seed.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::of(key, self.seed())
    }

    /// Inserts a key.
    pub fn insert(&mut self, hash: KeyHash) -> Result<()> {
        self.advance_window()?;
        self.apply_one(Change::Insert, hash)
    }

    /// Inserts keys.
    ///
    /// After an error, only the first keys are inserted; [`CascadeFilter::seq`] grows by their
    /// number.
    pub fn insert_batch(&mut self, hashes: &[KeyHash]) -> Result<()> {
        self.advance_window()?;
        self.apply_many(Change::Insert, hashes)
    }

    /// Removes a key.
    ///
    /// Only keys that were inserted may be removed. In a set, removing a key also removes all other
    /// keys with the same fingerprint. In a multiset, removing an absent key cancels the next
    /// insertion with that fingerprint. With [`Universe::EXACT`], two keys with the same
    /// fingerprint do not occur in practice. [`CascadeFilter::remove_present_batch`] looks up first
    /// which keys are present.
    pub fn remove(&mut self, hash: KeyHash) -> Result<()> {
        self.apply_one(Change::Remove, hash)
    }

    /// Removes keys. After an error, only the first keys are removed, as with
    /// [`CascadeFilter::insert_batch`].
    pub fn remove_batch(&mut self, hashes: &[KeyHash]) -> Result<()> {
        self.apply_many(Change::Remove, hashes)
    }

    /// Inserts the keys that are absent. `is_new[i]` is set to whether `hashes[i]` was absent. Of
    /// equal keys in the batch, the first one is new.
    pub fn insert_unique_batch(&mut self, hashes: &[KeyHash], is_new: &mut [bool]) -> Result<()> {
        self.advance_window()?;
        self.find_new_batch(hashes, is_new)?;
        self.apply_some(Change::Insert, hashes, is_new)
    }

    /// Removes the keys that are present. `removed[i]` is set to whether `hashes[i]` was present and
    /// is removed now. Equal keys in the batch are removed as often as they were inserted: in a set
    /// once. Unless the filter is exact, a key that was never inserted may be present, because it
    /// shares its fingerprint with another.
    pub fn remove_present_batch(&mut self, hashes: &[KeyHash], removed: &mut [bool]) -> Result<()> {
        assert_eq!(hashes.len(), removed.len());
        let answers = self.look_up(hashes)?;
        let (mut before, mut left) = (None, 0);
        for (query, count) in answers.queries.iter().zip(answers.counts) {
            let fingerprint = self.universe().scale(query.hash);
            if before.replace(fingerprint) != Some(fingerprint) {
                left = count.max(0);
            }
            removed[query.index as usize] = left > 0;
            left -= i64::from(left > 0);
        }
        self.apply_some(Change::Remove, hashes, removed)
    }

    /// Applies changes of the keys that `is_chosen` marks.
    fn apply_some(&mut self, change: Change, hashes: &[KeyHash], is_chosen: &[bool]) -> Result<()> {
        let mut high = mem::take(&mut self.hashes);
        high.clear();
        high.extend(hashes.iter().zip(is_chosen).filter(|it| *it.1).map(|it| it.0.high()));
        let applied = self.apply_logged(change, &high);
        self.hashes = high;
        applied
    }

    /// Looks up which keys are absent, without inserting them. `is_new[i]` is set to whether
    /// `hashes[i]` is absent; of equal keys in the batch, the first one is new. A caller that
    /// passes on the new keys before it inserts them loses none in a crash.
    pub fn find_new_batch(&self, hashes: &[KeyHash], is_new: &mut [bool]) -> Result<()> {
        assert_eq!(hashes.len(), is_new.len());
        let answers = self.look_up(hashes)?;
        let mut before = None;
        for (query, count) in answers.queries.iter().zip(answers.counts) {
            is_new[query.index as usize] = count <= 0 && before != Some(query.hash);
            before = Some(query.hash);
        }
        Ok(())
    }

    /// Inserts a key if it is absent; returns whether it was absent.
    pub fn insert_unique(&mut self, hash: KeyHash) -> Result<bool> {
        let mut is_new = [false];
        self.insert_unique_batch(&[hash], &mut is_new)?;
        Ok(is_new[0])
    }

    /// Whether a key may be present. No key that is present is missed; [`Universe`] gives the
    /// false-positive rate.
    pub fn contains(&self, hash: KeyHash) -> Result<bool> {
        Ok(self.count(hash)? > 0)
    }

    /// Looks up many keys, with many device reads in flight. `found[i]` is set to whether
    /// `hashes[i]` may be present.
    pub fn contains_batch(&self, hashes: &[KeyHash], found: &mut [bool]) -> Result<()> {
        self.look_up(hashes)?.fill(found, |count| count > 0);
        Ok(())
    }

    /// Returns how often a key was inserted and not removed, or a larger number, because keys with
    /// the same fingerprint are counted together; 0 or 1 in a set.
    pub fn count(&self, hash: KeyHash) -> Result<u64> {
        let mut counts = [0];
        self.count_batch(&[hash], &mut counts)?;
        Ok(counts[0])
    }

    /// Counts many keys, with many device reads in flight. `counts[i]` is set to the count of
    /// `hashes[i]`.
    pub fn count_batch(&self, hashes: &[KeyHash], counts: &mut [u64]) -> Result<()> {
        self.look_up(hashes)?.fill(counts, |count| count.max(0).cast_unsigned());
        Ok(())
    }

    fn look_up(&self, hashes: &[KeyHash]) -> Result<Answers> {
        let (immutable, ram_runs, view) = {
            let shared = self.core.shared();
            let immutable = shared.packing.immutable().map(|it| it.memtable.clone());
            (immutable, shared.ram_runs.runs().clone(), shared.view().clone())
        };
        let Identity { mode, universe, .. } = self.core.identity;
        let (active, immutable) = (Some(&self.active), immutable.as_deref());
        let (ram_runs, view) = (&**ram_runs, &*view);
        let sources = Sources { mode, universe, active, immutable, ram_runs, view };
        look_up(sources, hashes.iter().map(|hash| hash.high()))
    }

    fn apply_one(&mut self, change: Change, hash: KeyHash) -> Result<()> {
        self.apply_logged(change, &[hash.high()])
    }

    fn apply_many(&mut self, change: Change, hashes: &[KeyHash]) -> Result<()> {
        let mut high = mem::take(&mut self.hashes);
        let mut seq = Ok(());
        for piece in hashes.chunks(PIECE_MAX) {
            high.clear();
            high.extend(piece.iter().map(|hash| hash.high()));
            seq = self.apply_logged(change, &high);
            if seq.is_err() {
                break;
            }
        }
        self.hashes = high;
        seq
    }

    /// Applies changes, and writes them to the log if there is one.
    fn apply_logged(&mut self, change: Change, mut hashes: &[u64]) -> Result<()> {
        while !hashes.is_empty() {
            self.make_room()?;
            self.open_log()?;
            let (now, later) = hashes.split_at(hashes.len().min(self.active.free()));
            let logged = self.log.as_mut().map(|log| log.append(change, now));
            // Changes are also applied if the log fails: the log may hold them, and a crash must
            // not bring back changes that were not applied.
            self.take(change, now);
            logged.unwrap_or(Ok(())).inspect_err(|_| self.log = None)?;
            hashes = later;
        }
        Ok(())
    }

    /// Applies changes that are in the log already.
    fn apply_replayed(&mut self, change: Change, mut hashes: &[u64]) -> Result<()> {
        while !hashes.is_empty() {
            self.make_room()?;
            let (now, later) = hashes.split_at(hashes.len().min(self.active.free()));
            self.take(change, now);
            hashes = later;
        }
        Ok(())
    }

    fn take(&mut self, change: Change, hashes: &[u64]) {
        self.active.apply(change, hashes);
        self.seq += hashes.len() as u64;
        self.rate_limit.wait(&self.core, hashes.len());
    }

    /// Makes sure that the memtable can take at least one more change.
    fn make_room(&mut self) -> Result<()> {
        // While the previous memtable is being packed, the current one may grow beyond its usual
        // size.
        let is_due = self.active.is_due() && !self.core.let_pack_go_first();
        if is_due || self.active.free() == 0 {
            self.freeze()?;
            self.rate_limit.set(&self.core)?;
        }
        Ok(())
    }

    /// Starts to pack the memtable in the background, and continues with an empty one.
    ///
    /// # Errors
    /// If there is no memory for another memtable because runs in RAM cannot be flushed. No change is lost,
    /// and the memtable stays.
    fn freeze(&mut self) -> Result<()> {
        self.finish_pack()?;
        // Changes that cancelled each other out may have left the memtable empty.
        if self.seq == self.before {
            return Ok(());
        }
        self.finish_flush(RamRuns::fits)?;
        let core = &self.core;
        let spare = core.change(|shared| shared.packing.take_spare());
        let new = spare.unwrap_or_else(|| Memtable::new(self.mode(), core.shares.slots));
        let memtable = Arc::new(mem::replace(&mut self.active, new));
        self.before = self.seq;
        let seq = self.seq;
        let queued = core.change(|shared| shared.packing.queue(Immutable { memtable, seq }));
        debug_assert!(queued, "no other memtable is immutable");
        flush::start_pack(core);
        self.truncate_log();
        Ok(())
    }

    /// Drops the segments of the log whose changes are all in runs.
    fn truncate_log(&self) {
        // A segment that cannot be removed now is removed by the next call.
        let _ = self.log.as_ref().map(|log| log.truncate(self.core.view().seq));
    }

    /// Waits until there is no immutable memtable. A failed packing is retried once.
    fn finish_pack(&self) -> Result<()> {
        let core = &self.core;
        let start = || {
            if core.change(|shared| shared.packing.retry()) {
                flush::start_pack(core);
            }
        };
        self.finish(JobKind::Pack, start, |shared| {
            let packing = &mut shared.packing;
            let is_over = packing.is_idle() || packing.has_failed();
            is_over.then(|| (packing.is_idle(), packing.take_error()))
        })
    }

    /// Waits until the number of runs in RAM satisfies `is_done`. A failed flush is retried once.
    fn finish_flush(&self, is_done: impl Fn(&RamRuns, &Shares) -> bool) -> Result<()> {
        let core = &self.core;
        let start = || flush::start_flush(core);
        self.finish(JobKind::Flush, start, |shared| {
            let is_done = is_done(&shared.ram_runs, &core.shares);
            let is_over = is_done || !shared.ram_runs.is_flushing();
            is_over.then(|| (is_done, shared.ram_runs.take_error()))
        })
    }

    /// Waits until a job has ended. A failed job is retried once.
    fn finish(
        &self,
        job: JobKind,
        start: impl Fn(),
        over: impl Fn(&mut Shared) -> Option<(bool, Option<Error>)>,
    ) -> Result<()> {
        if self.core.wait_for(job, &over).0 {
            return Ok(());
        }
        start();
        let (is_done, error) = self.core.wait_for(job, &over);
        let unknown = || Error::new(ErrorKind::FailedBefore { action: "flush" });
        if is_done { Ok(()) } else { Err(error.unwrap_or_else(unknown)) }
    }

    /// Opens the log again after a failure, if the filter has a log.
    fn open_log(&mut self) -> Result<()> {
        if !self.core.settings.wal || self.log.is_some() {
            return Ok(());
        }
        // No change is acknowledged in a log while earlier changes may be lost.
        self.flush()?;
        self.log = Some(FilterLog::new(logs::open(&self.core, &mut |_, _| Ok(()))?));
        Ok(())
    }

    /// Returns the sequence number of the last change. Each key of a batch counts as one change.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the sequence number of the last durable change: all changes up to it survive a power
    /// cut.
    pub fn durable_seq(&self) -> u64 {
        let shared = self.core.shared();
        shared.view().seq.max(shared.logged)
    }

    /// Starts to make all changes durable in runs, in the background: they are durable when
    /// [`durable_seq`](CascadeFilter::durable_seq) has reached the [`seq`](CascadeFilter::seq) of
    /// this moment. Waits only if an earlier memtable is still being packed or memory is short.
    ///
    /// # Errors
    /// The errors of [`CascadeFilter::flush`] in earlier background jobs. An error of the new flush
    /// is returned by a later call that needs the memory, or by `flush`.
    pub fn start_flush(&mut self) -> Result<()> {
        self.freeze()?;
        let seq = self.seq;
        self.core.change(|shared| shared.ram_runs.flush_through(seq));
        flush::start_flush(&self.core);
        Ok(())
    }

    /// Waits until all changes are durable in runs.
    ///
    /// # Errors
    /// Errors of writing, such as a full disk. No change is lost, and the next call tries again.
    pub fn flush(&mut self) -> Result<()> {
        self.start_flush()?;
        self.finish_pack()?;
        self.finish_flush(|runs, _| runs.is_empty())?;
        if self.log.as_mut().is_some_and(|log| log.rotate().is_err()) {
            self.log = None;
        }
        self.truncate_log();
        Ok(())
    }

    /// Waits until all changes are durable: in the log, if there is one, or else in runs.
    ///
    /// # Errors
    /// The errors of [`CascadeFilter::flush`].
    pub fn sync(&mut self) -> Result<()> {
        self.truncate_log();
        if self.core.view().seq == self.seq {
            return Ok(());
        }
        match self.sync_log() {
            Some(Ok(())) => return Ok(()),
            Some(Err(_)) => self.log = None,
            None => {}
        }
        // Without the log, runs make the changes durable.
        self.flush()
    }

    /// Waits until all changes are durable in the log, if there is one. Records in the manifest that
    /// the current segment has durable changes, so that its loss is detected.
    fn sync_log(&mut self) -> Option<Result<()>> {
        let committed = self.log.as_mut()?.commit(self.seq);
        let log = self.log.as_ref()?;
        let record = |()| {
            self.core.change(|shared| shared.logged = self.seq);
            let view = self.core.view();
            if view.logged <= view.seq.max(log.segment_seq()) {
                self.note_logged(self.seq)?;
            }
            log.mark()
        };
        Some(committed.and_then(record))
    }

    /// Records in the manifest up to which change the log is durable.
    fn note_logged(&self, logged: u64) -> Result<()> {
        let change = |view: &mut View| {
            view.logged = logged;
            Some(())
        };
        self.core.publish_if(&[], change, |shared| shared.logged = logged).map(drop)
    }

    /// Merges all runs into the last level, where each lookup takes one device read. Waits until
    /// that is done.
    pub fn merge(&mut self) -> Result<()> {
        self.merge_with(&Watch::default())
    }

    /// Merges all runs into the last level. `watch` counts fingerprints written; if it ends the call,
    /// the merge goes on in the background.
    pub fn merge_with(&mut self, watch: &Watch) -> Result<()> {
        self.flush()?;
        let core = &self.core;
        let wanted = core.change(|shared| {
            let wanted = shared.merging.merge_all();
            let view = shared.view().clone();
            shared.merging.refresh(&view);
            wanted
        });
        debug_assert!(wanted, "the filter is open");
        let mut seen = core.moved();
        merges::start(core);
        while core.wait_for_moved(core.moved() + PROGRESS_STEP) {
            let moved = core.moved();
            watch.add(moved - seen)?;
            seen = moved;
        }
        let error = core.change(|shared| shared.merging.take_error());
        core.publisher.finish_removing();
        error.map_or(Ok(()), Err)
    }

    /// Makes all changes durable, and waits until no merge is due any more: the filter then uses
    /// neither processor nor device until the next change.
    ///
    /// # Errors
    /// The errors of [`CascadeFilter::flush`], and those of merges in the background.
    pub fn wait_for_merges(&mut self) -> Result<()> {
        self.flush()?;
        merges::start(&self.core);
        while self.core.wait_for_moved(u64::MAX) {}
        let error = self.core.change(|shared| shared.merging.take_error());
        self.core.publisher.finish_removing();
        error.map_or(Ok(()), Err)
    }

    /// Returns the number of the current epoch, to which new changes belong; the first one is 0.
    pub fn epoch(&self) -> u64 {
        self.core.view().epochs[0].number
    }

    /// Moves the filter's [`Window`](super::Window) to the present moment of the clock of its
    /// [`Env`](crate::env::Env): begins the current epoch, and drops the epochs that are older than the
    /// window, in one step. Returns the number of dropped epochs. Insertions do this by themselves.
    /// Does nothing without a window, within an epoch, and if the clock was set back.
    pub fn advance_window(&mut self) -> Result<u64> {
        let Some(window) = self.core.identity.window else { return Ok(0) };
        let now = self.core.settings.env.clock.unix_time();
        if window.epoch_at(now) <= self.epoch() {
            return Ok(0);
        }
        self.flush()?;
        let mut dropped = 0;
        self.core.publish(&[], |view| dropped = view.advance(window, now))?;
        self.core.publisher.finish_removing();
        merges::start(&self.core);
        Ok(dropped)
    }

    /// Begins a new epoch, and returns its number: the changes of older epochs can then be expired
    /// separately. All changes so far are durable when this returns.
    ///
    /// # Errors
    /// `Argument` if the filter has a window of time, which advances by the clock.
    pub fn advance_epoch(&mut self) -> Result<u64> {
        if self.core.identity.window.is_some() {
            let expected = "one without a window of time, which advances by the clock";
            return Err(Error::argument("filter to advance by hand", expected, "another"));
        }
        self.flush()?;
        self.core.publish(&[], |view| {
            view.epochs.insert(0, Epoch::new(view.epochs[0].number + 1));
        })?;
        merges::start(&self.core);
        Ok(self.epoch())
    }

    /// Expires the changes of all epochs before `epoch`, without reading or writing them. Later
    /// removals of expired keys have no effect any more. The current epoch always stays.
    pub fn expire_before(&mut self, epoch: u64) -> Result<()> {
        self.core.publish(&[], |view| {
            let current = view.epochs[0].number;
            view.epochs.retain(|it| it.number >= epoch || it.number == current);
        })?;
        self.core.publisher.finish_removing();
        Ok(())
    }

    /// Inserts all fingerprints of a run, such as another filter's. They count as newer than all
    /// changes so far, and are durable when this returns.
    ///
    /// # Errors
    /// `WrongSeed` if the fingerprints are of another seed, `Mismatch` if of another universe.
    pub fn insert_run(&mut self, run: &mut dyn Fingerprints, items_max: u64) -> Result<()> {
        check_alike((self.seed(), self.universe()), (run.seed(), run.universe()))?;
        self.advance_window()?;
        self.flush()?;
        let Some(run) = write_run(&self.core, &mut Checked::new(run), items_max)? else {
            return Ok(());
        };
        let ranges = KeyRange::all(self.universe()).into();
        let upper = Upper { run: run.clone(), tier: u8::MAX, ranges };
        self.core.publish(&[run.number()], |view| view.epochs[0].uppers.insert(0, upper))?;
        merges::start(&self.core);
        Ok(())
    }

    /// Returns the current runs.
    #[cfg(test)]
    pub(super) fn view(&self) -> Arc<View> {
        self.core.view()
    }

    /// Returns a snapshot of all changes so far, which other threads can read during further
    /// changes. The files of the snapshot stay on the device as long as it exists.
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        self.flush()?;
        let core = &self.core;
        Ok(Snapshot::new(core.identity, core.view(), &core.settings))
    }

    /// Returns the filter's statistics. Reads nothing.
    pub fn stats(&self) -> CascadeStats {
        let shared = self.core.shared();
        let immutable = shared.packing.immutable().map_or(0, |it| it.memtable.len());
        let ram_runs = &shared.ram_runs;
        let in_runs: u64 = ram_runs.runs().iter().map(|it| it.run.len()).sum();
        let pending = (self.active.len() + immutable) as u64 + in_runs;
        let memory = self.core.shares.memtables + ram_runs.bytes() + ram_runs.spare_bytes();
        let memory = memory + self.core.budget.kept();
        CascadeStats::new(&self.core.identity, shared.view(), pending, memory as u64)
    }

    /// Makes all changes durable, and closes the filter.
    pub fn close(mut self) -> Result<()> {
        self.flush()
    }
}

impl Drop for CascadeFilter {
    /// Waits until the background jobs have ended. Changes that are not durable are lost.
    fn drop(&mut self) {
        self.core.change(|shared| {
            shared.ram_runs.close();
            shared.merging.close();
        });
        // The executor and the lock of the folder are dropped in this thread, not in a thread of
        // the executor.
        self.core.finish_jobs();
        // The log is dropped while the folder is locked, because it writes a mark.
        self.log = None;
    }
}

impl fmt::Debug for CascadeFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.core.publisher.folder().path.display();
        write!(f, "CascadeFilter({path}, seq {})", self.seq)
    }
}
