//! Measures deltas: small batches that stay beside the base.

use super::{
    super::{
        StoreBench,
        device::BATCH,
        ensure,
        measure::{Report, wall_seconds},
        pairs::{KEY_SIZE, PAIR_SIZES, Pairs, Row, RowFile, remove_all},
        random::pick,
    },
    night::{History, Night},
    scene::{ROUNDS, Scene},
};
use crate::failure::Result;
use hashfold::{
    io::Access,
    store::{UpdateMode, Version},
};
use std::path::Path;

/// Number of deltas over the base during lookups.
const DELTAS: u64 = 4;

/// Number of rounds of lookups.
const TURNS: u64 = 5;

pub(super) fn run(bench: &StoreBench, report: &Report, folder: &Path) -> Result<()> {
    for (name, size) in PAIR_SIZES {
        let pairs = Pairs::new(name, size, bench.data as u64, bench.seed);
        let scene = Scene::new(bench, report, folder, pairs);
        one_size(&scene)?;
    }
    Ok(())
}

/// Returns a name with a suffix for the pairs' size, as in `bench table`: small pairs have none.
fn named(scene: &Scene<'_>, what: &str) -> String {
    let size = if scene.pairs.name == "64b" { "" } else { ".1kib" };
    format!("store.delta{size}.{what}")
}

fn one_size(scene: &Scene<'_>) -> Result<()> {
    let base = scene.pairs.count;
    let store = scene.store("store");
    let input = scene.write_rows("input", (0..base).map(Row::first))?;
    let full = full_build(scene, &store, &input)?;
    scene.remove(&input)?;
    let night = |generation| Night { base, size: (base / 100).max(1), generation };
    let history = History::of(base);
    let batch = scene.write_rows("batch", night(1).rows())?;
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let made = scene.update(&store, &[&batch], UpdateMode::Delta)?;
        ensure(made.info.delta_depth() == 1, || {
            format!("{} deltas were made", made.info.delta_depth())
        })?;
        scene.check(&store, &made.info, &history.clone().and(night(1)))?;
        best = best.min(made.seconds);
        scene.take_back(&store)?;
    }
    scene.remove(&batch)?;
    scene.say(&named(scene, "full_build_seconds"), full, "s", base);
    scene.say(&named(scene, "1pct.seconds"), best, "s", base / 100);
    scene.say(&named(scene, "1pct.time_fraction"), best / full, "of a full build's time", base);
    lookups(scene, &store, 1, &history, "no_deltas.")?;
    let mut history = history;
    let mut number = 0;
    for generation in 1..=DELTAS {
        let batch = scene.write_rows("batch", night(generation).rows())?;
        let made = scene.update(&store, &[&batch], UpdateMode::Delta)?;
        scene.remove(&batch)?;
        history = history.and(night(generation));
        number = made.info.name.number;
        let deltas = made.info.delta_depth() as u64;
        ensure(deltas == generation, || format!("{deltas} deltas, not {generation}"))?;
        if generation == DELTAS {
            scene.check_all(&store, &made.info, &history)?;
        }
    }
    lookups(scene, &store, number, &history, "")?;
    remove_all(&store)
}

/// Returns the shortest time of a build from scratch; the last store stays.
fn full_build(scene: &Scene<'_>, store: &Path, input: &RowFile) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        remove_all(store)?;
        let made = scene.build(store, &[input])?;
        scene.check(store, &made.info, &History::of(scene.pairs.count))?;
        best = best.min(made.seconds);
    }
    Ok(best)
}

/// Looks up random present pairs with `O_DIRECT`.
fn lookups(
    scene: &Scene<'_>,
    store: &Path,
    number: u64,
    history: &History,
    case: &str,
) -> Result<()> {
    let version = scene.open_version(store, number, Access::Direct)?;
    let count = (20 * BATCH as u64).min(scene.pairs.count);
    let (mut seconds, mut reads, mut read_bytes) = (0.0, 0, 0);
    for turn in 0..TURNS {
        let rows = present(history, count, scene.bench.seed + turn);
        let keys: Vec<[u8; KEY_SIZE]> =
            rows.iter().map(|row| scene.pairs.key(row.number)).collect();
        scene.moved();
        let (time, wrong) = wall_seconds(|| get_all(&version, &keys, &rows));
        let moved = scene.moved();
        (reads, read_bytes) = (reads + moved.reads, read_bytes + moved.read_bytes);
        let wrong = wrong?;
        ensure(wrong == 0, || format!("{wrong} lookups gave a wrong value"))?;
        seconds += time;
    }
    let gets = TURNS * count;
    let say = |what: &str, value, unit| {
        scene.say(&named(scene, &format!("{case}{what}")), value, unit, gets);
    };
    say("reads_per_get", reads as f64 / gets as f64, "reads");
    say("blocks_per_get", read_bytes as f64 / 4096.0 / gets as f64, "blocks of 4 KiB");
    say("gets_per_s", gets as f64 / seconds, "1/s");
    Ok(())
}

/// Returns `count` random present pairs.
pub(super) fn present(history: &History, count: u64, seed: u64) -> Vec<Row> {
    let numbers = history.numbers();
    let rows = (0..).filter_map(|i| history.row(pick(i, seed, numbers)));
    rows.take(count as usize).collect()
}

pub(super) fn get_all(version: &Version, keys: &[[u8; KEY_SIZE]], rows: &[Row]) -> Result<u64> {
    let mut wrong = 0;
    for (keys, rows) in keys.chunks(BATCH).zip(rows.chunks(BATCH)) {
        let mut answers = 0;
        version.get_many(keys, &mut |i, value| {
            answers += 1;
            wrong += u64::from(value.and_then(Row::of) != Some(rows[i]));
            Ok(())
        })?;
        ensure(answers == keys.len(), || format!("{answers} answers to {} gets", keys.len()))?;
    }
    Ok(wrong)
}
