//! Small tables and stores in `tests/golden/`, one folder each. Every released version must stay
//! readable as long as promised, and the same input must produce the same bytes.

use crate::{
    fixture::{
        CHOICES, Files, Pairs, SEED, check_holds, fixed, folder, name_of, open, options, pairs,
        read_files, slotted, tagged, try_build, variable, write_files,
    },
    store_fixture::{
        Change, STORE_ID, changes, copy_folder, publish, read_file, scanned, store, try_create,
        try_open, try_version, updated, write_file,
    },
};
use hashfold::{
    Env, ReadOptions,
    io::{
        Access, Disk, MemoryDisk, OsDisk,
        frame::{FileKind, Header},
    },
    run::SortOptions,
    store::{
        DeltaReader, Layer, Pin, StoreReader, UpdateMode, Version, VersionFacts, VersionInfo,
        VersionName, diff, verify,
    },
    table::{IndexChoice, IndexOptions, TableBuilder, TableOptions},
    work::{Executor, Inline, Threads, Watch},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const ID: u64 = 0x600d;

struct Golden {
    name: String,
    pairs: Pairs,
    options: TableOptions,
    choice: IndexChoice,
    /// The attribute `schema`.
    schema: Option<&'static str>,
}

/// The format versions of data files. The last one is written.
const VERSIONS: [u16; 2] = [1, 2];
const NEWEST: u16 = 2;

/// Returns all tables of a format version.
fn tables(version: u16) -> Vec<Golden> {
    let mut all = Vec::new();
    for choice in CHOICES {
        let layouts = match version {
            1 => vec![("fixed", fixed(300, 21)), ("variable", variable(150, 22))],
            _ => vec![
                ("fixed", tagged(300, 21)),
                ("variable", slotted(150, 22)),
                ("small", pairs(400, 25, |_| 8, |_| 0)),
                ("packed", pairs(300, 22, |i| 6 + (i % 7) as usize, |i| (i % 13) as usize)),
            ],
        };
        for (layout, pairs) in layouts {
            let attributes = vec![("schema".to_owned(), layout.into())];
            let options = options(choice, ID).attributes(attributes);
            let (name, schema) = (format!("v{version}/{layout}-{choice}"), Some(layout));
            all.push(Golden { name, pairs, options, choice, schema });
        }
    }
    let choice = IndexChoice::Dense;
    let index = IndexOptions { choice, absent_bits: 7, ..IndexOptions::default() };
    let options = options(choice, ID).index(index).block_size(8192);
    let pairs = if version == 1 { variable(150, 23) } else { slotted(150, 23) };
    let name = format!("v{version}/absent-bits");
    all.push(Golden { name, pairs, options, choice, schema: None });
    all
}

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn built(golden: &Golden) -> Files {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let options = golden.options.clone();
    try_build(&disk, folder(), &golden.pairs, options, SortOptions::default()).unwrap();
    read_files(disk.as_ref(), folder())
}

#[test]
fn tables_of_all_versions_are_read() {
    for golden in VERSIONS.into_iter().flat_map(tables) {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let table = open(&disk, &place(&golden.name)).unwrap();
        check_holds(&table, &golden.pairs);
        let stats = table.stats();
        assert_eq!((stats.id, stats.seed), (ID, SEED));
        assert_eq!(stats.index.map(|it| it.choice), Some(golden.choice));
        assert_eq!(table.attribute("schema"), golden.schema.map(str::as_bytes));
    }
}

#[test]
fn the_same_entries_give_the_same_bytes() {
    for golden in tables(NEWEST) {
        let kept = read_files(&OsDisk, &place(&golden.name));
        assert!(kept == built(&golden), "{} has other bytes now", golden.name);
    }
}

/// The files do not depend on the executor, the memory or the order of the input.
#[test]
fn the_way_of_building_does_not_show() {
    let executors: [Arc<dyn Executor>; 2] = [Arc::new(Inline), Arc::new(Threads::new(3))];
    let pairs = pairs(1500, 24, |_| 8, |i| 900 + (i % 9) as usize);
    let mut all = Vec::new();
    for executor in &executors {
        for memory_bytes in [hashfold::run::MEMORY_BYTES_MIN, 64 << 20] {
            let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
            let options = options(IndexChoice::Dense, ID);
            let builder = TableBuilder::with(
                folder(),
                options.env(Env { executor: executor.clone(), ..Env::on(disk.clone()) }),
            )
            .unwrap();
            let sort = SortOptions { memory_bytes, ..SortOptions::default() };
            let mut sorter = builder.sorter(sort).unwrap();
            let mut push = |(key, value): (&Vec<u8>, &Vec<u8>)| {
                sorter.push(key, Some(value)).unwrap();
            };
            match all.len() % 2 {
                0 => pairs.iter().for_each(&mut push),
                _ => pairs.iter().rev().for_each(&mut push),
            }
            let mut run = sorter.finish().unwrap();
            assert_eq!(run.spilled_bytes() > 0, memory_bytes < 1 << 21);
            builder.build(&mut run, &Watch::default()).unwrap();
            all.push(read_files(disk.as_ref(), folder()));
        }
    }
    assert!(all.windows(2).all(|two| two[0] == two[1]));
}

/// The stores of format version 1, each in its folder beside a delta file: with tables of version 1,
/// and with those of version 2, which is written.
const STORES: [&str; 2] = ["store-v1", "store-v1-tables-v2"];
const NEWEST_STORE: &str = STORES[1];
const STORE_KEYS: u64 = 20;
const STORE_CHUNKS: u32 = 2;

/// Returns the content of the store's versions.
fn store_maps() -> [Pairs; 2] {
    let first = updated(&Pairs::new(), &changes(1, STORE_KEYS));
    let second = updated(&first, &changes(2, STORE_KEYS));
    [first, second]
}

/// Returns a disk with the folder `store`, which has a base and a delta in two chunks, and with the
/// file `file.delta`, the delta from the first version to the second.
fn built_store() -> MemoryDisk {
    let disk = MemoryDisk::default();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut writer = try_create(&shared, STORE_CHUNKS).unwrap();
    publish(&mut writer, &changes(1, STORE_KEYS), UpdateMode::Merge, 1);
    let mut batch = writer.batch(SortOptions::within(1 << 20)).unwrap();
    for (key, value) in changes(2, STORE_KEYS) {
        batch.push(&key, value.as_deref()).unwrap();
    }
    let provenance = vec![("inputs".to_owned(), b"two".to_vec())];
    let facts = VersionFacts { id: 2, created_s: 1_700_000_000, provenance };
    writer.write(batch, UpdateMode::Delta, facts, &Watch::default()).unwrap();
    writer.publish(2).unwrap();
    writer.pin(1, Pin::Keep).unwrap();
    let [old, new] = [1, 2].map(|number| try_version(&shared, number).unwrap());
    let path = Path::new("file.delta");
    diff(&Env::on(shared), &old, &new, path, &Watch::default()).unwrap();
    disk
}

/// All files below a folder, by their paths in it.
fn files_below(disk: &dyn Disk, folder: &Path) -> Files {
    let mut files = Files::new();
    for name in disk.list(folder).unwrap() {
        let path = folder.join(&name);
        match disk.open(&path, Access::Cached) {
            Ok(_) => {
                files.insert(name, read_file(disk, &path));
            }
            Err(_) => {
                let below = files_below(disk, &path).into_iter();
                files.extend(below.map(|(below, bytes)| (format!("{name}/{below}"), bytes)));
            }
        }
    }
    files
}

#[test]
fn stores_of_all_versions_are_read() {
    STORES.iter().for_each(|name| check_store(&place(name).join(store())));
}

fn check_store(folder: &Path) {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let follower =
        StoreReader::open_with(folder, &ReadOptions::new().env(Env::on(disk.clone()))).unwrap();
    let second = follower.version();
    let first = Version::open(folder, 1, &ReadOptions::new().env(Env::on(disk.clone()))).unwrap();
    for (version, map) in [&first, second.as_ref()].into_iter().zip(store_maps()) {
        assert!(scanned(version).unwrap() == map);
        let number = version.info().name.number;
        let report = verify(&Env::on(disk.clone()), folder, number, &Watch::default()).unwrap();
        assert!(report.damage.is_empty(), "{}", report.damage[0]);
    }
    let info = second.info();
    assert_eq!((info.store, info.seed, info.created_s), (STORE_ID, SEED, 1_700_000_000));
    assert_eq!(info.name, VersionName { number: 2, id: 2 });
    assert_eq!(info.parent, Some(VersionName { number: 1, id: 1 }));
    assert_eq!((info.shape.slots.chunks(), info.delta_depth()), (STORE_CHUNKS, 1));
    assert_eq!(info.provenance, [("inputs".to_owned(), b"two".to_vec())]);
    assert_eq!(second.attribute("schema"), Some(&b"none"[..]));
    assert_eq!(first.info().changes.unwrap().added, STORE_KEYS);
}

/// Returns the format versions of the data files of a version's tables.
fn data_versions(disk: &dyn Disk, info: &VersionInfo) -> Vec<u16> {
    let version = |layer: &Layer| {
        let folder = store().join(format!("tables/{:016x}", layer.table));
        let name = name_of(&read_files(disk, &folder), "data");
        let bytes = read_file(disk, &folder.join(name));
        Header::decode(&bytes, FileKind::TableData).unwrap().version
    };
    info.layers().map(version).collect()
}

#[test]
fn a_merge_rewrites_tables_of_version_1() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    copy_folder(&OsDisk, &place(STORES[0]), disk.as_ref(), Path::new(""));
    let old = try_version(&disk, 2).unwrap();
    assert_eq!(data_versions(disk.as_ref(), old.info()), [1; 4]);
    let mut writer = try_open(&disk).unwrap();
    // A key of each chunk.
    let batch: Vec<Change> =
        (0..STORE_KEYS).map(|i| (format!("key {i}").into_bytes(), Some(vec![7; 90]))).collect();
    publish(&mut writer, &batch, UpdateMode::Merge, 3);
    let new = try_version(&disk, 3).unwrap();
    assert_eq!(data_versions(disk.as_ref(), new.info()), [2; 2]);
    let [_, second] = store_maps();
    assert!(scanned(&new).unwrap() == updated(&second, &batch));
    assert!(scanned(&old).unwrap() == second, "the old version is still read");
}

