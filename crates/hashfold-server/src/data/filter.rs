//! A filter that is served as a key.

use hashfold::{
    Error, ErrorClass, FilterReader, Place, Result,
    filter::{
        Filter, FilterOptions, Mode,
        cascade::{CascadeFilter, CascadeStats, MEMORY_DEFAULT},
    },
    io::{Access, Disk as _, OsDisk},
    manifest::Manifest,
    work::{MemoryBudget, Reserved},
};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock, TryLockError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

/// Bytes of a run for which its index has a byte: 4 for a block of 4096.
const BYTES_PER_INDEX_BYTE: u64 = 1024;

/// Whether a filter counts the insertions of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duplicates {
    /// A set, which the commands `BF.*` read and change.
    Ignored,
    /// A multiset, which the commands `CF.*` read and change.
    Counted,
}

/// A filter, and the name of the key that it is.
#[derive(Debug)]
pub(crate) struct FilterKey {
    key: Vec<u8>,
    folder: PathBuf,
    memory: MemoryBudget,
    duplicates: Duplicates,
    handle: RwLock<Handle>,
    /// Whether the filter was opened for writing, and is open.
    is_writable: AtomicBool,
    /// The statistics at the last look at the filter.
    seen: Mutex<Arc<CascadeStats>>,
    /// Whether the configuration does not have the filter any more.
    is_gone: AtomicBool,
    /// The time at which the filter expires, in milliseconds since 1970; 0 if it does not.
    expires_at: AtomicU64,
    /// Number of changes since the filter was opened, also those that other processes have made.
    changes: AtomicU64,
    /// Why changes could not be made durable, as long as they cannot.
    sync_error: Mutex<Option<String>>,
}

#[derive(Debug)]
enum Handle {
    /// A state, the generation of the manifest that was there before it was opened, and its memory.
    Reader {
        reader: FilterReader,
        generation: u64,
        _memory: Reserved,
    },
    Writer {
        filter: Box<Filter>,
        _memory: Reserved,
    },
    /// Nothing, and what was known about the filter.
    Closed(Box<CascadeStats>),
}

impl FilterKey {
    /// Opens the filter in a folder for reading.
    ///
    /// # Errors
    /// `Absent` if there is none; `Memory` if it does not fit; damage.
    pub(crate) fn open(key: &[u8], folder: &Path, memory: &MemoryBudget) -> Result<FilterKey> {
        Handle::open(folder, memory).map(|handle| FilterKey::new(key, folder, memory, handle))
    }

    /// Opens the filter in a folder for writing.
    ///
    /// # Errors
    /// `Busy` if another process writes to it; the errors of [`FilterKey::open`].
    pub(crate) fn open_to_write(
        key: &[u8],
        folder: &Path,
        memory: &MemoryBudget,
    ) -> Result<FilterKey> {
        let reserved = reserve(memory, folder, MEMORY_DEFAULT as u64)?;
        let filter = Filter::open(folder)?;
        Ok(FilterKey::new(
            key,
            folder,
            memory,
            Handle::Writer { filter: Box::new(filter), _memory: reserved },
        ))
    }

    /// Opens the filter in a folder for writing, with options that change with each opening: its memory, which
    /// is reserved, and its log.
    ///
    /// # Errors
    /// The errors of [`FilterKey::open_to_write`].
    pub(crate) fn open_with(
        key: &[u8],
        folder: &Path,
        options: FilterOptions,
        (memory, reserved): (&MemoryBudget, Reserved),
    ) -> Result<FilterKey> {
        let filter = Filter::open_with(folder, options)?;
        Ok(FilterKey::new(
            key,
            folder,
            memory,
            Handle::Writer { filter: Box::new(filter), _memory: reserved },
        ))
    }

    /// Makes a filter in a new folder, open for writing. Its memory is reserved.
    ///
    /// # Errors
    /// `Exists` if there is one; errors of writing.
    pub(crate) fn create(
        key: &[u8],
        folder: &Path,
        options: FilterOptions,
        (memory, reserved): (&MemoryBudget, Reserved),
    ) -> Result<FilterKey> {
        let filter = Filter::create(folder, options)?;
        Ok(FilterKey::new(
            key,
            folder,
            memory,
            Handle::Writer { filter: Box::new(filter), _memory: reserved },
        ))
    }

