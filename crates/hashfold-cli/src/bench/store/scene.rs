//! A store on the device to be measured: building, updating, rolling back, checking.

use super::{
    super::{
        StoreBench,
        device::{Rates, device_rates},
        ensure,
        measure::{Report, process_seconds, wall_seconds},
        pairs::{Pairs, Row, RowFile},
        random::pick,
    },
    night::History,
};
use crate::failure::Result;
use hashfold::{
    Env, ReadOptions, Seed,
    io::{Access, CountingDisk, Disk, Moved, OsDisk},
    run::{Run, SortOptions},
    store::{Retention, StoreOptions, StoreWriter, UpdateMode, Version, VersionFacts, VersionInfo},
    work::{Executor, Threads, Watch},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Number of measurements of one kind; the median is reported.
pub(super) const ROUNDS: usize = 3;

/// Number of lookups that check a version that is not read in full.
const LOOKUPS: u64 = 1000;

/// One store, and the pairs in it.
pub(super) struct Scene<'a> {
    pub(super) bench: &'a StoreBench,
    pub(super) report: &'a Report,
    pub(super) folder: &'a Path,
    pub(super) pairs: Pairs,
    /// Number of chunks of new stores.
    pub(super) chunks: u32,
    /// Memory budget for sorting, in bytes.
    pub(super) memory: usize,
    pub(super) disk: Arc<dyn Disk>,
    counting: CountingDisk,
    versions: std::cell::Cell<u64>,
}

/// Cost of making a version.
pub(super) struct Made {
    pub(super) info: VersionInfo,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) moved: Moved,
}

