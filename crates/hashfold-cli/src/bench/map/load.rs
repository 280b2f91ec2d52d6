//! Writing without a sync per operation: load, import, updates, deletions; recovery after a crash.

use super::{ENTRY_SIZE, Scene};
use crate::{
    bench::{
        ensure,
        measure::{process_seconds, wall_seconds},
        pairs::remove_all,
        random::pick,
        times::Times,
    },
    failure::Result,
};
use hashfold::{
    map::{Durability, Map, MapStats},
    work::Watch,
};
use std::time::Instant;

/// Maximum number of changes in the log that is replayed: fewer than make a checkpoint due.
const REPLAYED_MAX: u64 = 1_000_000;

/// Puts all keys in random order. Returns the number of puts per second.
pub(super) fn load(scene: &mut Scene<'_>, map: Map) -> Result<f64> {
    // Numbers are in order, and their keys in random order.
    let (puts_per_s, stats) = puts(scene, map, "load", scene.entries.count(), &|_, i| i)?;
    let addresses = stats.address_bytes as f64 / scene.entries.count() as f64;
    scene.say("load.address_bytes_per_entry", addresses, "bytes");
    Ok(puts_per_s)
}

/// Replaces values of keys at random.
pub(super) fn update(scene: &mut Scene<'_>, map: Map) -> Result<()> {
    puts(scene, map, "update", scene.bench.updates, &|scene, i| scene.entries.pick(i, 1)).map(drop)
}

/// Puts values and closes the map. Clocks stop when the work in the background has ended and all is durable.
/// Returns the number of puts per second, and the figures of the map before it was closed.
fn puts(
    scene: &mut Scene<'_>,
    map: Map,
    phase: &str,
    count: u64,
    number: &dyn Fn(&Scene<'_>, u64) -> u64,
) -> Result<(f64, MapStats)> {
    let mut times = Times::new();
    scene.disk.take();
    let (start, cpu) = (Instant::now(), process_seconds());
    for i in 0..count {
        let number = number(scene, i);
        let (key, value) = (scene.entries.key(number), scene.entries.change(number));
        let before = Instant::now();
        map.put(key, value)?;
        times.add(before.elapsed());
    }
    if let Some(error) = map.background_error() {
        return Err(error.into());
    }
    let stats = map.stat();
    map.close()?;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), process_seconds() - cpu);
    let moved = scene.disk.take();
    let (puts, bytes) = (count as f64, (count * ENTRY_SIZE) as f64);
    let say = |name: &str, value, unit| {
        scene.say_of(&format!("{phase}.{name}"), value, unit, count);
    };
    say("per_s", puts / seconds, "puts/s");
    say("cpu_us", cpu / puts * 1e6, "us");
    say("p50_us", times.quantile_us(0.5), "us");
    say("p99_us", times.quantile_us(0.99), "us");
    say("p999_us", times.quantile_us(0.999), "us");
    say("max_ms", times.max_ms(), "ms");
    say("reads_per_put", moved.reads as f64 / puts, "reads");
    say("writes_per_put", moved.writes as f64 / puts, "writes");
    say("write_amplification", moved.written_bytes as f64 / bytes, "");
    scene.say_space(phase)?;
    Ok((puts / seconds, stats))
}

/// Drops the map with changes that only its log has, and opens it again.
pub(super) fn recover(scene: &mut Scene<'_>) -> Result<()> {
    let count = REPLAYED_MAX.min(scene.entries.count());
    let map = scene.open(Durability::Buffered)?;
    for i in 0..count {
        let number = scene.entries.pick(i, 2);
        map.put(scene.entries.key(number), scene.entries.change(number))?;
    }
    map.sync()?;
    let checkpoints = map.stat().checkpoints;
    drop(map);
    let (seconds, map) = wall_seconds(|| scene.open(Durability::Buffered));
    let map = map?;
    scene.entries.check_all(&map)?;
    ensure(checkpoints == 0, || format!("{checkpoints} checkpoints have shortened the log"))?;
    scene.say_of("recovery.changes_s", count as f64 / seconds, "changes/s", count);
    scene.say_of("recovery.ms", seconds * 1e3, "ms", count);
    Ok(map.close()?)
}

/// Deletes half of the keys, at random, and gives their space back.
pub(super) fn delete(scene: &mut Scene<'_>) -> Result<()> {
    let map = scene.open(Durability::Buffered)?;
    let seed = !scene.bench.seed;
    // No list of them, which would count as memory of the map.
    let numbers = (0..scene.entries.count()).filter(|i| pick(*i, seed, 2) == 0);
    let mut count = 0;
    let (seconds, done) = wall_seconds(|| {
        for number in numbers {
            map.delete(scene.entries.key(number))?;
            scene.entries.delete(number);
            count += 1;
        }
        map.sync()
    });
    done?;
    scene.say_of("delete.per_s", count as f64 / seconds, "deletions/s", count);
    let (seconds, done) = wall_seconds(|| map.compact());
    done?;
    scene.say("compact.seconds", seconds, "s");
    scene.say_space("compact")?;
    scene.entries.check_all(&map)?;
    Ok(map.close()?)
}

/// Imports the scan of a map into an empty one.
pub(super) fn import(scene: &Scene<'_>, puts_per_s: f64) -> Result<()> {
    let map = scene.open(Durability::Buffered)?;
    let folder = scene.folder.with_extension("import");
    let other = Map::create(&folder, scene.options(Durability::Buffered))?;
    let mut run = map.snapshot().scan();
    scene.disk.take();
    let (seconds, done) = wall_seconds(|| other.import(&mut run, &Watch::default()));
    done?;
    let moved = scene.disk.take();
    scene.entries.check_all(&other)?;
    other.close()?;
    remove_all(&folder)?;
    map.close()?;
    let count = scene.entries.present() as f64;
    let bytes = count * ENTRY_SIZE as f64;
    scene.say("import.per_s", count / seconds, "entries/s");
    scene.say("import.put_ratio", count / seconds / puts_per_s, "times the puts");
    scene.say("import.write_amplification", moved.written_bytes as f64 / bytes, "");
    Ok(())
}
