//! Runs of fingerprints in memory: packed, unpacked, merged.

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
    filter::{Fingerprints, Merge, Mode, PackedRun, Span, Universe},
};

const ROUNDS: usize = 5;

pub(super) fn run(bench: &FilterBench, report: &Report) -> Result<()> {
    let universe = Universe::for_capacity(bench.run_keys, 0.0004)?;
    for parts in [2, 4, 8] {
        let runs = runs(bench, universe, parts)?;
        let name = format!("filter.run.merge{parts}_items_s");
        merge(bench, report, &name, &runs)?;
    }
    let one = &runs(bench, universe, 1)?[0];
    let seconds = best_of(ROUNDS, || {
        let (mut scan, mut span, mut items) = (one.scan(), Span::default(), 0);
        cpu_seconds(|| {
            while scan.next_span(&mut span).expect("a run in memory is sound") {
                items += span.len() as u64;
            }
            assert_eq!(items, one.len());
        })
    });
    report.add("filter.run.scan_items_s", one.len() as f64 / seconds, "items/s", one.len(), 0);
    Ok(())
}

/// Runs that share the keys.
fn runs(bench: &FilterBench, universe: Universe, parts: u64) -> Result<Vec<PackedRun>> {
    let mut runs = Vec::new();
    for part in 0..parts {
        let keys = (part..bench.run_keys).step_by(parts as usize);
        let hashes = keys.map(|i| KeyHash::of(&i.to_le_bytes(), Seed(bench.seed)));
        let mut ones: Vec<u64> = hashes.map(|hash| universe.fingerprint(hash)).collect();
        ones.sort_unstable();
        ones.dedup();
        let span = Span { ones, counted: Vec::new() };
        runs.push(PackedRun::build(&mut span.into_run(universe))?);
    }
    Ok(runs)
}

fn merge(bench: &FilterBench, report: &Report, name: &str, runs: &[PackedRun]) -> Result<()> {
    let items: u64 = runs.iter().map(PackedRun::len).sum();
    let mut merged = None;
    let seconds = best_of(ROUNDS, || {
        cpu_seconds(|| {
            let scans = runs.iter().map(PackedRun::scan).collect();
            let merge = Merge::new(scans, Mode::Set);
            merged = Some(merge.and_then(|mut merge| PackedRun::build(&mut merge)));
        })
    });
    let merged = merged.expect("`best_of` runs at least once")?;
    for i in (0..bench.run_keys).step_by(997) {
        let is_in = merged.contains(KeyHash::of(&i.to_le_bytes(), Seed(bench.seed)));
        ensure(is_in, || format!("key {i} is missing"))?;
    }
    report.add(name, items as f64 / seconds, "items/s", items, merged.bytes() as u64);
    Ok(())
}
