//! The ways of reading data: how one is chosen, and that all give the same answers, also from damaged
//! files.

use crate::{
    fixture::{
        Pairs, absent, arrangements, build, folder, memory, name_of, options, read_files, tagged,
        write_files,
    },
    store_fixture::{
        changes, publish, scanned, store, store_options, try_create, try_version, updated,
    },
};
use hashfold::{
    AccessReason, Checks, Env, Error, ErrorClass, ErrorKind, ReadOptions,
    io::{ALIGNMENT, Access, BlockFile, Disk, DiskLayer, OsDisk},
    store::{StoreReader, StoreWriter, UpdateMode, Version},
    table::{IndexChoice, Table},
    work::Watch,
};
use std::{
    borrow::Cow,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

const ALL: [Access; 3] = [Access::Mapped, Access::Cached, Access::Direct];

/// Ways to damage a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Flipped,
    Missing,
    Cut,
}

impl Harm {
    const ALL: [Harm; 3] = [Harm::Flipped, Harm::Missing, Harm::Cut];

    /// Damages the file at a path.
    fn put(self, path: &Path) {
        if self == Harm::Missing {
            return OsDisk.remove(path).unwrap();
        }
        let file = OsDisk.open_to_write(path, Access::Cached).unwrap();
        match self {
            Harm::Cut => {
                let len = file.size().unwrap() - ALIGNMENT as u64;
                file.descriptor().unwrap().set_len(len).unwrap();
            }
            _ => flip(&*file, ALIGNMENT as u64 + 300),
        }
    }
}

/// Flips a bit of the byte at an offset.
fn flip(file: &dyn BlockFile, offset: u64) {
    let mut byte = [0];
    file.read_at(offset, &mut byte).unwrap();
    file.write_at(offset, &[byte[0] ^ 1]).unwrap();
}

/// The ways of looking up keys.
const LOOKUPS: [&str; 3] = ["get", "get_ref", "get_many"];

/// Looks up all keys in one way. Returns the numbers of right answers and of errors; one error of
/// `get_many` stands for several keys.
#[track_caller]
fn look_up(table: &Table, lookup: &str, pairs: &Pairs) -> (usize, usize) {
    let (mut right, mut errors) = (0, 0);
    let mut note = |found: Result<Option<Vec<u8>>, Error>, expected: Option<&Vec<u8>>| match found {
        Ok(value) => {
            assert_eq!(value.as_ref(), expected, "{lookup}");
            right += 1;
        }
        Err(error) => {
            assert_eq!(error.class(), ErrorClass::Damage, "{error}");
            assert!(error.place().is_some(), "{error}");
            errors += 1;
        }
    };
    let keys: Vec<Vec<u8>> = pairs.keys().cloned().chain(absent(20)).collect();
    match lookup {
        "get" => keys.iter().for_each(|key| note(table.get(key), pairs.get(key))),
        "get_ref" => keys.iter().for_each(|key| {
            let found = table.get_ref(key).map(|value| value.map(Cow::into_owned));
            note(found, pairs.get(key));
        }),
        _ => {
            let mut found = Vec::new();
            let done = table.get_many(&keys, &mut |i, value| {
                found.push((i, value.map(<[u8]>::to_vec)));
                Ok(())
            });
            assert!(done.is_err() || found.len() == keys.len(), "each key has an answer");
            found.into_iter().for_each(|(i, value)| note(Ok(value), pairs.get(&keys[i])));
            done.map_or_else(|error| note(Err(error), None), |()| {});
        }
    }
    (right, errors)
}

/// Opens a table with a damaged file, and looks up all keys.
#[track_caller]
fn check(folder: &Path, (role, harm): (&str, Harm), access: Access, pairs: &Pairs) {
    let case = format!("{role} {harm:?}, {access:?}");
    let table = match Table::open_with(folder, &ReadOptions::new().data(access).index(access)) {
        Ok(table) => table,
        Err(error) => {
            assert!(error.class() == ErrorClass::Damage || error.is_absent(), "{case}: {error}");
            assert!(role != "index" && (role, harm) != ("data", Harm::Flipped), "{case}: {error}");
            return;
        }
    };
    assert_eq!(table.index_damage().is_some(), role == "index", "{case}");
    for lookup in LOOKUPS {
        let (right, errors) = look_up(&table, lookup, pairs);
        assert_eq!(errors > 0, role == "data", "{case}, {lookup}: {errors} errors");
        assert!(right > 0 || lookup == "get_many", "{case}, {lookup}: other blocks are read");
    }
}

