//! Measures estimates, unions and intersections of two sketches.

use super::SketchBench;
use crate::{
    bench::{
        ensure,
        measure::{Report, thread_seconds},
    },
    failure::Result,
};
use hashfold::{
    KeyHash, Seed,
    sketch::{self, Hll},
};
use std::ops::{Range, RangeInclusive};

/// Number of pairs of sketches.
const PAIRS: u64 = 200;
/// Number of keys of the larger set, and how many times as many they are as those of the other one.
const KEYS: u64 = 1_000_000;
const RATIO: u64 = 10;
/// One of this number of the smaller set's keys is in both.
const SHARED: u64 = 10;
/// Bounds on the part of the intervals of 95 % that have the true size: 4.5 standard errors for this number of
/// pairs.
const COVERED: RangeInclusive<f64> = 0.88..=1.0;

pub(super) fn run(bench: &SketchBench, report: &Report) -> Result<()> {
    let (mut joint_s, mut estimate_s, mut union_s) = (0.0, 0.0, 0.0);
    let (mut covered, mut errors) = (0, [0.0; 2]);
    let shared = (KEYS / RATIO / SHARED) as f64;
    for pair in 0..PAIRS {
        let [a, b] = sketches(bench, pair)?;
        let (seconds, joint) = timed(|| sketch::joint(&a, &b));
        joint_s += seconds;
        estimate_s += timed(|| std::hint::black_box(a.estimate())).0;
        let mut both = a.clone();
        union_s += timed(|| both.union(&b)).0;
        let intersection = joint?.intersection;
        let (low, high) = intersection.interval(0.95);
        covered += u64::from((low..=high).contains(&shared));
        let plain = sketch::inclusion_exclusion(&a, &b)?.intersection;
        for (sum, estimate) in errors.iter_mut().zip([intersection, plain]) {
            *sum += (estimate.value / shared - 1.0).powi(2);
        }
    }
    let covered = covered as f64 / PAIRS as f64;
    ensure(COVERED.contains(&covered), || {
        format!("{covered} of the intervals of 95 % have the size of the intersection")
    })?;
    let [of_joint, of_exclusion] = errors.map(|sum| (sum / PAIRS as f64).sqrt());
    for (name, value, unit) in [
        ("joint_us", joint_s * 1e6 / PAIRS as f64, "us"),
        ("estimate_us", estimate_s * 1e6 / PAIRS as f64, "us"),
        ("union_us", union_s * 1e6 / PAIRS as f64, "us"),
        ("joint.error", of_joint, ""),
        ("joint.covered", covered, ""),
        ("inclusion_exclusion.error", of_exclusion, ""),
    ] {
        report.add(&format!("sketch.{name}"), value, unit, PAIRS, 0);
    }
    Ok(())
}

/// Returns the result of a call, and its CPU time in seconds.
fn timed<T>(call: impl FnOnce() -> T) -> (f64, T) {
    let start = thread_seconds();
    let result = call();
    (thread_seconds() - start, result)
}

/// Makes sketches of two sets that share some keys.
fn sketches(bench: &SketchBench, pair: u64) -> Result<[Hll; 2]> {
    let hash = |i: u64| KeyHash::of(&i.to_le_bytes(), Seed(bench.seed + pair)).high();
    let few = KEYS / RATIO;
    let start = few - few / SHARED;
    let of = |keys: Range<u64>| -> Result<Hll> {
        let mut sketch = Hll::new(bench.precision)?;
        sketch.insert_hashes(&keys.map(hash).collect::<Vec<_>>());
        Ok(sketch)
    };
    Ok([of(0..few)?, of(start..start + KEYS)?])
}
