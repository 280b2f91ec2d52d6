//! A map that is open, as the rest of the server sees it.

use super::{
    batches::{Batches, BetweenBatches},
    core::{Core, MapSettings},
    executor::{self, MapWork, Outcome, Queue},
    state::Unit,
    watch::{Watch, Watches},
};
use crate::{config::MapDurability, data::home::FilterHome};
use arc_swap::ArcSwapOption;
use hashfold::{
    Env, KeyHash, Result,
    map::{Durability, Expiring, Map, MapOptions},
    table::VisitValue,
    work::{MemoryBudget, Reserved, Threads},
};
use hashfold_rows::{Form, Schema};
use std::{
    ops::RangeInclusive,
    path::Path,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, TryLockError, atomic::AtomicU64},
    thread::JoinHandle,
};

/// Up to this number of entries, they are counted one by one where their number is not known.
const COUNTED_MAX: u64 = 100_000;

/// Number of merges, flushes and checkpoints of a map at a time.
const MAP_JOBS: usize = 2;

/// Maximum number of entries that scans read together.
const SCAN_ENTRIES: usize = 256;

/// A map that is open, and the threads that change it.
#[derive(Debug)]
pub(crate) struct ServedMap {
    core: Arc<Core>,
    /// `None` after the end.
    queue: Mutex<Option<Queue>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    _memory: Reserved,
}

impl ServedMap {
    /// Opens the map in a folder, and starts its threads.
    ///
    /// # Errors
    /// `Busy` if another process has it open; `Memory` if it does not fit; damage.
    pub(crate) fn open(
        name: &str,
        folder: &Path,
        settings: MapSettings,
        (env, memory): (&Env, &MemoryBudget),
    ) -> Result<ServedMap> {
        let bytes = settings.memory_bytes + settings.expiry_bytes();
        let reserved = memory.reserve(bytes as u64)?;
        // Lookups of clients, which may wait for changes, never keep the map's own jobs waiting.
        let env = Env { executor: Arc::new(Threads::new(MAP_JOBS)), ..env.clone() };
        let options = MapOptions::new().env(env.clone()).memory(settings.memory_bytes);
        let options = options.access(settings.access).durability(Durability::Buffered);
        let options = options.devices(settings.devices.clone()).mirrors(settings.mirror_bytes);
        let map = Map::open_with(folder, options)?;
        let form = Schema::of_attribute(map.attribute(Schema::ATTRIBUTE))?.form;
        let core = Arc::new(Core {
            map,
            clock: env.clock.clone(),
            settings,
            form,
            gate: RwLock::default(),
            batches: Batches::default(),
            watches: Watches::default(),
            filters: ArcSwapOption::empty(),
            sync_error: Mutex::default(),
            now_ms: AtomicU64::new(0),
        });
        let (queue, threads) = executor::start(name, &core)?;
        Ok(ServedMap {
            core,
            queue: Mutex::new(Some(queue)),
            threads: Mutex::new(threads),
            _memory: reserved,
        })
    }

    /// Returns the schema of the values.
    ///
    /// # Errors
    /// A schema that is damaged.
    pub(crate) fn schema(&self) -> Result<Schema> {
        Schema::of_attribute(self.core.map.attribute(Schema::ATTRIBUTE))
    }

