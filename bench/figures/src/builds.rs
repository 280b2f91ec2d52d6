//! Timed builds on the device.

use crate::{
    Result,
    hashes::pick,
    items::{Items, Kind},
    machine::Cores,
    measure::{Cost, cost, ensure},
};
use hashfold::{
    Env, ReadOptions, Seed,
    io::{Access, Disk, Extent, OsDisk, Writer},
    run::SortOptions,
    table::{Table, TableBuilder, TableOptions},
    work::{Executor, Threads, Watch},
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Number of threads besides the caller's, on any number of cores: they mostly wait for the device.
pub const THREADS: usize = 4;

/// A file of items, and the folder in which tables are built from it.
#[derive(Debug)]
pub struct Site {
    pub items: Items,
    pub input: PathBuf,
    pub table: PathBuf,
}

/// The resources of a build.
#[derive(Clone, Copy, Debug)]
pub struct Means {
    pub memory_mib: u64,
    pub cores: usize,
}

impl Site {
    /// Writes the file of items.
    pub fn new(folder: &Path, items: Items) -> Result<Site> {
        let (input, table) = (folder.join("input"), folder.join("table"));
        items.write(&input, Arc::new(Threads::new(THREADS)))?;
        Ok(Site { items, input, table })
    }

    /// Builds a table of the first `count` items, checks and removes it.
    pub fn build(&self, count: u64, means: Means) -> Result<Cost> {
        let items = self.items.first(count);
        let limit = Cores::limit(means.cores)?;
        // Dropping the threads waits for the removal of what was spilled.
        let (cost, ()) = cost(|| {
            let executor: Arc<dyn Executor> = Arc::new(Threads::new(THREADS));
            self.build_table(&items, means, &executor)
        })?;
        drop(limit);
        self.check(&items)?;
        fs::remove_dir_all(&self.table)?;
        Ok(cost)
    }

    /// Reads the items, sorts them, and writes the table and its index to the device.
    pub fn build_table(
        &self,
        items: &Items,
        means: Means,
        executor: &Arc<dyn Executor>,
    ) -> Result<()> {
        let options = TableOptions::new().seed(Seed(items.seed)).id(1);
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let builder = TableBuilder::with(
            &self.table,
            options.env(Env { executor: executor.clone(), ..Env::on(disk) }),
        )?;
        let sort = SortOptions::within((means.memory_mib << 20) as usize);
        let mut sorter = builder.sorter(sort)?;
        let push = &mut |key: &[u8], value: &[u8]| Ok(sorter.push(key, Some(value))?);
        items.read(&self.input, executor.as_ref(), push)?;
        let mut run = sorter.finish()?;
        let stats = builder.build(&mut run, &Watch::default())?;
        ensure(stats.entries == items.count, || {
            format!("{} entries were built of {} items", stats.entries, items.count)
        })
    }

    /// Looks up some of the items.
    fn check(&self, items: &Items) -> Result<()> {
        const LOOKUPS: u64 = 1000;
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let table = Table::open_with(&self.table, &ReadOptions::new().env(Env::on(disk.clone())))?;
        let mut key = Vec::new();
        for i in (0..LOOKUPS).map(|i| pick(i, items.seed, items.count)) {
            items.key(i, &mut key);
            let value = table.get(&key)?;
            let right = value.is_some_and(|value| value.starts_with(&items.number(i)));
            ensure(right, || format!("item {i} has a wrong value in the table"))?;
        }
        Ok(())
    }
}

/// Describes the items, for notes.
pub fn describe(items: &Items) -> String {
    let count = items.count;
    match items.kind {
        Kind::Urls { value_size } => format!(
            "{count} synthetic URL-like keys of 111 bytes on average, with values of {value_size} \
             bytes that do not compress"
        ),
        Kind::Small => format!(
            "{count} keys of 64 bytes, hashed to 12 bytes at the start of the build, with values \
             of 4 bytes"
        ),
        Kind::Numbers => format!(
            "{count} keys that are numbers in decimal, with values of 1024 bytes that do not \
             compress"
        ),
    }
}

/// Returns the sequential rates of the device with `O_DIRECT`, for notes.
pub fn device_rates(folder: &Path, size: u64) -> Result<String> {
    const UNIT: usize = 1 << 20;
    let path = folder.join("device");
    let executor: Arc<dyn Executor> = Arc::new(Threads::new(THREADS));
    let file = OsDisk.create(&path, Access::Direct)?;
    let noise: Vec<u8> = (0..UNIT as u64).map(|i| pick(i, 1, 256) as u8).collect();
    let units = size / UNIT as u64;
    let (write, ()) = cost(|| {
        let mut writer = Writer::new(file.clone(), executor);
        (0..units).try_for_each(|_| writer.append(&noise))?;
        writer.finish()?;
        Ok(file.sync()?)
    })?;
    let extents = &mut (0..units).map(|i| Extent { offset: i * UNIT as u64, len: UNIT });
    let (read, ()) = cost(|| Ok(file.read_many(extents, &mut |_, _| Ok(()))?))?;
    OsDisk.remove(&path)?;
    let rate = |seconds: f64| size as f64 / seconds / 1e6;
    let (write, read) = (rate(write.wall), rate(read.wall));
    Ok(format!("{write:.0} MB/s written, {read:.0} MB/s read, sequentially, past the page cache"))
}
