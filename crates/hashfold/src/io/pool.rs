//! A pool of descriptors: files that are closed while they are not read, so that a process can have
//! more files open than its limit of descriptors.
//!
//! A file that was closed is opened again by its name, so the name must stay as long as the file is
//! in use: see [`Disk::open_named`](super::Disk::open_named).

use super::{Access, BlockFile, Extents, FileExtents, Visit, direct::open_to_read, disk::refused};
use crate::error::{Error, ErrorKind, Place, Result};
use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};
use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, TryLockError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

/// Maximum number of attempts to open a file while other threads use all descriptors.
const ATTEMPTS_MAX: usize = 10_000;

/// Number of places of closed files that a pool keeps although it needs them no more.
const SLACK: usize = 16;

/// The pool of the files of this process: half of the descriptors that it may have.
pub(super) static FILES: FilePool = FilePool::new(|| {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| limit as usize / 2)
});

/// A pool of descriptors. If all of them are in use, the descriptor that was not used for the longest
/// time is closed (second chance: Corbató, *A paging experiment with the Multics system*, 1968).
#[derive(Debug)]
pub(super) struct FilePool {
    /// Returns the number of descriptors from which on files are closed.
    max: fn() -> usize,
    open: Mutex<OpenFiles>,
}

/// The open files of a pool.
#[derive(Debug)]
struct OpenFiles {
    /// The files in the order in which they are closed. Some may be gone.
    order: VecDeque<Weak<Slot>>,
    count: usize,
}

/// The place of a file that may be open.
#[derive(Debug)]
struct Slot {
    file: Mutex<Option<Arc<dyn BlockFile>>>,
    /// Whether the file was used since the pool looked at it last.
    is_used: AtomicBool,
}

impl Slot {
    fn file(&self) -> MutexGuard<'_, Option<Arc<dyn BlockFile>>> {
        self.file.lock().expect("nothing panics under this lock")
    }

    /// Closes the file if it is neither in use nor being opened.
    fn close_idle(&self) -> bool {
        match self.file.try_lock() {
            Ok(mut file) if file.as_ref().is_some_and(is_idle) => {
                *file = None;
                true
            }
            Ok(_) | Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Poisoned(_)) => unreachable!("nothing panics under this lock"),
        }
    }
}

/// Whether nobody reads a file. Requests in flight hold its descriptor.
fn is_idle(file: &Arc<dyn BlockFile>) -> bool {
    let holders = file.descriptor().map_or(0, |descriptor| Arc::strong_count(&descriptor));
    Arc::strong_count(file) == 1 && holders <= 2
}

impl FilePool {
    pub(super) const fn new(max: fn() -> usize) -> FilePool {
        let open = OpenFiles { order: VecDeque::new(), count: 0 };
        FilePool { max, open: Mutex::new(open) }
    }

    fn open(&self) -> MutexGuard<'_, OpenFiles> {
        self.open.lock().expect("nothing panics under this lock")
    }

    /// Closes files until there is room for one more. Returns whether there is.
    fn make_room(&self) -> bool {
        let (max, mut open) = ((self.max)(), self.open());
        while open.count >= max && open.close_one() {}
        open.count < max
    }

    fn add(&self, slot: &Arc<Slot>) {
        let mut open = self.open();
        open.order.push_back(Arc::downgrade(slot));
        open.count += 1;
    }

    /// Counts an open file that is dropped.
    fn remove(&self) {
        let mut open = self.open();
        open.count -= 1;
        if open.order.len() > 2 * open.count + SLACK {
            open.order.retain(|slot| slot.strong_count() > 0);
        }
    }
}

impl OpenFiles {
    /// Closes the file that was not used for the longest time, if any file is idle.
    fn close_one(&mut self) -> bool {
        for _ in 0..2 * self.order.len() {
            let Some(slot) = self.order.pop_front() else { return false };
            let Some(open) = slot.upgrade() else { continue };
            if !open.is_used.swap(false, Relaxed) && open.close_idle() {
                self.count -= 1;
                return true;
            }
            self.order.push_back(slot);
        }
        false
    }
}

