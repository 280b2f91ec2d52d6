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

    /// Returns whether key `i` is present after all changes below `end`.
    fn is_in(self, i: u64, parts: u64, end: u64) -> bool {
        let removal = (i + parts).saturating_sub(1);
        let is_removed = !i.is_multiple_of(parts) && removal < end;
        self.get(i, parts).1 == 1 && !(is_removed && self.get(removal, parts) == (i, -1))
    }
}

pub(super) fn run(bench: &FilterBench, report: &Report) -> Result<()> {
    let universe = Universe::for_capacity(bench.run_keys, 0.0004)?;
    for parts in [2, 4, 8] {
        let runs = runs(bench, universe, parts, Changes::Insertions)?;
        let plain = merge(bench, report, &runs, Changes::Insertions)?;
        if parts == 8 {
            let runs = self::runs(bench, universe, parts, Changes::WithRemovals)?;
            let removing = merge(bench, report, &runs, Changes::WithRemovals)?;
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
fn merge(
    bench: &FilterBench,
    report: &Report,
    runs: &[PackedRun],
    changes: Changes,
) -> Result<f64> {
    let items: u64 = runs.iter().map(PackedRun::len).sum();
    let all = || FingerprintMerge::new(runs.iter().map(PackedRun::scan).collect(), Mode::Set);
    // The first round is not measured, because it waits for fresh memory.
    let mut merged = PackedRun::build(&mut all()?)?;
    let mut result = Ok(());
    let seconds = best_of(ROUNDS, || {
        cpu_seconds(|| result = all().and_then(|mut merge| merged.rebuild(&mut merge)))
    });
    result?;
    let parts = runs.len() as u64;
    let (mut wrong, mut asked) = (0, 0_u64);
    for i in (0..bench.run_keys).step_by(997) {
        let found = merged.contains(KeyHash::of(&i.to_le_bytes(), Seed(bench.seed)));
        let is_in = changes.is_in(i, parts, bench.run_keys);
        (wrong, asked) = (wrong + u64::from(found != is_in), asked + 1);
    }
    // Keys that share a fingerprint have the same result.
    let wrong_max = match changes {
        Changes::Insertions => 0,
        Changes::WithRemovals => asked / 100,
    };
    ensure(wrong <= wrong_max, || format!("{wrong} of {asked} keys are wrong"))?;
    let name = match changes {
        Changes::Insertions => format!("filter.run.merge{parts}_items_s"),
        Changes::WithRemovals => format!("filter.run.merge{parts}_removal_items_s"),
    };
    report.add(&name, items as f64 / seconds, "items/s", items, merged.bytes() as u64);
    Ok(items as f64 / seconds)
}
