//! Five batches of new items, one after the other, as in Figure 9 of the paper on entropy-coded
//! tries: 4 M items, then five batches of 4 M items, with keys of 111 bytes and values of 1000, and
//! much less memory than data.

use super::{
    super::{
        StoreBench,
        measure::Report,
        pairs::{Pairs, Row, RowFile, remove_all},
    },
    night::History,
    scene::Scene,
};
use crate::failure::Result;
use hashfold::store::UpdateMode;
use std::path::Path;

/// Size of key and value of an item, in bytes: as in the paper, with a shorter key and longer value.
const ITEM_SIZE: u64 = 1111;

/// The paper's 24 M items have 26 times the bytes of its 1 GiB of sorting memory.
const DATA_PER_MEMORY: u64 = 26;

const BATCHES: u64 = 6;

/// Minimum memory for sorting, in bytes.
const MEMORY_MIN: usize = 1 << 20;

pub(super) fn run(bench: &StoreBench, report: &Report, folder: &Path) -> Result<()> {
    let count = bench.items / BATCHES;
    let pairs = Pairs::new("growth", ITEM_SIZE, count * BATCHES * ITEM_SIZE, bench.seed);
    let mut scene = Scene::new(bench, report, folder, pairs);
    scene.memory = ((pairs.bytes() / DATA_PER_MEMORY) as usize).clamp(MEMORY_MIN, 1 << 30);
    let batches: Result<Vec<RowFile>> = (0..BATCHES)
        .map(|i| {
            let rows = (i * count..(i + 1) * count).map(Row::first);
            scene.write_rows(&format!("batch-{i}"), rows)
        })
        .collect();
    let batches = batches?;
    let inputs: Vec<&RowFile> = batches.iter().collect();
    let (store, rebuilt) = (scene.store("store"), scene.store("rebuilt"));
    scene.build(&store, &inputs[..1])?;
    let (mut updates, mut rebuilds) = (0.0, 0.0);
    for i in 1..inputs.len() {
        // Updates and rebuilds alternate, so that other programs disturb both alike.
        let made = scene.update(&store, &inputs[i..=i], UpdateMode::Merge)?;
        updates += made.seconds;
        let history = History::of((i as u64 + 1) * count);
        scene.check(&store, &made.info, &history)?;
        if i + 1 == inputs.len() {
            scene.check_all(&store, &made.info, &history)?;
        }
        Scene::collect(&mut scene.open(&store)?)?;
        let made = scene.build(&rebuilt, &inputs[..=i])?;
        rebuilds += made.seconds;
        scene.check(&rebuilt, &made.info, &history)?;
        remove_all(&rebuilt)?;
    }
    inputs.iter().try_for_each(|input| scene.remove(input))?;
    remove_all(&store)?;
    let say = |what: &str, value, unit| {
        scene.say(&format!("store.update.{what}"), value, unit, count * BATCHES);
    };
    say("five_batches.updates_seconds", updates, "s");
    say("five_batches.rebuilds_seconds", rebuilds, "s");
    say("gain_over_rebuild_5_batches", 1.0 - updates / rebuilds, "of the rebuilds' time");
    Ok(())
}
