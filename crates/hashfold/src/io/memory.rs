//! A disk in RAM, for tests and for data that need not be durable.

use super::{
    Access, BlockFile, Disk, Extent, Lock,
    disk::{check_whole, refuse_map, refused, within},
    names::{Locks, Names},
};
use crate::error::{Place, Result};
use rustix::io::Errno;
use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, RwLock},
};

pub(super) type Content = Arc<RwLock<Vec<u8>>>;

/// A file system in RAM. Clones are the same file system. Calls that [`super::OsDisk`] refuses fail
/// with the same errors.
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

    fn open(&self, path: &Path, _: Access) -> Result<Arc<dyn BlockFile>> {
        let content = self.names().file(path).map_err(refused("open", path))?;
        Ok(Arc::new(MemoryFile { place: Place::file(path), content, writable: false }))
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
    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        if !self.writable {
            return Err(refused("write", &self.place.file)(Errno::BADF));
        }
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
        self.change(|content| write_slice(content, offset, bytes))
    }

    fn allocate(&self, size: u64) -> Result<()> {
        self.change(|content| content.resize(content.len().max(size as usize), 0))
    }

    fn punch_hole(&self, extent: Extent) -> Result<()> {
        self.change(|content| {
            let Extent { offset, len } = within(extent, content.len() as u64);
            write_slice(content, offset, &vec![0; len]);
        })
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
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
    // As on a real disk, an empty write after the end does not extend the file.
    if bytes.is_empty() {
        return;
    }
    let start = offset as usize;
    let end = start + bytes.len();
    content.resize(content.len().max(end), 0);
    content[start..end].copy_from_slice(bytes);
}