#[test]
fn a_delta_file_of_version_1_is_read_and_applied() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    copy_folder(&OsDisk, &place(NEWEST_STORE), disk.as_ref(), Path::new(""));
    let mut delta = DeltaReader::open(&Env::on(disk.clone()), Path::new("file.delta")).unwrap();
    let mut read: Vec<Change> = Vec::new();
    let mut visit = |key: &[u8], value: Option<&[u8]>| {
        read.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        Ok(())
    };
    while delta.next(&mut visit).unwrap() {}
    let [first, second] = store_maps();
    assert!(updated(&first, &read) == second);
    let there: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let mut writer = try_create(&there, STORE_CHUNKS).unwrap();
    publish(&mut writer, &changes(1, STORE_KEYS), UpdateMode::Merge, 1);
    let bytes = read_file(disk.as_ref(), Path::new("file.delta"));
    write_file(there.as_ref(), Path::new("file.delta"), &bytes);
    let sort = SortOptions::within(1 << 20);
    let path = Path::new("file.delta");
    let made = writer
        .apply(path, sort, UpdateMode::Merge, VersionFacts::default(), &Watch::default())
        .unwrap();
    assert_eq!(made.name, VersionName { number: 2, id: 2 });
    assert!(scanned(&try_version(&there, 2).unwrap()).unwrap() == second);
}

