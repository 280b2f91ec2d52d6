//! A table, a version of a store, a map or a data set in memory, and the form in which its values are served.

use super::{
    latency::Latency,
    map::{BetweenBatches, Changes, ServedMap},
    memory::ServedMemory,
};
use hashfold::{
    Error, Result,
    io::Access,
    run::Run,
    store::Version,
    table::{Table, VisitValue},
};
use hashfold_rows::{Form, Schema};
use std::{
    ops::RangeInclusive,
    sync::{
        Arc, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

/// Bits of a scan's cursor that are the start of a hash.
const PREFIX_BITS: u32 = 50;

/// A data set at one moment. A view never changes, unless it is that of a map or in memory, and its files stay as long
/// as it exists.
#[derive(Debug)]
pub(crate) struct View {
    source: Source,
    schema: Schema,
    is_in_memory: AtomicBool,
    /// Whether a read has met damage.
    has_met_damage: AtomicBool,
    /// Number of lookups that could not be answered, and that nobody has counted yet.
    failed_reads: AtomicU64,
    latency: Arc<Latency>,
}

/// How many keys a scan visits, and about how many of their bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanLimit {
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
}

impl ScanLimit {
    const NONE: ScanLimit = ScanLimit { keys: usize::MAX, bytes: usize::MAX };

    fn is_reached(self) -> bool {
        self.keys == 0 || self.bytes == 0
    }

    fn take(&mut self, key: &[u8]) {
        self.keys = self.keys.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(key.len());
    }
}

/// The lock that keeps lookups in a view together: none, unless it is that of a map or of a data set in memory.
#[derive(Debug)]
pub(crate) enum Reading<'a> {
    Free,
    /// Beside others, and beside changes of single keys.
    Together {
        _lock: RwLockReadGuard<'a, ()>,
    },
    /// Beside nothing.
    Alone {
        _lock: RwLockWriteGuard<'a, ()>,
    },
}

