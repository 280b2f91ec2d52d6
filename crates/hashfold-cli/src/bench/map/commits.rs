//! Durable commits of several threads, and lookups beside them.

use super::{ENTRY_SIZE, Entries, Scene, lookups::get_timed};
use crate::{
    bench::{
        device::{BLOCK_SIZE, device_file},
        measure::wall_seconds,
        random::pick,
        times::Times,
    },
    failure::Result,
};
use hashfold::{
    KeyHash, Seed,
    io::{Disk as _, OsDisk},
    map::{Durability, Map},
};
use std::{
    hint::black_box,
    num::NonZero,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

/// Numbers of concurrently committing threads, and the factor by which they commit more in total
/// than one thread.
const THREADS: [(u64, u64); 3] = [(1, 1), (8, 4), (64, 16)];
/// Number of committing threads beside a reader.
const BESIDE: u64 = 8;
/// Number of hashes that each core computes beside a reader, for each update of the benchmark.
const HASHES: u64 = 4;

pub(super) fn run(scene: &mut Scene<'_>) -> Result<()> {
    let map = scene.open(Durability::Immediate)?;
    for (threads, times) in THREADS {
        let each = (scene.bench.commits * times).div_ceil(threads);
        commits(scene, &map, threads, each)?;
    }
    beside(scene, &map)?;
    Ok(map.close()?)
}

/// Measures threads that put new keys, one key a commit.
fn commits(scene: &mut Scene<'_>, map: &Map, threads: u64, each: u64) -> Result<()> {
    scene.disk.take();
    let (seconds, times) = commit_all(&scene.entries, map, threads, each)?;
    let moved = scene.disk.take();
    let count = threads * each;
    scene.entries.extend(count);
    let say = |name: &str, value, unit| {
        scene.say_of(&format!("commit.{threads}.{name}"), value, unit, count);
    };
    say("per_s", count as f64 / seconds, "commits/s");
    say("p50_us", times.quantile_us(0.5), "us");
    say("p99_us", times.quantile_us(0.99), "us");
    say("bytes_per_commit", moved.written_bytes as f64 / count as f64, "bytes");
    say("commits_per_write", count as f64 / moved.writes as f64, "commits");
    Ok(())
}

/// Puts the next new keys in several threads. Returns the seconds since all threads have started,
/// and the times of all commits.
fn commit_all(entries: &Entries, map: &Map, threads: u64, each: u64) -> Result<(f64, Times)> {
    let start = Barrier::new(threads as usize + 1);
    let first = entries.count();
    let commit = |thread| {
        let mut times = Times::new();
        start.wait();
        for number in (0..each).map(|i| first + thread * each + i) {
            let before = Instant::now();
            map.put(entries.key(number), Entries::first_value(number))?;
            times.add(before.elapsed());
        }
        Ok::<Times, hashfold::Error>(times)
    };
    thread::scope(|scope| {
        let commit = &commit;
        let commits: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || commit(thread))).collect();
        let (seconds, all) = wall_seconds(|| {
            start.wait();
            let mut all = Times::new();
            for thread in commits {
                all.merge(&thread.join().expect("no commit panics")?);
            }
            Ok(all)
        });
        all.map(|all| (seconds, all))
    })
}

/// Measures lookups by one thread: alone, beside threads that only compute, beside durable commits, and beside
/// updates that make flushes and merges due; and plain reads of the device beside these updates.
fn beside(scene: &mut Scene<'_>, map: &Map) -> Result<()> {
    let reads = (scene.bench.lookups / 10).max(1);
    let mut idle = Times::new();
    for i in 0..reads {
        get_timed(&scene.entries, map, even(&scene.entries, i), &mut idle)?;
    }
    let computing = beside_lookups(scene, map, |scene| {
        compute(scene.bench.updates * HASHES);
        Ok(())
    })?;
    let each = (scene.bench.commits * 4).div_ceil(BESIDE);
    let commits = beside_lookups(scene, map, |scene| {
        commit_all(&scene.entries, map, BESIDE, each).map(drop)
    })?;
    scene.entries.extend(each * BESIDE);
    let updates = beside_lookups(scene, map, |scene| update(scene, map))?;
    let plain = beside_plain_reads(scene, map)?;
    (0..updates_beside(scene)).for_each(|i| scene.entries.reset(odd(&scene.entries, i)));
    let say = |name: &str, times: &Times| {
        let (p99, count) = (times.quantile_us(0.99), times.total());
        scene.say_of(&format!("beside.{name}_p99_us"), p99, "us", count);
        scene.say_of(&format!("beside.{name}_max_ms"), times.max_ms(), "ms", count);
    };
    say("nothing.get", &idle);
    say("computing.get", &computing);
    say("commits.get", &commits);
    say("updates.get", &updates);
    say("updates.plain", &plain);
    Ok(())
}

