//! A disk that counts reads and writes.

use super::{Access, BlockFile, Disk, Extent, Extents, FileExtents, Lock, Visit};
use crate::error::{Place, Result};
use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// A disk that counts the reads and writes of the files that are opened through it.
#[derive(Clone, Debug)]
pub struct CountingDisk {
    disk: Arc<dyn Disk>,
    counts: Arc<Counts>,
}

/// Reads and writes so far.
#[derive(Debug, Default)]
struct Counts {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

/// Reads and writes between two calls of [`CountingDisk::take`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Number of reads: one for each extent, whatever its length. Bytes that are used through
    /// [`BlockFile::mapped`] are not counted.
    pub reads: u64,
    /// Number of bytes read.
    pub read_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of bytes written.
    pub written_bytes: u64,
}

impl CountingDisk {
    /// Returns a disk that forwards all calls to `disk`.
    pub fn on(disk: Arc<dyn Disk>) -> CountingDisk {
        CountingDisk { disk, counts: Arc::default() }
    }

    /// Returns the reads and writes since the last call, by all clones of this disk.
    pub fn take(&self) -> Moved {
        let take = |count: &AtomicU64| count.swap(0, Relaxed);
        Moved {
            reads: take(&self.counts.reads),
            read_bytes: take(&self.counts.read_bytes),
            writes: take(&self.counts.writes),
            written_bytes: take(&self.counts.written_bytes),
        }
    }

    fn wrap(&self, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        Arc::new(CountingFile { file, counts: self.counts.clone() })
    }
}

impl Counts {
    fn add_writes(&self, count: usize, bytes: usize) {
        self.writes.fetch_add(count as u64, Relaxed);
        self.written_bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn add_read(&self, len: usize) {
        self.reads.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(len as u64, Relaxed);
    }
}

impl Disk for CountingDisk {
    fn create(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        Ok(self.wrap(self.disk.create(path, access)?))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        Ok(self.wrap(self.disk.open(path, access)?))
    }

    fn open_named(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        Ok(self.wrap(self.disk.open_named(path, access)?))
    }

    fn open_to_write(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        Ok(self.wrap(self.disk.open_to_write(path, access)?))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.disk.exists(path)
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        self.disk.list(folder)
    }

    fn create_folder(&self, folder: &Path) -> Result<()> {
        self.disk.create_folder(folder)
    }

    fn remove_folder(&self, folder: &Path) -> Result<()> {
        self.disk.remove_folder(folder)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.disk.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.disk.rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> Result<()> {
        self.disk.sync_folder(folder)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.disk.lock(path)
    }

    fn share(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.disk.share(path)
    }

    fn is_link(&self, path: &Path) -> Result<bool> {
        self.disk.is_link(path)
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.disk.absolute(path)
    }

    fn free_bytes(&self, folder: &Path) -> Result<u64> {
        self.disk.free_bytes(folder)
    }
}

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn BlockFile>,
    counts: Arc<Counts>,
}

impl BlockFile for CountingFile {
    fn place(&self) -> &Place {
        self.file.place()
    }

    fn size(&self) -> Result<u64> {
        self.file.size()
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.counts.add_read(bytes.len());
        self.file.read_at(offset, bytes)
    }

    fn read_many(&self, extents: &mut Extents<'_>, visit: &mut Visit<'_>) -> Result<()> {
        let counted = &mut extents.inspect(|extent| self.counts.add_read(extent.len));
        self.file.read_many(counted, visit)
    }

    fn read_across(
        &self,
        files: &[&dyn BlockFile],
        extents: &mut FileExtents<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let counted = &mut extents.inspect(|extent| self.counts.add_read(extent.1.len));
        // Files that count by themselves would count again.
        let files: Vec<&dyn BlockFile> =
            files.iter().map(|file| file.forwards_to().unwrap_or(*file)).collect();
        self.file.read_across(&files, counted, visit)
    }

    fn forwards_to(&self) -> Option<&dyn BlockFile> {
        Some(&*self.file)
    }

    fn descriptor(&self) -> Option<Arc<File>> {
        self.file.descriptor()
    }

    fn mapped(&self) -> Option<&[u8]> {
        self.file.mapped()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.counts.add_writes(1, bytes.len());
        self.file.write_at(offset, bytes)
    }

    fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        let bytes = writes.iter().map(|(_, bytes)| bytes.len()).sum();
        self.counts.add_writes(writes.len(), bytes);
        self.file.write_many(writes)
    }

    fn allocate(&self, size: u64) -> Result<()> {
        self.file.allocate(size)
    }

    fn punch_hole(&self, extent: Extent) -> Result<()> {
        self.file.punch_hole(extent)
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()
    }
}
