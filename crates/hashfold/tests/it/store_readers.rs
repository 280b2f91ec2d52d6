//! Readers and a writer of one store at the same time, on the real file system.

use crate::{
    fixture::random,
    store_fixture::{Change, scanned, store_options, try_write},
};
use hashfold::{
    Env, ReadOptions,
    io::{Disk, OsDisk},
    store::{Retention, StoreReader, StoreWriter, UpdateMode, Version},
    work::{Executor, Threads, Watch},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

const ROUNDS: u64 = 300;
const READERS: usize = 3;
const KEYS: u64 = 40;
const CHUNKS: u32 = 3;

/// Versions are made until this number exist besides the current one.
const SPARE: usize = 4;

fn keys() -> Vec<Vec<u8>> {
    (0..KEYS).map(|i| format!("key {i}").into_bytes()).collect()
}

/// Returns a batch in which every key has the id as its value, and one key in eight is deleted.
fn changes(id: u64) -> Vec<Change> {
    let value = |i: u64| (!is_absent(id, i)).then(|| format!("of version {id}").into_bytes());
    keys().into_iter().zip(0..).map(|(key, i)| (key, value(i))).collect()
}

fn is_absent(id: u64, i: u64) -> bool {
    (i + id).is_multiple_of(8)
}

/// Checks that every answer belongs to the version, with every kind of query.
fn check_whole(version: &Version) {
    let id = version.info().name.id;
    let expected: Vec<_> = changes(id).into_iter().map(|(_, value)| value).collect();
    let keys = keys();
    for (key, expected) in keys.iter().zip(&expected) {
        assert_eq!(version.get(key).unwrap(), *expected, "version {id}");
    }
    let mut visit = |i: usize, value: Option<&[u8]>| {
        assert_eq!(value, expected[i].as_deref(), "version {id}");
        Ok(())
    };
    version.get_many(&keys, &mut visit).unwrap();
    let there = expected.iter().flatten().count();
    assert_eq!(scanned(version).unwrap().len(), there, "version {id}");
}

/// Follows the store until the writer is done. Returns the number of versions seen.
fn read(folder: &Path, is_done: &AtomicBool, reads: &AtomicU64) -> usize {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let open =
        || StoreReader::open_with(folder, &ReadOptions::new().env(Env::on(disk.clone()))).unwrap();
    let (mut follower, mut seen) = (open(), 1);
    let mut before = follower.version();
    while !is_done.load(Ordering::Relaxed) {
        check_whole(&follower.version());
        // An open version does not change, although other versions were published and removed.
        check_whole(&before);
        if follower.refresh().unwrap() {
            seen += 1;
        }
        if seen % 5 == 0 {
            before = follower.version();
            follower = open();
        }
        reads.fetch_add(1, Ordering::Relaxed);
    }
    seen
}

/// Publishes older and newer versions in turn, makes new ones, and removes unused ones.
fn write(folder: &Path, writer: &mut StoreWriter, seed: u64) {
    let mut random = random(seed);
    for round in 0..ROUNDS {
        let mut there = writer.numbers().unwrap();
        there.retain(|number| Some(*number) != writer.pointer().current);
        match random() % 4 {
            0 if writer.previous().is_some() => {
                writer.roll_back().unwrap();
            }
            1 if there.len() < SPARE => {
                let id = 1000 + round;
                let mode = [UpdateMode::Delta, UpdateMode::Merge, UpdateMode::Replace]
                    [random() as usize % 3];
                let info = try_write(writer, &changes(id), mode, id).unwrap();
                writer.publish(info.name.number).unwrap();
            }
            2 if !there.is_empty() => {
                let number = there[random() as usize % there.len()];
                writer.forgive(number).unwrap();
                writer.publish(number).unwrap();
            }
            _ => {
                let rules = Retention {
                    keep: 1,
                    age_s_min: 0,
                    now_s: 0,
                    free_bytes_min: 0,
                    unpublished_age_s_min: 0,
                };
                writer.collect(&rules, &Watch::default()).unwrap();
            }
        }
        assert!(folder.join("CURRENT").exists());
    }
}

#[test]
fn readers_see_whole_versions_while_others_are_published_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("store");
    let executor: Arc<dyn Executor> = Arc::new(Threads::new(2));
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let options = store_options(CHUNKS);
    let mut writer =
        StoreWriter::create(&folder, options.env(Env { executor, ..Env::on(disk.clone()) }))
            .unwrap();
    let info = try_write(&mut writer, &changes(1), UpdateMode::Auto, 1).unwrap();
    writer.publish(info.name.number).unwrap();
    let (is_done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let readers: Vec<_> =
            (0..READERS).map(|_| scope.spawn(|| read(&folder, &is_done, &reads))).collect();
        // The readers must end even if the writer fails.
        let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            write(&folder, &mut writer, 1);
            // Each reader had time to read.
            while reads.load(Ordering::Relaxed) < 10 * READERS as u64
                && !readers.iter().any(thread::ScopedJoinHandle::is_finished)
            {
                thread::yield_now();
            }
        }));
        is_done.store(true, Ordering::Relaxed);
        written.unwrap();
        readers.into_iter().for_each(|reader| assert!(reader.join().unwrap() > 0));
    });
    let rules =
        Retention { keep: 0, age_s_min: 0, now_s: 0, free_bytes_min: 0, unpublished_age_s_min: 0 };
    writer.collect(&rules, &Watch::default()).unwrap();
    assert_eq!(writer.numbers().unwrap(), [writer.pointer().current.unwrap()]);
}
