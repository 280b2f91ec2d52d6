//! Measures batches of all sizes against rebuilding.

use super::{
    super::{
        StoreBench,
        measure::{Report, median_of},
        pairs::{KEY_SIZE, Pairs, Row, remove_all},
    },
    night::{History, Night},
    scene::{Made, ROUNDS, Scene},
};
use crate::failure::Result;
use hashfold::store::UpdateMode;
use std::path::Path;

/// Size of key and value, in bytes.
const PAIR_SIZE: u64 = 1024;

/// Names of batches, and their rows in thousandths of the present pairs.
const BATCHES: [(&str, u64); 4] = [("0p1", 1), ("1", 10), ("10", 100), ("100", 1000)];

const MODES: [(&str, UpdateMode); 2] = [("auto", UpdateMode::Auto), ("merge", UpdateMode::Merge)];

pub(super) fn run(bench: &StoreBench, report: &Report, folder: &Path) -> Result<()> {
    let pairs = Pairs::new("sweep", PAIR_SIZE, bench.data as u64, bench.seed);
    let scene = Scene::new(bench, report, folder, pairs);
    let store = scene.store("store");
    let input = scene.write_rows("input", (0..pairs.count).map(Row::first))?;
    scene.build(&store, &[&input])?;
    scene.remove(&input)?;
    for (name, thousandths) in BATCHES {
        let size = (pairs.count * thousandths / 1000).max(1);
        one_size(&scene, &store, name, Night { base: pairs.count, size, generation: 1 })?;
    }
    remove_all(&store)
}

fn one_size(scene: &Scene<'_>, store: &Path, name: &str, night: Night) -> Result<()> {
    let history = History::of(night.base).and(night);
    let batch = scene.write_rows("batch", night.rows())?;
    let all = scene.write_rows("all", history.rows())?;
    let rebuilt = scene.store("rebuilt");
    let (mut made, mut rebuilds) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 0..ROUNDS {
        for (made, (_, mode)) in made.iter_mut().zip(MODES) {
            let one = scene.update(store, &[&batch], mode)?;
            scene.check(store, &one.info, &history)?;
            if round == 0 {
                scene.check_all(store, &one.info, &history)?;
            }
            scene.take_back(store)?;
            made.push(one);
        }
        let one = scene.build(&rebuilt, &[&all])?;
        scene.check(&rebuilt, &one.info, &history)?;
        remove_all(&rebuilt)?;
        rebuilds.push(one.seconds);
    }
    scene.remove(&batch)?;
    scene.remove(&all)?;
    let rebuild = median_of(rebuilds);
    let name = format!("store.update.batch_{name}pct");
    scene.say(&format!("{name}.rebuild_seconds"), rebuild, "s", history.count());
    let changed = night.bytes(KEY_SIZE, scene.pairs.value_size) as f64;
    for (made, (mode, _)) in made.iter().zip(MODES) {
        let middle = |of: &dyn Fn(&Made) -> f64| median_of(made.iter().map(of).collect());
        let say = |what, value, unit| {
            scene.say(&format!("{name}.{what}.{mode}"), value, unit, night.size);
        };
        let seconds = middle(&|made| made.seconds);
        say("seconds", seconds, "s");
        say("over_rebuild", seconds / rebuild, "of a rebuild's time");
        let written = middle(&|made| made.moved.written_bytes as f64);
        say("written_per_changed_byte", written / changed, "bytes");
    }
    Ok(())
}
