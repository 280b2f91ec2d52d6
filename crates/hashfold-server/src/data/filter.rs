//! A filter that is served as a key.

use hashfold::{
    Error, ErrorClass, FilterReader, Place, Result,
    filter::{
        Filter, FilterOptions, Mode,
        cascade::{CascadeFilter, CascadeStats},
    },
    io::OsDisk,
    manifest::Manifest,
};
use std::{
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError, RwLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

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
    duplicates: Duplicates,
    handle: RwLock<Handle>,
    /// Whether the configuration does not have the filter any more.
    is_gone: AtomicBool,
    /// Number of changes since the filter was opened, also those that other processes have made.
    changes: AtomicU64,
    /// Why changes could not be made durable, as long as they cannot.
    sync_error: Mutex<Option<String>>,
}

#[derive(Debug)]
enum Handle {
    /// A state, and the generation of the manifest that was there before it was opened.
    Reader(FilterReader, u64),
    Writer(Box<Filter>),
    /// Nothing, and what was known about the filter.
    Closed(Box<CascadeStats>),
}

impl FilterKey {
    /// Opens the filter in a folder for reading.
    ///
    /// # Errors
    /// `Absent` if there is none; damage.
    pub(crate) fn open(key: &[u8], folder: &Path) -> Result<FilterKey> {
        Handle::open(folder).map(|handle| FilterKey::new(key, folder, handle))
    }

    /// Opens the filter in a folder for writing.
    ///
    /// # Errors
    /// `Busy` if another process writes to it; the errors of [`FilterKey::open`].
    pub(crate) fn open_to_write(key: &[u8], folder: &Path) -> Result<FilterKey> {
        let filter = Filter::open(folder)?;
        Ok(FilterKey::new(key, folder, Handle::Writer(Box::new(filter))))
    }

    /// Opens the filter in a folder for writing, with options that change with each opening: its memory and
    /// its log.
    ///
    /// # Errors
    /// The errors of [`FilterKey::open_to_write`].
    pub(crate) fn open_with(
        key: &[u8],
        folder: &Path,
        options: FilterOptions,
    ) -> Result<FilterKey> {
        let filter = Filter::open_with(folder, options)?;
        Ok(FilterKey::new(key, folder, Handle::Writer(Box::new(filter))))
    }

    /// Makes a filter in a new folder, open for writing.
    ///
    /// # Errors
    /// `Exists` if there is one; errors of writing.
    pub(crate) fn create(key: &[u8], folder: &Path, options: FilterOptions) -> Result<FilterKey> {
        let filter = Filter::create(folder, options)?;
        Ok(FilterKey::new(key, folder, Handle::Writer(Box::new(filter))))
    }

    /// Makes the key of a filter that is open for writing.
    pub(crate) fn of(key: &[u8], folder: &Path, filter: CascadeFilter) -> FilterKey {
        FilterKey::new(key, folder, Handle::Writer(Box::new(Filter::from(filter))))
    }

    fn new(key: &[u8], folder: &Path, handle: Handle) -> FilterKey {
        let duplicates = match handle.stats().mode {
            Mode::Set => Duplicates::Ignored,
            Mode::Multiset => Duplicates::Counted,
        };
        FilterKey {
            key: key.to_vec(),
            folder: folder.to_owned(),
            duplicates,
            handle: RwLock::new(handle),
            is_gone: AtomicBool::new(false),
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
        let mut handle = self.handle.write().unwrap_or_else(PoisonError::into_inner);
        let stats = Box::new(handle.stats());
        self.changes.fetch_add(1, SeqCst);
        *handle = Handle::Closed(stats);
        flushed
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
        matches!(*self.read(), Handle::Writer(_))
    }

    /// Returns the statistics of the filter. Reads nothing.
    pub(crate) fn stats(&self) -> CascadeStats {
        self.read().stats()
    }

    /// Looks up keys. The result says for each whether it may have been inserted.
    ///
    /// # Errors
    /// Damage, and errors of reading.
    pub(crate) fn contains<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<bool>> {
        match &*self.read() {
            Handle::Reader(reader, _) => reader.contains_many(keys),
            Handle::Writer(filter) => filter.contains_many(keys),
            Handle::Closed(_) => Err(self.closed()),
        }
    }

    /// Returns the number of insertions of a key without its removals.
    ///
    /// # Errors
    /// Damage, and errors of reading.
    pub(crate) fn count(&self, key: &[u8]) -> Result<u64> {
        match &*self.read() {
            Handle::Reader(reader, _) => reader.count(key),
            Handle::Writer(filter) => filter.count(key),
            Handle::Closed(_) => Err(self.closed()),
        }
    }

    /// Returns a reader of all changes so far, which further changes do not reach.
    ///
    /// # Errors
    /// Errors of making the changes durable.
    pub(crate) fn snapshot(&self) -> Result<FilterReader> {
        if let Handle::Reader(reader, _) = &*self.read() {
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
            Handle::Writer(filter) => change(filter),
            Handle::Reader(..) => {
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
            Handle::Writer(filter) => filter.sync(),
            Handle::Reader(..) | Handle::Closed(_) => Ok(()),
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
            Handle::Writer(filter) => filter.flush(),
            Handle::Reader(..) | Handle::Closed(_) => Ok(()),
        }
    }

    /// Opens the state that another process has made durable since, if the filter is open for reading.
    ///
    /// # Errors
    /// The errors of [`FilterKey::open`]; the state that was open stays.
    pub(crate) fn refresh(&self) -> Result<()> {
        let Handle::Reader(_, generation) = *self.read() else { return Ok(()) };
        if generation_of(&self.folder)? == generation {
            return Ok(());
        }
        match Handle::open(&self.folder) {
            Ok(new) => {
                let mut handle = self.handle.write().unwrap_or_else(PoisonError::into_inner);
                if matches!(*handle, Handle::Reader(..)) {
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

impl Handle {
    /// Opens the durable state of the filter in a folder.
    fn open(folder: &Path) -> Result<Handle> {
        let generation = generation_of(folder)?;
        FilterReader::open(folder).map(|reader| Handle::Reader(reader, generation))
    }

    fn stats(&self) -> CascadeStats {
        match self {
            Handle::Reader(reader, _) => reader.stats(),
            Handle::Writer(filter) => filter.stats(),
            Handle::Closed(stats) => stats.as_ref().clone(),
        }
    }
}
