//! Measures runs of fingerprints in RAM: packing, unpacking, merging.

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
    filter::{FingerprintMerge, Mode, PackedRun},
    fingerprints::{FingerprintBatch, Fingerprints, Universe},
};

const ROUNDS: usize = 5;
/// In runs with removals, one change in N is a removal.
const REMOVAL: u64 = 8;

/// The kinds of changes in the merged runs.
#[derive(Clone, Copy)]
enum Changes {
    Insertions,
    /// One change in [`REMOVAL`] removes a key of the next older run; in the oldest run, an absent
    /// key.
    WithRemovals,
}

impl Changes {
    /// Returns the key of change number `i`, and its count.
    fn get(self, i: u64, parts: u64) -> (u64, i64) {
        match self {
            Changes::WithRemovals if i / parts % REMOVAL == REMOVAL - 1 => (i + 1 - parts, -1),
            _ => (i, 1),
        }
    }
}

pub(super) fn run(bench: &FilterBench, report: &Report) -> Result<()> {
    let universe = Universe::for_capacity(bench.run_keys, 0.0004)?;
    for parts in [2, 4, 8] {
        let runs = runs(bench, universe, parts, Changes::Insertions)?;
        let plain = merge(report, &runs, Changes::Insertions)?;
        if parts == 8 {
            let runs = self::runs(bench, universe, parts, Changes::WithRemovals)?;
            let removing = merge(report, &runs, Changes::WithRemovals)?;
            report.add("filter.run.merge8_removal.fraction", removing / plain, "", 0, 0);
        }
    }
    let one = &runs(bench, universe, 1, Changes::Insertions)?[0];
    let seconds = best_of(ROUNDS, || {
        let (mut scan, mut batch, mut items) = (one.scan(), FingerprintBatch::new(), 0);
        cpu_seconds(|| {
            while scan.append_to(&mut batch).expect("a run in memory is sound") {
                items += batch.len() as u64;
                batch.clear();
            }
            assert_eq!(items, one.len());
        })
    });
    report.add("filter.run.scan_items_s", one.len() as f64 / seconds, "items/s", one.len(), 0);
    Ok(())
}

/// Returns runs that share the changes, newest first.
fn runs(
    bench: &FilterBench,
    universe: Universe,
    parts: u64,
    changes: Changes,
) -> Result<Vec<PackedRun>> {
    let mut runs = Vec::new();
    for part in 0..parts {
        let items = (part..bench.run_keys).step_by(parts as usize).map(|i| changes.get(i, parts));
        let mut items: Vec<(u64, i64)> = items
            .map(|(key, count)| {
                let hash = KeyHash::of(&key.to_le_bytes(), Seed(bench.seed));
                (universe.fingerprint(hash), count)
            })
            .collect();
        // An insertion wins over other changes of an equal fingerprint.
        items.sort_unstable_by_key(|&(fingerprint, count)| (fingerprint, -count));
        items.dedup_by_key(|item| item.0);
        let mut batch = FingerprintBatch::new();
        items.into_iter().try_for_each(|(fingerprint, count)| batch.push(fingerprint, count))?;
        runs.push(PackedRun::build(&mut batch.into_run(Seed(bench.seed), universe))?);
    }
    Ok(runs)
}

/// Merges runs. Returns the number of items per second.
fn merge(report: &Report, runs: &[PackedRun], changes: Changes) -> Result<f64> {
    let items: u64 = runs.iter().map(PackedRun::len).sum();
    let all = || FingerprintMerge::new(runs.iter().map(PackedRun::scan).collect(), Mode::Set);
    // The first round is not measured, because it waits for fresh memory.
    let mut merged = PackedRun::build(&mut all()?)?;
    let mut result = Ok(());
    let seconds = best_of(ROUNDS, || {
        cpu_seconds(|| result = all().and_then(|mut merge| merged.rebuild(&mut merge)))
    });
    result?;
    check(runs, &merged)?;
    let parts = runs.len();
    let name = match changes {
        Changes::Insertions => format!("filter.run.merge{parts}_items_s"),
        Changes::WithRemovals => format!("filter.run.merge{parts}_removal_items_s"),
    };
    report.add(&name, items as f64 / seconds, "items/s", items, merged.bytes() as u64);
    Ok(items as f64 / seconds)
}

/// Compares a merged run with the fingerprints that the newest change of all runs has inserted.
fn check(runs: &[PackedRun], merged: &PackedRun) -> Result<()> {
    let mut changes = Vec::new();
    for (age, run) in runs.iter().enumerate() {
        items(run, &mut |fingerprint, count| changes.push((fingerprint, age, count)));
    }
    changes.sort_unstable();
    changes.dedup_by_key(|change| change.0);
    let mut expected = changes.into_iter().filter(|change| change.2 > 0).map(|change| change.0);
    let mut is_right = true;
    items(merged, &mut |fingerprint, count| {
        is_right &= count <= 0 || expected.next() == Some(fingerprint);
    });
    ensure(is_right && expected.next().is_none(), || {
        format!("{} merged runs differ from their newest changes", runs.len())
    })
}

/// Passes the fingerprints of a run and their counts to `take`, in ascending order.
fn items(run: &PackedRun, take: &mut dyn FnMut(u64, i64)) {
    let (mut scan, mut batch) = (run.scan(), FingerprintBatch::new());
    while scan.append_to(&mut batch).expect("a run in memory is sound") {
        batch.iter().for_each(|(fingerprint, count)| take(fingerprint, count));
        batch.clear();
    }
}
