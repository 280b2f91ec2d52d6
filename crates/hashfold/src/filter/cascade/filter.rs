//! The filter that takes what is told, and answers.

use super::{
    core::{Core, Flush, Frozen, Shared},
    flush, lookup, merges,
    memtable::{Change, Memtable},
    options::{CascadeOptions, CascadeSettings},
    ordered::PIECE_MAX,
    recovery,
    run::Run,
    snapshot::Snapshot,
    state::{Epoch, Identity, Upper, View},
    stats::CascadeStats,
    wal::Wal,
};
use crate::{
    error::{Error, ErrorKind, Result},
    filter::{Fingerprints, Mode, Universe},
    io::Disk,
    key::{KeyHash, Seed},
};
use std::{
    fmt, mem,
    path::Path,
    sync::{Arc, MutexGuard},
};

/// With so many runs of the newest kind, whoever inserts waits for merges in proportion to what he
/// inserts.
const DEBT_RUNS: usize = 24;
/// What he waits for: so many fingerprints moved for each one inserted.
const MOVES_OWED: u64 = 4;
/// With so many runs of the newest kind, an error of merging is an error of inserting.
const DEBT_RUNS_MAX: usize = 192;

/// A filter on flash for more keys than fit in RAM: takes tens of millions of them a second, and
/// finds one with one device read.
///
/// What it is told goes to a table in memory first, then in the background to sorted runs, and
/// those are merged. [`CascadeFilter::flush`] makes all of it durable. There is one filter open in a
/// folder at a time; [`Snapshot`]s read beside it, in this process and others.
pub struct CascadeFilter {
    core: Arc<Core>,
    active: Memtable,
    /// Changes told so far, from the filter's beginning.
    told: u64,
    /// Of these, how many are in the log on the device.
    logged: u64,
    wal: Option<Wal>,
    /// The number of the next log.
    next_log: u64,
    hashes: Vec<u64>,
}

impl CascadeFilter {
    /// A new filter in a folder, which is made if it is not there.
    ///
    /// # Errors
    /// `Exists` if there is a data set in the folder, `Busy` if another process writes there.
    pub fn create(
        disk: Arc<dyn Disk>,
        folder: &Path,
        options: &CascadeOptions,
        settings: CascadeSettings,
    ) -> Result<CascadeFilter> {
        settings.check()?;
        let core = recovery::create(disk, folder, Identity::from(options), settings)?;
        CascadeFilter::start(Arc::new(core))
    }

