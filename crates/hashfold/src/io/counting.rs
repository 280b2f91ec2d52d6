//! A disk that counts reads and writes.

use super::{BlockFile, Disk, DiskLayer, Extent, Extents, FileExtents, Visit};
use crate::error::{Place, Result};
use std::{
    fs::File,
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

impl DiskLayer for CountingDisk {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn over_opened(&self, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        Arc::new(CountingFile { file, counts: self.counts.clone() })
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

    fn device_bytes(&self) -> Result<u64> {
        self.file.device_bytes()
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

    fn is_lost(&self) -> bool {
        self.file.is_lost()
    }

    fn check_map(&self) -> Result<()> {
        self.file.check_map()
    }

    fn will_need(&self, extent: Extent) {
        self.file.will_need(extent);
    }

    fn warm(&self, extent: Extent) {
        self.file.warm(extent);
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