    /// Gives work to the thread of the map. Work for a map that has ended fails.
    pub(crate) fn submit(&self, work: Box<dyn MapWork>) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = match &*queue {
            Some(queue) => queue.send(work).err().map(|error| error.0),
            None => Some(work),
        };
        drop(queue);
        if let Some(work) = refused {
            work.finish(&Outcome::of_all("ERR the map is closed; connect again"));
        }
    }

    /// Whether a watch is one of a key of this map.
    pub(crate) fn has(&self, watch: &Watch) -> bool {
        watch.is_of(&self.core.watches)
    }

    /// Whether a unit is one of this map.
    pub(crate) fn has_unit(&self, unit: &Unit<'_>) -> bool {
        unit.is_of(&self.core)
    }

    /// Sets the filters of which the keys of the map are none.
    pub(crate) fn set_filters(&self, home: Option<Arc<FilterHome>>) {
        self.core.filters.store(home);
    }

    /// Whether keys of the map may be filters, at least for some users.
    pub(crate) fn has_filters(&self) -> bool {
        self.core.filters.load().is_some()
    }

    /// Returns why clients may not change the map, if they may not.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        match (self.core.settings.is_writable, self.core.form) {
            (false, _) => Some("the map is served for reading only"),
            (true, Form::Plain) => None,
            (true, _) => Some("values of several columns are changed with `hashfold map import`"),
        }
    }

    /// Returns when changes are durable.
    pub(crate) fn durability(&self) -> MapDurability {
        self.core.settings.durability
    }

    /// Returns the number of entries, as bounds.
    pub(crate) fn entries(&self) -> RangeInclusive<u64> {
        let bounds = self.core.map.entries();
        bounds.min..=bounds.max
    }

    /// Returns the number of entries: the exact one if there are few, otherwise an upper bound.
    ///
    /// # Errors
    /// Damage.
    pub(crate) fn count(&self) -> Result<u64> {
        match *self.entries().end() {
            many if many > COUNTED_MAX => Ok(many),
            _ => self.core.map.count(),
        }
    }

    /// Calls `visit` with the high bits of the hash of each key, from these bits on, and with the key, in order of
    /// the hashes, until it returns `false`. Returns the high bits for which it did. About `at_once` keys are read
    /// together.
    ///
    /// # Errors
    /// Damage.
    pub(crate) fn visit_from(
        &self,
        mut from: u64,
        at_once: usize,
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<Option<u64>> {
        let (map, at_once) = (&self.core.map, at_once.clamp(1, SCAN_ENTRIES));
        loop {
            let entries = map.entries_from(hash_of(from), at_once)?;
            let mut last = 0;
            for (key, _) in &entries {
                last = KeyHash::of(key, map.seed()).high();
                if !visit(last, key) {
                    return Ok(Some(last));
                }
            }
            // Entries whose hashes have these bits came together.
            match last.checked_add(1) {
                Some(next) if entries.len() >= at_once => from = next,
                _ => return Ok(None),
            }
        }
    }

    /// Whether the map has a key.
    ///
    /// # Errors
    /// Damage.
    pub(crate) fn has_key(&self, key: &[u8]) -> Result<bool> {
        self.core.map.contains(key)
    }

    /// Keeps changes of several keys from becoming visible, as long as the result exists. Waits for those that
    /// become visible now.
    pub(crate) fn begin_reading(&self) -> RwLockReadGuard<'_, ()> {
        self.core.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what [`ServedMap::begin_reading`] does, unless that has to wait.
    pub(crate) fn try_begin_reading(&self) -> Option<RwLockReadGuard<'_, ()>> {
        match self.core.gate.try_read() {
            Ok(reading) => Some(reading),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Keeps strings from being put as long as the result exists. Waits until those are visible for which clients have
    /// looked whether their keys are filters.
    pub(crate) fn between_batches(&self) -> BetweenBatches<'_> {
        self.core.batches.between()
    }

    /// Looks up keys. `visit` is called once for each, with its value. Shows all changes of a transaction or none
    /// only to callers of [`ServedMap::begin_reading`].
    ///
    /// # Errors
    /// Damage, and errors of `visit`.
    pub(crate) fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        visit: &mut VisitValue<'_>,
    ) -> Result<()> {
        self.core.map.visit_many(keys, &mut |i, found: Option<Expiring>| {
            visit(i, found.as_ref().map(|found| &found.value[..]))
        })
    }

    /// Returns the memory of packets and addresses, in bytes.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.core.map.index_bytes()
    }

    /// Returns the size of the data file, in bytes.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.core.map.file_bytes()
    }

    /// Returns the numbers of changes: all, and those that are durable.
    pub(crate) fn seqs(&self) -> (u64, u64) {
        (self.core.map.seq(), self.core.map.durable_seq())
    }

    /// Makes all changes durable. An error makes changes fail until a call succeeds.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// Makes changes durable that wait for the next second; and tries again after an error, which would refuse all
    /// changes for ever.
    pub(crate) fn sync_each_second(&self) {
        if self.durability() == MapDurability::EverySecond || self.sync_error().is_some() {
            // Changes fail with the error.
            let _ = self.core.sync();
        }
    }

    /// Returns why changes cannot be made durable, if they cannot.
    pub(crate) fn sync_error(&self) -> Option<String> {
        self.core.sync_error()
    }

    /// Ends the threads, after the work that waits, and makes a checkpoint.
    ///
    /// # Errors
    /// The errors of [`Map::close`].
    pub(crate) fn close(&self) -> Result<()> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        if queue.is_none() {
            return Ok(());
        }
        drop(queue);
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // A thread that panicked has said so on standard error.
            let _ = thread.join();
        }
        self.core.map.clone().close()
    }
}

/// Returns the first hash whose high bits are these.
fn hash_of(high: u64) -> KeyHash {
    KeyHash::from_bits(u128::from(high) << 64)
}