/// Whether a file may be opened when the pool has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beyond {
    Yes,
    No,
}

/// The properties by which a file is recognized: the device, the number of the file there, and the size.
type Identity = (u64, u64, u64);

/// A file that is open for reading, but not always in the eyes of the system.
#[derive(Debug)]
pub(super) struct PooledFile {
    pool: &'static FilePool,
    slot: Arc<Slot>,
    /// The path for errors.
    place: Place,
    /// The path that is opened, whatever the working folder is.
    path: PathBuf,
    access: Access,
    identity: Identity,
}

impl PooledFile {
    pub(super) fn open(pool: &'static FilePool, path: &Path, access: Access) -> Result<PooledFile> {
        pool.make_room();
        let file = patiently(|| open_to_read(path, access))?;
        let identity = identity(file.as_ref())?;
        let absolute = std::path::absolute(path).map_err(refused("open", path))?;
        let slot = Arc::new(Slot { file: Mutex::new(Some(file)), is_used: AtomicBool::new(true) });
        pool.add(&slot);
        Ok(PooledFile { pool, slot, place: Place::file(path), path: absolute, access, identity })
    }

    /// Returns the file, which is opened if it was closed; `None` if the pool has no room for it.
    fn file_within(&self, beyond: Beyond) -> Result<Option<Arc<dyn BlockFile>>> {
        let mut slot = self.slot.file();
        self.slot.is_used.store(true, Relaxed);
        if let Some(file) = &*slot {
            return Ok(Some(file.clone()));
        }
        if !self.pool.make_room() && beyond == Beyond::No {
            return Ok(None);
        }
        let file = open_to_read(&self.path, self.access)
            .map_err(|error| error.if_lost("file, which was open before,"))?;
        if identity(file.as_ref())? != self.identity {
            let what = "it was replaced while it was open; open the data set again";
            return Err(refused("open", &self.place.file)(io::Error::other(what)));
        }
        self.pool.add(&self.slot);
        Ok(Some(slot.insert(file).clone()))
    }

    fn file(&self) -> Result<Arc<dyn BlockFile>> {
        let file = patiently(|| self.file_within(Beyond::Yes))?;
        Ok(file.expect("it was opened beyond the pool's room"))
    }
}

impl Drop for PooledFile {
    fn drop(&mut self) {
        if self.slot.file().take().is_some() {
            self.pool.remove();
        }
    }
}

impl BlockFile for PooledFile {
    fn place(&self) -> &Place {
        &self.place
    }

    fn size(&self) -> Result<u64> {
        Ok(self.identity.2)
    }

    fn device_bytes(&self) -> Result<u64> {
        self.file()?.device_bytes()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.file()?.read_at(offset, bytes)
    }

    fn read_many(&self, extents: &mut Extents<'_>, visit: &mut Visit<'_>) -> Result<()> {
        self.file()?.read_many(extents, visit)
    }

    fn read_across(
        &self,
        files: &[&dyn BlockFile],
        extents: &mut FileExtents<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        self.file()?.read_across(files, extents, visit)
    }

    fn descriptor(&self) -> Option<Arc<File>> {
        self.file_within(Beyond::No).ok()??.descriptor()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file()?.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        self.file()?.sync()
    }
}

fn identity(file: &dyn BlockFile) -> Result<Identity> {
    let path = &file.place().file;
    let descriptor = file.descriptor().ok_or_else(|| refused("measure", path)(Errno::BADF))?;
    let metadata = descriptor.metadata().map_err(refused("measure", path))?;
    Ok((metadata.dev(), metadata.ino(), metadata.len()))
}

/// Repeats an attempt to open a file while other threads use all descriptors of the process.
fn patiently<T>(attempt: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 0..ATTEMPTS_MAX {
        match attempt() {
            Err(error) if is_short_of_files(&error) => thread::yield_now(),
            done => return done,
        }
    }
    attempt()
}

