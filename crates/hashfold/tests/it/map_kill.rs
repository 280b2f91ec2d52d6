//! A process that is killed repeatedly while it changes a map on a real disk. Run it with `cargo
//! test --release -p hashfold --test it map_kill -- --ignored --nocapture`.

use crate::{
    fixture::random,
    kill::{self, numbers, work_and_kill},
};
use hashfold::{
    Env, Seed,
    io::{Disk, OsDisk},
    map::{Durability, MAP_MEMORY_MIN, Map, MapOptions},
    work::{Threads, Watch},
};
use std::{path::Path, sync::Arc, time::Duration};

const KEYS: u64 = 50_000;

fn open_or_create(folder: &Path) -> Map {
    let env = Env { executor: Arc::new(Threads::new(2)), ..Env::system() };
    let options = MapOptions::new().env(env).seed(Seed(1)).memory(MAP_MEMORY_MIN);
    let options = options.wal_bytes(4 << 20).durability(Durability::Buffered);
    Map::open_or_create_with(folder, options).unwrap()
}

/// Returns the value after change `n`; `None` if the change deletes the key `n % KEYS`.
fn value(n: u64) -> Option<Vec<u8>> {
    let size = (n / 7 % 90) as usize;
    (!n.is_multiple_of(7)).then(|| [&n.to_le_bytes()[..], &vec![n as u8; size]].concat())
}

/// Makes the next changes, whose number says what they do.
fn next_changes(map: &Map, count: u64) {
    let start = map.seq();
    for n in start..start + count {
        let key = (n % KEYS).to_le_bytes();
        let changed = match value(n) {
            Some(value) => map.put(key, value),
            None => map.delete(key),
        };
        assert_eq!(changed.unwrap(), n + 1);
    }
}

#[test]
#[ignore = "is started by the other test, and killed"]
fn work_until_killed() {
    let Some((folder, seed)) = kill::task() else { return };
    let mut random = random(seed);
    let map = open_or_create(&folder);
    loop {
        next_changes(&map, 1 + random() % 3000);
        match random() % 40 {
            0 => map.compact().unwrap(),
            1..4 => map.checkpoint().unwrap(),
            4..25 => map.sync().unwrap(),
            _ => {}
        }
        println!("at {}", map.durable_seq());
    }
}

/// Checks all keys. Returns the number of changes that are there.
fn check_holds(folder: &Path) -> u64 {
    let map = open_or_create(folder);
    let seq = map.seq();
    let keys: Vec<[u8; 8]> = (0..KEYS).map(u64::to_le_bytes).collect();
    let found = map.get_many(&keys).unwrap();
    for (key, found) in (0..KEYS).zip(found) {
        // The last change of the key, if there was one.
        let last = (seq > key).then(|| (seq - 1 - key) / KEYS * KEYS + key);
        assert_eq!(found, last.and_then(value), "key {key} after {seq} changes");
    }
    let report = map.verify(&Watch::default()).unwrap();
    assert!(report.is_sound(), "{}", report.damage[0]);
    seq
}

#[test]
#[ignore = "kills processes; see CONTRIBUTING.md"]
fn a_process_that_is_killed_loses_nothing_that_was_acknowledged() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("map");
    let mut random = random(kill::seed());
    let mut durable = 0;
    let mut round = 0;
    while kill::goes_on(round, durable > 0) {
        round += 1;
        let time = Duration::from_millis(50 + random() % 1500);
        let said = work_and_kill("map_kill::work_until_killed", &folder, round, time);
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