impl<'a> Scene<'a> {
    pub(super) fn new(
        bench: &'a StoreBench,
        report: &'a Report,
        folder: &'a Path,
        pairs: Pairs,
    ) -> Scene<'a> {
        let counting = CountingDisk::on(Arc::new(OsDisk));
        let (memory, chunks) = (bench.memory, bench.chunks);
        let versions = std::cell::Cell::new(0);
        Scene {
            bench,
            report,
            folder,
            pairs,
            chunks,
            memory,
            disk: Arc::new(counting.clone()),
            counting,
            versions,
        }
    }

    /// Returns the folder of a store.
    pub(super) fn store(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn write_rows(
        &self,
        name: &str,
        rows: impl Iterator<Item = Row>,
    ) -> Result<RowFile> {
        self.pairs.write(self.folder.join(name), rows, self.bench.threads)
    }

    pub(super) fn rates(&self) -> Result<Rates> {
        Ok(device_rates(self.folder, self.bench.data as u64, self.bench.threads)?)
    }

    pub(super) fn executor(&self) -> Arc<dyn Executor> {
        Arc::new(Threads::new(self.bench.threads))
    }

    /// Returns the bytes moved since the last call.
    pub(super) fn moved(&self) -> Moved {
        self.counting.take()
    }

    pub(super) fn create(&self, store: &Path, executor: Arc<dyn Executor>) -> Result<StoreWriter> {
        let seed = Seed(self.bench.seed);
        let options = StoreOptions::new().seed(seed).id(1).chunks(self.chunks);
        Ok(StoreWriter::create(store, options.env(Env { executor, ..Env::on(self.disk.clone()) }))?)
    }

    pub(super) fn open(&self, store: &Path) -> Result<StoreWriter> {
        Ok(StoreWriter::open(
            &Env { executor: self.executor(), ..Env::on(self.disk.clone()) },
            store,
        )?)
    }

    pub(super) fn facts(&self) -> VersionFacts {
        self.versions.set(self.versions.get() + 1);
        VersionFacts { id: self.versions.get(), created_s: 1, provenance: Vec::new() }
    }

    /// Makes and publishes a store's first version.
    pub(super) fn build(&self, store: &Path, inputs: &[&RowFile]) -> Result<Made> {
        self.make(inputs, UpdateMode::Replace, |executor| self.create(store, executor))
    }

    /// Makes and publishes the next version.
    pub(super) fn update(
        &self,
        store: &Path,
        inputs: &[&RowFile],
        mode: UpdateMode,
    ) -> Result<Made> {
        let open = |executor| {
            Ok(StoreWriter::open(&Env { executor, ..Env::on(self.disk.clone()) }, store)?)
        };
        self.make(inputs, mode, open)
    }

    /// Measures from the first row read until the version is published and no work in the background
    /// is left.
    fn make(
        &self,
        inputs: &[&RowFile],
        mode: UpdateMode,
        open: impl FnOnce(Arc<dyn Executor>) -> Result<StoreWriter>,
    ) -> Result<Made> {
        self.moved();
        let cpu = process_seconds();
        let (seconds, made) = wall_seconds(|| -> Result<VersionInfo> {
            let executor = self.executor();
            let mut writer = open(executor.clone())?;
            let mut batch = writer.batch(SortOptions::within(self.memory))?;
            for input in inputs {
                let push = &mut |key: &[u8], value: Option<&[u8]>| Ok(batch.push(key, value)?);
                self.pairs.read(self.disk.as_ref(), input, executor.as_ref(), push)?;
            }
            let info = writer.write(batch, mode, self.facts(), &Watch::default())?;
            writer.publish(info.name.number)?;
            // Waits for the jobs of the threads, such as the one that frees the spill.
            drop((writer, executor));
            Ok(info)
        });
        let cpu_seconds = process_seconds() - cpu;
        let info = made?;
        Ok(Made { info, seconds, cpu_seconds, moved: self.moved() })
    }

    /// Rolls back to the previous version, and removes the published one.
    pub(super) fn take_back(&self, store: &Path) -> Result<()> {
        let mut writer = self.open(store)?;
        writer.roll_back()?;
        Self::collect(&mut writer)
    }

    /// Removes all versions but the current one.
    pub(super) fn collect(writer: &mut StoreWriter) -> Result<()> {
        let rules = Retention {
            keep: 0,
            age_s_min: 0,
            now_s: u64::MAX,
            free_bytes_min: 0,
            unpublished_age_s_min: 0,
        };
        writer.collect(&rules, &Watch::default())?;
        let left = writer.numbers()?.len();
        ensure(left == 1, || format!("{left} versions are left"))
    }

    pub(super) fn open_version(&self, store: &Path, number: u64, data: Access) -> Result<Version> {
        let options = ReadOptions::new().data(data);
        Ok(Version::open(store, number, &options.env(Env::on(self.disk.clone())))?)
    }

    /// Looks up some pairs.
    pub(super) fn check(&self, store: &Path, info: &VersionInfo, history: &History) -> Result<()> {
        let version = self.open_version(store, info.name.number, Access::Cached)?;
        for i in (0..LOOKUPS).map(|i| pick(i, self.bench.seed, history.numbers())) {
            let value = version.get(self.pairs.key(i))?;
            let row = value.as_deref().and_then(Row::of);
            let expected = history.row(i);
            ensure(row == expected, || format!("pair {i} is {row:?}, not {expected:?}"))?;
        }
        Ok(())
    }

    /// Reads and compares all entries of a version.
    pub(super) fn check_all(
        &self,
        store: &Path,
        info: &VersionInfo,
        history: &History,
    ) -> Result<()> {
        let version = self.open_version(store, info.name.number, Access::Direct)?;
        let noise = self.pairs.noise();
        let mut expected = vec![0; self.pairs.size()];
        let mut count = 0;
        for chunks in version.parts() {
            let mut run = version.scan_chunks(chunks);
            while run.advance()? {
                let entry = run.entry();
                let value = entry.value.unwrap_or_default();
                let row = Row::of(value);
                let is_there = row.is_some_and(|row| history.row(row.number) == Some(row));
                ensure(is_there, || format!("{row:?} is no pair of this version"))?;
                self.pairs.fill(row.expect("it is there"), &noise, &mut expected);
                let (key, rest) = expected.split_at(entry.key.len().min(expected.len()));
                ensure(key == entry.key && rest == value, || format!("{row:?} is damaged"))?;
                count += 1;
            }
        }
        ensure(count == history.count(), || format!("{count} pairs, not {}", history.count()))
    }

    /// Prints a figure over a number of pairs.
    pub(super) fn say(&self, name: &str, value: f64, unit: &str, count: u64) {
        self.report.add(name, value, unit, count, count * self.pairs.size() as u64);
    }

    pub(super) fn remove(&self, rows: &RowFile) -> Result<()> {
        Ok(OsDisk.remove(&rows.path)?)
    }
}
