//! Stores that answer as far as they can: tables are missing or damaged, or only some slots are open.
//! Issue 12, point B13.

use crate::{
    fixture::Pairs,
    store_fixture::{
        APART, changes, copy_of, publish, read_file, scanned, store, try_create, try_open,
        try_version, try_write, updated, write_file,
    },
};
use hashfold::{
    ChosenSlots, Env, Error, ErrorClass, ErrorKind, ReadOptions,
    io::{Disk, MemoryDisk},
    run::{Run, SortOptions},
    store::{
        SLOTS, SlotMap, StoreReader, TableSizes, UpdateMode, Version, VersionFacts, slot_of,
        verify_versions,
    },
    work::Watch,
};
use std::{
    collections::BTreeSet,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

const KEYS: u64 = 60;
const CHUNKS: u32 = 4;

/// Every chunk has a base of its own; two chunks share a delta.
const WIDE_DELTAS: TableSizes = TableSizes { base_bytes_min: 0, delta_bytes_min: 700 };

/// A store of two versions, the second with deltas, and the content of the second.
fn sample(sizes: TableSizes) -> (MemoryDisk, Pairs) {
    let disk = MemoryDisk::default();
    let mut writer = try_create(&(Arc::new(disk.clone()) as _), CHUNKS).unwrap();
    writer.set_table_sizes(sizes);
    publish(&mut writer, &changes(1, KEYS), UpdateMode::Merge, 1);
    publish(&mut writer, &changes(2, KEYS), UpdateMode::Delta, 2);
    let first = updated(&Pairs::new(), &changes(1, KEYS));
    (disk, updated(&first, &changes(2, KEYS)))
}

fn open(disk: &Arc<dyn Disk>) -> Version {
    Version::open(store(), 2, &options(disk)).unwrap()
}

fn options(disk: &Arc<dyn Disk>) -> ReadOptions {
    ReadOptions::new().env(Env::on(disk.clone()))
}

fn chunk_of(key: &[u8]) -> u32 {
    SlotMap::new(CHUNKS).unwrap().chunk_of(key)
}

#[track_caller]
fn check_names(error: &Error, table: &Path) {
    assert_eq!(error.class(), ErrorClass::Damage, "{error}");
    assert!(error.place().unwrap().file.starts_with(table), "{error}");
}

/// Checks that the keys of all chunks but those of a table are answered, and that errors name the
/// table.
#[track_caller]
fn check_others(version: &Version, map: &Pairs, (table, own): (&Path, &[u32])) {
    let keys: Vec<Vec<u8>> = (0..KEYS + 9).map(|i| format!("key {i}").into_bytes()).collect();
    let (mut answered, mut failed) = (0, 0);
    for key in &keys {
        match version.get(key) {
            Ok(value) => {
                assert_eq!(value.as_ref(), map.get(key));
                answered += 1;
            }
            Err(error) => {
                assert!(own.contains(&chunk_of(key)));
                check_names(&error, table);
                failed += 1;
            }
        }
        assert!(own.contains(&chunk_of(key)) || version.get(key).is_ok());
    }
    assert!(answered > 10 && failed > 0);
    let mut seen = 0;
    let mut visit = |i: usize, value: Option<&[u8]>| {
        assert_eq!(value, map.get(&keys[i]).map(Vec::as_slice));
        seen += 1;
        Ok(())
    };
    check_names(&version.get_many(&keys, &mut visit).unwrap_err(), table);
    assert!(seen >= answered, "all other keys are visited");
    check_names(&version.scan_all().advance().unwrap_err(), table);
    check_names(&scanned(version).unwrap_err(), table);
}

#[test]
fn a_missing_or_damaged_table_keeps_no_other_table_shut() {
    for sizes in [APART, WIDE_DELTAS] {
        let (before, map) = sample(sizes);
        let info = open(&(Arc::new(before.clone()) as _)).info().clone();
        for layer in info.layers() {
            let table = store().join(format!("tables/{:016x}", layer.table));
            let own: Vec<u32> = layer.chunks.iter().collect();
            for name in before.list(&table).unwrap().iter().filter(|name| *name != "TREE") {
                let (path, disk) = (table.join(name), Arc::new(copy_of(&before)) as Arc<dyn Disk>);
                let bytes = read_file(disk.as_ref(), &path);
                disk.remove(&path).unwrap();
                let version = open(&disk);
                if name.starts_with("index") {
                    check_without_index(&version, &map, &path);
                    continue;
                }
                let [damage] = version.damage() else { panic!("{:?}", version.damage()) };
                check_names(damage, &table);
                check_others(&version, &map, (&table, &own));
                assert!(try_version(&disk, 2).is_err(), "it is not whole");
                let follower = StoreReader::open_with(store(), &options(&disk)).unwrap();
                assert_eq!(follower.version().damage().len(), 1);
                // The file comes back, and the open version answers.
                write_file(disk.as_ref(), &path, &bytes);
                assert!(scanned(&version).unwrap() == map);
            }
        }
    }
}

/// A version with a table whose index is lost answers for all keys, and names the index.
#[track_caller]
fn check_without_index(version: &Version, map: &Pairs, index: &Path) {
    assert!(version.damage().is_empty());
    let damage: Vec<&Error> = version.index_damage().collect();
    let [damage] = damage[..] else { panic!("{damage:?}") };
    assert_eq!(*damage.place().unwrap().file, *index);
    assert!(scanned(version).unwrap() == *map);
    for (key, value) in map {
        assert_eq!(version.get_ref(key).unwrap().as_deref(), Some(value.as_slice()));
    }
}

/// Every table of the current version is new, and the version is not published while one of them
/// cannot be opened.
#[test]
fn a_version_that_cannot_be_opened_is_not_published() {
    let (disk, map) = sample(APART);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let mut writer = try_open(&disk).unwrap();
    let info = try_write(&mut writer, &changes(3, KEYS), UpdateMode::Merge, 3).unwrap();
    let table = store().join(format!("tables/{:016x}", info.bases[1].table));
    let manifest = table.join("MANIFEST");
    let bytes = read_file(disk.as_ref(), &manifest);
    disk.remove(&manifest).unwrap();
    check_names(&writer.publish(3).unwrap_err(), &table);
    assert_eq!(writer.pointer().current, Some(2));
    assert!(scanned(&open(&disk)).unwrap() == map);
    write_file(disk.as_ref(), &manifest, &bytes);
    writer.publish(3).unwrap();
}

/// A damaged table that the current version has, too, does not stop the next update.
#[test]
fn a_store_with_a_damaged_table_can_be_updated_elsewhere() {
    let (disk, map) = sample(APART);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let info = open(&disk).info().clone();
    let table = store().join(format!("tables/{:016x}", info.bases[0].table));
    disk.remove(&table.join("MANIFEST")).unwrap();
    let key = map.keys().find(|key| chunk_of(key) == 2).unwrap();
    let put = [(key.clone(), Some(b"new".to_vec()))];
    let mut writer = try_open(&disk).unwrap();
    publish(&mut writer, &put, UpdateMode::Delta, 3);
    let version = Version::open(store(), 3, &options(&disk)).unwrap();
    check_others(&version, &updated(&map, &put), (&table, &[0]));
}

#[test]
fn every_damaged_file_of_all_versions_is_named_once() {
    let (disk, _) = sample(APART);
    let info = open(&(Arc::new(disk.clone()) as _)).info().clone();
    // Both versions have these bases.
    let paths: Vec<PathBuf> = info
        .bases
        .iter()
        .map(|base| store().join(format!("tables/{:016x}/MANIFEST", base.table)))
        .collect();
    for path in &paths {
        let mut bytes = read_file(&disk, path);
        bytes[100] ^= 1;
        write_file(&disk, path, &bytes);
    }
    let report =
        verify_versions(&Env::on(Arc::new(disk.clone())), store(), &[1, 2], &Watch::default())
            .unwrap();
    let named: Vec<&Path> =
        report.damage.iter().map(|error| &*error.place().unwrap().file).collect();
    assert_eq!(named, paths.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    assert_eq!(report.figures.tables, info.layers().count() as u64);
}

#[test]
fn only_the_slots_that_are_open_answer() {
    let (disk, map) = sample(WIDE_DELTAS);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let check = |version: &Version, slots: Range<u32>, map: &Pairs| {
        let mut held = 0;
        for (key, value) in map {
            match version.get(key) {
                Ok(found) => {
                    assert_eq!(found.as_ref(), Some(value));
                    held += 1;
                }
                Err(error) => {
                    assert!(!slots.contains(&slot_of(key)));
                    let ErrorKind::Argument { what, .. } = error.kind() else { panic!("{error}") };
                    assert_eq!(*what, "slot of the key");
                }
            }
        }
        assert_eq!(held, map.keys().filter(|key| slots.contains(&slot_of(key))).count());
        assert!(version.scan_all().advance().is_err());
    };
    let slots = SlotMap::new(CHUNKS).unwrap().slots(&(1..3));
    for slots in [slots.clone(), 100..9000, 0..1] {
        let version = Version::open(store(), 2, &options(&disk).slots(slots.clone())).unwrap();
        check(&version, slots, &map);
    }
    // A chunk that is not open may be damaged.
    let first = open(&disk).info().bases[0].table;
    disk.remove(&store().join(format!("tables/{first:016x}/MANIFEST"))).unwrap();
    let follower = StoreReader::open_with(store(), &options(&disk).slots(slots.clone())).unwrap();
    assert!(follower.version().damage().is_empty());
    let mut run = follower.version().scan_chunks(1..3);
    while run.advance().unwrap() {
        assert!((1..3).contains(&chunk_of(run.entry().key)));
    }
    // The follower keeps to its slots.
    let mut writer = try_open(&disk).unwrap();
    let key = map.keys().find(|key| chunk_of(key) == 2).unwrap();
    let put = [(key.clone(), Some(b"new".to_vec()))];
    publish(&mut writer, &put, UpdateMode::Delta, 3);
    assert!(follower.refresh().unwrap());
    check(&follower.version(), slots, &updated(&map, &put));
    for slots in [3..3, 0..SLOTS + 1] {
        let opened = Version::open(store(), 2, &options(&disk).slots(slots));
        assert!(matches!(opened.unwrap_err().kind(), ErrorKind::Argument { .. }));
    }
}

/// A version that is open gets more slots; one that is opened later has those that are chosen then.
#[test]
fn chosen_slots_can_change() {
    let (all, first) = (0..SLOTS, 0..1);
    for sizes in [APART, WIDE_DELTAS, TableSizes::default()] {
        let (memory, map) = sample(sizes);
        let disk: Arc<dyn Disk> = Arc::new(memory.clone());
        let chosen = ChosenSlots::new(vec![0..100, 9000..9100]);
        let options = options(&disk).chosen_slots(chosen.clone());
        let open = || Version::open(store(), 2, &options).unwrap();
        let check = |version: &Version, expected: &[Range<u32>]| {
            assert_eq!(version.slots(), expected);
            for (key, value) in &map {
                match expected.iter().any(|range| range.contains(&slot_of(key))) {
                    true => assert_eq!(version.get(key).unwrap().as_ref(), Some(value)),
                    false => assert!(version.get(key).is_err()),
                }
            }
        };
        let version = open();
        check(&version, &[0..100, 9000..9100]);
        let tables = version.table_stats().count();
        chosen.set(vec![50..150, 5000..9000]);
        check(&version, &[0..100, 9000..9100]);
        version.open_chosen().unwrap();
        check(&version, &[0..150, 5000..9100]);
        check(&open(), &[50..150, 5000..9000]);
        assert!(version.table_stats().count() >= tables);
        // A table that cannot be opened leaves the slots as they are, until it can.
        let last = open().info().bases.last().unwrap().table;
        let manifest = store().join(format!("tables/{last:016x}/MANIFEST"));
        let bytes = read_file(disk.as_ref(), &manifest);
        disk.remove(&manifest).unwrap();
        chosen.set(vec![all.clone()]);
        match version.open_chosen() {
            Err(error) => {
                check_names(&error, manifest.parent().unwrap());
                check(&version, &[0..150, 5000..9100]);
            }
            // One table has all chunks, and was open.
            Ok(()) => assert_eq!(open().info().bases.len(), 1),
        }
        write_file(disk.as_ref(), &manifest, &bytes);
        version.open_chosen().unwrap();
        check(&version, std::slice::from_ref(&all));
        assert!(scanned(&version).unwrap() == map);
        // An open version keeps what is no longer chosen.
        chosen.set(vec![first.clone()]);
        version.open_chosen().unwrap();
        check(&version, std::slice::from_ref(&all));
        let none = 3..3;
        for wrong in [vec![], vec![none], vec![0..1, 5..SLOTS + 1]] {
            chosen.set(wrong);
            assert!(matches!(
                version.open_chosen().unwrap_err().kind(),
                ErrorKind::Argument { .. }
            ));
        }
    }
}

/// A table may have keys of slots that are open and of others.
#[test]
fn samples_have_keys_of_open_slots_only_and_of_all_of_them() {
    for sizes in [APART, WIDE_DELTAS, TableSizes::default()] {
        let disk: Arc<dyn Disk> = Arc::new(sample(sizes).0);
        let bases = updated(&Pairs::new(), &changes(1, KEYS));
        for slots in [0..SLOTS, 0..8192, 100..9000, 12_000..SLOTS] {
            let version = Version::open(store(), 2, &options(&disk).slots(slots.clone())).unwrap();
            let mut seen = BTreeSet::new();
            let mut visit = |key: &[u8]| {
                assert!(slots.contains(&slot_of(key)));
                seen.insert(key.to_vec());
                Ok(())
            };
            // Asked for more keys than there are, it visits all keys of the bases.
            version.sample(100 * KEYS, &mut visit).unwrap();
            let own = bases.keys().filter(|key| slots.contains(&slot_of(key)));
            assert_eq!(seen, own.cloned().collect(), "{slots:?}");
            assert!(!seen.is_empty(), "{slots:?}");
        }
    }
}

#[test]
fn a_store_can_get_another_number_of_chunks() {
    let (disk, map) = sample(WIDE_DELTAS);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let mut writer = try_open(&disk).unwrap();
    let mut number = 2;
    for chunks in [1, 7, 1000, 3] {
        number += 1;
        let facts = VersionFacts { id: number, ..VersionFacts::default() };
        let slots = SlotMap::new(chunks).unwrap();
        let sort = SortOptions::within(1 << 20);
        let info = writer.rechunk(slots, sort, facts, &Watch::default()).unwrap();
        assert_eq!((info.name.number, info.shape.slots), (number, slots));
        assert_eq!(info.changes.unwrap().unchanged, map.len() as u64);
        assert_eq!(info.changes.unwrap().total(), 0);
        assert_eq!(info.entries(), map.len() as u64..=map.len() as u64);
        writer.publish(number).unwrap();
        assert!(scanned(&try_version(&disk, number).unwrap()).unwrap() == map);
    }
    // Versions with other numbers of chunks can be compared, and rolled back to.
    let (made, changes) = crate::store_fixture::write_delta(&disk, 1, number);
    let (same, _) = crate::store_fixture::write_delta(&disk, 2, number);
    assert_eq!((changes.total() > 0, made.entries, same.entries), (true, changes.total(), 0));
    // The versions between have the same entries.
    assert_eq!(writer.roll_back().unwrap(), 1);
    let first = scanned(&try_version(&disk, 1).unwrap()).unwrap();
    let put = crate::store_fixture::changes(3, KEYS);
    publish(&mut writer, &put, UpdateMode::Auto, 99);
    assert!(scanned(&try_version(&disk, number + 1).unwrap()).unwrap() == updated(&first, &put));
}
