//! A process that is killed repeatedly while it changes a filter on a real disk. Run it with `cargo
//! test --release -p hashfold --test it filter_kill -- --ignored --nocapture`.

use crate::{
    fixture::{on, random},
    kill::{self, numbers, work_and_kill},
};
use hashfold::{
    Env, KeyHash, Seed,
    filter::cascade::{self, CascadeFilter, CascadeOptions, CascadeSettings, Snapshot},
    io::{Access, Disk, OsDisk},
    work::{Executor, Threads, Watch},
};
use std::{path::Path, sync::Arc, time::Duration};

/// Number of the newest keys that stay; keys are inserted in ascending order, and older ones are
/// removed.
const WINDOW: u64 = 300_000;
/// Number of keys in a batch.
const BATCH: u64 = 1000;

fn hashes(from: u64, to: u64) -> Vec<KeyHash> {
    (from..to).map(|key| KeyHash::of(&key.to_le_bytes(), Seed(1))).collect()
}

fn open_or_create(folder: &Path, wal: bool) -> CascadeFilter {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let pool = || -> Arc<dyn Executor> { Arc::new(Threads::new(2)) };
    let settings = CascadeSettings {
        memory_bytes: cascade::MEMORY_MIN,
        wal,
        env: Env { executor: pool(), ..Env::simulated(1) },
        ..CascadeSettings::new(Env::simulated(1))
    };
    if disk.exists(&folder.join("MANIFEST")).unwrap() {
        CascadeFilter::open(folder, on(disk, settings)).unwrap()
    } else {
        let options = CascadeOptions::exact(Seed(1), 7);
        CascadeFilter::create(folder, &options, on(disk, settings)).unwrap()
    }
}

/// Applies the next batch. Batches alternate between insertions and removals of the keys that were
/// inserted [`WINDOW`] before, so the number of changes tells which keys are in the filter.
fn next_batch(filter: &mut CascadeFilter) {
    // The last batch before the kill may have been applied in part.
    let seq = filter.seq();
    let (batch, part) = (seq / BATCH, seq % BATCH);
    let first = batch / 2 * BATCH;
    if batch.is_multiple_of(2) {
        filter.insert_batch(&hashes(first + part, first + BATCH)).unwrap();
    } else if first >= WINDOW {
        let first = first - WINDOW;
        filter.remove_batch(&hashes(first + part, first + BATCH)).unwrap();
    } else {
        // Keys that were never inserted.
        filter.remove_batch(&hashes(u64::MAX - BATCH + part, u64::MAX)).unwrap();
    }
}

/// Returns the keys that are in the filter after `seq` changes.
fn window(seq: u64) -> (u64, u64) {
    let (batch, part) = (seq / BATCH, seq % BATCH);
    let first = batch / 2 * BATCH;
    if batch.is_multiple_of(2) {
        (first.saturating_sub(WINDOW), first + part)
    } else {
        let start = if first >= WINDOW { first - WINDOW + part } else { 0 };
        (start, first + BATCH)
    }
}

#[test]
#[ignore = "is started by the other test, and killed"]
fn work_until_killed() {
    let Some((folder, seed)) = kill::task() else { return };
    let mut random = random(seed);
    let mut filter = open_or_create(&folder, seed % 2 == 1);
    loop {
        for _ in 0..1 + random() % 60 {
            next_batch(&mut filter);
        }
        match random() % 40 {
            0 => filter.merge().unwrap(),
            1..10 => filter.flush().unwrap(),
            10..30 => filter.sync().unwrap(),
            _ => {}
        }
        println!("at {}", filter.durable_seq());
    }
}

/// Checks the keys around the window. Returns the sequence number.
fn check_holds(folder: &Path) -> u64 {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let read = Snapshot::open(&Env::on(disk.clone()), folder, Access::Cached).unwrap();
    let filter = open_or_create(folder, false);
    let (start, end) = window(filter.seq());
    let asked = hashes(start.saturating_sub(50_000), end + 50_000);
    let first = start - start.saturating_sub(50_000);
    let expected = |i: usize| (first..first + end - start).contains(&(i as u64));
    let (mut found, mut others) = (vec![false; asked.len()], vec![false; asked.len()]);
    filter.contains_batch(&asked, &mut found).unwrap();
    read.contains_batch(&asked, &mut others).unwrap();
    assert!(found == others, "a reader sees something else");
    let wrong = found.iter().enumerate().filter(|(i, found)| **found != expected(*i)).count();
    assert_eq!(wrong, 0, "after {} changes", filter.seq());
    let seq = filter.seq();
    // Closing waits for merges, which remove runs.
    filter.close().unwrap();
    let stats = Snapshot::open(&Env::on(disk.clone()), folder, Access::Cached).unwrap().stats();
    let names = disk.list(folder).unwrap();
    assert_eq!(names.len() as u64, 1 + stats.upper_runs + stats.shards, "{names:?}");
    let report = cascade::verify(&Env::on(disk.clone()), folder, &Watch::default()).unwrap();
    assert!(report.is_sound(), "{}", report.damage[0]);
    seq
}

#[test]
#[ignore = "kills processes; see CONTRIBUTING.md"]
fn a_process_that_is_killed_loses_nothing_that_was_acknowledged() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("filter");
    let mut random = random(kill::seed());
    let mut durable = 0;
    let mut round = 0;
    while kill::goes_on(round, durable > 0) {
        round += 1;
        let time = Duration::from_millis(50 + random() % 1500);
        let said = work_and_kill("filter_kill::work_until_killed", &folder, round, time);
        durable = numbers(&said, "at ").last().copied().unwrap_or(0).max(durable);
        if !OsDisk.exists(&folder.join("MANIFEST")).unwrap() {
            assert_eq!(durable, 0);
            continue;
        }
        let seq = check_holds(&folder);
        assert!(seq >= durable, "{seq} changes are left of {durable}");
        println!("killed after {time:?}: {durable} acknowledged, {seq} there");
        durable = seq;
    }
    assert!(durable > 0, "it was always killed before it did anything");
}
