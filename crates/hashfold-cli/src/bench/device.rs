//! Rates of the device itself, for comparison with builds and cold lookups.

use super::{
    measure::wall_seconds,
    random::{noise, pick},
};
use hashfold::{
    Result,
    io::{Access, BlockFile, Disk, Extent, OsDisk, Writer},
    work::{Executor, Threads},
};
use std::{path::Path, sync::Arc};

/// Size of a block, in bytes.
pub(crate) const BLOCK_SIZE: u64 = 4096;

/// Number of lookups in a batch.
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

/// Writes and reads a file with `O_DIRECT`, in large units, with several in flight all the time.
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
    let extents =
        &mut (0..size / UNIT as u64).map(|i| Extent { offset: i * UNIT as u64, len: UNIT });
    let (read, done) = wall_seconds(|| file.read_many(extents, &mut |_, _| Ok(())));
    done?;
    OsDisk.remove(path)?;
    Ok(Rates { write: size as f64 / write, read: size as f64 / read })
}

/// Writes a file of this size or a little more, to read from it what a map would: unlike the map's own file, it has no holes,
/// for which the device is not asked.
pub(crate) fn device_file(path: &Path, size: u64, seed: u64) -> Result<Arc<dyn BlockFile>> {
    let file = OsDisk.create(path, Access::Direct)?;
    let mut writer = Writer::new(file.clone(), Arc::new(Threads::new(1)));
    let block: Vec<u8> = noise(BLOCK_SIZE, seed).collect();
    // Two blocks are the fewest to choose from.
    (0..size.div_ceil(BLOCK_SIZE).max(2)).try_for_each(|_| writer.append(&block))?;
    writer.finish()?;
    file.sync()?;
    Ok(file)
}

/// Measures random reads per second, with as many in flight all the time as batches of lookups have.
/// A fraction of the reads has 8 KiB, the others have 4 KiB.
pub(crate) fn random_reads(
    file: &dyn BlockFile,
    count: u64,
    seed: u64,
    long_part: f64,
) -> Result<f64> {
    let blocks = file.size()? / BLOCK_SIZE - 1;
    // The long reads are spread evenly.
    let is_long = |i: u64| (i as f64 * long_part).fract() + long_part >= 1.0;
    let extents = &mut (0..count).map(|i| Extent {
        offset: pick(i, seed, blocks) * BLOCK_SIZE,
        len: if is_long(i) { 2 } else { 1 } * BLOCK_SIZE as usize,
    });
    let (seconds, done) = wall_seconds(|| file.read_many(extents, &mut |_, _| Ok(())));
    done?;
    Ok(count as f64 / seconds)
}

/// Measures the device's rates now, with a quarter of `bytes`, because the rates of a shared device
/// change.
pub(crate) fn device_rates(folder: &Path, bytes: u64, threads: usize) -> Result<Rates> {
    let executor: Arc<dyn Executor> = Arc::new(Threads::new(threads));
    sequential(&folder.join("device"), (bytes / 4).next_multiple_of(1 << 20), &executor)
}
