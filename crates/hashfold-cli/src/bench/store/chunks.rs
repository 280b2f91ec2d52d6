//! Measures what many chunks cost: the same store with 1, 16 and 1024 chunks.

use super::{
    super::{
        StoreBench,
        device::BATCH,
        ensure,
        measure::{Report, median_of, wall_seconds},
        pairs::{KEY_SIZE, PAIR_SIZES, Pairs, Row, RowFile, remove_all},
    },
    delta::{get_all, present},
    night::{History, Night},
    scene::{Made, ROUNDS, Scene},
};
use crate::failure::Result;
use hashfold::{
    io::Access,
    store::{UpdateMode, Version},
};
use std::path::Path;

/// The numbers of chunks that are compared.
const CHUNKS: [u32; 3] = [1, 16, 1024];

/// Number of rows of the delta.
const DELTA_ROWS: u64 = 30_000;

pub(super) fn run(bench: &StoreBench, report: &Report, folder: &Path) -> Result<()> {
    let (name, size) = PAIR_SIZES[0];
    let pairs = Pairs::new(name, size, bench.data as u64, bench.seed);
    let mut scene = Scene::new(bench, report, folder, pairs);
    let base = scene.pairs.count;
    let input = scene.write_rows("input", (0..base).map(Row::first))?;
    let night = Night { base, size: DELTA_ROWS.min(base), generation: 1 };
    let batch = scene.write_rows("batch", night.rows())?;
    for chunks in CHUNKS {
        scene.chunks = chunks;
        one_store(&scene, &input, &batch, night)?;
    }
    scene.remove(&input)?;
    scene.remove(&batch)
}

/// Builds a store and a delta over it, and measures both. The answers are checked first.
fn one_store(scene: &Scene<'_>, input: &RowFile, batch: &RowFile, night: Night) -> Result<()> {
    let store = scene.store("store");
    let made = scene.build(&store, &[input])?;
    let history = History::of(night.base);
    scene.check_all(&store, &made.info, &history)?;
    let say = |what: &str, value, unit| {
        let name = format!("store.chunks.{}.{what}", scene.chunks);
        scene.say(&name, value, unit, scene.pairs.count);
    };
    let (open_seconds, version) = open(scene, &store, &made)?;
    say("open_seconds", open_seconds, "s");
    say("build_seconds", made.seconds, "s");
    say("tables", made.info.layers().count() as f64, "tables");
    say("bytes_per_key", made.info.bytes() as f64 / night.base as f64, "B/key");
    say("index_bits", version.index_bytes() as f64 * 8.0 / night.base as f64, "bit/key");
    say("gets_per_s", gets_per_s(scene, &version, &history)?, "1/s");
    drop(version);
    let delta = scene.update(&store, &[batch], UpdateMode::Delta)?;
    scene.check_all(&store, &delta.info, &history.and(night))?;
    let bytes: u64 = delta.info.deltas.iter().map(|delta| delta.bytes).sum();
    say("delta_bytes", bytes as f64, "B");
    say("delta_seconds", delta.seconds, "s");
    remove_all(&store)
}

/// Opens a version, with its indexes in memory. Also returns the median time that this takes.
fn open(scene: &Scene<'_>, store: &Path, made: &Made) -> Result<(f64, Version)> {
    let open = || scene.open_version(store, made.info.name.number, Access::Direct);
    let (mut seconds, mut version) = (Vec::new(), None);
    for _ in 0..ROUNDS {
        let (time, opened) = wall_seconds(open);
        seconds.push(time);
        version = Some(opened?);
    }
    Ok((median_of(seconds), version.expect("there is a round")))
}

/// Looks up random present pairs, many at once, with `O_DIRECT`.
fn gets_per_s(scene: &Scene<'_>, version: &Version, history: &History) -> Result<f64> {
    let count = (100 * BATCH as u64).min(scene.pairs.count);
    let rows = present(history, count, scene.bench.seed);
    let keys: Vec<[u8; KEY_SIZE]> = rows.iter().map(|row| scene.pairs.key(row.number)).collect();
    let mut seconds = Vec::new();
    for _ in 0..ROUNDS {
        let (time, wrong) = wall_seconds(|| get_all(version, &keys, &rows));
        let wrong = wrong?;
        ensure(wrong == 0, || format!("{wrong} lookups gave a wrong value"))?;
        seconds.push(time);
    }
    Ok(count as f64 / median_of(seconds))
}
