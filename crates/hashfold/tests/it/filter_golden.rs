//! Small cascade filters in `tests/golden/cascade-v1/`. Every released version must stay readable
//! as long as promised, and the same changes must produce the same bytes.

use crate::{
    fixture::{Files, SEED, on, read_files, write_files},
    store_fixture::copy_folder,
};
use hashfold::{
    Env, KeyHash,
    filter::{
        Mode,
        cascade::{self, CascadeFilter, CascadeOptions, CascadeSettings, Snapshot},
    },
    fingerprints::Universe,
    io::{Access, Disk, MemoryDisk, OsDisk},
    work::Watch,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const MODES: [(&str, Mode); 2] = [("set", Mode::Set), ("multiset", Mode::Multiset)];
const KEYS: u64 = 1500;

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/cascade-v1").join(name)
}

fn hashes(keys: impl Iterator<Item = u64>) -> Vec<KeyHash> {
    keys.map(|key| KeyHash::of(&key.to_le_bytes(), SEED)).collect()
}

fn settings() -> CascadeSettings {
    CascadeSettings {
        memory_bytes: cascade::MEMORY_MIN,
        wal: true,
        ..CascadeSettings::new(Env::simulated(1))
    }
}

/// Returns the number of insertions of each key.
fn counts(mode: Mode) -> Vec<u64> {
    let count = |key: u64| match mode {
        Mode::Set => u64::from(key < 1100 && !key.is_multiple_of(5) || (1200..1300).contains(&key)),
        Mode::Multiset => {
            let often = if key.is_multiple_of(7) { 3 } else { 1 };
            let more = u64::from((1000..1100).contains(&key) || (1200..1300).contains(&key));
            let inserted = if key < 1000 { often } else { more };
            inserted - u64::from(key < 1100 && key.is_multiple_of(5))
        }
    };
    (0..KEYS).map(count).collect()
}

/// Returns a filter with a last level, runs over it in two epochs, and a log.
fn built(mode: Mode) -> Files {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let folder = Path::new("filter");
    let universe = match mode {
        Mode::Set => Universe::for_capacity(2000, 1e-9).unwrap(),
        Mode::Multiset => Universe::EXACT,
    };
    let options = CascadeOptions { mode, universe, ..CascadeOptions::exact(SEED, 0x600d) };
    let mut filter = CascadeFilter::create(folder, &options, on(disk.clone(), settings())).unwrap();
    filter.insert_batch(&hashes(0..1000)).unwrap();
    if mode == Mode::Multiset {
        let often: Vec<KeyHash> = hashes((0..1000).filter(|key| key % 7 == 0));
        filter.insert_batch(&often).unwrap();
        filter.insert_batch(&often).unwrap();
    }
    filter.merge().unwrap();
    filter.insert_batch(&hashes(1000..1100)).unwrap();
    filter.advance_epoch().unwrap();
    filter.remove_batch(&hashes((0..1100).filter(|key| key % 10 == 0))).unwrap();
    filter.flush().unwrap();
    filter.remove_batch(&hashes((0..1100).filter(|key| key % 10 == 5))).unwrap();
    filter.insert_batch(&hashes(1200..1300)).unwrap();
    filter.sync().unwrap();
    drop(filter);
    read_files(disk.as_ref(), folder)
}

#[track_caller]
fn check_snapshot(env: &Env, folder: &Path, mode: Mode) {
    let snapshot = Snapshot::open(env, folder, Access::Cached).unwrap();
    assert_eq!((snapshot.mode(), snapshot.seed()), (mode, SEED));
    let mut found = vec![0; KEYS as usize];
    snapshot.count_batch(&hashes(0..KEYS), &mut found).unwrap();
    assert!(found == counts(mode));
}

#[test]
fn cascades_of_version_1_are_read() {
    for (name, mode) in MODES {
        let folder = place(name);
        check_snapshot(&Env::system(), &folder, mode);
        let report = cascade::verify(&Env::system(), &folder, &Watch::default()).unwrap();
        assert!(report.is_sound(), "{}", report.damage[0]);
        assert!(report.figures.runs > 1);
        assert!(report.figures.logged > 100);
    }
}

#[test]
fn cascades_of_version_1_are_written_to() {
    for (name, mode) in MODES {
        let (disk, folder) = (MemoryDisk::default(), Path::new("filter"));
        copy_folder(&OsDisk, &place(name), &disk, folder);
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut filter = CascadeFilter::open(folder, on(shared, settings())).unwrap();
        assert_eq!(filter.epoch(), 1);
        let mut found = vec![0; KEYS as usize];
        filter.count_batch(&hashes(0..KEYS), &mut found).unwrap();
        assert!(found == counts(mode));
        filter.merge().unwrap();
        filter.close().unwrap();
        check_snapshot(&Env::on(Arc::new(disk)), folder, mode);
    }
}

#[test]
fn the_same_changes_give_the_same_cascade() {
    for (name, mode) in MODES {
        let kept = read_files(&OsDisk, &place(name));
        let made = built(mode);
        assert_eq!(kept.keys().collect::<Vec<_>>(), made.keys().collect::<Vec<_>>());
        for (file, bytes) in &kept {
            assert!(*bytes == made[file], "cascade-v1/{name}/{file} has other bytes now");
        }
    }
}

/// Writes the golden files: `cargo test --test it filter_golden -- --ignored`. Only for a new
/// format version: files of a released version never change.
#[test]
#[ignore = "writes to the source tree"]
fn write_golden_files() {
    for (name, mode) in MODES {
        let place = place(name);
        if OsDisk.exists(&place).unwrap() {
            for file in OsDisk.list(&place).unwrap() {
                OsDisk.remove(&place.join(file)).unwrap();
            }
        }
        write_files(&OsDisk, &place, &built(mode));
    }
}
