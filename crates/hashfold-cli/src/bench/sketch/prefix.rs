//! Measures how much of two exact filters is read for the number of keys that are in both: a hundred times as many
//! keys in one as in the other, of which a twentieth is in both.

use super::SketchBench;
use crate::{
    bench::{
        ensure,
        measure::{Report, wall_seconds},
    },
    failure::Result,
};
use hashfold::{
    Env, KeyHash, Seed,
    filter::cascade::{self, CascadeFilter, CascadeOptions, CascadeSettings, Snapshot},
    fingerprints::{FingerprintBatch, Universe},
    io::{Access, CountingDisk, OsDisk},
    sketch::{Expression, Precision, PrefixSample, PrefixSet},
    work::Threads,
};
use std::{ops::Range, path::Path, sync::Arc};

/// Number of keys of the larger set for each key of the smaller one.
const RATIO: u64 = 100;
/// One of this number of the smaller set's keys is in both.
const SHARED: u64 = 20;
/// The requested error and confidence.
const ERROR: f64 = 0.1;
const CONFIDENCE: f64 = 0.95;
/// The largest error that passes: that of five standard errors.
const ERROR_MAX: f64 = 0.26;

pub(super) fn run(bench: &SketchBench, report: &Report, folder: &Path) -> Result<()> {
    let (large, small) = (bench.prefix_keys, bench.prefix_keys / RATIO);
    let shared = small / SHARED;
    let sets = [("small", 0..small), ("large", small - shared..small - shared + large)];
    for (name, keys) in &sets {
        build(bench, &folder.join(name), keys.clone())?;
    }
    let disk = CountingDisk::on(Arc::new(OsDisk));
    let env = Env::on(Arc::new(disk.clone()));
    let (seconds, sample) = wall_seconds(|| -> Result<PrefixSample> {
        let open = |name: &str| {
            let memory = cascade::MEMORY_DEFAULT;
            Snapshot::open_within(&env, &folder.join(name), Access::Cached, memory)
        };
        let filters =
            sets.iter().map(|(name, _)| open(name)).collect::<hashfold::Result<Vec<_>>>()?;
        let sets = filters.iter().map(|filter| PrefixSet::of_fingerprints(filter.scan_prefix()?));
        let precision = Precision::new(ERROR, CONFIDENCE)?.counting(disk.clone());
        let sets = sets.collect::<hashfold::Result<Vec<_>>>()?;
        Ok(PrefixSample::read(sets, &Expression::all(2), &precision)?)
    });
    let sample = sample?;
    let estimate = sample.estimate(&Expression::all(2));
    let error = (estimate.value / shared as f64 - 1.0).abs();
    ensure(error <= ERROR_MAX, || {
        format!("expected about {shared} keys in both, got {estimate:?}")
    })?;
    let bytes = sample.bytes_read().unwrap_or_default();
    for (name, value, unit) in [
        ("read_mb", bytes as f64 / 1e6, "MB"),
        ("keys_read", sample.keys_read() as f64, "keys"),
        ("error", error, ""),
        ("ms", seconds * 1e3, "ms"),
    ] {
        report.add(&format!("sketch.prefix.{name}"), value, unit, large, bytes);
    }
    Ok(())
}

/// Builds an exact filter of numbered keys.
fn build(bench: &SketchBench, folder: &Path, keys: Range<u64>) -> Result<()> {
    let seed = Seed(bench.seed);
    let mut hashes: Vec<u64> =
        keys.map(|key| KeyHash::of(&key.to_le_bytes(), seed).high()).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let mut run = FingerprintBatch::from_sorted(hashes)?.into_run(seed, Universe::EXACT);
    let env = Env { executor: Arc::new(Threads::new(bench.threads)), ..Env::system() };
    let settings = CascadeSettings::new(env);
    CascadeFilter::build(folder, &CascadeOptions::exact(seed, bench.seed), settings, &mut run)?
        .close()?;
    Ok(())
}
