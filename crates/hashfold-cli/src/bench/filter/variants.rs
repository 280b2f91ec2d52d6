//! Measures other uses of a cascade than plain insertions in batches: single insertions, a write-ahead
//! log, removals, exact fingerprints.

use super::{FilterBench, Report, cascade::settings};
use crate::{
    bench::{
        ensure,
        measure::{process_seconds, wall_seconds},
        pairs::remove_all,
    },
    failure::Result,
};
use hashfold::{
    KeyHash, Seed,
    filter::{
        Mode,
        cascade::{CascadeFilter, CascadeOptions, CascadeSettings, CascadeStats},
    },
};
use std::path::Path;

const BATCH: u64 = 4096;
/// In variants with removals, one change in N is a removal.
const REMOVAL: u64 = 8;

/// Applies a range of numbered changes to a filter.
type Apply<'a> = &'a dyn Fn(&mut CascadeFilter, u64, u64) -> hashfold::Result<()>;

struct Ingest<'a> {
    bench: &'a FilterBench,
    folder: &'a Path,
    keys: u64,
}

/// The cost of one way to ingest keys.
struct Cost {
    per_core_s: f64,
    wall_s: f64,
    stats: CascadeStats,
}

pub(super) fn run(bench: &FilterBench, report: &Report, folder: &Path) -> Result<()> {
    let keys = bench.keys / 10;
    let ingest = Ingest { bench, folder, keys };
    let settings = settings(bench);
    let seed = Seed(bench.seed);
    let options = CascadeOptions::new(seed, bench.seed, keys, 0.0004)?;
    let hashes = |from: u64, to: u64| -> Vec<KeyHash> {
        (from..to).map(|i| KeyHash::of(&i.to_le_bytes(), seed)).collect()
    };
    let insert: Apply<'_> = &|filter, from, to| filter.insert_batch(&hashes(from, to));
    let say = |name: &str, value, unit, bytes| {
        report.add(&format!("filter.cascade.{name}"), value, unit, keys, bytes);
    };
    let plain = ingest.run(&options, settings.clone(), insert)?;
    say("plain.insert_per_core_s", plain.per_core_s, "keys/s", plain.stats.file_bytes);
    let single = ingest.run(&options, settings.clone(), &|filter, from, to| {
        (from..to).try_for_each(|i| filter.insert(KeyHash::of(&i.to_le_bytes(), seed)))
    })?;
    say("single.insert_per_core_s", single.per_core_s, "keys/s", single.stats.file_bytes);
    let with_log = CascadeSettings { wal: true, ..settings.clone() };
    let logged = ingest.run(&options, with_log, insert)?;
    say("log.insert_fraction", logged.per_core_s / plain.per_core_s, "", logged.stats.file_bytes);
    say("log.wall_fraction", logged.wall_s / plain.wall_s, "", logged.stats.file_bytes);
    let removing = ingest.run(&options, settings.clone(), &|filter, from, to| {
        filter.insert_batch(&hashes(from, to - (to - from) / REMOVAL))?;
        filter.remove_batch(&hashes(from / 2, from / 2 + (to - from) / REMOVAL))
    })?;
    say("removal.fraction", removing.per_core_s / plain.per_core_s, "", removing.stats.file_bytes);
    let counting = CascadeOptions { mode: Mode::Multiset, ..options.clone() };
    let counting = ingest.run(&counting, settings.clone(), insert)?;
    let fraction = counting.per_core_s / plain.per_core_s;
    say("multiset.insert_fraction", fraction, "", counting.stats.file_bytes);
    let exact = ingest.run(&CascadeOptions::exact(seed, bench.seed), settings, insert)?;
    say("exact.insert_per_core_s", exact.per_core_s, "keys/s", exact.stats.file_bytes);
    say("exact.bits_per_item", exact.stats.bits_per_fingerprint(), "bits", exact.stats.file_bytes);
    Ok(())
}

impl Ingest<'_> {
    fn run(
        &self,
        options: &CascadeOptions,
        settings: CascadeSettings,
        apply: Apply<'_>,
    ) -> Result<Cost> {
        let folder = self.folder.join("variant");
        let mut filter = CascadeFilter::create(&folder, options, settings)?;
        let cpu = process_seconds();
        let (wall, applied) = wall_seconds(|| -> Result<()> {
            for from in (0..self.keys).step_by(BATCH as usize) {
                apply(&mut filter, from, (from + BATCH).min(self.keys))?;
            }
            filter.sync()?;
            Ok(())
        });
        applied?;
        let cpu = process_seconds() - cpu;
        let last = KeyHash::of(&(self.keys / 2).to_le_bytes(), Seed(self.bench.seed));
        ensure(filter.count(last)? <= 1, || "a key is counted twice".to_owned())?;
        filter.merge()?;
        let stats = filter.stats();
        filter.close()?;
        remove_all(&folder)?;
        let keys = self.keys as f64;
        Ok(Cost { per_core_s: keys / cpu, wall_s: keys / wall, stats })
    }
}
