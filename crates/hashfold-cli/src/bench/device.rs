//! Rates of the device itself, for comparison with builds and cold lookups.

use super::{
    measure::wall_seconds,
    random::{noise, pick},
};
use hashfold::{
    Place, Result,
    io::{Access, BlockFile, Disk, Extent, Extents, FileExtents, Lock, OsDisk, Visit, Writer},
    work::{Executor, Threads},
};
use std::{
    fs::File,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Number of lookups or reads in a batch.
pub(crate) const BATCH: usize = 16384;

/// Sequential rates of the device, in bytes per second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) write: f64,
    pub(crate) read: f64,
}

impl Rates {
    /// Returns the rates over both measurements.
    pub(crate) fn and(self, other: Rates) -> Rates {
        let mean = |a: f64, b: f64| 2.0 / (1.0 / a + 1.0 / b);
        Rates { write: mean(self.write, other.write), read: mean(self.read, other.read) }
    }

    /// Returns the rate if half of the bytes are written and half are read.
    pub(crate) fn mixed(self) -> f64 {
        2.0 / (1.0 / self.write + 1.0 / self.read)
    }
}

/// Writes and reads a file with `O_DIRECT`, in large units, with several in flight.
pub(crate) fn sequential(path: &Path, size: u64, executor: &Arc<dyn Executor>) -> Result<Rates> {
    const UNIT: usize = 1 << 20;
    let noise: Vec<u8> = noise(UNIT as u64, 1).collect();
    let file = OsDisk.create(path, Access::Direct)?;
    let (write, written) = wall_seconds(|| -> Result<()> {
        let mut writer = Writer::new(file.clone(), executor.clone());
        for _ in 0..size / UNIT as u64 {
            writer.append(&noise)?;
        }
        writer.finish()?;
        file.sync()
    });
    written?;
    let extents: Vec<Extent> =
        (0..size / UNIT as u64).map(|i| Extent { offset: i * UNIT as u64, len: UNIT }).collect();
    let read_some = |some: &[Extent]| file.read_many(&mut some.iter().copied(), &mut |_, _| Ok(()));
    let (read, done) = wall_seconds(|| extents.chunks(4).try_for_each(read_some));
    done?;
    OsDisk.remove(path)?;
    Ok(Rates { write: size as f64 / write, read: size as f64 / read })
}

/// Measures random reads per second, with the number of reads in flight of a batch of lookups. A
/// fraction of the reads has 8 KiB, the others have 4 KiB.
pub(crate) fn random_reads(
    file: &dyn BlockFile,
    count: u64,
    seed: u64,
    long_part: f64,
) -> Result<f64> {
    const BLOCK: u64 = 4096;
    let blocks = file.size()? / BLOCK - 1;
    // The long reads are spread evenly.
    let is_long = |i: u64| (i as f64 * long_part).fract() + long_part >= 1.0;
    let extents: Vec<Extent> = (0..count)
        .map(|i| Extent {
            offset: pick(i, seed, blocks) * BLOCK,
            len: if is_long(i) { 2 } else { 1 } * BLOCK as usize,
        })
        .collect();
    let (seconds, done) = wall_seconds(|| {
        let mut batches = extents.chunks(BATCH);
        batches.try_for_each(|batch| file.read_many(&mut batch.iter().copied(), &mut |_, _| Ok(())))
    });
    done?;
    Ok(count as f64 / seconds)
}

/// Measures the device's rates now, with a quarter of `bytes`, because the rates of a shared device
/// change.
pub(crate) fn device_rates(folder: &Path, bytes: u64, threads: usize) -> Result<Rates> {
    let executor: Arc<dyn Executor> = Arc::new(Threads::new(threads));
    sequential(&folder.join("device"), (bytes / 4).next_multiple_of(1 << 20), &executor)
}

/// A disk that counts bytes read and written.
#[derive(Debug, Default)]
pub(crate) struct CountingDisk {
    pub(crate) counts: Arc<Counts>,
}

/// Bytes moved so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

/// Bytes moved between two calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) written_bytes: u64,
}

impl Counts {
    /// Returns the bytes moved since the last call.
    pub(crate) fn take(&self) -> Moved {
        Moved {
            reads: self.reads.swap(0, Relaxed),
            read_bytes: self.read_bytes.swap(0, Relaxed),
            writes: self.writes.swap(0, Relaxed),
            written_bytes: self.written_bytes.swap(0, Relaxed),
        }
    }

    fn add_writes(&self, count: usize, bytes: usize) {
        self.writes.fetch_add(count as u64, Relaxed);
        self.written_bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn add_read(&self, len: usize) {
        self.reads.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(len as u64, Relaxed);
    }
}

#[derive(Debug)]
struct CountingFile {
    file: Arc<dyn BlockFile>,
    counts: Arc<Counts>,
}

impl CountingDisk {
    fn wrap(&self, file: Arc<dyn BlockFile>) -> Arc<dyn BlockFile> {
        Arc::new(CountingFile { file, counts: self.counts.clone() })
    }
}

impl Disk for CountingDisk {
    fn create(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        Ok(self.wrap(OsDisk.create(path, access)?))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        Ok(self.wrap(OsDisk.open(path, access)?))
    }

    fn open_to_write(&self, path: &Path, access: Access) -> Result<Arc<dyn BlockFile>> {
        Ok(self.wrap(OsDisk.open_to_write(path, access)?))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        OsDisk.exists(path)
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        OsDisk.list(folder)
    }

    fn create_folder(&self, folder: &Path) -> Result<()> {
        OsDisk.create_folder(folder)
    }

    fn remove_folder(&self, folder: &Path) -> Result<()> {
        OsDisk.remove_folder(folder)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        OsDisk.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        OsDisk.rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> Result<()> {
        OsDisk.sync_folder(folder)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        OsDisk.lock(path)
    }

    fn share(&self, path: &Path) -> Result<Box<dyn Lock>> {
        OsDisk.share(path)
    }

    fn free_bytes(&self, folder: &Path) -> Result<u64> {
        OsDisk.free_bytes(folder)
    }
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
        self.file.read_across(files, counted, visit)
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
        let bytes: usize = writes.iter().map(|(_, bytes)| bytes.len()).sum();
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
