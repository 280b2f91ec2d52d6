//! `hashfold bench map`: a map of 8 + 8 bytes on the device.
//!
//! ```text
//! entries (keys, and what each should have) → load → lookups → commits → recovery → deletions → import
//! ```

mod commits;
mod devices;
mod entries;
mod load;
mod lookups;

use self::entries::{ENTRY_SIZE, Entries};
use super::{
    MapBench, in_folder,
    measure::{Report, peak_rss_mib, reset_peak_rss, wall_seconds},
};
use crate::{
    allocator::keep_to_budget,
    failure::{Failure, Result},
};
use hashfold::{
    Env, Seed,
    io::{Access, CountingDisk, Disk, OsDisk},
    map::{Durability, Map, MapOptions},
    work::Threads,
};
use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

pub(super) fn run(bench: &MapBench, report: &Report) -> Result<()> {
    keep_to_budget();
    in_folder(&bench.dir, "map", |folder| Scene::new(bench, report, folder)?.run())
}

/// A map on the device, and what it should answer.
struct Scene<'a> {
    bench: &'a MapBench,
    report: &'a Report,
    /// Folder of the map.
    folder: PathBuf,
    disk: CountingDisk,
    env: Env,
    entries: Entries,
    /// RSS before the first map is created, in MiB.
    rss_before: f64,
}

impl<'a> Scene<'a> {
    fn new(bench: &'a MapBench, report: &'a Report, folder: &Path) -> Result<Scene<'a>> {
        let disk = CountingDisk::on(Arc::new(OsDisk));
        let env = Env {
            disk: Arc::new(disk.clone()),
            executor: Arc::new(Threads::new(bench.threads)),
            ..Env::system()
        };
        let entries = Entries::new(bench.keys, bench.seed);
        reset_peak_rss();
        // Later rounds begin with memory that was freed in the rounds before, and use it again.
        static RSS_BEFORE: OnceLock<f64> = OnceLock::new();
        let rss_before = *RSS_BEFORE.get_or_init(peak_rss_mib);
        Ok(Scene { bench, report, folder: folder.join("map"), disk, env, entries, rss_before })
    }

    fn run(&mut self) -> Result<()> {
        let map = Map::create(&self.folder, self.options(Durability::Buffered))?;
        let puts_per_s = load::load(self, map)?;
        load::update(self, self.open(Durability::Buffered)?)?;
        if self.wants("get") {
            let map = self.open(Durability::Buffered)?;
            lookups::run(self, &map)?;
            map.close()?;
        }
        if self.wants("commit") {
            self.clean_open()?;
            commits::run(self)?;
        }
        if self.wants("recover") {
            load::recover(self)?;
        }
        if self.wants("delete") {
            load::delete(self)?;
        }
        let map = self.open(Durability::Buffered)?;
        self.entries.check_all(&map)?;
        let rss = peak_rss_mib() - self.rss_before;
        self.say("memory.peak_rss_mib", rss, "MiB");
        let budget = self.bench.memory as f64 / f64::from(1 << 20);
        self.say("memory.budget_ratio", rss / budget, "");
        map.close()?;
        // Two maps take more memory than one.
        if self.wants("import") {
            load::import(self, puts_per_s)?;
        }
        self.bench.device.as_ref().map_or(Ok(()), |device| devices::run(self, device))
    }

    fn wants(&self, group: &str) -> bool {
        self.bench.only.is_empty() || self.bench.only.iter().any(|only| only == group)
    }

    fn options(&self, durability: Durability) -> MapOptions {
        MapOptions::new()
            .env(self.env.clone())
            .seed(Seed(self.bench.seed))
            .memory(self.bench.memory)
            .access(Access::Direct)
            .durability(durability)
    }

    fn open(&self, durability: Durability) -> Result<Map> {
        Ok(Map::open_with(&self.folder, self.options(durability))?)
    }

    /// Measures the opening of a map that was closed.
    fn clean_open(&self) -> Result<()> {
        let (seconds, map) = wall_seconds(|| self.open(Durability::Buffered));
        self.say("open.ms", seconds * 1e3, "ms");
        Ok(map?.close()?)
    }

    /// Prints a figure of the whole map.
    fn say(&self, name: &str, value: f64, unit: &str) {
        self.say_of(name, value, unit, self.entries.count());
    }

    /// Prints a figure of some operations.
    fn say_of(&self, name: &str, value: f64, unit: &str, operations: u64) {
        let bytes = self.entries.count() * ENTRY_SIZE;
        self.report.add(&format!("map.{name}"), value, unit, operations, bytes);
    }

    /// Prints the space that the map takes on the device, by the size of its entries.
    fn say_space(&self, phase: &str) -> Result<()> {
        let bytes = disk_bytes(&self.folder)? as f64;
        let ratio = bytes / (self.entries.present() * ENTRY_SIZE) as f64;
        self.say(&format!("{phase}.space_ratio"), ratio, "");
        Ok(())
    }
}

/// Returns the size of a folder's files on the device, in bytes; holes are not counted.
fn disk_bytes(folder: &Path) -> Result<u64> {
    const SECTOR: u64 = 512;
    let size = |name: String| {
        let path = folder.join(name);
        let facts = fs::metadata(&path);
        let facts = facts.map_err(|error| Failure::io(path.display(), "read", &error))?;
        Ok(facts.blocks() * SECTOR)
    };
    OsDisk.list(folder)?.into_iter().map(size).sum()
}
