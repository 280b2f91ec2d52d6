//! Measures inserts of hashes: in batches, and one by one; beside that, only reading the hashes.

use super::SketchBench;
use crate::{
    bench::{
        ensure,
        measure::{Report, best_of, thread_seconds},
    },
    failure::Result,
};
use hashfold::{KeyHash, Seed, sketch::Hll};

/// Number of hashes: 128 MiB, more than fits in caches that belong to one core.
const HASHES: u64 = 1 << 24;
/// Number of hashes of a batch.
const BATCH: usize = 1024;
/// Number of times that each measurement is made; the shortest counts.
const TIMES: usize = 3;
const PRECISIONS: [u8; 3] = [12, 14, 16];
/// Maximum distance of an estimate from the number of hashes, in standard errors.
const ERRORS_MAX: f64 = 5.0;

pub(super) fn run(bench: &SketchBench, report: &Report) -> Result<()> {
    let hash = |i: u64| KeyHash::of(&i.to_le_bytes(), Seed(bench.seed)).high();
    let hashes: Vec<u64> = (0..HASHES).map(hash).collect();
    let read = best_of(TIMES, || {
        let start = thread_seconds();
        std::hint::black_box(hashes.iter().fold(0, |sum, hash| sum ^ hash));
        thread_seconds() - start
    });
    report.add("sketch.read_hashes", read * 1e9 / HASHES as f64, "ns", HASHES, 0);
    for precision in PRECISIONS {
        let mut sketches = [Hll::new(precision)?, Hll::new(precision)?];
        let [batches, single] = &mut sketches;
        let in_batches = time(batches, |sketch| {
            hashes.chunks(BATCH).for_each(|hashes| sketch.insert_hashes(hashes));
        })?;
        let one_by_one = time(single, |sketch| {
            hashes.iter().for_each(|hash| _ = sketch.insert_bits(*hash));
        })?;
        ensure(batches == single, || "inserts in batches and one by one differ".into())?;
        let error = batches.estimate() / HASHES as f64 - 1.0;
        ensure(error.abs() < ERRORS_MAX * batches.standard_error(), || {
            format!("the estimate of {HASHES} keys is {}", batches.estimate())
        })?;
        for (name, seconds) in [("insert_hashes", in_batches), ("insert", one_by_one)] {
            let name = format!("sketch.{name}.p{precision}");
            report.add(&name, seconds * 1e9 / HASHES as f64, "ns", HASHES, 0);
        }
    }
    Ok(())
}

/// Returns the CPU time of inserting all hashes into an empty sketch, in seconds.
fn time(sketch: &mut Hll, insert: impl Fn(&mut Hll)) -> Result<f64> {
    let empty = Hll::new(sketch.precision())?;
    Ok(best_of(TIMES, || {
        sketch.clone_from(&empty);
        let start = thread_seconds();
        insert(sketch);
        thread_seconds() - start
    }))
}
