//! The bare device: random reads in place of lookups, and a write-ahead log without a map in place of
//! durable commits. They bound what a map can do.

use super::{Options, Place, Program, commits, times::Clock};
use crate::{Result, data::mix, report::DEVICE};
use hashfold::{
    Seed,
    env::Env,
    io::{ALIGNMENT, Access, BlockFile, Buffer, Disk, Extent, OsDisk, Writer},
    wal::{Segments, Wal, WalFolder},
    work::Threads,
};
use std::{path::Path, sync::Arc, time::Instant};

/// Number of reads in flight together, as in a batch of lookups.
const BATCH: u64 = 64;
/// Size of the payload of a commit, in bytes.
const PAYLOAD: [u8; 32] = [1; 32];
const SEGMENT_SIZE: u64 = 64 << 20;
/// Minimum number of blocks that are read.
const BLOCKS_MIN: u64 = 64;

pub(super) struct Device;

impl Program for Device {
    fn name(&self) -> String {
        DEVICE.to_owned()
    }

    fn note(&self) -> String {
        "direct I/O: lookups are reads of random 4 KiB blocks; commits are those of Hashfold's \
         write-ahead log without a map"
            .to_owned()
    }

    fn round(&self, place: &mut Place<'_>) -> Result<()> {
        let (options, folder) = (place.options, place.folder);
        let blocks = Blocks::write(options, folder)?;
        (place.say)("get_per_s", blocks.one_by_one_per_s()?);
        (place.say)("multi_get_per_s", blocks.batches_per_s()?);
        let wal = log(folder)?;
        for threads in commits::THREADS {
            let commit = |_, _| Ok(wal.commit(wal.append(1, &PAYLOAD)?)?);
            commits::run(options, threads, &commit)?.say(threads, place.say);
        }
        Ok(())
    }
}

/// A file of random blocks.
struct Blocks<'a> {
    options: &'a Options,
    file: Arc<dyn BlockFile>,
    count: u64,
}

impl Blocks<'_> {
    /// Writes a file as large as all keys and values.
    fn write<'a>(options: &'a Options, folder: &Path) -> Result<Blocks<'a>> {
        let file = OsDisk.create(&folder.join("blocks"), Access::Direct)?;
        let mut writer = Writer::new(file.clone(), Arc::new(Threads::new(1)));
        let count = (options.keys * 16).div_ceil(ALIGNMENT as u64).max(BLOCKS_MIN);
        for block in 0..count {
            let words = (0..ALIGNMENT as u64 / 8).flat_map(|i| mix(block << 16 | i).to_le_bytes());
            writer.append(&words.collect::<Vec<u8>>())?;
        }
        writer.finish()?;
        file.sync()?;
        Ok(Blocks { options, file, count })
    }

    /// Returns the place of a random block.
    fn place(&self, i: u64) -> u64 {
        mix(i ^ self.options.common.seed << 40) % self.count * ALIGNMENT as u64
    }

    /// Reads `together` blocks again and again, until the time is over. Returns the number of blocks
    /// per second.
    fn per_s(&self, together: u64, read: &mut dyn FnMut(u64) -> Result<()>) -> Result<f64> {
        let Options { operations, seconds, .. } = self.options;
        let (begin, mut clock, mut count) = (Instant::now(), Clock::start(*seconds), 0);
        while count < *operations && !clock.is_over() {
            read(count)?;
            clock.lap();
            count += together;
        }
        Ok(count as f64 / begin.elapsed().as_secs_f64())
    }

    fn one_by_one_per_s(&self) -> Result<f64> {
        let mut buffer = Buffer::zeroed(ALIGNMENT);
        self.per_s(1, &mut |i| Ok(self.file.read_at(self.place(i), &mut buffer)?))
    }

    fn batches_per_s(&self) -> Result<f64> {
        self.per_s(BATCH, &mut |first| {
            let places = (first..first + BATCH).map(|i| self.place(!i));
            let mut extents = places.map(|offset| Extent { offset, len: ALIGNMENT });
            Ok(self.file.read_many(&mut extents, &mut |_, _| Ok(()))?)
        })
    }
}

/// Opens an empty log, whose first segment is written before a clock starts.
fn log(folder: &Path) -> Result<Wal> {
    let (env, folder) = (Env::system(), folder.to_owned());
    let home = WalFolder { env, folder, seed: Seed(1), id: 1 };
    let wal = Wal::open(home, Segments::of_size(SEGMENT_SIZE), 0..0, &mut |_| Ok(()))?;
    wal.commit(wal.append(1, &PAYLOAD)?)?;
    Ok(wal)
}
