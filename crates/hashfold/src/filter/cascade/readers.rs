//! Readers beside a writer that never rests. Each reader sees the filter at one moment, which is
//! not before its call.

use super::*;
use crate::{
    env::Env,
    io::{Access, Disk, MemoryDisk},
    key::{KeyHash, Seed},
    work::{Executor, Threads, Watch},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

const KEYS: u64 = 40_000;
/// Number of keys that are present at any time: the newest ones.
const WINDOW: u64 = 6000;
const BATCH: u64 = 40;

fn folder() -> &'static Path {
    Path::new("filter")
}

fn hashes(from: u64, to: u64) -> Vec<KeyHash> {
    (from..to).map(|i| KeyHash::of(&i.to_le_bytes(), Seed(1))).collect()
}

/// Creates the writer's filter, with background threads, with or without a log.
fn create(disk: &Arc<dyn Disk>, log: bool) -> CascadeFilter {
    let pool = || -> Arc<dyn Executor> { Arc::new(Threads::new(2)) };
    let settings = CascadeSettings {
        memory_bytes: MEMORY_MIN,
        wal: log,
        env: Env { executor: pool(), ..Env::simulated(1) },
        ..CascadeSettings::new(Env::simulated(1))
    };
    let options = CascadeOptions::exact(Seed(1), 7);
    CascadeFilter::create(folder(), &options, settings.on(disk.clone())).unwrap()
}

/// Inserts keys one after the other, and removes the keys [`WINDOW`] before them. Stores the number
/// of acknowledged keys. Waits for readers that are far behind.
fn write(filter: &mut CascadeFilter, acknowledged: &AtomicU64, reads: &AtomicU64) {
    for first in (0..KEYS).step_by(BATCH as usize) {
        filter.insert_batch(&hashes(first, first + BATCH)).unwrap();
        if first >= WINDOW {
            filter.remove_batch(&hashes(first - WINDOW, first - WINDOW + BATCH)).unwrap();
        }
        match first / BATCH % 64 {
            10 | 20 | 30 => filter.sync().unwrap(),
            40 => filter.flush().unwrap(),
            63 => filter.merge().unwrap(),
            _ => continue,
        }
        acknowledged.store(first + BATCH, SeqCst);
        while reads.load(SeqCst) * 10 * BATCH < first {
            thread::yield_now();
        }
    }
}

/// Checks that a reader finds a window of consecutive keys, and none from before the acknowledged
/// keys.
fn read_once(disk: &Arc<dyn Disk>, acknowledged: &AtomicU64) {
    let least = acknowledged.load(SeqCst);
    let snapshot = Snapshot::open(&Env::on(disk.clone()), folder(), Access::Cached).unwrap();
    let mut found = vec![false; KEYS as usize];
    snapshot.contains_batch(&hashes(0, KEYS), &mut found).unwrap();
    let Some(first) = found.iter().position(|&found| found) else {
        assert_eq!(least, 0, "what was acknowledged is not there");
        return;
    };
    let count = found[first..].iter().take_while(|&&found| found).count();
    let end = (first + count) as u64;
    assert!(!found[first + count..].contains(&true), "a gap at {end}");
    assert!(end >= least, "{end} of {least}");
    let window = end.min(WINDOW);
    let expected = window - window.min(BATCH)..=window + BATCH;
    assert!(expected.contains(&(count as u64)), "{count} keys up to {end}");
}

fn check(log: bool) {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let mut filter = create(&disk, log);
    let (acknowledged, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    let reads = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(SeqCst) {
                    read_once(&disk, &acknowledged);
                    reads.fetch_add(1, SeqCst);
                }
            });
        }
        write(&mut filter, &acknowledged, &reads);
        is_done.store(true, SeqCst);
    });
    read_once(&disk, &acknowledged);
    drop(filter);
    let report = verify(&Env::on(disk.clone()), folder(), &Watch::default()).unwrap();
    assert!(report.is_sound(), "{}", report.damage[0]);
}

#[test]
fn readers_beside_a_writer_see_the_filter_at_one_moment() {
    check(false);
    check(true);
}
