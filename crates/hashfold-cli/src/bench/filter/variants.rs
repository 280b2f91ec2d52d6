//! Measures other uses of a cascade than plain insertions in batches: single insertions, a write-ahead
//! log, removals, exact fingerprints.

use super::{
    FilterBench, Report,
    cascade::{ERROR_RATE, settings},
};
use crate::{
    bench::{
        ensure,
        measure::{process_seconds, wall_seconds},
        pairs::remove_all,
        random::pick,
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
use std::{ops::Range, path::Path};

const BATCH: u64 = 4096;
/// In variants with removals, one change in N is a removal.
const REMOVAL: u64 = 8;

/// Applies the changes of a batch, from a number to another, to a filter.
type Apply<'a> = &'a dyn Fn(&mut CascadeFilter, u64, u64) -> hashfold::Result<()>;

/// Number of keys that are looked up to check a filter.
const LOOKUPS: u64 = 100_000;

struct Ingest<'a> {
    bench: &'a FilterBench,
    folder: &'a Path,
    keys: u64,
}

/// The number of removals in a batch of changes.
fn removals(from: u64, to: u64) -> u64 {
    (to - from) / REMOVAL
}

/// Returns the keys that a batch with removals removes; earlier batches, or this one, inserted them.
fn removed(from: u64, to: u64) -> Range<u64> {
    from / 2..from / 2 + removals(from, to)
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
    let options = CascadeOptions::new(seed, bench.seed, keys, ERROR_RATE)?;
    let hashes = |from: u64, to: u64| -> Vec<KeyHash> {
        (from..to).map(|i| KeyHash::of(&i.to_le_bytes(), seed)).collect()
    };
    let insert: Apply<'_> = &|filter, from, to| filter.insert_batch(&hashes(from, to));
    let say = |name: &str, value, unit, bytes| {
        report.add(&format!("filter.cascade.{name}"), value, unit, keys, bytes);
    };
    let all: &dyn Fn(u64) -> bool = &|i| i < keys;
    let plain = ingest.run(&options, settings.clone(), insert, all)?;
    say("plain.insert_per_core_s", plain.per_core_s, "keys/s", plain.stats.file_bytes);
    let one_by_one: Apply<'_> = &|filter, from, to| {
        (from..to).try_for_each(|i| filter.insert(KeyHash::of(&i.to_le_bytes(), seed)))
    };
    let single = ingest.run(&options, settings.clone(), one_by_one, all)?;
    say("single.insert_per_core_s", single.per_core_s, "keys/s", single.stats.file_bytes);
    let with_log = CascadeSettings { wal: true, ..settings.clone() };
    let logged = ingest.run(&options, with_log, insert, all)?;
    say("log.insert_fraction", logged.per_core_s / plain.per_core_s, "", logged.stats.file_bytes);
    say("log.wall_fraction", logged.wall_s / plain.wall_s, "", logged.stats.file_bytes);
    let remove: Apply<'_> = &|filter, from, to| {
        filter.insert_batch(&hashes(from, to - removals(from, to)))?;
        let removed = removed(from, to);
        filter.remove_batch(&hashes(removed.start, removed.end))
    };
    let left: &dyn Fn(u64) -> bool = &|i| {
        let batch = |number: u64| (number * BATCH, (number * BATCH + BATCH).min(keys));
        let (from, to) = batch(i / BATCH);
        let removal = batch(i / (BATCH / 2));
        let is_removed = removal.0 < keys && removed(removal.0, removal.1).contains(&i);
        i < keys && i < to - removals(from, to) && !is_removed
    };
    let removing = ingest.run(&options, settings.clone(), remove, left)?;
    say("removal.fraction", removing.per_core_s / plain.per_core_s, "", removing.stats.file_bytes);
    let counting = CascadeOptions { mode: Mode::Multiset, ..options.clone() };
    let counting = ingest.run(&counting, settings.clone(), insert, all)?;
    let fraction = counting.per_core_s / plain.per_core_s;
    say("multiset.insert_fraction", fraction, "", counting.stats.file_bytes);
    let exact = ingest.run(&CascadeOptions::exact(seed, bench.seed), settings, insert, all)?;
    say("exact.insert_per_core_s", exact.per_core_s, "keys/s", exact.stats.file_bytes);
    say("exact.bits_per_item", exact.stats.bits_per_fingerprint(), "bits", exact.stats.file_bytes);
    Ok(())
}

impl Ingest<'_> {
    /// Applies all batches, and checks the filter: `is_in` says which keys are in it then. Clocks
    /// stop when all changes are durable in runs and no merge is due.
    fn run(
        &self,
        options: &CascadeOptions,
        settings: CascadeSettings,
        apply: Apply<'_>,
        is_in: &dyn Fn(u64) -> bool,
    ) -> Result<Cost> {
        let folder = self.folder.join("variant");
        let mut filter = CascadeFilter::create(&folder, options, settings)?;
        let cpu = process_seconds();
        let (wall, applied) = wall_seconds(|| -> Result<()> {
            for from in (0..self.keys).step_by(BATCH as usize) {
                apply(&mut filter, from, (from + BATCH).min(self.keys))?;
            }
            filter.wait_for_merges()?;
            Ok(())
        });
        applied?;
        let cpu = process_seconds() - cpu;
        self.check(&filter, is_in)?;
        filter.merge()?;
        self.check(&filter, is_in)?;
        let stats = filter.stats();
        filter.close()?;
        remove_all(&folder)?;
        let keys = self.keys as f64;
        Ok(Cost { per_core_s: keys / cpu, wall_s: keys / wall, stats })
    }

    /// Looks up keys that are in the filter, and others. Few others may be found.
    fn check(&self, filter: &CascadeFilter, is_in: &dyn Fn(u64) -> bool) -> Result<()> {
        let asked: Vec<u64> =
            (0..LOOKUPS).map(|i| pick(i, self.bench.seed, self.keys / 2 * 3)).collect();
        let hashes: Vec<KeyHash> =
            asked.iter().map(|i| KeyHash::of(&i.to_le_bytes(), Seed(self.bench.seed))).collect();
        let mut counts = vec![0; asked.len()];
        filter.count_batch(&hashes, &mut counts)?;
        let (mut errors, mut missing, mut removed, mut twice) = (0, 0, 0, 0);
        for (i, count) in asked.into_iter().zip(counts) {
            errors += u64::from(!is_in(i) && count > 0);
            missing += u64::from(is_in(i) && count == 0);
            removed += u64::from(!is_in(i) && i < self.keys);
            twice += u64::from(count > 1);
        }
        // A removal also removes other keys with the same fingerprint.
        let few = |count: u64| (count as f64) < LOOKUPS as f64 * (2.0 * ERROR_RATE + 1e-3);
        let is_right = few(errors) && few(missing) && few(twice) && (missing == 0 || removed > 0);
        ensure(is_right, || {
            format!(
                "of {LOOKUPS} keys, {errors} are wrongly in, {missing} are missing, {twice} count twice"
            )
        })
    }
}
