//! A disk in RAM, for tests and for data that need not be durable.

use super::{
    Access, BlockFile, Disk, Extent, Lock,
    disk::{check_whole, refuse_map, refused, within},
    names::{Answer, Locks, Names},
};
use crate::error::{Place, Result};
use rustix::io::Errno;
use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, RwLock},
};

/// Maximum size of a file in memory: 1 TiB.
const FILE_SIZE_MAX: u64 = 1 << 40;

pub(super) type Content = Arc<RwLock<Vec<u8>>>;

/// A file system in RAM. Clones are the same file system. Calls that [`super::OsDisk`] refuses fail
/// with the same errors. [`Access::Mapped`] copies a file when it is opened.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    names: Arc<Mutex<Names<Content>>>,
    locks: Locks,
}

impl MemoryDisk {
    pub(super) fn with_names(names: Names<Content>) -> MemoryDisk {
        MemoryDisk { names: Arc::new(Mutex::new(names)), locks: Locks::default() }
    }

    pub(super) fn names(&self) -> MutexGuard<'_, Names<Content>> {
        self.names.lock().expect("nothing panics under this lock")
    }
}

impl Disk for MemoryDisk {
    fn create(&self, path: &Path, _: Access) -> Result<Arc<dyn BlockFile>> {
        let content = Content::default();
        self.names().create(path, content.clone()).map_err(refused("create", path))?;
        Ok(Arc::new(MemoryFile { place: Place::file(path), content, writable: true }))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        let content = self.names().file(path).map_err(refused("open", path))?;
        let place = Place::file(path);
        if access == Access::Mapped {
            let bytes = content.read().expect("nothing panics under this lock").clone();
            return Ok(Arc::new(MemoryMap { place, bytes }));
        }
        Ok(Arc::new(MemoryFile { place, content, writable: false }))
    }

    fn open_to_write(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        refuse_map(path, access)?;
        let content = self.names().file(path).map_err(refused("open", path))?;
        Ok(Arc::new(MemoryFile { place: Place::file(path), content, writable: true }))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.names().exists(path))
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        self.names().list(folder).map_err(refused("list", folder))
    }

    fn create_folder(&self, folder: &Path) -> Result<()> {
        self.names().create_folder(folder).map_err(refused("create", folder))?;
        Ok(())
    }

    fn remove_folder(&self, folder: &Path) -> Result<()> {
        self.names().remove_folder(folder).map_err(refused("remove", folder))?;
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.names().remove(path).map_err(refused("remove", path))?;
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.names().rename(from, to).map_err(refused("rename", from))?;
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> Result<()> {
        self.names().folder(folder).map_err(refused("sync", folder))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.names().node(path).map_err(refused("lock", path))?;
        self.locks.take(path)
    }

    fn share(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.names().node(path).map_err(refused("lock", path))?;
        Ok(self.locks.share(path))
    }

    fn free_bytes(&self, folder: &Path) -> Result<u64> {
        self.names().folder(folder).map_err(refused("measure", folder))?;
        Ok(u64::MAX)
    }
}

#[derive(Debug)]
struct MemoryFile {
    place: Place,
    content: Content,
    writable: bool,
}

impl MemoryFile {
    /// Changes the bytes of the file, which may be extended up to `end`.
    fn change(&self, end: u64, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let is_valid = if self.writable { check_size(end) } else { Err(Errno::BADF) };
        is_valid.map_err(refused("write", &self.place.file))?;
        change(&mut self.content.write().expect("nothing panics under this lock"));
        Ok(())
    }
}

impl BlockFile for MemoryFile {
    fn place(&self) -> &Place {
        &self.place
    }

    fn size(&self) -> Result<u64> {
        Ok(self.content.read().expect("nothing panics under this lock").len() as u64)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let content = self.content.read().expect("nothing panics under this lock");
        let got = read_slice(&content, offset, bytes);
        check_whole(&self.place, Extent { offset, len: bytes.len() }, got)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.change(end_of(offset, bytes), |content| write_slice(content, offset, bytes))
    }

    fn allocate(&self, size: u64) -> Result<()> {
        self.change(size, |content| content.resize(content.len().max(size as usize), 0))
    }

    fn punch_hole(&self, extent: Extent) -> Result<()> {
        self.change(0, |content| {
            let Extent { offset, len } = within(extent, content.len() as u64);
            write_slice(content, offset, &vec![0; len]);
        })
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// The content of a file at the time of opening.
#[derive(Debug)]
struct MemoryMap {
    place: Place,
    bytes: Vec<u8>,
}

impl BlockFile for MemoryMap {
    fn place(&self) -> &Place {
        &self.place
    }

    fn size(&self) -> Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let got = read_slice(&self.bytes, offset, bytes);
        check_whole(&self.place, Extent { offset, len: bytes.len() }, got)
    }

    fn mapped(&self) -> Option<&[u8]> {
        Some(&self.bytes)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        Err(refused("write", &self.place.file)(Errno::BADF))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// Refuses files that are larger than [`FILE_SIZE_MAX`].
pub(super) fn check_size(size: u64) -> Answer<()> {
    if size > FILE_SIZE_MAX { Err(Errno::FBIG) } else { Ok(()) }
}

/// Returns the offset after a write. As on a real disk, an empty write does not extend the file.
pub(super) fn end_of(offset: u64, bytes: &[u8]) -> u64 {
    if bytes.is_empty() { 0 } else { offset.saturating_add(bytes.len() as u64) }
}

/// Reads up to `bytes.len()` bytes of `content` from `offset` on; returns their number.
pub(super) fn read_slice(content: &[u8], offset: u64, bytes: &mut [u8]) -> usize {
    let start = content.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
    let len = bytes.len().min(content.len() - start);
    bytes[..len].copy_from_slice(&content[start..][..len]);
    len
}

/// Writes `bytes` at `offset` of `content`, which grows as needed.
pub(super) fn write_slice(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let start = offset as usize;
    let end = start + bytes.len();
    content.resize(content.len().max(end), 0);
    content[start..end].copy_from_slice(bytes);
}