#[test]
fn every_damaged_file_gives_right_answers_or_errors_in_every_way_of_reading() {
    let home = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    for (number, pairs) in arrangements(300, 2).iter().enumerate() {
        for choice in [IndexChoice::Fences, IndexChoice::Dense] {
            let folder = home.path().join(format!("{number}-{choice}"));
            build(&disk, &folder, pairs, options(choice, 1));
            let files = read_files(&OsDisk, &folder);
            for role in ["MANIFEST", "data", "index"] {
                for harm in Harm::ALL {
                    harm.put(&folder.join(name_of(&files, role)));
                    ALL.iter().for_each(|access| check(&folder, (role, harm), *access, pairs));
                    write_files(&OsDisk, &folder, &files);
                }
            }
        }
    }
}

/// Every part of a data file, damaged in every access mode, with and without the index.
#[test]
fn damage_is_found_in_every_access_mode() {
    for pairs in arrangements(200, 2) {
        let disk = memory();
        build(&disk, folder(), &pairs, options(IndexChoice::Fences, 1));
        let files = read_files(disk.as_ref(), folder());
        let path = folder().join(name_of(&files, "data"));
        let blocks = files[&name_of(&files, "data")].len() / ALIGNMENT - 2;
        for access in ALL {
            let with_index = ReadOptions::new().data(access);
            for options in [with_index.clone(), with_index.without_index()] {
                for block in 1..=blocks {
                    let at = (block * ALIGNMENT + 300) as u64;
                    flip(&*disk.open_to_write(&path, Access::Cached).unwrap(), at);
                    let options = options.clone().env(Env::on(disk.clone()));
                    let table = Table::open_with(folder(), &options).unwrap();
                    let (right, errors) = look_up(&table, "get_ref", &pairs);
                    assert!(right > 0 && errors > 0, "{right} right, {errors} refused");
                    flip(&*disk.open_to_write(&path, Access::Cached).unwrap(), at);
                }
            }
        }
    }
}

/// A disk whose free memory is set by the test.
#[derive(Clone, Debug)]
struct WithMemory {
    disk: Arc<dyn Disk>,
    free: Arc<AtomicU64>,
}

impl WithMemory {
    fn new(free: u64) -> WithMemory {
        WithMemory { disk: memory(), free: Arc::new(AtomicU64::new(free)) }
    }

    fn set(&self, free: u64) {
        self.free.store(free, Relaxed);
    }

    /// Returns default options on this disk.
    fn options(&self) -> ReadOptions {
        ReadOptions::new().env(Env::on(Arc::new(self.clone())))
    }
}

impl DiskLayer for WithMemory {
    fn below(&self) -> &dyn Disk {
        &*self.disk
    }

    fn over_free_memory(&self, _: u64) -> u64 {
        self.free.load(Relaxed)
    }
}

#[test]
fn data_are_mapped_if_they_fit_in_free_memory() {
    let disk = WithMemory::new(0);
    let pairs = tagged(500, 1);
    build(&disk.disk, folder(), &pairs, options(IndexChoice::Auto, 1));
    let check = |options: ReadOptions, expected| {
        let table = Table::open_with(folder(), &options).unwrap();
        assert_eq!((table.stats().access, table.stats().access_reason), expected);
        LOOKUPS.iter().for_each(|lookup| assert_eq!(look_up(&table, lookup, &pairs).1, 0));
        table.stats().data_bytes
    };
    let bytes = check(disk.options(), (Access::Direct, AccessReason::MemoryUnknown));
    for (free, expected) in [
        (bytes, (Access::Mapped, AccessReason::FitsMemory)),
        (u64::MAX, (Access::Mapped, AccessReason::FitsMemory)),
        (bytes - 1, (Access::Direct, AccessReason::ExceedsMemory)),
    ] {
        disk.set(free);
        check(disk.options(), expected);
    }
    for access in ALL {
        check(disk.options().data(access), (access, AccessReason::Chosen));
    }
}

