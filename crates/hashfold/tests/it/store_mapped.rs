//! Values that versions and readers of stores lend, and mapped tables of stores whose files are cut.

use crate::{
    fixture::{Pairs, name_of, read_files},
    mapped::{check_lost, set_len},
    store_fixture::{Change, copy_folder, publish, store, try_create, try_open, updated},
};
use hashfold::{
    ReadOptions,
    io::{ALIGNMENT, Access, Disk, MemoryDisk, OsDisk},
    store::{StoreReader, UpdateMode, ValueRef, Version},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;

const KEYS: u64 = 800;

/// Returns a batch that puts or deletes keys. Some values are larger than a block.
fn batch(round: u64) -> Vec<Change> {
    let change = |i: u64| {
        let size = if i % 100 == 3 { 9000 } else { 60 + (i % 90) as usize };
        let value = (i % 7 != 5 || round == 1).then(|| vec![(i + round) as u8; size]);
        (format!("key {i}").into_bytes(), value)
    };
    (0..KEYS).filter(|i| round == 1 || i % 3 == 0).map(change).collect()
}

/// A store on the file system, with a base and a delta in each of four chunks.
struct OnDisk {
    _home: TempDir,
    folder: PathBuf,
    map: Pairs,
}

impl OnDisk {
    fn new() -> OnDisk {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        let mut writer = try_create(&disk, 4).unwrap();
        publish(&mut writer, &batch(1), UpdateMode::Merge, 1);
        publish(&mut writer, &batch(2), UpdateMode::Delta, 2);
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("store");
        copy_folder(disk.as_ref(), store(), &OsDisk, &folder);
        let map = updated(&updated(&Pairs::new(), &batch(1)), &batch(2));
        OnDisk { _home: home, folder, map }
    }

    fn reader(&self, access: Access) -> StoreReader {
        StoreReader::open_with(&self.folder, &ReadOptions::new().data(access)).unwrap()
    }

    /// Cuts the data file of a table after the header.
    fn cut(&self, table: &Path) {
        let name = name_of(&read_files(&OsDisk, table), "data");
        let file = OsDisk.open_to_write(&table.join(name), Access::Cached).unwrap();
        set_len(&*file, ALIGNMENT as u64);
    }

    /// Returns the folders of the current version's tables: the bases, then the deltas.
    fn tables(&self, version: &Version) -> Vec<PathBuf> {
        let folder = |id| self.folder.join(format!("tables/{id:016x}"));
        version.info().layers().map(|layer| folder(layer.table)).collect()
    }
}

fn keys() -> Vec<Vec<u8>> {
    (0..KEYS + 20).map(|i| format!("key {i}").into_bytes()).collect()
}

#[test]
fn a_reader_lends_values_that_stay_as_they_are() {
    for access in [Access::Mapped, Access::Cached, Access::Direct] {
        let store = OnDisk::new();
        let reader = store.reader(access);
        let lend = |key| reader.get_ref(key).unwrap();
        let all: Vec<Option<ValueRef>> = keys().iter().map(lend).collect();
        // The version that lends them is no longer current, and the reader is gone.
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
        copy_folder(&OsDisk, &store.folder, disk.as_ref(), crate::store_fixture::store());
        let mut writer = try_open(&disk).unwrap();
        publish(&mut writer, &batch(3), UpdateMode::Merge, 3);
        copy_folder(disk.as_ref(), crate::store_fixture::store(), &OsDisk, &store.folder);
        assert!(reader.refresh().unwrap());
        let map = updated(&store.map, &batch(3));
        for (key, old) in keys().iter().zip(&all) {
            assert_eq!(reader.get_ref(key).unwrap().as_deref(), map.get(key).map(Vec::as_slice));
            assert_eq!(old.as_deref(), store.map.get(key).map(Vec::as_slice), "{access:?}");
        }
        drop(reader);
        for (key, old) in keys().iter().zip(all.clone()) {
            let shown = old.as_ref().map(|value| format!("{value:?}"));
            let expected = store.map.get(key);
            assert_eq!(old.as_deref(), expected.map(Vec::as_slice));
            assert_eq!(old.as_ref().map(AsRef::as_ref), expected.map(Vec::as_slice));
            assert_eq!(shown, expected.map(|value| format!("ValueRef({})", value.escape_ascii())));
        }
    }
}

/// Looks up all keys in a version; `is_cut` says whether a key's lookup may meet the cut table.
#[track_caller]
fn check_cut(version: &Version, map: &Pairs, is_cut: impl Fn(&[u8]) -> bool) {
    let keys = keys();
    let mut refused = 0;
    for key in &keys {
        let right = map.get(key).map(Vec::as_slice);
        match version.get_ref(key) {
            Ok(found) => assert_eq!(found.as_deref(), right),
            Err(error) => {
                check_lost(&error);
                assert!(is_cut(key), "{}", key.escape_ascii());
                assert!(version.get(key).is_err() && version.contains(key).is_err());
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "lookups meet the cut table");
    let mut seen = vec![false; keys.len()];
    let error = version.get_many(&keys, &mut |i, value| {
        assert_eq!(value, map.get(&keys[i]).map(Vec::as_slice));
        seen[i] = true;
        Ok(())
    });
    check_lost(&error.unwrap_err());
    for (key, seen) in keys.iter().zip(seen) {
        assert!(seen || is_cut(key), "keys of other tables have answers");
    }
}

#[test]
fn a_table_of_a_version_that_is_cut_gives_errors_for_its_keys_only() {
    for number in 0..8 {
        let store = OnDisk::new();
        let reader = store.reader(Access::Mapped);
        let version = reader.version();
        let tables = store.tables(&version);
        assert_eq!(tables.len(), 8);
        let held = keys().into_iter().map(|key| reader.get_ref(key).unwrap());
        let held: Vec<Option<ValueRef>> = held.collect();
        store.cut(&tables[number]);
        // Bytes that are gone are zeros.
        for (key, value) in keys().iter().zip(&held) {
            let Some(value) = value else { continue };
            let right = store.map[key].as_slice();
            assert!(**value == *right || value.iter().all(|byte| *byte == 0), "{key:?}");
        }
        let layer = version.info().layers().nth(number).unwrap();
        let slots = version.info().shape.slots;
        let is_cut = |key: &[u8]| layer.chunks.iter().any(|chunk| chunk == slots.chunk_of(key));
        check_cut(&version, &store.map, is_cut);
        let open = Version::open(&store.folder, 2, &ReadOptions::new().data(Access::Mapped));
        assert_eq!(open.unwrap().damage().len(), 1, "it is not opened again");
        let is_refused = |key: &Vec<u8>| reader.get_ref(key).is_err();
        assert!(keys().iter().any(is_refused) && !keys().iter().all(is_refused));
    }
}