fn is_short_of_files(error: &Error) -> bool {
    let ErrorKind::Io { source, .. } = error.kind() else { return false };
    Errno::from_io_error(source).is_some_and(|errno| matches!(errno, Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{ALIGNMENT, Disk as _, Extent, OsDisk};
    use tempfile::TempDir;

    const FILES: usize = 40;
    const MAX: usize = 3;

    /// Creates files of two blocks; all bytes of a file are its number.
    fn files(pool: &'static FilePool, folder: &Path, access: Access) -> Vec<PooledFile> {
        let file = |i: usize| {
            let path = folder.join(format!("file{i}"));
            let new = OsDisk.create(&path, Access::Cached).unwrap();
            new.write_at(0, &[i as u8; 2 * ALIGNMENT]).unwrap();
            PooledFile::open(pool, &path, access).unwrap()
        };
        (0..FILES).map(file).collect()
    }

    /// Reads all files together, several times.
    fn read_all(files: &[PooledFile]) {
        let files: Vec<&dyn BlockFile> = files.iter().map(|file| file as _).collect();
        let extent = |i: usize| Extent { offset: (i % 2 * ALIGNMENT) as u64, len: ALIGNMENT };
        let mut extents = (0..10 * FILES).map(|i| (i * 7 % FILES, extent(i)));
        let mut seen = 0;
        let mut visit = |i: usize, bytes: &[u8]| {
            assert!(bytes.iter().all(|byte| usize::from(*byte) == i * 7 % FILES));
            seen += 1;
            Ok(())
        };
        files[0].read_across(&files, &mut extents, &mut visit).unwrap();
        assert_eq!(seen, 10 * FILES);
    }

    #[test]
    fn more_files_are_read_than_a_pool_has_descriptors() {
        static POOL: FilePool = FilePool::new(|| MAX);
        for access in [Access::Cached, Access::Direct] {
            let folder = TempDir::new().unwrap();
            let files = files(&POOL, folder.path(), access);
            for i in (0..500).map(|i| i * i % FILES) {
                let mut bytes = [0; 100];
                files[i].read_at(50, &mut bytes).unwrap();
                assert_eq!(bytes, [i as u8; 100]);
                assert_eq!(files[i].size().unwrap(), 2 * ALIGNMENT as u64);
                assert!(POOL.open().count <= MAX);
            }
            read_all(&files);
            thread::scope(|scope| {
                (0..4).for_each(|_| drop(scope.spawn(|| read_all(&files))));
            });
            // Threads may have opened files beyond the limit. They are closed when others are opened.
            files.iter().for_each(|file| file.read_at(0, &mut [0; 10]).unwrap());
            assert!(POOL.open().count <= MAX);
            drop(files);
            assert_eq!(POOL.open().count, 0);
            assert!(POOL.open().order.len() <= SLACK);
        }
    }

    #[test]
    fn a_file_that_was_closed_must_be_the_same_when_it_is_opened_again() {
        static POOL: FilePool = FilePool::new(|| MAX);
        let folder = TempDir::new().unwrap();
        let files = files(&POOL, folder.path(), Access::Direct);
        let path = |i: usize| folder.path().join(format!("file{i}"));
        OsDisk.rename(&path(2), &path(1)).unwrap();
        for (i, words) in
            [(1, "was replaced while it was open"), (2, "file, which was open before")]
        {
            let error = files[i].read_at(0, &mut [0; 10]).unwrap_err();
            assert_eq!(*error.place().unwrap().file, path(i));
            assert!(error.to_string().contains(words), "{error}");
        }
        // A file that is open is not opened again.
        let mut bytes = [0; 10];
        OsDisk.remove(&path(FILES - 1)).unwrap();
        files[FILES - 1].read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [FILES as u8 - 1; 10]);
    }
}
