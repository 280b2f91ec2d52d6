//! Reading the current version, whichever it is.

use super::{
    lend::ValueRef,
    pointer::Pointer,
    read::{Version, open_current},
};
use crate::{error::Result, options::ReadOptions, table::VisitValue};
use arc_swap::ArcSwap;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Time between two checks for a new version, in nanoseconds.
const CHECK_INTERVAL_NS: u64 = 1_000_000_000;

/// A reader of the current version, which follows each publish and rollback.
///
/// A call that is made a second or more after the last check starts another check, in the background,
/// whether another version is current. If a check fails, the reader stays on its version;
/// [`StoreReader::refresh`] returns the error. Several lookups that must agree use one
/// [`StoreReader::version`]. Threads can share a reader; clones are the same reader.
#[derive(Clone, Debug)]
pub struct StoreReader {
    following: Arc<Following>,
}

#[derive(Debug)]
struct Following {
    folder: PathBuf,
    options: ReadOptions,
    current: ArcSwap<Version>,
    /// Time of the next check for another version, in nanoseconds of the clock.
    next_check: AtomicU64,
    /// Versions that were current before. Dropping the last handle of a version frees its memory;
    /// keeping one here means that no lookup has to.
    retired: Mutex<Vec<Arc<Version>>>,
}

impl StoreReader {
    /// Opens the current version of the store in a folder.
    ///
    /// # Errors
    /// `Absent` if there is no store, `Unpublished` if no version is current.
    pub fn open(folder: impl AsRef<Path>) -> Result<StoreReader> {
        StoreReader::open_with(folder, &ReadOptions::new())
    }

    /// Opens the current version of the store in a folder.
    ///
    /// # Errors
    /// The errors of [`StoreReader::open`].
    pub fn open_with(folder: impl AsRef<Path>, options: &ReadOptions) -> Result<StoreReader> {
        let folder = folder.as_ref();
        let (version, _) = open_current(folder, options, None)?;
        let following = Following {
            folder: folder.to_owned(),
            options: options.clone(),
            current: ArcSwap::new(Arc::new(version)),
            next_check: AtomicU64::new(0),
            retired: Mutex::default(),
        };
        following.is_due();
        Ok(StoreReader { following: Arc::new(following) })
    }

    /// Returns the value of a key in the current version.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.version().get(key)
    }

    /// Returns the value of a key in the current version, without a copy if the data are mapped and the
    /// value lies in one block. The value keeps its version open; many of them are lent at less cost by
    /// one [`StoreReader::version`].
    pub fn get_ref(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueRef>> {
        ValueRef::of(self.version(), key.as_ref())
    }

    /// Whether a key is in the current version. Reads as much as [`StoreReader::get`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.version().contains(key)
    }

    /// Looks up many keys in the current version, with many device reads in flight. Calls `visit`
    /// once per key, in any order, with the index of the key and its value.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K], visit: &mut VisitValue<'_>) -> Result<()> {
        self.version().get_many(keys, visit)
    }

    /// Returns the version that was current at the last check, and starts another check if one is
    /// due. Waits neither for the check nor for a writer.
    pub fn version(&self) -> Arc<Version> {
        if self.following.is_due() {
            let following = Arc::downgrade(&self.following);
            // A failure is not lost: `refresh` meets it again.
            let check = move || following.upgrade().map_or(Ok(false), |it| it.refresh());
            self.following.options.env.executor.spawn(Box::new(move || drop(check())));
        }
        self.following.current.load_full()
    }

    /// Opens the current version, if it is not the version at hand. Returns whether it changed.
    /// After an error, the old version stays.
    pub fn refresh(&self) -> Result<bool> {
        self.following.refresh()
    }
}

impl Following {
    /// Whether a check is due, for one of the threads that ask at the same time.
    fn is_due(&self) -> bool {
        let now = self.options.env.clock.now().as_nanos() as u64;
        let due = self.next_check.load(Relaxed);
        let next = now + CHECK_INTERVAL_NS;
        now >= due && self.next_check.compare_exchange(due, next, Relaxed, Relaxed).is_ok()
    }

    fn refresh(&self) -> Result<bool> {
        let mut retired = self.retired.lock().expect("nothing panics under this lock");
        retired.retain(|version| Arc::strong_count(version) > 1);
        let held = self.current.load_full();
        let pointer = Pointer::read(self.options.env.disk.as_ref(), &self.folder)?;
        if pointer.current == Some(held.info().name.number) {
            return Ok(false);
        }
        let (version, _) = open_current(&self.folder, &self.options, Some(&held))?;
        retired.push(self.current.swap(Arc::new(version)));
        Ok(true)
    }
}
