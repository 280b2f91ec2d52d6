//! A data set in memory, as the rest of the server sees it.

use super::{
    saved::{SORT_BYTES, Source, save},
    unit::MemoryUnit,
};
use crate::data::{
    gone,
    home::{FilterHome, check_no_filter},
    map::{Watch, Watches},
};
use arc_swap::{ArcSwap, ArcSwapOption};
use hashfold::{
    Env, Error, ErrorKind, Result, Seed,
    memory::{AppendStats, AppendTable, MemoryOptions, SHARDS_MAX, Slot},
    run::Run,
    work::{MemoryBudget, Reserved, Threads, Watch as Progress},
};
use hashfold_rows::{Form, Schema};
use std::{
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

/// The reply to a change for which there is no memory, as in Redis.
const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Number of shards for each network thread: two of them seldom want the same one.
const SHARDS_PER_THREAD: usize = 4;

/// Least memory of a shard, in bytes: it takes up to 96 KiB to begin with, and 64 KiB for each size of values.
const SHARD_BYTES_MIN: usize = 4 << 20;

/// Memory of the buffers of a shard, in bytes, which a table does not reserve: for a group of 1125 pairs of 16 bytes and
/// its lines, twice 14 KiB; for a value that moves, 32 KiB.
const SHARD_BUFFER_BYTES: usize = 80 << 10;

/// The memory divided by this number is for directories and lists of free memory, which a table does not reserve: they
/// have up to 8 bytes for each KiB.
const LIST_PART: usize = 128;

/// Memory of a shard from which on there are more of them, in bytes: its values have at most 64 GiB.
const SHARD_BYTES_MAX: usize = 32 << 30;

/// How a data set in memory is served.
#[derive(Clone, Debug)]
pub(crate) struct MemorySettings {
    /// Folder of the store that it is loaded from and saved to.
    pub(crate) path: Option<PathBuf>,
    /// Folder of what it is loaded from if that has no version.
    pub(crate) load: Option<PathBuf>,
    /// Limit of its memory, in bytes.
    pub(crate) memory_bytes: usize,
    /// Whether clients may change it.
    pub(crate) is_writable: bool,
    /// Number of network threads.
    pub(crate) threads: usize,
}

impl MemorySettings {
    /// Returns the number of shards of the table.
    fn shards(&self) -> usize {
        let wanted = (SHARDS_PER_THREAD * self.threads).max(self.memory_bytes / SHARD_BYTES_MAX);
        let room = (self.memory_bytes / SHARD_BYTES_MIN).max(1);
        // The next power of two below.
        1 << wanted.next_power_of_two().min(SHARDS_MAX).min(room).ilog2()
    }

    /// Returns the memory that a table reserves at most, in bytes.
    fn table_bytes(&self) -> usize {
        let beside = self.shards() * SHARD_BUFFER_BYTES + self.memory_bytes / LIST_PART;
        self.memory_bytes.saturating_sub(beside)
    }

    /// Takes the memory of the data set from that of the server.
    ///
    /// # Errors
    /// `Memory` if there is not as much.
    fn reserve(&self, memory: &MemoryBudget) -> Result<Reserved> {
        let sorting = if self.path.is_some() { SORT_BYTES } else { 0 };
        memory.reserve(self.memory_bytes.saturating_add(sorting) as u64)
    }

    /// Returns the error of loading a data set: of one without enough memory, what to do about it.
    fn loading_failed(&self, name: &str, error: Error) -> Error {
        let ErrorKind::Memory { .. } = error.kind() else { return error };
        let expected = format!(
            "enough for the keys and values that data set \"{name}\" is loaded with; raise `memory` in its entry"
        );
        Error::argument("memory", expected, self.memory_bytes)
    }
}

/// A data set in memory.
#[derive(Debug)]
pub(crate) struct ServedMemory {
    name: String,
    settings: MemorySettings,
    env: Env,
    /// The options of the table, but for its budget.
    options: MemoryOptions,
    /// The table: another one after all keys were deleted.
    table: ArcSwap<AppendTable>,
    /// Number of times that all keys were deleted.
    cleared: Arc<AtomicU64>,
    /// Held by changes of one key each together, and by everything else that must run alone.
    gate: RwLock<()>,
    watches: Watches,
    /// The filters of which its keys are none.
    filters: ArcSwapOption<FilterHome>,
    schema: Schema,
    /// Number of changes.
    changes: AtomicU64,
    /// Number of changes when the data were saved last.
    saved: AtomicU64,
    /// When they were saved last, in seconds since 1970; 0 before.
    saved_at_s: AtomicU64,
    /// Held while the data are saved.
    saving: Mutex<()>,
    /// Whether the data set has ended, and takes no change any more.
    is_closed: Arc<AtomicBool>,
    is_compacting: AtomicBool,
    _memory: Reserved,
}

impl ServedMemory {
    /// Makes the table, and loads it if there is something to load.
    ///
    /// # Errors
    /// `Memory` if the limit does not fit in the server's, or the data do not fit in it; errors of what is loaded.
    pub(crate) fn open(
        name: &str,
        settings: MemorySettings,
        (env, memory): (&Env, &MemoryBudget),
    ) -> Result<ServedMemory> {
        let reserved = settings.reserve(memory)?;
        // Jobs of clients never keep its own waiting, and the last of these may end after the server.
        let env = Env { executor: Threads::shared(), ..env.clone() };
        let source = Source::open(&env, &settings)?;
        let run = source.as_ref().map(Source::scan);
        let seed = run.as_ref().map_or_else(|| Seed(env.random.next_u64()), Run::seed);
        let options = MemoryOptions {
            seed,
            shards: settings.shards(),
            executor: Some(env.executor.clone()),
            ..MemoryOptions::default()
        };
        let table = new_table(&options, &settings)?;
        run.map_or(Ok(()), |run| table.restore(run, &Progress::default()))
            .map_err(|error| settings.loading_failed(name, error))?;
        let schema = source.map_or_else(|| Ok(Schema::unnamed()), |source| source.schema())?;
        Ok(ServedMemory {
            name: name.to_owned(),
            settings,
            env,
            options,
            table: ArcSwap::from_pointee(table),
            cleared: Arc::default(),
            gate: RwLock::default(),
            watches: Watches::default(),
            filters: ArcSwapOption::empty(),
            schema,
            changes: AtomicU64::new(0),
            saved: AtomicU64::new(0),
            saved_at_s: AtomicU64::new(0),
            saving: Mutex::default(),
            is_closed: Arc::default(),
            is_compacting: AtomicBool::new(false),
            _memory: reserved,
        })
    }

    /// Opens what a data set in memory is loaded from, and loads nothing. Returns the memory that it would take.
    ///
    /// # Errors
    /// `Memory` if the limit does not fit in the server's; the errors of opening.
    pub(crate) fn check(
        settings: &MemorySettings,
        (env, memory): (&Env, &MemoryBudget),
    ) -> Result<Reserved> {
        let reserved = settings.reserve(memory)?;
        Source::open(env, settings)?;
        Ok(reserved)
    }

    /// Returns the schema of the values.
    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Sets the filters of which its keys are none.
    pub(crate) fn set_filters(&self, home: Option<Arc<FilterHome>>) {
        self.filters.store(home);
    }

    /// Whether its keys may be filters, at least for some users.
    pub(crate) fn has_filters(&self) -> bool {
        self.filters.load().is_some()
    }

    /// Refuses a key that is a filter, to a client that does not see it.
    ///
    /// # Errors
    /// The reply.
    pub(crate) fn check_no_filter(&self, key: &[u8]) -> std::result::Result<(), String> {
        check_no_filter(self.filters.load().as_ref(), key)
    }

    /// Returns why clients may not change the data, if they may not.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        match (self.settings.is_writable, self.schema.form) {
            (false, _) => Some("the data set is served for reading only"),
            (true, Form::Plain) => None,
            (true, _) => Some("values of several columns are not changed one by one"),
        }
    }

    /// Returns the table as it is now.
    pub(super) fn table(&self) -> Arc<AppendTable> {
        self.table.load_full()
    }

    /// Returns the number of keys.
    pub(crate) fn count(&self) -> u64 {
        self.table.load().len()
    }

    /// Returns the figures of the table.
    pub(crate) fn stat(&self) -> AppendStats {
        self.table.load().stat()
    }

    /// Returns the limit of the memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.settings.memory_bytes as u64
    }

    /// Returns the milliseconds since 1970.
    pub(super) fn now_ms(&self) -> u64 {
        self.env.clock.unix_time().as_millis() as u64
    }

    /// Keeps commands on several keys and transactions from running, as long as the result exists.
    pub(crate) fn begin_together(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps all other commands from running, as long as the result exists, but those that go through all keys.
    pub(crate) fn begin_alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins commands that the caller has made run alone.
    pub(crate) fn unit<'a>(&'a self, _alone: &'a RwLockWriteGuard<'_, ()>) -> MemoryUnit<'a> {
        MemoryUnit::new(self)
    }

    /// Calls `change` with the number and the slot of each key, in the order of `keys` for each; it returns whether it
    /// has changed the value. The caller keeps commands on several keys from running.
    ///
    /// # Errors
    /// The reply: the data set has ended, and nothing was called.
    pub(crate) fn change_many<K: AsRef<[u8]>>(
        &self,
        _together: &RwLockReadGuard<'_, ()>,
        keys: &[K],
        mut change: impl FnMut(usize, &mut Slot<'_>) -> bool,
    ) -> std::result::Result<(), String> {
        self.check_open()?;
        let mut changed = 0;
        let done = self.table.load().change_many(keys, |i, slot| {
            if change(i, slot) {
                changed += 1;
                self.watches.note(slot.key());
            }
            Ok(())
        });
        debug_assert!(done.is_ok(), "no change ends the others");
        self.changes.fetch_add(changed, Relaxed);
        Ok(())
    }

    /// Refuses changes of a data set that has ended.
    pub(super) fn check_open(&self) -> std::result::Result<(), String> {
        match self.is_closed.load(SeqCst) {
            true => Err(gone(&format!("data set {}", self.name))),
            false => Ok(()),
        }
    }

    /// Notes a change of a key.
    pub(super) fn note_change(&self, key: &[u8]) {
        self.changes.fetch_add(1, Relaxed);
        self.watches.note(key);
    }

    /// Makes the transactions null that watch a key, also if it was not changed.
    pub(super) fn note_watched(&self, key: &[u8]) {
        self.watches.note(key);
    }

    /// Deletes all keys. Their memory is given back in the background. The caller runs alone.
    ///
    /// # Errors
    /// The system refuses memory for an empty table; nothing is deleted.
    pub(super) fn clear(&self) -> Result<()> {
        // The memory of the old table is beside the limit of the new one, until it is given back.
        let empty = new_table(&self.options, &self.settings)?;
        let old = self.table.swap(Arc::new(empty));
        self.cleared.fetch_add(1, SeqCst);
        let watched = self.watches.keys();
        watched.iter().filter(|key| old.contains(key)).for_each(|key| self.watches.note(key));
        self.env.executor.spawn(Box::new(move || drop(old)));
        self.changes.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Watches a key from now on.
    pub(crate) fn watch(&self, key: &[u8]) -> Watch {
        self.watches.add(key, None)
    }

    /// Looks up keys. `visit` is called once for each, with its value.
    ///
    /// # Errors
    /// Errors of `visit`.
    pub(crate) fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        visit: impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        self.table.load().visit_many(keys, visit)
    }

    /// Looks up parts of values. `part` returns the range of a value's bytes, from the number of its key and its size; `visit`
    /// is called once for each key, with these bytes and the size.
    ///
    /// # Errors
    /// Errors of `visit`.
    pub(crate) fn get_parts<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        part: impl Fn(usize, usize) -> Range<usize>,
        visit: impl FnMut(usize, Option<(&[u8], usize)>) -> Result<()>,
    ) -> Result<()> {
        self.table.load().visit_parts(keys, part, visit)
    }

    /// Calls `visit` with the high bits of the hash of each key, from these bits on, and with the key, in order of
    /// the hashes, until it returns `false`. Returns the high bits for which it did.
    pub(crate) fn visit_from(
        &self,
        from: u64,
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Option<u64> {
        self.table.load().visit_keys(from, visit)
    }

    /// Returns the number of changes that are not saved.
    pub(crate) fn unsaved(&self) -> u64 {
        self.changes.load(SeqCst).saturating_sub(self.saved.load(SeqCst))
    }

    /// Returns when the data were saved last, in seconds since 1970; 0 if they were not since the start.
    pub(crate) fn saved_at_s(&self) -> u64 {
        self.saved_at_s.load(SeqCst)
    }

    /// Saves the data at this moment as a version; changes go on meanwhile. Returns the number of the version.
    ///
    /// # Errors
    /// The reply: there is no store to save to, or it cannot be written.
    pub(crate) fn save(&self) -> std::result::Result<u64, String> {
        if let Some(reason) = self.refusal() {
            return Err(format!("ERR {} has nothing to save: {reason}", self.name));
        }
        match self.save_now(self.lock_saving()) {
            Ok(Some(number)) => Ok(number),
            Ok(None) => Err(format!("ERR {} has no `path` to be saved to", self.name)),
            Err(error) => Err(format!("MISCONF {} cannot be saved: {error}", self.name)),
        }
    }

    /// Saves the data; returns the number of the version, or `None` if there is no store to save to.
    fn save_now(&self, _saving: MutexGuard<'_, ()>) -> Result<Option<u64>> {
        let Some(folder) = &self.settings.path else { return Ok(None) };
        let (changes, snapshot) = {
            // A snapshot beside a command or a transaction might have a part of it.
            let _alone = self.begin_alone();
            (self.changes.load(SeqCst), self.table().snapshot()?)
        };
        let number = save(&self.env, folder, snapshot, &self.schema)?;
        self.saved.store(changes, SeqCst);
        self.saved_at_s.store(self.env.clock.unix_time().as_secs(), SeqCst);
        Ok(Some(number))
    }

    fn lock_saving(&self) -> MutexGuard<'_, ()> {
        self.saving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Saves the data if they have changed since they were saved last, and if there is a store to save them to.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(crate) fn save_changes(&self) -> Result<()> {
        let saving = self.lock_saving();
        match self.refusal().is_some() || self.unsaved() == 0 {
            true => Ok(()),
            false => self.save_now(saving).map(drop),
        }
    }

    /// Moves values together, so that pages become free for values of other sizes.
    ///
    /// # Errors
    /// `Memory` if there is none for moving values; `Stopped` if the data set has ended.
    pub(crate) fn compact(&self) -> Result<()> {
        let (cleared, is_closed) = (self.cleared.clone(), self.is_closed.clone());
        // Before the table: if it is cleared between, a new table is not compacted, which needs none.
        let number = cleared.load(SeqCst);
        let table = self.table();
        // A table whose keys were all deleted is given back the sooner.
        let is_over = move || is_closed.load(Relaxed) || cleared.load(SeqCst) != number;
        let progress = Progress::new(move |_| match is_over() {
            true => Err(ErrorKind::Stopped.into()),
            false => Ok(()),
        });
        table.compact(&progress)
    }

    /// Begins to compact the table in the background if its pages take half of the memory, and less than three quarters of
    /// them are in use.
    pub(crate) fn compact_if_sparse(self: &Arc<Self>) {
        let stats = self.stat();
        let is_sparse = stats.page_bytes >= self.memory_bytes() / 2
            && stats.block_bytes * 4 < stats.page_bytes * 3;
        if is_sparse && !self.is_compacting.swap(true, SeqCst) {
            let own = self.clone();
            self.env.executor.spawn(Box::new(move || {
                // What is not moved now is moved later.
                let _ = own.compact();
                own.is_compacting.store(false, SeqCst);
            }));
        }
    }

    /// Ends the data set: it takes no change any more, and is saved if it has changed since it was saved last.
    ///
    /// # Errors
    /// The data cannot be saved.
    pub(crate) fn close(&self) -> Result<()> {
        let alone = self.begin_alone();
        self.is_closed.store(true, SeqCst);
        drop(alone);
        self.save_changes()
    }
}

/// Makes an empty table with a budget of its own.
fn new_table(options: &MemoryOptions, settings: &MemorySettings) -> Result<AppendTable> {
    let budget = MemoryBudget::new(settings.table_bytes() as u64);
    AppendTable::new(MemoryOptions { budget, ..options.clone() })
}

/// Returns the reply to a change that failed.
pub(crate) fn write_failed(error: &Error) -> String {
    match error.kind() {
        // The sizes of keys and values were checked before: a shard has no place for more.
        ErrorKind::Memory { .. } | ErrorKind::Limit { .. } => OUT_OF_MEMORY.into(),
        _ => format!("ERR {error}"),
    }
}
