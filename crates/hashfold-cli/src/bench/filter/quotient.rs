//! Measures the quotient filter in RAM: single keys, batches, iteration, growing and merging.

use super::{FilterBench, Report};
use crate::{
    bench::{
        ensure,
        measure::{best_of, cpu_seconds},
    },
    failure::Result,
};
use hashfold::{
    KeyHash, Seed,
    filter::{
        Mode,
        quotient::{BuildOptions, Growth, QuotientFilter, QuotientOptions},
    },
    fingerprints::{FingerprintBatch, Fingerprints},
};

/// Load of the filter: the used fraction of its slots.
const LOAD: f64 = 0.9;
/// False-positive rate of 9-bit remainders at that load.
const ERROR_RATE: f64 = 0.00176;
const BATCH: usize = 4096;
const LOOKUPS_MAX: u64 = 1 << 23;
const ROUNDS: usize = 3;

pub(super) fn run(bench: &FilterBench, report: &Report) -> Result<()> {
    let keys = (bench.slots as f64 * LOAD) as u64;
    let hash = |i: u64| KeyHash::of(&i.to_le_bytes(), Seed(bench.seed));
    let inserted: Vec<KeyHash> = (0..keys).map(hash).collect();
    let options = QuotientOptions::new(keys, ERROR_RATE, Seed(bench.seed));
    let mut filter = QuotientFilter::new(&options)?;
    let mut failed = Ok(true);
    let say = |name: &str, value, unit: &str, items, bytes: u64| {
        report.add(&format!("filter.quotient.{name}"), value, unit, items, bytes);
    };
    let single = cpu_seconds(|| {
        failed = inserted.iter().try_fold(true, |_, &hash| filter.insert(hash));
    });
    failed?;
    say("insert_s", keys as f64 / single, "keys/s", keys, filter.bytes());
    drop(filter);
    let mut filter = QuotientFilter::new(&options)?;
    let mut is_new = vec![false; BATCH];
    let mut done = Ok(());
    let batch = cpu_seconds(|| {
        done = inserted
            .chunks(BATCH)
            .try_for_each(|part| filter.insert_batch(part, &mut is_new[..part.len()]));
    });
    done?;
    say("batch_insert_s", keys as f64 / batch, "keys/s", keys, filter.bytes());
    say("bits_per_item", filter.bits_per_item(), "bits", keys, filter.bytes());
    lookups(bench, report, &filter, &inserted)?;
    merge(report, &options, &filter, &inserted)?;
    streams(report, filter, &inserted)
}

/// Measures merging two filters that share the keys.
fn merge(
    report: &Report,
    options: &QuotientOptions,
    all: &QuotientFilter,
    inserted: &[KeyHash],
) -> Result<()> {
    let half = |hashes: &[KeyHash]| -> Result<QuotientFilter> {
        let mut filter = QuotientFilter::new(options)?;
        let mut is_new = vec![false; BATCH];
        for part in hashes.chunks(BATCH) {
            filter.insert_batch(part, &mut is_new[..part.len()])?;
        }
        Ok(filter)
    };
    let (left, right) = inserted.split_at(inserted.len() / 2);
    let (left, right) = (half(left)?, half(right)?);
    let items = left.len() + right.len();
    let mut merged = None;
    let seconds = cpu_seconds(|| merged = Some(left.merge(&right)));
    let merged = merged.expect("it was just done")?;
    let is_in = inserted.iter().step_by(1009).all(|&hash| merged.contains(hash));
    ensure(is_in && merged.distinct() == all.distinct(), || {
        format!("{} merged fingerprints, not {}", merged.distinct(), all.distinct())
    })?;
    let rate = items as f64 / seconds;
    report.add("filter.quotient.merge_items_s", rate, "items/s", items, merged.bytes());
    Ok(())
}

fn lookups(
    bench: &FilterBench,
    report: &Report,
    filter: &QuotientFilter,
    inserted: &[KeyHash],
) -> Result<()> {
    let keys = inserted.len() as u64;
    let count = LOOKUPS_MAX.min(keys);
    let hash = |i: u64| KeyHash::of(&i.to_le_bytes(), Seed(bench.seed));
    let absent: Vec<KeyHash> = (keys..keys + count).map(hash).collect();
    let present = &inserted[..count as usize];
    let mut found = vec![false; BATCH];
    for (name, hashes, part) in [("positive", present, 1.0), ("negative", &absent, ERROR_RATE)] {
        let mut yes = 0;
        let single = best_of(ROUNDS, || {
            cpu_seconds(|| yes = hashes.iter().filter(|&&hash| filter.contains(hash)).count())
        });
        let share = yes as f64 / count as f64;
        let is_right = share >= part * 0.5 && share <= part * 1.5 + 0.01;
        let is_right = is_right && (part < 1.0 || yes == hashes.len());
        ensure(is_right, || format!("{name}: {share} of the keys were found"))?;
        let mut yes_batched = 0;
        let batch = best_of(ROUNDS, || {
            yes_batched = 0;
            cpu_seconds(|| {
                for part in hashes.chunks(BATCH) {
                    let found = &mut found[..part.len()];
                    filter.contains_batch(part, found);
                    yes_batched += found.iter().filter(|found| **found).count();
                }
            })
        });
        ensure(yes == yes_batched, || {
            format!("{name}: {yes} keys were found one by one, {yes_batched} in batches")
        })?;
        let say = |kind: &str, seconds: f64| {
            let name = format!("filter.quotient.{kind}{name}_s");
            report.add(&name, count as f64 / seconds, "keys/s", count, filter.bytes());
        };
        say("", single);
        say("batch_", batch);
    }
    Ok(())
}

/// Measures sequential operations on all slots.
fn streams(report: &Report, mut filter: QuotientFilter, inserted: &[KeyHash]) -> Result<()> {
    let (items, distinct) = (filter.len(), filter.distinct());
    let say = |name: &str, seconds: f64, bytes| {
        let name = format!("filter.quotient.{name}_items_s");
        report.add(&name, items as f64 / seconds, "items/s", items, bytes);
    };
    let mut batch = FingerprintBatch::new();
    let scan = best_of(ROUNDS, || {
        let (mut scan, mut seen) = (filter.scan(), 0);
        let seconds = cpu_seconds(|| {
            while scan.append_to(&mut batch).expect("a filter in memory is sound") {
                seen += batch.len() as u64;
                batch.clear();
            }
        });
        assert_eq!(seen, distinct);
        seconds
    });
    say("scan", scan, filter.bytes());
    let options =
        BuildOptions { capacity: items, mode: Mode::Set, growth: Growth::Refuse, load_max: LOAD };
    let mut built = None;
    let build = cpu_seconds(|| built = Some(QuotientFilter::build(&mut filter.scan(), &options)));
    let built = built.expect("it was just done")?;
    ensure(built.len() == items, || format!("{} of {items} items", built.len()))?;
    say("scan_and_build", build, built.bytes());
    drop(built);
    let mut grown = Ok(());
    let grow = cpu_seconds(|| grown = filter.grow());
    grown?;
    let is_in = inserted.iter().step_by(1009).all(|&hash| filter.contains(hash));
    ensure(is_in, || "a key is missing in the grown filter".to_owned())?;
    say("grow", grow, filter.bytes());
    Ok(())
}