    /// Opens the filter of a folder, with all that was durable when it was last written to.
    ///
    /// # Errors
    /// `Absent` if there is none, `Busy` if it is open already.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        settings: CascadeSettings,
    ) -> Result<CascadeFilter> {
        settings.check()?;
        let core = recovery::open(disk, folder, settings)?;
        CascadeFilter::start(Arc::new(core))
    }

    fn start(core: Arc<Core>) -> Result<CascadeFilter> {
        let told = core.shared().view.told;
        let mut filter = CascadeFilter {
            active: Memtable::new(core.identity.mode, core.shares.slots),
            told,
            logged: told,
            wal: None,
            next_log: core.shared().view.first_log,
            hashes: Vec::new(),
            core,
        };
        filter.replay()?;
        merges::start(&filter.core);
        Ok(filter)
    }

    /// Takes over what logs hold and runs do not.
    fn replay(&mut self) -> Result<()> {
        let logs = recovery::logs(&self.core)?;
        let Some(&last) = logs.last() else {
            return self.new_log();
        };
        let core = self.core.clone();
        let Identity { seed, id, .. } = core.identity;
        // What is flushed meanwhile does not make the logs needless before all is.
        for &number in &logs {
            let told = self.told;
            super::wal::replay(&*core.disk, &core.folder, number, (seed, id), told, &mut |change, hashes| {
                self.tell(change, hashes)
            })?;
        }
        self.next_log = last + 1;
        self.freeze()?;
        self.wait_for_flush()?;
        self.new_log()
    }

    /// The seed of the hashes.
    pub fn seed(&self) -> Seed {
        self.core.identity.seed
    }

    /// The fingerprints of the filter.
    pub fn universe(&self) -> Universe {
        self.core.identity.universe
    }

    /// A set or a multiset.
    pub fn mode(&self) -> Mode {
        self.core.identity.mode
    }

    /// The hash of a key, as all calls take it.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash::of(key, self.seed())
    }

    /// Puts a key in.
    pub fn insert(&mut self, hash: KeyHash) -> Result<()> {
        self.tell_one(Change::Insert, hash)
    }

    /// Puts keys in.
    ///
    /// # Errors
    /// After an error the first of them are in: as many as [`CascadeFilter::told`] went up by.
    pub fn insert_batch(&mut self, hashes: &[KeyHash]) -> Result<()> {
        self.tell_many(Change::Insert, hashes)
    }

    /// Takes a key out.
    ///
    /// Only what was put in should be taken out. In a set, a key that has the same fingerprint as
    /// another one takes it along; in a multiset, taking out what is not in makes the filter forget
    /// the next key that is put in with that fingerprint. With [`Universe::EXACT`] the one does not
    /// happen in practice.
    pub fn remove(&mut self, hash: KeyHash) -> Result<()> {
        self.tell_one(Change::Remove, hash)
    }

    /// Takes keys out; otherwise as [`CascadeFilter::insert_batch`].
    pub fn remove_batch(&mut self, hashes: &[KeyHash]) -> Result<()> {
        self.tell_many(Change::Remove, hashes)
    }

    /// Puts in the keys that are not in yet, and says which ones these were: `is_new` has one place
    /// for each. Of equal keys in the batch the first one is new.
    pub fn insert_unique_batch(&mut self, hashes: &[KeyHash], is_new: &mut [bool]) -> Result<()> {
        assert_eq!(hashes.len(), is_new.len());
        let answers = self.ask(hashes)?;
        is_new.fill(false);
        let mut before = None;
        for (query, count) in answers.queries.iter().zip(answers.counts) {
            is_new[query.index as usize] = count <= 0 && before != Some(query.hash);
            before = Some(query.hash);
        }
        let mut new = mem::take(&mut self.hashes);
        new.clear();
        new.extend(hashes.iter().zip(&*is_new).filter(|it| *it.1).map(|it| it.0.high()));
        let told = self.tell_logged(Change::Insert, &new);
        self.hashes = new;
        told
    }

    /// Puts a key in if it is not in yet; whether that was so.
    pub fn insert_unique(&mut self, hash: KeyHash) -> Result<bool> {
        let mut is_new = [false];
        self.insert_unique_batch(&[hash], &mut is_new)?;
        Ok(is_new[0])
    }

    /// Whether a key is in; of keys that are not, a few seem to be: see [`Universe`].
    pub fn contains(&self, hash: KeyHash) -> Result<bool> {
        Ok(self.count(hash)? > 0)
    }

    /// The same of many; `found` has one place for each.
    pub fn contains_batch(&self, hashes: &[KeyHash], found: &mut [bool]) -> Result<()> {
        assert_eq!(hashes.len(), found.len());
        let answers = self.ask(hashes)?;
        for (query, count) in answers.queries.iter().zip(answers.counts) {
            found[query.index as usize] = count > 0;
        }
        Ok(())
    }

    /// How often a key is in: 0 or 1 in a set. Never less than it was put in and not taken out.
    pub fn count(&self, hash: KeyHash) -> Result<u64> {
        let mut counts = [0];
        self.count_batch(&[hash], &mut counts)?;
        Ok(counts[0])
    }

    /// The same of many; `counts` has one place for each.
    pub fn count_batch(&self, hashes: &[KeyHash], counts: &mut [u64]) -> Result<()> {
        assert_eq!(hashes.len(), counts.len());
        let answers = self.ask(hashes)?;
        for (query, count) in answers.queries.iter().zip(answers.counts) {
            counts[query.index as usize] = count.max(0).cast_unsigned();
        }
        Ok(())
    }

    fn ask(&self, hashes: &[KeyHash]) -> Result<lookup::Answers> {
        let (tables, view) = {
            let shared = self.core.shared();
            let frozen = shared.frozen.iter().map(|frozen| frozen.table.clone());
            (frozen.collect::<Vec<_>>(), shared.view.clone())
        };
        let Identity { mode, universe, .. } = self.core.identity;
        let active = Some(&self.active);
        let place = lookup::Place { mode, universe, tables: &tables, active, view: &view };
        lookup::ask(place, hashes.iter().map(|hash| hash.high()))
    }

    fn tell_one(&mut self, change: Change, hash: KeyHash) -> Result<()> {
        self.tell_logged(change, &[hash.high()])
    }

    fn tell_many(&mut self, change: Change, hashes: &[KeyHash]) -> Result<()> {
        let mut high = mem::take(&mut self.hashes);
        let mut told = Ok(());
        for piece in hashes.chunks(PIECE_MAX) {
            high.clear();
            high.extend(piece.iter().map(|hash| hash.high()));
            told = self.tell_logged(change, &high);
            if told.is_err() {
                break;
            }
        }
        self.hashes = high;
        told
    }

    /// Takes changes, and writes them to the log if there is one.
    fn tell_logged(&mut self, change: Change, mut hashes: &[u64]) -> Result<()> {
        while !hashes.is_empty() {
            let (now, later) = hashes.split_at(hashes.len().min(self.make_room()?));
            if let Some(wal) = &mut self.wal
                && let Err(error) = wal.append(change, now)
            {
                return Err(self.give_up_log(error));
            }
            self.take(change, now);
            hashes = later;
        }
        Ok(())
    }

    /// Takes changes.
    fn tell(&mut self, change: Change, mut hashes: &[u64]) -> Result<()> {
        while !hashes.is_empty() {
            let (now, later) = hashes.split_at(hashes.len().min(self.make_room()?));
            self.take(change, now);
            hashes = later;
        }
        Ok(())
    }

    fn take(&mut self, change: Change, hashes: &[u64]) {
        self.active.apply(change, hashes);
        self.told += hashes.len() as u64;
    }

    /// Room in the table, at least for one change.
    fn make_room(&mut self) -> Result<usize> {
        let room = self.active.room();
        if room > 0 {
            return Ok(room);
        }
        self.freeze()?;
        self.new_log()?;
        self.owed = self.debt()?;
        Ok(self.active.room())
    }

    /// If there are too many runs, up to which move of the background work to wait.
    fn debt(&self) -> Result<Option<u64>> {
        let mut shared = self.core.shared();
        let uppers = shared.view.epochs[0].uppers.iter();
        let runs = uppers.filter(|upper| upper.tier == 0 && upper.from == 0).count();
        if runs >= DEBT_RUNS_MAX
            && !shared.is_merging()
            && let Some(error) = shared.merge_error.take()
        {
            return Err(error);
        }
        Ok((runs >= DEBT_RUNS).then(|| self.core.moved()))
    }

    /// Waits for merges in proportion to so many changes, if there are too many runs.
    fn pay(&mut self, changes: usize) {
        if let Some(owed) = &mut self.owed {
            *owed += MOVES_OWED * changes as u64;
            if !self.core.wait_for_moved(*owed) {
                self.owed = None;
            }
        }
    }

    /// Hands the table to a flush in the background, and goes on with an empty one.
    ///
    /// # Errors
    /// That of the flush before this one, if it fails for the second time: nothing is lost, and
    /// nothing was taken.
    fn freeze(&mut self) -> Result<()> {
        self.retry_flush()?;
        if self.active.is_empty() {
            return Ok(());
        }
        let spare = self.core.shared().spare.take();
        let Identity { mode, .. } = self.core.identity;
        let new = spare.unwrap_or_else(|| Memtable::new(mode, self.core.shares.slots));
        let table = Arc::new(mem::replace(&mut self.active, new));
        let next_log = self.next_log;
        {
            let mut shared = self.core.shared();
            shared.frozen = Some(Frozen { table, told: self.told, next_log });
            shared.flush = Flush::Running;
        }
        flush::start(&self.core);
        Ok(())
    }

    /// Waits until no table is frozen; starts a flush that failed once more.
    fn retry_flush(&mut self) -> Result<()> {
        if let Err(first) = self.wait_for_flush() {
            drop(first);
            self.core.shared().flush = Flush::Running;
            flush::start(&self.core);
            self.wait_for_flush()?;
        }
        Ok(())
    }

    fn wait_for_flush(&self) -> Result<()> {
        let mut shared = self.core.shared();
        while matches!(shared.flush, Flush::Running) {
            shared = self.core.wait(shared);
        }
        if shared.frozen.is_some() { Err(shared.flush_error()) } else { Ok(()) }
    }

    /// Goes on with a new log, if there is to be one.
    fn new_log(&mut self) -> Result<()> {
        if !self.core.settings.log {
            return Ok(());
        }
        if let Some(wal) = &mut self.wal {
            // What is in it must not be missing where what comes after it is there.
            wal.sync()?;
            self.logged = self.told;
        }
        let core = &self.core;
        let Identity { seed, id, .. } = core.identity;
        let io = core.settings.io.clone();
        let number = self.next_log;
        let wal = Wal::create(&*core.disk, &core.folder, number, (seed, id), self.told, io)?;
        self.next_log += 1;
        self.wal = Some(wal);
        Ok(())
    }

    /// Changes told so far, from the filter's beginning: those of a batch count one each.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// Of the changes told, how many are there if the power goes now: those before it, in the
    /// order told.
    pub fn durable(&self) -> u64 {
        self.core.shared().view.told.max(self.logged)
    }

    /// Returns when all that was told is durable, in a run.
    ///
    /// # Errors
    /// Those of writing, a full disk for one: all that was told is still known, and the next call
    /// tries again.
    pub fn flush(&mut self) -> Result<()> {
        self.freeze()?;
        self.retry_flush()?;
        self.new_log_if_used()
    }

    /// Returns when all that was told is durable: in the log, if there is one, or else as of
    /// [`CascadeFilter::flush`].
    pub fn sync(&mut self) -> Result<()> {
        let Some(wal) = &mut self.wal else { return self.flush() };
        match wal.sync() {
            Ok(()) => self.logged = self.told,
            // Runs do instead.
            Err(_) => self.flush()?,
        }
        Ok(())
    }
}
