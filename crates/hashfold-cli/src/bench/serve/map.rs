//! Lookups of a map that is larger than its memory.

use super::{PAIR_SIZE, Scene, get::beside_device, process::Process};
use crate::{
    bench::{
        device::device_file,
        pairs::{KEY_SIZE, Pairs, Row},
    },
    failure::Result,
};
use hashfold::{
    io::{Disk, OsDisk},
    map::{MAP_MEMORY_MIN, Map, MapOptions},
};
use std::path::Path;

/// Size of the map's entries as a multiple of its memory.
const DATA_PER_MEMORY: u64 = 10;
/// Number of entries that are put at once.
const PART: u64 = 4096;

pub(super) fn run(scene: &Scene<'_>) -> Result<()> {
    let pairs = scene.pairs(scene.bench.flash_keys);
    let memory = (pairs.count * PAIR_SIZE / DATA_PER_MEMORY).max(MAP_MEMORY_MIN as u64);
    let folder = scene.folder.join("large-map");
    if !OsDisk.exists(&folder)? {
        fill(&folder, MapOptions::new().env(scene.env()).memory(memory as usize), &pairs)?;
    }
    // The page cache would hold all of it.
    let config = format!(
        "threads = 1\n[data.large]\npath = {folder:?}\naccess = \"direct\"\nmemory = \"{memory}\"\n"
    );
    let server = Process::start(scene.folder, "large-map", &config)?;
    let before = server.memory()?;
    let path = scene.folder.join("map-device");
    let file = device_file(&path, pairs.count * PAIR_SIZE, pairs.seed)?;
    beside_device(scene, "map.flash", &server, &pairs, file.as_ref())?;
    OsDisk.remove(&path)?;
    scene.say(
        "map.flash.rss_mib",
        server.memory()?.max(before) / (1 << 20) as f64,
        "MiB",
        pairs.count,
    );
    scene.say("map.flash.memory_mib", memory as f64 / (1 << 20) as f64, "MiB", pairs.count);
    Ok(())
}

/// Creates a map of all pairs.
fn fill(folder: &Path, options: MapOptions, pairs: &Pairs) -> Result<()> {
    let map = Map::create(folder, options)?;
    let noise = pairs.noise();
    for first in (0..pairs.count).step_by(PART as usize) {
        let part = (first..pairs.count.min(first + PART)).map(|number| {
            let mut pair = vec![0; pairs.size()];
            pairs.fill(Row::first(number), &noise, &mut pair);
            let value = pair.split_off(KEY_SIZE);
            (pair, value)
        });
        map.put_many(part)?;
    }
    map.close()?;
    Ok(())
}
