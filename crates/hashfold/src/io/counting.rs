//! A disk that counts reads and writes.

use super::{BlockFile, Disk, DiskLayer, Extent, FileLayer};
use crate::error::Result;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
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

impl FileLayer for CountingFile {
    fn below(&self) -> &dyn BlockFile {
        &*self.file
    }

    fn before_read(&self, extent: Extent) -> Result<()> {
        self.counts.reads.fetch_add(1, Relaxed);
        self.counts.read_bytes.fetch_add(extent.len as u64, Relaxed);
        Ok(())
    }

    fn before_write(&self, _: u64, bytes: &[u8]) -> Result<()> {
        self.counts.writes.fetch_add(1, Relaxed);
        self.counts.written_bytes.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }
}
