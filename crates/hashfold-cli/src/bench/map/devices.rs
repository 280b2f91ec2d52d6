//! Lookups in batches in a map on one device, and in the same map on two.

use super::{
    Scene,
    lookups::{BATCH, look_up},
};
use crate::{
    bench::{measure::wall_seconds, pairs::remove_all},
    failure::Result,
};
use hashfold::{
    map::{Durability, Map},
    work::Watch,
};
use std::path::Path;

/// Compares a map in the folder of the benchmark with one that is on `device`, too. Both have all
/// entries of the scene's map. If the two folders are on one disk, this shows the cost of stripes only.
pub(super) fn run(scene: &Scene<'_>, device: &Path) -> Result<()> {
    let map = scene.open(Durability::Buffered)?;
    let part = device.join("hashfold-bench-map");
    let mut rates = Vec::new();
    let batches = scene.bench.lookups.div_ceil(BATCH);
    for (name, folders) in [("one", Vec::new()), ("two", vec![part.clone()])] {
        let folder = scene.folder.with_extension(name);
        let options = scene.options(Durability::Buffered).devices(folders);
        let other = Map::create(&folder, options)?;
        other.import(&mut map.snapshot().scan(), &Watch::default())?;
        let (seconds, done) = wall_seconds(|| look_up(scene, &other, batches));
        done?;
        let per_s = (batches * BATCH) as f64 / seconds;
        let figure = format!("devices.{name}.get_many.per_s");
        scene.say_of(&figure, per_s, "lookups/s", batches * BATCH);
        rates.push(per_s);
        let reads: Vec<u64> = other.devices()?.iter().map(|device| device.reads).collect();
        if let [first, second] = reads[..] {
            let share = first.min(second) as f64 / (first + second) as f64;
            scene.say("devices.two.least_share", share, "of the reads");
        }
        scene.entries.check_all(&other)?;
        other.close()?;
        remove_all(&folder)?;
    }
    remove_all(&part)?;
    scene.say("devices.ratio", rates[1] / rates[0], "times the lookups on one");
    Ok(map.close()?)
}
