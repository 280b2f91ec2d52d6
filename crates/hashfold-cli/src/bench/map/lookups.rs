//! Lookups one at a time and in batches, and mixed with updates, by one thread.

use super::{ENTRY_SIZE, Entries, Scene};
use crate::{
    bench::{
        device::{BLOCK_SIZE, device_file, random_reads},
        ensure,
        measure::{process_seconds, wall_seconds},
        random::pick,
        times::Times,
    },
    failure::{Failure, Result},
};
use hashfold::{
    io::{BlockFile, Disk, OsDisk},
    map::Map,
};
use std::time::Instant;

/// Number of keys in a batch.
pub(super) const BATCH: u64 = 64;
/// Percentages of lookups among mixed operations.
const MIXES: [u64; 2] = [50, 90];

pub(super) fn run(scene: &mut Scene<'_>, map: &Map) -> Result<()> {
    let path = scene.folder.with_extension("device");
    let file = device_file(&path, scene.entries.count() * ENTRY_SIZE, scene.bench.seed)?;
    gets(scene, map, &*file)?;
    absent_gets(scene, map)?;
    batches(scene, map, &*file)?;
    drop(file);
    OsDisk.remove(&path)?;
    MIXES.iter().try_for_each(|percent| mix(scene, map, *percent))
}

/// Looks up present keys one at a time, compared with plain reads.
fn gets(scene: &Scene<'_>, map: &Map, file: &dyn BlockFile) -> Result<()> {
    let count = scene.bench.lookups;
    let mut times = Times::new();
    scene.disk.take();
    let (seconds, done) = wall_seconds(|| {
        (0..count).try_for_each(|i| {
            let number = scene.entries.pick(i, 3);
            let before = Instant::now();
            let value = map.get(scene.entries.key(number))?;
            times.add(before.elapsed());
            scene.entries.check(number, value.as_deref())
        })
    });
    done?;
    let reads = scene.disk.take().reads;
    let mut block = vec![0; BLOCK_SIZE as usize];
    let blocks = file.size()? / BLOCK_SIZE;
    let (plain_seconds, done) = wall_seconds(|| {
        (0..count).try_for_each(|i| {
            file.read_at(pick(i, scene.bench.seed, blocks) * BLOCK_SIZE, &mut block)
        })
    });
    done?;
    let say = |name: &str, value, unit| scene.say_of(&format!("get.{name}"), value, unit, count);
    say("per_s", count as f64 / seconds, "lookups/s");
    say("p50_us", times.quantile_us(0.5), "us");
    say("p99_us", times.quantile_us(0.99), "us");
    say("reads", reads as f64 / count as f64, "reads");
    say("plain_fraction", plain_seconds / seconds, "of plain reads, one at a time");
    Ok(())
}

/// Looks up absent keys one at a time.
fn absent_gets(scene: &Scene<'_>, map: &Map) -> Result<()> {
    let count = scene.bench.lookups;
    scene.disk.take();
    let (seconds, done) = wall_seconds(|| {
        (0..count).try_for_each(|i| {
            let value = map.get(scene.entries.absent_key(i))?;
            ensure(value.is_none(), || format!("an absent key has the value {value:?}"))
        })
    });
    done?;
    let reads = scene.disk.take().reads as f64 / count as f64;
    scene.say_of("get.absent.per_s", count as f64 / seconds, "lookups/s", count);
    scene.say_of("get.absent.reads", reads, "reads", count);
    Ok(())
}

/// Looks up batches of present keys, compared with plain reads in flight together.
fn batches(scene: &Scene<'_>, map: &Map, file: &dyn BlockFile) -> Result<()> {
    let batches = scene.bench.lookups.div_ceil(BATCH);
    let count = batches * BATCH;
    scene.disk.take();
    let cpu = process_seconds();
    let (seconds, done) = wall_seconds(|| look_up(scene, map, batches));
    done?;
    let (cpu, reads) = (process_seconds() - cpu, scene.disk.take().reads);
    let plain_s = batched_reads(file, batches, scene.bench.seed)?;
    let per_s = count as f64 / seconds;
    let say =
        |name: &str, value, unit| scene.say_of(&format!("get_many.{name}"), value, unit, count);
    say("per_s", per_s, "lookups/s");
    say("cpu_us", cpu / count as f64 * 1e6, "us");
    say("reads", reads as f64 / count as f64, "reads");
    say("plain_fraction", per_s / plain_s, "of plain reads in batches of 64");
    Ok(())
}

/// Looks up batches of present keys, and checks the answers.
pub(super) fn look_up(scene: &Scene<'_>, map: &Map, batches: u64) -> Result<()> {
    (0..batches).try_for_each(|batch| {
        let numbers: Vec<u64> =
            (0..BATCH).map(|i| scene.entries.pick(batch * BATCH + i, 4)).collect();
        let keys: Vec<_> = numbers.iter().map(|&number| scene.entries.key(number)).collect();
        let values = map.get_many(&keys)?;
        let mut answers = numbers.iter().zip(&values);
        answers.try_for_each(|(&number, value)| scene.entries.check(number, value.as_deref()))
    })
}

/// Returns the plain reads per second, in batches of [`BATCH`].
fn batched_reads(file: &dyn BlockFile, batches: u64, seed: u64) -> Result<f64> {
    let (seconds, done) = wall_seconds(|| {
        (0..batches).try_for_each(|batch| random_reads(file, BATCH, seed ^ batch, 0.0).map(drop))
    });
    done?;
    Ok((batches * BATCH) as f64 / seconds)
}

/// Mixes lookups and updates at random.
fn mix(scene: &mut Scene<'_>, map: &Map, percent: u64) -> Result<()> {
    let count = scene.bench.lookups;
    let seed = scene.bench.seed;
    scene.disk.take();
    let (seconds, done) = wall_seconds(|| {
        (0..count).try_for_each(|i| -> Result<()> {
            let number = scene.entries.pick(i, percent);
            let key = scene.entries.key(number);
            if pick(i, !seed ^ percent, 100) < percent {
                return scene.entries.check(number, map.get(key)?.as_deref());
            }
            map.put(key, scene.entries.change(number))?;
            Ok(())
        })
    });
    done?;
    let reads = scene.disk.take().reads as f64 / count as f64;
    scene.say_of(&format!("mixed.{percent}.per_s"), count as f64 / seconds, "operations/s", count);
    scene.say_of(&format!("mixed.{percent}.reads_per_operation"), reads, "reads", count);
    Ok(())
}

/// Looks up a key that no other thread changes, and checks its value.
pub(super) fn get_timed(
    entries: &Entries,
    map: &Map,
    number: u64,
    times: &mut Times,
) -> Result<(), Failure> {
    let before = Instant::now();
    let value = map.get(entries.key(number))?;
    times.add(before.elapsed());
    entries.check(number, value.as_deref())
}
