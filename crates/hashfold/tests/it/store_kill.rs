//! A process that is killed repeatedly while it changes a store on a real disk. Run it with `cargo
//! test -p hashfold --test it store_kill -- --ignored --nocapture`.

use crate::{
    fixture::random,
    kill::{self, numbers, work_and_kill},
    store_fixture::{Change, scanned, store_options, try_write},
};
use hashfold::{
    Env, ReadOptions,
    io::{Disk, OsDisk},
    store::{Pointer, Retention, StoreReader, StoreWriter, UpdateMode, Version, verify, versions},
    work::{Executor, Threads, Watch},
};
use std::{path::Path, sync::Arc, time::Duration};

const KEYS: u64 = 300;

/// Returns all keys, with the version's id as their value.
fn changes(id: u64) -> Vec<Change> {
    let value = || Some(format!("of version {id}").into_bytes());
    (0..KEYS).map(|i| (format!("key {i}").into_bytes(), value())).collect()
}

fn open_or_create(folder: &Path) -> StoreWriter {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let executor: Arc<dyn Executor> = Arc::new(Threads::new(2));
    match Pointer::read(disk.as_ref(), folder) {
        Ok(pointer) if pointer.current.is_some() => {
            StoreWriter::open(&Env { executor, ..Env::on(disk.clone()) }, folder)
        }
        Ok(_) if !versions(&Env::on(disk.clone()), folder).unwrap().is_empty() => {
            StoreWriter::open(&Env { executor, ..Env::on(disk.clone()) }, folder)
        }
        _ => StoreWriter::create(
            folder,
            store_options(3).env(Env { executor, ..Env::on(disk.clone()) }),
        ),
    }
    .unwrap()
}

/// Prints a version's number before it becomes current, and again afterwards.
fn announced(number: u64, act: impl FnOnce()) {
    println!("to {number}");
    act();
    println!("at {number}");
}

#[test]
#[ignore = "is started by the other test, and killed"]
fn work_until_killed() {
    let Some((folder, seed)) = kill::task() else { return };
    let mut random = random(seed);
    let mut writer = open_or_create(&folder);
    for round in 0.. {
        match (random() % 6, writer.previous()) {
            (0, Some(previous)) => {
                announced(previous, || assert_eq!(writer.roll_back().unwrap(), previous));
            }
            (1, _) => {
                let rules = Retention {
                    keep: 2,
                    age_s_min: 0,
                    now_s: 0,
                    free_bytes_min: 0,
                    unpublished_age_s_min: 0,
                };
                writer.collect(&rules, &Watch::default()).unwrap();
            }
            _ => {
                let id = (seed << 32) + round + 1;
                let mode = [UpdateMode::Delta, UpdateMode::Merge, UpdateMode::Replace]
                    [random() as usize % 3];
                let made = try_write(&mut writer, &changes(id), mode, id).unwrap();
                announced(made.name.number, || writer.publish(made.name.number).unwrap());
            }
        }
    }
}

/// Checks that every version is complete. Returns the number of the current one.
fn check_whole(disk: &Arc<dyn Disk>, folder: &Path) -> Option<u64> {
    if !disk.exists(&folder.join("versions")).unwrap() {
        return None;
    }
    for (number, info) in versions(&Env::on(disk.clone()), folder).unwrap() {
        let id = info.unwrap().name.id;
        let version =
            Version::open(folder, number, &ReadOptions::new().env(Env::on(disk.clone()))).unwrap();
        let pairs = scanned(&version).unwrap();
        assert_eq!(pairs.len() as u64, KEYS);
        let expected = format!("of version {id}").into_bytes();
        assert!(pairs.values().all(|value| *value == expected), "version {number}");
        let report = verify(&Env::on(disk.clone()), folder, number, &Watch::default()).unwrap();
        assert!(report.damage.is_empty(), "{}", report.damage[0]);
    }
    let follower =
        StoreReader::open_with(folder, &ReadOptions::new().env(Env::on(disk.clone()))).ok()?;
    let number = follower.version().info().name.number;
    Some(number)
}

#[test]
#[ignore = "kills processes; see CONTRIBUTING.md"]
fn a_process_that_is_killed_leaves_whole_versions() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("store");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let mut random = random(kill::seed());
    let mut published = 0;
    let mut current = None;
    let mut round = 0;
    while kill::goes_on(round, published > 0) {
        round += 1;
        let time = Duration::from_millis(5 + random() % 400);
        let said = work_and_kill("store_kill::work_until_killed", &folder, round, time);
        let (tried, done) = (numbers(&said, "to "), numbers(&said, "at "));
        let found = check_whole(&disk, &folder);
        // The current version is the last one that was announced, or the one that was being
        // published.
        let last = done.last().copied().or(current);
        let next = if tried.len() > done.len() { tried.last().copied() } else { last };
        assert!(found == last || found == next, "{found:?} is neither {last:?} nor {next:?}");
        current = found;
        published += done.len();
        drop(open_or_create(&folder));
        assert_eq!(check_whole(&disk, &folder), found);
        check_swept(&disk, &folder);
        println!("killed after {time:?}: {} published, current {found:?}", done.len());
    }
    assert!(published > 0, "it was always killed before it did anything");
}

/// Checks that there are only tables of versions, and no unfinished files.
fn check_swept(disk: &Arc<dyn Disk>, folder: &Path) {
    let mut tables = Vec::new();
    for (_, info) in versions(&Env::on(disk.clone()), folder).unwrap() {
        tables.extend(info.unwrap().layers().map(|layer| format!("{:016x}", layer.table)));
    }
    tables.sort_unstable();
    tables.dedup();
    assert_eq!(disk.list(&folder.join("tables")).unwrap(), tables);
    assert_eq!(disk.list(folder).unwrap(), ["CURRENT", "tables", "versions"]);
    let names = disk.list(&folder.join("versions")).unwrap();
    assert!(names.iter().all(|name| name.len() == 10), "{names:?}");
}
