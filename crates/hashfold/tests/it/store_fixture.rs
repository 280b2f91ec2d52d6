//! Helpers of the tests of stores: small stores, and maps of their content.

use crate::fixture::{Pairs, SEED};
use hashfold::{
    Env, Error, ReadOptions, Result,
    io::{Access, Disk, MemoryDisk},
    run::{Run, SortOptions},
    store::{
        Changes, DeltaInfo, StoreOptions, StoreWriter, TableSizes, UpdateMode, Version,
        VersionFacts, VersionInfo, diff, verify,
    },
    work::Watch,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The folder of a test's store.
pub(crate) const STORE: &str = "store";

/// The id of a test's store.
pub(crate) const STORE_ID: u64 = 99;

/// A put, or a deletion.
pub(crate) type Change = (Vec<u8>, Option<Vec<u8>>);

/// The path of a test's delta file.
pub(crate) const DELTA: &str = "file.delta";

/// Writes the delta between two versions of a store to [`DELTA`] on its disk.
pub(crate) fn write_delta(disk: &Arc<dyn Disk>, old: u64, new: u64) -> (DeltaInfo, Changes) {
    let [old, new] = [old, new].map(|number| try_version(disk, number).unwrap());
    let watch = Watch::default();
    diff(&Env::on(disk.clone()), &old, &new, Path::new(DELTA), &watch).unwrap()
}

pub(crate) fn store() -> &'static Path {
    Path::new(STORE)
}

pub(crate) fn store_options(chunks: u32) -> StoreOptions {
    let attributes = vec![("schema".to_owned(), b"none".to_vec())];
    StoreOptions::new().seed(SEED).id(STORE_ID).chunks(chunks).attributes(attributes)
}

/// Every chunk has tables of its own.
pub(crate) const APART: TableSizes = TableSizes { base_bytes_min: 0, delta_bytes_min: 0 };

/// Creates a store in which every chunk has tables of its own.
pub(crate) fn try_create(disk: &Arc<dyn Disk>, chunks: u32) -> Result<StoreWriter> {
    let options = store_options(chunks);
    let mut writer = StoreWriter::create(store(), options.env(Env::on(disk.clone())))?;
    writer.set_table_sizes(APART);
    Ok(writer)
}

/// Opens a store; every new chunk has tables of its own.
pub(crate) fn try_open(disk: &Arc<dyn Disk>) -> Result<StoreWriter> {
    let mut writer = StoreWriter::open(&Env::on(disk.clone()), store())?;
    writer.set_table_sizes(APART);
    Ok(writer)
}

/// Makes a version without publishing it.
pub(crate) fn try_write(
    writer: &mut StoreWriter,
    changes: &[Change],
    mode: UpdateMode,
    id: u64,
) -> Result<VersionInfo> {
    let mut batch = writer.batch(SortOptions::within(1 << 20))?;
    for (key, value) in changes {
        batch.push(key, value.as_deref())?;
    }
    writer.write(
        batch,
        mode,
        VersionFacts { id, created_s: id, provenance: Vec::new() },
        &Watch::default(),
    )
}

/// Makes a version and publishes it.
#[track_caller]
pub(crate) fn publish(writer: &mut StoreWriter, changes: &[Change], mode: UpdateMode, id: u64) {
    let info = try_write(writer, changes, mode, id).unwrap();
    writer.publish(info.name.number).unwrap();
}

/// Returns the batch of a round: it puts most keys, and deletes some.
pub(crate) fn changes(round: u64, keys: u64) -> Vec<Change> {
    let change = |i: u64| {
        let key = format!("key {i}").into_bytes();
        let is_deleted = i % 7 == round % 7 && round > 1;
        let value = format!("{round}: {}", "v".repeat((i * round % 50) as usize)).into_bytes();
        (key, (!is_deleted).then_some(value))
    };
    (0..keys).filter(|i| round == 1 || i % 3 != round % 3).map(change).collect()
}

/// Returns the map after a batch.
pub(crate) fn updated(map: &Pairs, changes: &[Change]) -> Pairs {
    let mut map = map.clone();
    for (key, value) in changes {
        match value {
            Some(value) => map.insert(key.clone(), value.clone()),
            None => map.remove(key),
        };
    }
    map
}

/// Opens a version. All of its tables must be whole.
pub(crate) fn try_version(disk: &Arc<dyn Disk>, number: u64) -> Result<Version> {
    let options = ReadOptions::new().env(Env::on(disk.clone()));
    Version::open(store(), number, &options).and_then(Version::whole)
}

/// Returns all entries of a version, by scans.
pub(crate) fn scanned(version: &Version) -> Result<Pairs> {
    let mut pairs = Pairs::new();
    for chunks in version.parts() {
        let mut run = version.scan_chunks(chunks.clone());
        while run.advance()? {
            let entry = run.entry();
            assert!(chunks.contains(&version.info().shape.slots.chunk_of(entry.key)));
            let value = entry.value.expect("a version shows no deletions").to_vec();
            assert!(pairs.insert(entry.key.to_vec(), value).is_none(), "a key comes once");
        }
    }
    Ok(pairs)
}

/// Returns the damage that `verify` finds in a version.
#[track_caller]
pub(crate) fn damage(disk: &Arc<dyn Disk>, number: u64) -> Vec<Error> {
    verify(&Env::on(disk.clone()), store(), number, &Watch::default()).unwrap().damage
}

/// Copies a folder and its content.
pub(crate) fn copy_folder(from: &dyn Disk, folder: &Path, to: &dyn Disk, other: &Path) {
    to.create_folder(other).unwrap();
    for name in from.list(folder).unwrap() {
        let (path, copy) = (folder.join(&name), other.join(&name));
        match from.open(&path, Access::Cached) {
            Ok(file) => {
                let bytes = hashfold::io::read_all(file.as_ref(), 1 << 30).unwrap();
                write_file(to, &copy, &bytes);
            }
            Err(_) => copy_folder(from, &path, to, &copy),
        }
    }
}

/// Returns all files below a folder, by path.
pub(crate) fn files_below(disk: &dyn Disk, folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for name in disk.list(folder).unwrap() {
        let path = folder.join(name);
        match disk.list(&path) {
            Ok(_) => all.extend(files_below(disk, &path)),
            Err(_) => {
                all.insert(path.clone(), read_file(disk, &path));
            }
        }
    }
    all
}

pub(crate) fn read_file(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, Access::Cached).unwrap();
    hashfold::io::read_all(file.as_ref(), 1 << 30).unwrap().to_vec()
}

pub(crate) fn write_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) {
    disk.create(path, Access::Cached).unwrap().write_at(0, bytes).unwrap();
}

/// Returns a disk with the same files.
pub(crate) fn copy_of(disk: &dyn Disk) -> MemoryDisk {
    let copy = MemoryDisk::default();
    copy_folder(disk, Path::new(""), &copy, Path::new(""));
    copy
}