#[test]
fn the_same_batches_give_the_same_store() {
    let kept = files_below(&OsDisk, &place(NEWEST_STORE));
    let made = files_below(&built_store(), Path::new(""));
    assert_eq!(kept.keys().collect::<Vec<_>>(), made.keys().collect::<Vec<_>>());
    for (name, bytes) in &kept {
        assert!(*bytes == made[name], "{NEWEST_STORE}/{name} has other bytes now");
    }
}

fn remove_below(folder: &Path) {
    for name in OsDisk.list(folder).unwrap() {
        let path = folder.join(name);
        if OsDisk.list(&path).is_ok() {
            remove_below(&path);
            OsDisk.remove_folder(&path).unwrap();
        } else {
            OsDisk.remove(&path).unwrap();
        }
    }
}

/// Writes the golden files: `cargo test --test it golden -- --ignored`. Only for a new format
/// version: files of a released version never change.
#[test]
#[ignore = "writes to the source tree"]
fn write_golden_files() {
    for golden in tables(NEWEST) {
        let place = place(&golden.name);
        if OsDisk.exists(&place).unwrap() {
            for name in OsDisk.list(&place).unwrap() {
                OsDisk.remove(&place.join(name)).unwrap();
            }
        }
        write_files(&OsDisk, &place, &built(&golden));
    }
    let place = place(NEWEST_STORE);
    if OsDisk.exists(&place).unwrap() {
        remove_below(&place);
    }
    copy_folder(&built_store(), Path::new(""), &OsDisk, &place);
}
