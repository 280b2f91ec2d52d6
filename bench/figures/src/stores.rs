//! Stores on the device: built from files of items, updated, checked.

use crate::{
    Result,
    builds::THREADS,
    hashes::pick,
    items::Items,
    measure::{Cost, cost, ensure},
};
use hashfold::{
    Env, ReadOptions, Seed,
    io::Access,
    run::SortOptions,
    store::{Retention, StoreOptions, StoreWriter, UpdateMode, Version, VersionFacts, VersionInfo},
    work::{Executor, Threads, Watch},
};
use std::{path::PathBuf, sync::Arc};

/// A file with some of the items.
#[derive(Debug)]
pub struct Part {
    pub path: PathBuf,
    pub count: u64,
}

/// A store of items.
#[derive(Debug)]
pub struct Store<'a> {
    pub folder: PathBuf,
    pub items: &'a Items,
    pub memory_mib: u64,
}

impl Store<'_> {
    /// Makes the store and its first version from these files.
    pub fn build(&self, parts: &[Part]) -> Result<(Cost, VersionInfo)> {
        let seed = Seed(self.items.seed);
        let options = StoreOptions::new().seed(seed).id(1).chunks(1);
        self.make(parts, UpdateMode::Merge, 1, |executor| {
            Ok(StoreWriter::create(&self.folder, options.env(Env { executor, ..Env::system() }))?)
        })
    }

    /// Makes a version from the current one and these files; `id` is the id of the new version.
    pub fn update(&self, parts: &[Part], mode: UpdateMode, id: u64) -> Result<(Cost, VersionInfo)> {
        let open =
            |executor| Ok(StoreWriter::open(&Env { executor, ..Env::system() }, &self.folder)?);
        self.make(parts, mode, id, open)
    }

    /// Measures from the first byte read until the version is published and no work is left.
    fn make(
        &self,
        parts: &[Part],
        mode: UpdateMode,
        id: u64,
        open: impl FnOnce(Arc<dyn Executor>) -> Result<StoreWriter>,
    ) -> Result<(Cost, VersionInfo)> {
        cost(|| {
            let executor: Arc<dyn Executor> = Arc::new(Threads::new(THREADS));
            let mut writer = open(executor.clone())?;
            let sort = SortOptions::within((self.memory_mib << 20) as usize);
            let mut batch = writer.batch(sort)?;
            for part in parts {
                let push = &mut |key: &[u8], value: &[u8]| Ok(batch.push(key, Some(value))?);
                self.items.first(part.count).read(&part.path, executor.as_ref(), push)?;
            }
            let facts = VersionFacts { id, created_s: 1, provenance: Vec::new() };
            let info = writer.write(batch, mode, facts, &Watch::default())?;
            writer.publish(info.name.number)?;
            // Dropping the threads waits for the removal of what was spilled.
            drop((writer, executor));
            Ok(info)
        })
    }

    /// Rolls back to the previous version, and removes the published one.
    pub fn take_back(&self) -> Result<()> {
        self.writer()?.roll_back()?;
        self.collect()
    }

    fn writer(&self) -> Result<StoreWriter> {
        let executor = Arc::new(Threads::new(THREADS));
        Ok(StoreWriter::open(&Env { executor, ..Env::system() }, &self.folder)?)
    }

    /// Removes all versions but the current one.
    pub fn collect(&self) -> Result<()> {
        let mut writer = self.writer()?;
        let rules = Retention {
            keep: 0,
            age_s_min: 0,
            now_s: u64::MAX,
            free_bytes_min: 0,
            unpublished_age_s_min: 0,
        };
        writer.collect(&rules, &Watch::default())?;
        Ok(())
    }

    /// Opens a version whose entries are read with `O_DIRECT`.
    pub fn open(&self, info: &VersionInfo) -> Result<Version> {
        let options = ReadOptions::new().data(Access::Direct);
        Ok(Version::open(&self.folder, info.name.number, &options)?)
    }

    /// Counts the entries, and looks up some of the first `count` items, which must all be present.
    pub fn check(&self, info: &VersionInfo, count: u64) -> Result<()> {
        let entries = info.entries();
        ensure(entries == (count..=count), || format!("{entries:?} entries of {count} items"))?;
        self.check_some(info, count)
    }

    /// Looks up some of the first `count` items, which must all be present.
    pub fn check_some(&self, info: &VersionInfo, count: u64) -> Result<()> {
        const LOOKUPS: u64 = 1000;
        let version = self.open(info)?;
        let mut key = Vec::new();
        for i in (0..LOOKUPS).map(|i| pick(i, self.items.seed, count)) {
            self.items.key(i, &mut key);
            let value = version.get(&key)?;
            let right = value.is_some_and(|value| value.starts_with(&self.items.number(i)));
            ensure(right, || format!("item {i} has a wrong value in the store"))?;
        }
        Ok(())
    }
}
