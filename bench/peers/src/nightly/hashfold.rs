//! Hashfold's store.

use super::{
    Options, Peer, Reader, Store,
    book::{Night, Order},
};
use crate::{
    Result,
    data::{Data, Key, mix},
};
use ::hashfold::{
    ReadOptions, Seed,
    io::{Disk, OsDisk},
    run::SortOptions,
    store::{Batch, Retention, StoreOptions, StoreReader, StoreWriter, UpdateMode, VersionFacts},
    work::Threads,
};
use hashfold::{Env, work::Watch};
use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::{SystemTime, UNIX_EPOCH},
};

pub(super) fn peers() -> Vec<Box<dyn Peer>> {
    vec![Box::new(Hashfold(UpdateMode::Auto)), Box::new(Hashfold(UpdateMode::Merge))]
}

struct Hashfold(UpdateMode);

/// Size of a table's blocks, in bytes.
const BLOCK_SIZE: usize = 4096;

impl Peer for Hashfold {
    fn name(&self) -> String {
        format!("Hashfold {}", format!("{:?}", self.0).to_lowercase())
    }

    fn note(&self) -> String {
        let how = match self.0 {
            UpdateMode::Merge => "merged with the version before",
            _ => "a delta while that is cheap, else merged",
        };
        format!("{how}; synced; every block read is checked (CRC-32C)")
    }

    fn create(&self, data: &Data, options: &Options, folder: &Path) -> Result<Box<dyn Store>> {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let (seed, id) = (Seed(data.seed), mix(data.seed));
        let create =
            StoreOptions::new().seed(seed).id(id).chunks(options.chunks).block_size(BLOCK_SIZE);
        let threads = Arc::new(Threads::new(options.threads));
        let sort = SortOptions::within(options.memory << 20);
        let mut writer = StoreWriter::create(
            folder,
            create.env(Env { executor: threads, ..Env::on(disk.clone()) }),
        )?;
        let mut batch = writer.batch(sort)?;
        let mut value = Vec::new();
        for i in 0..data.count {
            data.fill_value(i, &mut value);
            batch.push(&data.key(i), Some(&value))?;
        }
        let number = write(&mut writer, batch, UpdateMode::Replace, data.seed)?;
        writer.publish(number)?;
        let open = ReadOptions::new().data(options.reads.into());
        let follower = StoreReader::open_with(folder, &open.env(Env::on(disk.clone())))?;
        Ok(Box::new(Open { writer: Mutex::new((writer, number)), follower, mode: self.0, sort }))
    }
}

fn write(writer: &mut StoreWriter, batch: Batch, mode: UpdateMode, id: u64) -> Result<u64> {
    let facts = VersionFacts { id: mix(id), created_s: now_s(), provenance: Vec::new() };
    Ok(writer.write(batch, mode, facts, &Watch::default())?.name.number)
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

struct Open {
    /// The writer, and the number of its last version.
    writer: Mutex<(StoreWriter, u64)>,
    follower: StoreReader,
    mode: UpdateMode,
    sort: SortOptions,
}

impl Open {
    fn writer(&self) -> MutexGuard<'_, (StoreWriter, u64)> {
        self.writer.lock().expect("nothing panics under this lock")
    }
}

impl Store for Open {
    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(&self.follower))
    }

    fn prepare(&self, data: &Data, night: &Night) -> Result<()> {
        let (writer, number) = &mut *self.writer();
        let mut batch = writer.batch(self.sort)?;
        night.for_each(data, Order::Any, &mut |key, value| Ok(batch.push(key, value)?))?;
        *number = write(writer, batch, self.mode, data.seed ^ u64::from(night.number))?;
        Ok(())
    }

    fn switch(&self) -> Result<()> {
        let (writer, number) = &mut *self.writer();
        writer.publish(*number)?;
        self.follower.refresh()?;
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        let rules = Retention {
            keep: 1,
            age_s_min: 0,
            now_s: now_s(),
            free_bytes_min: 0,
            unpublished_age_s_min: 0,
        };
        // The refresh releases the previous version of the follower.
        self.follower.refresh()?;
        self.writer().0.collect(&rules, &Watch::default())?;
        Ok(())
    }

    fn roll_back(&self) -> Result<()> {
        self.writer().0.roll_back()?;
        self.follower.refresh()?;
        Ok(())
    }
}

impl Reader for &StoreReader {
    fn get(&mut self, key: &Key, visit: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        Ok(self.version().get_with(key, visit)?)
    }
}