/// Computes this number of hashes on each core: what a lookup waits for its core is all that it waits for.
fn compute(hashes: u64) {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                (0..hashes).for_each(|i| _ = black_box(KeyHash::of(&i.to_le_bytes(), Seed(i))));
            });
        }
    });
}

fn updates_beside(scene: &Scene<'_>) -> u64 {
    scene.bench.updates / 10
}

/// Changes batches of keys with odd numbers.
fn update(scene: &Scene<'_>, map: &Map) -> Result<()> {
    const BATCH: u64 = 1024;
    let (entries, updates) = (&scene.entries, updates_beside(scene));
    (0..updates).step_by(BATCH as usize).try_for_each(|from| {
        let numbers = (from..(from + BATCH).min(updates)).map(|i| odd(entries, i));
        map.put_many(numbers.map(|number| (entries.key(number), Entries::first_value(number))))?;
        Ok(())
    })
}

/// Looks up keys with even numbers until `work` ends. Returns the times of the lookups.
fn beside_lookups(
    scene: &Scene<'_>,
    map: &Map,
    work: impl FnOnce(&Scene<'_>) -> Result<()>,
) -> Result<Times> {
    let entries = &scene.entries;
    let look_up = |i, times: &mut _| get_timed(entries, map, even(entries, i), times);
    with_reader(look_up, || work(scene))
}

/// Reads blocks of a file that is not the map's while the map is updated. Returns the times of the reads.
fn beside_plain_reads(scene: &Scene<'_>, map: &Map) -> Result<Times> {
    let path = scene.folder.with_extension("device");
    let seed = scene.bench.seed;
    let file = device_file(&path, scene.entries.count() * ENTRY_SIZE, seed)?;
    let blocks = file.size()? / BLOCK_SIZE;
    let read = |i, times: &mut Times| {
        let mut block = [0; BLOCK_SIZE as usize];
        let before = Instant::now();
        file.read_at(pick(i, seed, blocks) * BLOCK_SIZE, &mut block)?;
        times.add(before.elapsed());
        Ok(())
    };
    let times = with_reader(read, || update(scene, map));
    OsDisk.remove(&path)?;
    times
}

/// Calls `read` for one number after the other, in a thread, until `work` ends. Returns the times that it adds.
fn with_reader(
    read: impl Fn(u64, &mut Times) -> Result<()> + Sync,
    work: impl FnOnce() -> Result<()>,
) -> Result<Times> {
    let is_over = AtomicBool::new(false);
    let read_all = || {
        let mut times = Times::new();
        let mut i = 0;
        while i == 0 || !is_over.load(Relaxed) {
            read(i, &mut times)?;
            i += 1;
        }
        Ok(times)
    };
    thread::scope(|scope| {
        let reader = scope.spawn(read_all);
        let done = work();
        is_over.store(true, Relaxed);
        let times = reader.join().expect("no reader panics");
        done.and(times)
    })
}

/// Returns an odd number of a key for `i`.
fn odd(entries: &Entries, i: u64) -> u64 {
    (entries.pick(i, 5) | 1).min(entries.count() / 2 * 2 - 1)
}

/// Returns an even number of a key for `i`.
fn even(entries: &Entries, i: u64) -> u64 {
    pick(i, !1, entries.count().div_ceil(2)) * 2
}