/// The tables of a version are taken together, and only those that are open.
#[test]
fn a_version_is_mapped_if_all_of_its_open_tables_fit() {
    let disk = WithMemory::new(0);
    let mut writer = try_create(&disk.disk, 4).unwrap();
    publish(&mut writer, &changes(1, 400), UpdateMode::Merge, 1);
    let info = try_version(&disk.disk, 1).unwrap().info().clone();
    let sizes: Vec<u64> = info.layers().map(|layer| layer.bytes).collect();
    assert_eq!(sizes.len(), 4);
    let check = |options: ReadOptions, free: u64, expected| {
        disk.set(free);
        let version = Version::open(store(), 1, &options).unwrap();
        assert!(version.table_stats().all(|stats| stats.access == expected));
    };
    check(disk.options(), sizes.iter().sum(), Access::Mapped);
    check(disk.options(), sizes.iter().sum::<u64>() - 1, Access::Direct);
    let slots = info.shape.slots.slots(&(1..3));
    let part = || disk.options().slots(slots.clone());
    check(part(), sizes[1] + sizes[2], Access::Mapped);
    check(part(), sizes[1] + sizes[2] - 1, Access::Direct);
}

#[test]
fn a_version_with_mapped_and_direct_tables_answers_as_any_other() {
    let disk = WithMemory::new(u64::MAX);
    let mut writer =
        StoreWriter::create(store(), store_options(4).env(Env::on(disk.disk.clone()))).unwrap();
    publish(&mut writer, &changes(1, 400), UpdateMode::Merge, 1);
    let reader = StoreReader::open_with(store(), &disk.options()).unwrap();
    publish(&mut writer, &changes(2, 400), UpdateMode::Delta, 2);
    disk.set(1);
    assert!(reader.refresh().unwrap());
    let version = reader.version();
    let is_any = |access| version.table_stats().any(|stats| stats.access == access);
    assert!(is_any(Access::Mapped) && is_any(Access::Direct));
    let map = updated(&updated(&Pairs::new(), &changes(1, 400)), &changes(2, 400));
    let keys: Vec<Vec<u8>> = (0..420).map(|i| format!("key {i}").into_bytes()).collect();
    let mut seen = 0;
    let mut visit = |i: usize, value: Option<&[u8]>| {
        assert_eq!(value, map.get(&keys[i]).map(Vec::as_slice));
        seen += 1;
        Ok(())
    };
    version.get_many(&keys, &mut visit).unwrap();
    assert_eq!(seen, keys.len());
    for key in &keys {
        assert_eq!(version.get(key).unwrap().as_ref(), map.get(key));
        assert_eq!(version.get_ref(key).unwrap().as_deref(), map.get(key).map(Vec::as_slice));
    }
    assert!(scanned(&version).unwrap() == map);
}

/// A bit in the padding of a block, flipped by another program after the block was checked.
#[test]
fn later_damage_of_a_mapped_block_is_found_if_each_use_is_checked() {
    let home = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let pairs = tagged(60, 1);
    let folder = home.path().join("table");
    build(&disk, &folder, &pairs, options(IndexChoice::Auto, 1));
    let name = name_of(&read_files(&OsDisk, &folder), "data");
    let file = OsDisk.open_to_write(&folder.join(name), Access::Cached).unwrap();
    let end_of_block = 2 * ALIGNMENT as u64 - 1;
    for access in ALL {
        for checks in [Checks::Once, Checks::Always] {
            let options = ReadOptions::new().data(access).checks(checks);
            let table = Table::open_with(&folder, &options).unwrap();
            assert_eq!(look_up(&table, "get_ref", &pairs).1, 0);
            flip(&*file, end_of_block);
            file.sync().unwrap();
            let is_found = checks == Checks::Always || access != Access::Mapped;
            for lookup in LOOKUPS {
                let (_, errors) = look_up(&table, lookup, &pairs);
                assert_eq!(errors > 0, is_found, "{access:?}, {checks:?}, {lookup}");
            }
            let damage = table.verify(&Watch::default()).unwrap().damage;
            assert_eq!(damage.len(), 1, "a check of all blocks finds it");
            assert!(matches!(damage[0].kind(), ErrorKind::Checksum { .. }), "{}", damage[0]);
            flip(&*file, end_of_block);
            file.sync().unwrap();
        }
    }
}