/// The lock that keeps strings from being put: none, unless it is that of a map or of a data set in memory.
#[derive(Debug)]
pub(crate) enum NoPuts<'a> {
    Free,
    OfMap { _lock: BetweenBatches<'a> },
    InMemory { _lock: RwLockWriteGuard<'a, ()> },
}

#[derive(Debug)]
enum Source {
    Table(Table),
    Version(Arc<Version>),
    /// A map, and changes of a transaction that it does not have yet.
    Map(Arc<ServedMap>, Changes),
    Memory(Arc<ServedMemory>),
}

impl View {
    /// Returns the view of a table.
    ///
    /// # Errors
    /// The table's schema is damaged.
    pub(crate) fn of_table(table: Table) -> Result<View> {
        let schema = Schema::of_table(&table)?;
        let is_in_memory = table.stats().access == Access::Mapped;
        Ok(View::new(Source::Table(table), schema, is_in_memory))
    }

    /// Returns the view of a version of a store.
    ///
    /// # Errors
    /// The version's schema is damaged.
    pub(crate) fn of_version(version: Arc<Version>) -> Result<View> {
        let schema = Schema::of_version(version.info())?;
        let is_in_memory = is_mapped(&version);
        Ok(View::new(Source::Version(version), schema, is_in_memory))
    }

    /// Returns the view of a map.
    ///
    /// # Errors
    /// The map's schema is damaged.
    pub(crate) fn of_map(map: ServedMap) -> Result<View> {
        let schema = map.schema()?;
        Ok(View::new(Source::Map(Arc::new(map), Changes::default()), schema, false))
    }

    /// Returns the view of a data set in memory.
    pub(crate) fn of_memory(memory: ServedMemory) -> View {
        let schema = memory.schema().clone();
        View::new(Source::Memory(Arc::new(memory)), schema, true)
    }

    /// Returns the view of a map with the changes of a transaction that it does not have yet.
    pub(crate) fn with_changes(&self, changes: Changes) -> Option<View> {
        let source = Source::Map(self.map()?.clone(), changes);
        let view = View::new(source, self.schema.clone(), false);
        Some(view.go_on(Some(self.latency.clone())))
    }

    /// Returns the map, if the data set is one.
    #[inline]
    pub(crate) fn map(&self) -> Option<&Arc<ServedMap>> {
        match &self.source {
            Source::Map(map, _) => Some(map),
            Source::Table(_) | Source::Version(_) | Source::Memory(_) => None,
        }
    }

    /// Returns the data set in memory, if it is one.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&Arc<ServedMemory>> {
        match &self.source {
            Source::Memory(memory) => Some(memory),
            Source::Table(_) | Source::Version(_) | Source::Map(..) => None,
        }
    }

    /// Looks again whether lookups read mapped memory, after more slots were opened.
    pub(crate) fn look_at_access(&self) {
        if let Source::Version(version) = &self.source {
            self.is_in_memory.store(is_mapped(version), Relaxed);
        }
    }

    fn new(source: Source, schema: Schema, is_in_memory: bool) -> View {
        View {
            source,
            schema,
            is_in_memory: is_in_memory.into(),
            has_met_damage: AtomicBool::new(false),
            failed_reads: AtomicU64::new(0),
            latency: Arc::default(),
        }
    }

    /// Returns the view with the times of earlier lookups in the same version.
    pub(crate) fn go_on(self, latency: Option<Arc<Latency>>) -> View {
        let latency = latency.unwrap_or(self.latency);
        View { latency, ..self }
    }

    /// Returns the times of lookups.
    #[inline]
    pub(crate) fn latency(&self) -> &Arc<Latency> {
        &self.latency
    }

    /// Returns the number of the version, if the data set is a store.
    pub(crate) fn number(&self) -> Option<u64> {
        self.version().map(|version| version.info().name.number)
    }

    /// Notes that a read has met damage.
    #[cold]
    pub(crate) fn note_damage(&self) {
        self.has_met_damage.store(true, Relaxed);
    }

    /// Notes a lookup that could not be answered.
    #[cold]
    pub(crate) fn note_failed_read(&self) {
        self.failed_reads.fetch_add(1, Relaxed);
    }

    /// Returns the number of lookups that could not be answered since the last call.
    pub(crate) fn take_failed_reads(&self) -> u64 {
        self.failed_reads.swap(0, Relaxed)
    }

    /// Whether a read has met damage since the view was opened.
    pub(crate) fn has_met_damage(&self) -> bool {
        self.has_met_damage.load(Relaxed)
    }

    /// Returns the damage that was found when the files were opened: of a table, or of an index, without which
    /// lookups take more reads.
    pub(crate) fn damage(&self) -> Option<&Error> {
        match &self.source {
            Source::Table(table) => table.index_damage(),
            Source::Version(version) => {
                version.damage().iter().chain(version.index_damage()).next()
            }
            Source::Map(..) | Source::Memory(_) => None,
        }
    }

    /// Whether lookups read mapped memory, or the data are in memory, so that they need not wait for the device.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.is_in_memory.load(Relaxed)
    }

    /// Returns the version, if the data set is a store.
    pub(crate) fn version(&self) -> Option<&Arc<Version>> {
        match &self.source {
            Source::Table(_) | Source::Map(..) | Source::Memory(_) => None,
            Source::Version(version) => Some(version),
        }
    }

    /// Returns the number of entries, as bounds: keys of pending deltas may be in the base too, and changes of a
    /// map may replace others.
    pub(crate) fn entries(&self) -> RangeInclusive<u64> {
        match &self.source {
            Source::Table(table) => table.stats().entries..=table.stats().entries,
            Source::Version(version) => version.info().entries(),
            Source::Map(map, _) => map.entries(),
            Source::Memory(memory) => {
                let count = memory.count();
                count..=count
            }
        }
    }

    /// Returns the number of entries: of a map with few entries the exact one, otherwise the upper bound.
    ///
    /// # Errors
    /// Damage.
    pub(crate) fn count(&self) -> Result<u64> {
        let Source::Map(map, changes) = &self.source else { return Ok(*self.entries().end()) };
        let mut count = if changes.is_cleared { 0 } else { map.count()? };
        for (key, is_there) in &changes.keys {
            let was_there = !changes.is_cleared && map.has_key(key)?;
            count = count + u64::from(*is_there) - u64::from(was_there);
        }
        Ok(count)
    }

    /// Returns the memory of all indexes, in bytes.
    pub(crate) fn index_bytes(&self) -> u64 {
        match &self.source {
            Source::Table(table) => table.stats().index_bytes,
            Source::Version(version) => version.index_bytes(),
            Source::Map(map, _) => map.index_bytes(),
            Source::Memory(memory) => memory.stat().index_bytes,
        }
    }

    /// Returns the size of all data files, in bytes; of a data set in memory, that of its keys and values.
    pub(crate) fn data_bytes(&self) -> u64 {
        match &self.source {
            Source::Table(table) => table.stats().data_bytes,
            Source::Version(version) => version.info().bytes(),
            Source::Map(map, _) => map.data_bytes(),
            Source::Memory(memory) => memory.stat().data_bytes,
        }
    }

    /// Keeps changes of several keys from becoming visible, as long as the result exists: lookups then show all changes
    /// of a transaction or none. Waits for those that become visible now. `keys` is the largest number of keys that one
    /// of the lookups has: several are looked up in memory at one moment.
    pub(crate) fn begin_reading(&self, keys: usize) -> Reading<'_> {
        match &self.source {
            Source::Table(_) | Source::Version(_) => Reading::Free,
            Source::Map(map, _) => Reading::Together { _lock: map.begin_reading() },
            Source::Memory(memory) if keys > 1 => Reading::Alone { _lock: memory.begin_alone() },
            Source::Memory(memory) => Reading::Together { _lock: memory.begin_together() },
        }
    }

    /// Does what [`View::begin_reading`] does for a map, unless that has to wait.
    pub(crate) fn try_begin_reading(&self, keys: usize) -> Option<Reading<'_>> {
        match self.map() {
            Some(map) => Some(Reading::Together { _lock: map.try_begin_reading()? }),
            None => Some(self.begin_reading(keys)),
        }
    }

    /// Looks up many keys. `visit` is called once for each key, in any order, with its stored value.
    ///
    /// # Errors
    /// Damage, after the keys of all undamaged tables were visited.
    pub(crate) fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        visit: &mut VisitValue<'_>,
    ) -> Result<()> {
        match &self.source {
            Source::Table(table) => table.get_many(keys, visit),
            Source::Version(version) => version.get_many(keys, visit),
            Source::Map(map, _) => map.get_many(keys, visit),
            Source::Memory(memory) => memory.get_many(keys, visit),
        }
    }

    /// Calls `visit` once, with the stored value of a key.
    ///
    /// # Errors
    /// Damage of the block that the key is in.
    pub(crate) fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        match &self.source {
            Source::Table(table) => table.get_with(key, visit),
            Source::Version(version) => version.get_with(key, visit),
            Source::Map(map, _) => map.get_many(&[key], &mut |_, value| {
                visit(value);
                Ok(())
            }),
            Source::Memory(memory) => memory.get_many(&[key], |_, value| {
                visit(value);
                Ok(())
            }),
        }
    }

    /// Whether a key has a value, perhaps one of a transaction that the map does not have yet.
    ///
    /// # Errors
    /// Damage of the block that the key is in.
    pub(crate) fn has_key(&self, key: &[u8]) -> Result<bool> {
        if let Source::Map(_, changes) = &self.source {
            match changes.keys.get(key) {
                Some(is_there) => return Ok(*is_there),
                None if changes.is_cleared => return Ok(false),
                None => {}
            }
        }
        let mut is_there = false;
        self.get_with(key, &mut |value| is_there = value.is_some())?;
        Ok(is_there)
    }

    /// Whether a transaction has changed a key of the map, which does not have the change yet.
    pub(crate) fn has_change(&self, key: &[u8]) -> bool {
        match &self.source {
            Source::Map(_, changes) => changes.is_cleared || changes.keys.contains_key(key),
            Source::Table(_) | Source::Version(_) | Source::Memory(_) => false,
        }
    }

    /// Makes all changes of a map durable.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn sync(&self) -> Result<()> {
        self.map().map_or(Ok(()), |map| map.sync())
    }

    /// Keeps strings from being put as long as the result exists. Waits until those are visible for which clients have
    /// looked whether their keys are filters. Of several data sets, those in memory come first, in the order of
    /// [`View::memory_address`]: so two threads never wait for each other, and the thread of a map can pause meanwhile.
    pub(crate) fn without_puts(&self) -> NoPuts<'_> {
        match &self.source {
            Source::Map(map, _) => NoPuts::OfMap { _lock: map.between_batches() },
            Source::Memory(memory) => NoPuts::InMemory { _lock: memory.begin_alone() },
            Source::Table(_) | Source::Version(_) => NoPuts::Free,
        }
    }

    /// Returns the address of a data set in memory: the largest one for others.
    pub(crate) fn memory_address(&self) -> usize {
        self.memory().map_or(usize::MAX, |memory| Arc::as_ptr(memory).addr())
    }

    /// Whether the other view is of the same map or data set in memory.
    pub(crate) fn shows_data_of(&self, other: &View) -> bool {
        match (&self.source, &other.source) {
            (Source::Map(a, _), Source::Map(b, _)) => Arc::ptr_eq(a, b),
            (Source::Memory(a), Source::Memory(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// Calls `visit` with all keys.
    ///
    /// # Errors
    /// Damage.
    pub(crate) fn visit_keys(&self, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut run: Box<dyn Run> = match &self.source {
            Source::Table(table) => Box::new(table.scan()),
            Source::Version(version) => version.scan_all(),
            Source::Map(map, changes) => {
                return scan_map(map, changes, 0, ScanLimit::NONE, visit).map(|_| ());
            }
            Source::Memory(memory) => {
                let end = memory.visit_from(0, &mut |_, key| {
                    visit(key);
                    true
                });
                debug_assert!(end.is_none());
                return Ok(());
            }
        };
        while run.advance()? {
            visit(run.entry().key);
        }
        Ok(())
    }

    /// Calls `visit` with the keys after a cursor, until a limit is reached, and returns the cursor after them: 0 at the end,
    /// as at the start.
    ///
    /// A cursor is a chunk in its high 14 bits, and the start of a hash. A key that is there during a
    /// whole scan is visited once, also if versions change meanwhile.
    ///
    /// # Errors
    /// Damage.
    pub(crate) fn scan_some(
        &self,
        cursor: u64,
        mut limit: ScanLimit,
        visit: &mut dyn FnMut(&[u8]),
    ) -> Result<u64> {
        match &self.source {
            Source::Map(map, changes) => return scan_map(map, changes, cursor, limit, visit),
            Source::Memory(memory) => return Ok(scan_memory(memory, cursor, limit, visit)),
            Source::Table(_) | Source::Version(_) => {}
        }
        let mut chunk = (cursor >> PREFIX_BITS) as u32;
        let mut from = cursor << (64 - PREFIX_BITS);
        let chunks = self.chunks();
        while chunk < chunks {
            let mut run = self.scan_chunk(chunk, from)?;
            let mut last = None;
            while run.advance()? {
                let entry = run.entry();
                let prefix = entry.hash.high() >> (64 - PREFIX_BITS);
                // Keys that share a prefix come together.
                if limit.is_reached() && last != Some(prefix) {
                    return Ok(u64::from(chunk) << PREFIX_BITS | prefix);
                }
                visit(entry.key);
                last = Some(prefix);
                limit.take(entry.key);
            }
            (chunk, from) = (chunk + 1, 0);
            if limit.is_reached() && chunk < chunks {
                return Ok(u64::from(chunk) << PREFIX_BITS);
            }
        }
        Ok(0)
    }

    fn chunks(&self) -> u32 {
        match &self.source {
            Source::Table(_) | Source::Map(..) | Source::Memory(_) => 1,
            Source::Version(version) => version.info().shape.slots.chunks(),
        }
    }

    fn scan_chunk(&self, chunk: u32, from: u64) -> Result<Box<dyn Run>> {
        Ok(match &self.source {
            Source::Table(table) => Box::new(table.scan_from(from)?),
            Source::Version(version) => version.scan_chunks_from(chunk..chunk + 1, from),
            Source::Map(..) | Source::Memory(_) => {
                unreachable!("a map and a data set in memory have scans of their own")
            }
        })
    }

    /// Calls `visit` with about `count` evenly spread keys; in a map and in memory, with one that `random` chooses.
    ///
    /// # Errors
    /// Damage, and errors of `visit`.
    pub(crate) fn sample(
        &self,
        count: u64,
        random: u64,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        match &self.source {
            Source::Table(table) => table.sample(count, visit),
            Source::Version(version) => version.sample(count, visit),
            Source::Map(map, changes) => {
                any_key(map, changes, random)?.map_or(Ok(()), |key| visit(&key))
            }
            Source::Memory(memory) => {
                any_key_in_memory(memory, random).map_or(Ok(()), |key| visit(&key))
            }
        }
    }

    /// Whether clients get stored values as they are.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.schema.form == Form::Plain
    }

    /// Appends a stored value as clients get it: the bytes of a single column, or several columns as a
    /// JSON object.
    ///
    /// # Errors
    /// The stored bytes are no row of the data set's columns.
    #[inline]
    pub(crate) fn show(&self, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        match self.schema.form {
            Form::Plain => out.extend_from_slice(stored),
            _ => self.show_row(stored, out)?,
        }
        Ok(())
    }

    fn show_row(&self, stored: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let row = self.schema.row(stored)?;
        match (self.schema.form, row.iter().next()) {
            (Form::Row, Some((_, value))) if self.schema.columns.len() == 1 => {
                value.write_text(out);
            }
            _ => row.write_json(out),
        }
        Ok(())
    }
}

/// Whether all open tables of a version are mapped.
fn is_mapped(version: &Version) -> bool {
    version.table_stats().all(|table| table.access == Access::Mapped)
}

/// Calls `visit` with the keys of a map after a cursor, as [`View::scan_some`] does. Those that a transaction has
/// changed come first.
fn scan_map(
    map: &ServedMap,
    changes: &Changes,
    cursor: u64,
    mut limit: ScanLimit,
    visit: &mut dyn FnMut(&[u8]),
) -> Result<u64> {
    if cursor == 0 {
        changes.keys.iter().filter(|(_, is_there)| **is_there).for_each(|(key, _)| visit(key));
    }
    if changes.is_cleared {
        return Ok(0);
    }
    let mut last = None;
    let next = map.visit_from(
        cursor << (64 - PREFIX_BITS),
        limit.keys.saturating_add(1),
        &mut |hash, key| {
            let prefix = prefix_of(hash);
            // Keys that share a prefix come together.
            if limit.is_reached() && last != Some(prefix) {
                return false;
            }
            if !changes.keys.contains_key(key) {
                visit(key);
            }
            last = Some(prefix);
            limit.take(key);
            true
        },
    )?;
    Ok(next.map_or(0, prefix_of))
}

/// Returns the start of a hash, as a cursor has it.
fn prefix_of(hash: u64) -> u64 {
    hash >> (64 - PREFIX_BITS)
}

/// Calls `visit` with the keys of a data set in memory after a cursor, as [`View::scan_some`] does.
fn scan_memory(
    memory: &ServedMemory,
    cursor: u64,
    mut limit: ScanLimit,
    visit: &mut dyn FnMut(&[u8]),
) -> u64 {
    let mut last = None;
    let next = memory.visit_from(cursor << (64 - PREFIX_BITS), &mut |hash, key| {
        // Keys that share a prefix come together.
        if limit.is_reached() && last != Some(prefix_of(hash)) {
            return false;
        }
        visit(key);
        last = Some(prefix_of(hash));
        limit.take(key);
        true
    });
    next.map_or(0, prefix_of)
}

/// Returns the key in memory whose hash comes after a random one; `None` if there is none.
fn any_key_in_memory(memory: &ServedMemory, random: u64) -> Option<Vec<u8>> {
    [random, 0].into_iter().find_map(|from| {
        let mut chosen = None;
        memory.visit_from(from, &mut |_, key| {
            chosen = Some(key.to_vec());
            false
        });
        chosen
    })
}

/// Returns the key of a map whose hash comes after a random one, or one that a transaction has set; `None` if there
/// is none.
fn any_key(map: &ServedMap, changes: &Changes, random: u64) -> Result<Option<Vec<u8>>> {
    for from in [random, 0].into_iter().filter(|_| !changes.is_cleared) {
        let mut chosen = None;
        map.visit_from(from, 1, &mut |_, key| {
            if !changes.keys.contains_key(key) {
                chosen = Some(key.to_vec());
            }
            chosen.is_none()
        })?;
        if chosen.is_some() {
            return Ok(chosen);
        }
    }
    let set = changes.keys.iter().find(|(_, is_there)| **is_there);
    Ok(set.map(|(key, _)| key.clone()))
}