    /// Makes the key of a filter that is open for writing, and whose memory is reserved.
    pub(crate) fn of(
        key: &[u8],
        folder: &Path,
        filter: CascadeFilter,
        (memory, reserved): (&MemoryBudget, Reserved),
    ) -> FilterKey {
        let handle = Handle::Writer { filter: Box::new(Filter::from(filter)), _memory: reserved };
        FilterKey::new(key, folder, memory, handle)
    }

    fn new(key: &[u8], folder: &Path, memory: &MemoryBudget, handle: Handle) -> FilterKey {
        let seen = handle.stats();
        let duplicates = match seen.mode {
            Mode::Set => Duplicates::Ignored,
            Mode::Multiset => Duplicates::Counted,
        };
        FilterKey {
            key: key.to_vec(),
            folder: folder.to_owned(),
            memory: memory.clone(),
            duplicates,
            is_writable: AtomicBool::new(matches!(handle, Handle::Writer { .. })),
            seen: Mutex::new(Arc::new(seen)),
            handle: RwLock::new(handle),
            is_gone: AtomicBool::new(false),
            expires_at: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            sync_error: Mutex::default(),
        }
    }

    /// Returns the key that the filter is.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the key as text, for people.
    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(&self.key).into_owned()
    }

    /// Returns the folder that has the filter's files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the time at which the filter expires, in milliseconds since 1970.
    pub(crate) fn expires_at(&self) -> Option<u64> {
        Some(self.expires_at.load(SeqCst)).filter(|at| *at > 0)
    }

    /// Whether the filter has not expired at this time, in milliseconds since 1970.
    pub(crate) fn is_live(&self, now_ms: u64) -> bool {
        self.expires_at().is_none_or(|at| at > now_ms)
    }

    /// Sets the time at which the filter expires, in milliseconds since 1970.
    pub(crate) fn set_expiry(&self, at: Option<u64>) {
        self.changes.fetch_add(1, SeqCst);
        self.expires_at.store(at.unwrap_or(0), SeqCst);
    }

    /// Whether the filter is a set or a multiset.
    pub(crate) fn duplicates(&self) -> Duplicates {
        self.duplicates
    }

    /// Closes the filter, so that others can write to it: connections that see it get an error from now on.
    ///
    /// # Errors
    /// Errors of making its changes durable; the filter is closed all the same.
    pub(crate) fn end(&self) -> Result<()> {
        self.is_gone.store(true, Relaxed);
        let flushed = self.flush();
        drop(self.take());
        flushed
    }

    /// Closes the filter without making its changes durable: its files will be removed. Its memory is free then.
    pub(crate) fn retire(&self) {
        if let Handle::Writer { filter, .. } = self.take() {
            filter.abandon();
        }
    }

    /// Closes the filter, and returns it under another key.
    pub(crate) fn renamed(&self, key: &[u8]) -> FilterKey {
        let filter = FilterKey::new(key, &self.folder, &self.memory, self.take());
        filter.expires_at.store(self.expires_at.load(SeqCst), SeqCst);
        let error = self.sync_error();
        *filter.sync_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
        filter
    }

    /// Closes the filter, and returns what it was. Waits for a change that is being made.
    fn take(&self) -> Handle {
        let mut handle = self.handle.write().unwrap_or_else(PoisonError::into_inner);
        let stats = Box::new(handle.stats());
        self.changes.fetch_add(1, SeqCst);
        self.is_writable.store(false, Relaxed);
        std::mem::replace(&mut *handle, Handle::Closed(stats))
    }

    /// Whether the filter was closed because the configuration does not have it any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    /// Returns the error for a filter that is closed.
    fn closed(&self) -> Error {
        let error = Error::argument("filter", "one that is served", "one that was closed");
        error.at(&Place::file(&self.folder))
    }

    /// Whether the filter was opened for writing.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable.load(Relaxed)
    }

    /// Returns the statistics of the filter. Reads nothing, but waits for a change that is being made.
    pub(crate) fn stats(&self) -> CascadeStats {
        self.read().stats()
    }

    /// Returns the statistics of the filter without waiting: while a change is being made, those at the last
    /// look before.
    pub(crate) fn glance(&self) -> Arc<CascadeStats> {
        let handle = match self.handle.try_read() {
            Ok(handle) => Some(handle),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = handle {
            *seen = Arc::new(handle.stats());
        }
        seen.clone()
    }

    /// Looks up keys. The result says for each whether it may have been inserted.
    ///
    /// # Errors
    /// Damage, and errors of reading.
    pub(crate) fn contains<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<bool>> {
        match &*self.read() {
            Handle::Reader { reader, .. } => reader.contains_many(keys),
            Handle::Writer { filter, .. } => filter.contains_many(keys),
            Handle::Closed(_) => Err(self.closed()),
        }
    }

    /// Returns the number of insertions of a key without its removals.
    ///
    /// # Errors
    /// Damage, and errors of reading.
    pub(crate) fn count(&self, key: &[u8]) -> Result<u64> {
        match &*self.read() {
            Handle::Reader { reader, .. } => reader.count(key),
            Handle::Writer { filter, .. } => filter.count(key),
            Handle::Closed(_) => Err(self.closed()),
        }
    }

    /// Returns a reader of all changes so far, which further changes do not reach.
    ///
    /// # Errors
    /// Errors of making the changes durable.
    pub(crate) fn snapshot(&self) -> Result<FilterReader> {
        if let Handle::Reader { reader, .. } = &*self.read() {
            return Ok(reader.clone());
        }
        self.with_writer(Filter::reader)
    }

    /// Returns a number that grows with each change, also with one that had no effect.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    /// Calls `change` with the filter, alone.
    ///
    /// # Errors
    /// `Argument` if the filter is not open for writing; errors of `change`.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Filter) -> Result<T>) -> Result<T> {
        self.with_writer(|filter| {
            self.changes.fetch_add(1, SeqCst);
            change(filter)
        })
    }

    fn with_writer<T>(&self, change: impl FnOnce(&mut Filter) -> Result<T>) -> Result<T> {
        match &mut *self.handle.write().unwrap_or_else(PoisonError::into_inner) {
            Handle::Writer { filter, .. } => change(filter),
            Handle::Reader { .. } => {
                let error = Error::argument("filter", "open for writing", "open for reading only");
                Err(error.at(&Place::file(&self.folder)))
            }
            Handle::Closed(_) => Err(self.closed()),
        }
    }

    /// Makes all changes durable: in the filter's log, if it has one.
    ///
    /// # Errors
    /// Errors of writing, such as a full disk. No change is lost, and the next call tries again.
    pub(crate) fn sync(&self) -> Result<()> {
        let synced = match &mut *self.handle.write().unwrap_or_else(PoisonError::into_inner) {
            Handle::Writer { filter, .. } => filter.sync(),
            Handle::Reader { .. } | Handle::Closed(_) => Ok(()),
        };
        let error = synced.as_ref().err().map(ToString::to_string);
        *self.sync_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
        synced
    }

    /// Returns why the last changes are not durable, if they could not be made so.
    pub(crate) fn sync_error(&self) -> Option<String> {
        self.sync_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes all changes durable in runs, so that other processes see them.
    ///
    /// # Errors
    /// Errors of writing, such as a full disk. No change is lost, and the next call tries again.
    pub(crate) fn flush(&self) -> Result<()> {
        match &mut *self.handle.write().unwrap_or_else(PoisonError::into_inner) {
            Handle::Writer { filter, .. } => filter.flush(),
            Handle::Reader { .. } | Handle::Closed(_) => Ok(()),
        }
    }

    /// Opens the state that another process has made durable since, if the filter is open for reading.
    ///
    /// # Errors
    /// The errors of [`FilterKey::open`]; the state that was open stays.
    pub(crate) fn refresh(&self) -> Result<()> {
        let Handle::Reader { generation, .. } = *self.read() else { return Ok(()) };
        if generation_of(&self.folder)? == generation {
            return Ok(());
        }
        match Handle::open(&self.folder, &self.memory) {
            Ok(new) => {
                let mut handle = self.handle.write().unwrap_or_else(PoisonError::into_inner);
                if matches!(*handle, Handle::Reader { .. }) {
                    self.changes.fetch_add(1, SeqCst);
                    *handle = new;
                }
                Ok(())
            }
            Err(error) if error.class() == ErrorClass::Busy => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Handle> {
        self.handle.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a number that grows with each change of a filter that is durable.
fn generation_of(folder: &Path) -> Result<u64> {
    Manifest::read(&OsDisk, folder).map(|manifest| manifest.generation)
}

/// Reserves the memory of a filter.
fn reserve(memory: &MemoryBudget, folder: &Path, bytes: u64) -> Result<Reserved> {
    memory.reserve(bytes).map_err(|error| error.at(&Place::file(folder)))
}

/// Returns the memory that a reader of a filter needs at least, in bytes: the index of each run.
fn index_bytes(folder: &Path) -> u64 {
    let names = OsDisk.list(folder).unwrap_or_default();
    let runs = names.iter().filter(|name| name.starts_with("run-"));
    let size = |name| OsDisk.open(&folder.join(name), Access::Cached)?.size();
    // A file that is gone was merged meanwhile; other files have its keys.
    runs.map(size).map(|size: Result<u64>| size.unwrap_or(0) / BYTES_PER_INDEX_BYTE).sum()
}

impl Handle {
    /// Opens the durable state of the filter in a folder.
    fn open(folder: &Path, memory: &MemoryBudget) -> Result<Handle> {
        let generation = generation_of(folder)?;
        let mut reserved = reserve(memory, folder, index_bytes(folder))?;
        let reader = FilterReader::open(folder)?;
        // Changes that are in logs only take memory, too.
        let resized = reserved.resize(reader.stats().memory_bytes);
        resized.map_err(|error| error.at(&Place::file(folder)))?;
        Ok(Handle::Reader { reader, generation, _memory: reserved })
    }

    fn stats(&self) -> CascadeStats {
        match self {
            Handle::Reader { reader, .. } => reader.stats(),
            Handle::Writer { filter, .. } => filter.stats(),
            Handle::Closed(stats) => stats.as_ref().clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issue 15: a long change or a checkpoint holds the filter alone.
    #[test]
    fn a_glance_does_not_wait_for_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seen");
        let memory = MemoryBudget::new(20 << 20);
        let reserved = memory.reserve(16 << 20).unwrap();
        let options = FilterOptions::exact().memory_bytes(16 << 20);
        let filter = FilterKey::create(b"seen", &path, options, (&memory, reserved)).unwrap();
        filter.change(|filter| filter.insert("a")).unwrap();
        assert_eq!(filter.glance().keys_max(), 1);
        let inserted = filter.change(|other| {
            other.insert("b")?;
            assert_eq!(filter.glance().keys_max(), 1, "what was seen before");
            assert!(filter.is_writable());
            Ok(())
        });
        inserted.unwrap();
        assert_eq!(filter.glance().keys_max(), 2);
        filter.end().unwrap();
        assert_eq!((filter.glance().keys_max(), filter.is_writable()), (2, false));
        assert_eq!(memory.reserved(), 0, "a filter that was closed takes no memory");
        let reader = FilterKey::open(b"seen", &path, &memory).unwrap();
        let index = memory.reserved();
        assert_eq!(index, reader.glance().memory_bytes);
        drop(reader);
        assert_eq!(memory.reserved(), 0);
        let tight = MemoryBudget::new(index - 1);
        let error = FilterKey::open(b"seen", &path, &tight).unwrap_err();
        assert!(error.to_string().contains("bytes of memory"), "{error}");
        assert!(FilterKey::open_to_write(b"seen", &path, &memory).is_err());
        assert_eq!((tight.reserved(), memory.reserved()), (0, 0));
    }
}
