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
use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Number of keys of the larger set for each key of the smaller one.
const RATIO: u64 = 100;
/// One of this number of the smaller set's keys is in both.
const SHARED: u64 = 20;
/// The requested error.
const ERROR: f64 = 0.1;
/// Confidences of the requested error, the usual one and that of one standard error, and the largest errors that
/// pass: five standard errors.
const CONFIDENCES: [(&str, f64, f64); 2] =
    [("prefix", 0.95, 0.26), ("prefix.standard_error", 0.6827, 0.5)];

pub(super) fn run(bench: &SketchBench, report: &Report, folder: &Path) -> Result<()> {
    let (large, small) = (bench.prefix_keys, bench.prefix_keys / RATIO);
    let shared = small / SHARED;
    let sets = [("small", 0..small), ("large", small - shared..small - shared + large)];
    let folders = sets.map(|(name, keys)| (folder.join(name), keys));
    folders.iter().try_for_each(|(folder, keys)| build(bench, folder, keys.clone()))?;
    let folders = folders.map(|(folder, _)| folder);
    CONFIDENCES.iter().try_for_each(|(name, confidence, error_max)| {
        let (seconds, sample) = wall_seconds(|| read(&folders, *confidence));
        let sample = sample?;
        let estimate = sample.estimate(&Expression::all(2));
        let error = (estimate.value / shared as f64 - 1.0).abs();
        ensure(error <= *error_max, || {
            format!("expected about {shared} keys in both, got {estimate:?}")
        })?;
        let bytes = sample.bytes_read().unwrap_or_default();
        for (figure, value, unit) in [
            ("read_mb", bytes as f64 / 1e6, "MB"),
            ("keys_read", sample.keys_read() as f64, "keys"),
            ("error", error, ""),
            ("ms", seconds * 1e3, "ms"),
        ] {
            report.add(&format!("sketch.{name}.{figure}"), value, unit, large, bytes);
        }
        Ok(())
    })
}

/// Opens the filters and reads as much of them as the requested error needs.
fn read(folders: &[PathBuf; 2], confidence: f64) -> Result<PrefixSample> {
    let disk = CountingDisk::on(Arc::new(OsDisk));
    let env = Env::on(Arc::new(disk.clone()));
    let open = |folder: &PathBuf| {
        Snapshot::open_within(&env, folder, Access::Cached, cascade::MEMORY_DEFAULT)
    };
    let filters = folders.iter().map(open).collect::<hashfold::Result<Vec<_>>>()?;
    let sets = filters.iter().map(|filter| PrefixSet::of_fingerprints(filter.scan_prefix()?));
    let sets = sets.collect::<hashfold::Result<Vec<_>>>()?;
    let precision = Precision::new(ERROR, confidence)?.counting(disk);
    Ok(PrefixSample::read(sets, &Expression::all(2), &precision)?)
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
