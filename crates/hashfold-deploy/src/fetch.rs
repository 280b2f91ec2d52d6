//! Fetching a version: makes it complete in a local store, and resumes where it was interrupted.
//!
//! ```text
//! version file → signature → limits → block trees → data files → index files, MANIFEST, TREE → adopt
//! ```
//!
//! Tables that the local store has are not fetched. The others are collected beside them, in the
//! store's folder `incoming`, and what is there is compared with the block trees before it counts: no
//! other record of the progress is needed, and none can be wrong.

use crate::{
    error::{Error, ErrorKind, Result},
    key::TrustedKeys,
    layout::{self, TREE},
    pieces::Transfer,
    rate::RateLimit,
    remote::{Remote, RemoteVersion, damaged_object},
};
use hashfold::{
    Env, ErrorKind as StoreErrorKind, Place, StoreOptions,
    io::{Access, Disk, Lock},
    store::{
        FileTree, Layer, Pointer, StoreWriter, Tree, VersionInfo, incoming_path, is_complete,
        table_path, version_path,
    },
    work::Watch,
};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

/// Time to wait for another writer of the local store.
const WRITER_WAIT: Duration = Duration::from_secs(60);
/// Time between two attempts to open the local store.
const WRITER_INTERVAL: Duration = Duration::from_millis(20);
/// The size of a block tree that has this many bytes for each MiB of its table, and 64 KiB more, is
/// plausible: a piece of 1 MiB takes 36.
const TREE_BYTES_PER_MIB: u64 = 256;

/// Options of fetching.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Number of requests in flight.
    pub lanes: usize,
    /// Limit of bytes per second; another thread may change it during the transfer.
    pub rate: RateLimit,
    /// Largest accepted version, in bytes.
    pub size_max: u64,
    /// Bytes that stay free on the device.
    pub free_bytes_min: u64,
    /// The keys of which one must have signed the version; without keys, it needs no signature.
    pub trusted_keys: TrustedKeys,
}

impl Default for FetchOptions {
    /// Returns options for four requests in flight, without limits and trusted keys.
    fn default() -> FetchOptions {
        FetchOptions {
            lanes: 4,
            rate: RateLimit::default(),
            size_max: u64::MAX,
            free_bytes_min: 0,
            trusted_keys: TrustedKeys::default(),
        }
    }
}

/// The result of fetching a version.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Description of the version.
    pub info: VersionInfo,
    /// Number of tables that were fetched; the local store had the others.
    pub tables: u64,
    /// Bytes that were fetched.
    pub bytes: u64,
    /// Bytes that an interrupted transfer had left, and that were right.
    pub resumed: u64,
}

/// A table that the local store lacks.
struct NewTable<'a> {
    layer: &'a Layer,
    folder: PathBuf,
    tree: Tree,
    /// The file `TREE`.
    tree_bytes: Vec<u8>,
}

/// Makes a version of the remote complete in the local store in `folder`, which is created if there is
/// none. The version gets the number that it has in the remote, and is not published in the local
/// store. `watch` counts the bytes of the version's tables, also those that are there already.
///
/// After an interruption of any kind, the same call goes on with the last piece that was written. One
/// process at a time fetches into a store; others may read it and write to it.
///
/// # Errors
/// `Absent` if the version was not pushed; `Untrusted` if none of the trusted keys has signed it, before
/// anything else is read; `Damaged`, with object and offset, if three attempts gave wrong bytes; `Limit`,
/// `Space`; `Store` with `Mismatch` if the folder has another store, `Exists` if it has another version of
/// this number, `Busy` if another process fetches into it.
pub fn fetch(
    env: &Env,
    remote: &Remote,
    store: &str,
    number: u64,
    folder: &Path,
    options: &FetchOptions,
    watch: &Watch,
) -> Result<Fetched> {
    let RemoteVersion { bytes, info } =
        remote.read_trusted(store, number, &options.trusted_keys)?;
    if info.bytes() > options.size_max {
        let (what, limit) = ("size of the version in bytes", options.size_max);
        let kind = ErrorKind::Limit { what, limit, got: info.bytes() };
        return Err(Error::new(kind).at(remote.objects().place(&layout::version(store, number))));
    }
    create_store(env, folder, &info)?;
    let transfer = Transfer::new(env, remote, options, watch);
    let _lock = lock_incoming(env.disk.as_ref(), folder)?;
    // An adoption that was interrupted leaves tables that no version has; only a writer may say so, and
    // removes them.
    drop(open_writer(env, folder, watch)?);
    let tables = new_tables(&transfer, store, folder, &info)?;
    remove_others(env.disk.as_ref(), folder, &tables)?;
    check_space(env.disk.as_ref(), folder, &tables, options)?;
    for is_data in [true, false] {
        for table in &tables {
            let files = table.tree.files.iter().filter(|file| is_data_file(file) == is_data);
            for file in files {
                let name = layout::table_file(store, table.layer.table, &file.name);
                transfer.file(&table.folder.join(&file.name), &name, file)?;
            }
        }
    }
    for table in &tables {
        finish_table(env.disk.as_ref(), table)?;
    }
    let tables = tables.len() as u64;
    open_writer(env, folder, watch)?.adopt(&bytes, number)?;
    Ok(Fetched {
        info,
        tables,
        bytes: transfer.fetched.load(Relaxed),
        resumed: transfer.resumed.load(Relaxed),
    })
}

/// Whether a local store has a version, complete.
fn has_version(disk: &dyn Disk, folder: &Path, number: u64, id: u64) -> Result<bool> {
    Ok(lists_version(disk, folder, number, id)? && disk.exists(&version_path(folder, number))?)
}

/// Whether a local store has had a version, complete; files may be lost.
pub(crate) fn lists_version(disk: &dyn Disk, folder: &Path, number: u64, id: u64) -> Result<bool> {
    match Pointer::read(disk, folder) {
        Ok(pointer) => Ok(pointer.version(number).is_some_and(|name| name.id == id)),
        Err(error) if error.is_absent() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Creates the local store, if there is none. Refuses another store, and a store with another version
/// of this number, before anything is fetched.
fn create_store(env: &Env, folder: &Path, info: &VersionInfo) -> Result<()> {
    match Pointer::read(env.disk.as_ref(), folder) {
        Ok(pointer) => check_is_of(&pointer, folder, info),
        Err(error) if error.is_absent() => {
            let options = StoreOptions::new()
                .env(env.clone())
                .seed(info.seed)
                .id(info.store)
                .chunks(info.shape.slots.chunks())
                .index(info.shape.index)
                .block_size(info.shape.block_size)
                .attributes(info.attributes.clone());
            drop(StoreWriter::create(folder, options)?);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses a version of another store, and another version than the one that the store has under this
/// number.
pub(crate) fn check_is_of(pointer: &Pointer, folder: &Path, info: &VersionInfo) -> Result<()> {
    let number = info.name.number;
    let there = pointer.version(number).unwrap_or(info.name);
    let kind = if pointer.store != info.store {
        let (what, expected, got) = ("store", pointer.store, info.store);
        StoreErrorKind::Mismatch { what, expected, got }
    } else if there != info.name {
        StoreErrorKind::Exists
    } else {
        return Ok(());
    };
    Err(hashfold::Error::new(kind).at(&Place::file(&version_path(folder, number))).into())
}

/// Creates and locks the folder in which tables are collected.
pub(crate) fn lock_incoming(disk: &dyn Disk, folder: &Path) -> Result<Box<dyn Lock>> {
    let incoming = incoming(folder);
    if !disk.exists(&incoming)? {
        disk.create_folder(&incoming)?;
        disk.sync_folder(folder)?;
    }
    Ok(disk.lock(&incoming)?)
}

/// Returns the folder in which tables are collected.
fn incoming(folder: &Path) -> PathBuf {
    let table = incoming_path(folder, 0);
    table.parent().expect("a table's folder is in a folder").to_owned()
}

/// Returns the tables of a version that the local store lacks, with their block trees.
fn new_tables<'a>(
    transfer: &Transfer<'_>,
    store: &str,
    folder: &Path,
    info: &'a VersionInfo,
) -> Result<Vec<NewTable<'a>>> {
    let disk = transfer.env.disk.as_ref();
    let (mut tables, mut seen) = (Vec::new(), HashSet::new());
    if has_version(disk, folder, info.name.number, info.name.id)? {
        transfer.watch.add(info.bytes())?;
        return Ok(tables);
    }
    for layer in info.layers().filter(|layer| seen.insert(layer.table)) {
        if is_complete(disk, &table_path(folder, layer.table), layer)? {
            transfer.watch.add(layer.bytes)?;
            continue;
        }
        let (tree_bytes, tree) = read_tree(transfer, store, layer)?;
        let folder = incoming_path(folder, layer.table);
        disk.create_folder(&folder)?;
        tables.push(NewTable { layer, folder, tree, tree_bytes });
    }
    disk.sync_folder(&incoming(folder))?;
    Ok(tables)
}

/// Reads the block tree of a table: the bytes of the file, and what they say.
pub(crate) fn read_tree(
    transfer: &Transfer<'_>,
    store: &str,
    layer: &Layer,
) -> Result<(Vec<u8>, Tree)> {
    let name = layout::table_file(store, layer.table, TREE);
    let place = || transfer.objects.place(&name);
    let size_max = (layer.bytes >> 20) * TREE_BYTES_PER_MIB + (64 << 10);
    let read = || {
        let found = transfer.objects.get(&name, size_max, None)?.object();
        let what = "block tree of a table of this version".to_owned();
        let absent = || Error::new(ErrorKind::Absent { what }).at(place());
        found.map(|object| object.bytes).ok_or_else(absent)
    };
    let decode = |bytes: &[u8]| {
        Tree::from_bytes(bytes, layer).map_err(|error| damaged_object(&error, place()))
    };
    let bytes = transfer.verified(read, 0, |bytes| decode(bytes).map(|_| ()))?;
    let tree = decode(&bytes)?;
    Ok((bytes, tree))
}

/// Removes what transfers of other versions have left.
fn remove_others(disk: &dyn Disk, folder: &Path, tables: &[NewTable<'_>]) -> Result<()> {
    let incoming = incoming(folder);
    for name in disk.list(&incoming)? {
        let path = incoming.join(&name);
        if tables.iter().any(|table| table.folder == path) {
            continue;
        }
        if disk.list(&path).is_ok() {
            remove_with_files(disk, &path)?;
        }
    }
    Ok(())
}

/// Removes what interrupted transfers have left in a local store.
pub(crate) fn remove_incoming(disk: &dyn Disk, folder: &Path) -> Result<()> {
    let _lock = lock_incoming(disk, folder)?;
    remove_others(disk, folder, &[])
}

/// Removes a folder that has only files.
pub(crate) fn remove_with_files(disk: &dyn Disk, folder: &Path) -> Result<()> {
    for file in disk.list(folder)? {
        disk.remove(&folder.join(file))?;
    }
    Ok(disk.remove_folder(folder)?)
}

/// Refuses a version for which the device has no space.
fn check_space(
    disk: &dyn Disk,
    folder: &Path,
    tables: &[NewTable<'_>],
    options: &FetchOptions,
) -> Result<()> {
    let mut expected = 0;
    for NewTable { layer, folder, tree, tree_bytes } in tables {
        expected += layer.bytes + tree_bytes.len() as u64;
        for file in &tree.files {
            let path = folder.join(&file.name);
            if disk.exists(&path)? {
                expected -= disk.open(&path, Access::Cached)?.size()?.min(file.size());
            }
        }
    }
    check_free(disk, folder, expected, options)
}

/// Refuses to write this number of bytes if the device has no space for them and for what must stay free.
pub(crate) fn check_free(
    disk: &dyn Disk,
    folder: &Path,
    bytes: u64,
    options: &FetchOptions,
) -> Result<()> {
    let (expected, got) = (bytes.saturating_add(options.free_bytes_min), disk.free_bytes(folder)?);
    match bytes == 0 || expected <= got {
        true => Ok(()),
        false => {
            Err(Error::new(ErrorKind::Space { expected, got }).at(folder.display().to_string()))
        }
    }
}

/// Whether a file of a table has its entries.
fn is_data_file(file: &FileTree) -> bool {
    file.name.starts_with("data")
}

/// Writes the block tree of a table whose other files are there, and makes all names durable.
fn finish_table(disk: &dyn Disk, table: &NewTable<'_>) -> Result<()> {
    write_file(disk, &table.folder.join(TREE), &table.tree_bytes)?;
    Ok(disk.sync_folder(&table.folder)?)
}

/// Writes and syncs a small file.
pub(crate) fn write_file(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<()> {
    let file = disk.create(path, Access::Cached)?;
    file.write_at(0, bytes)?;
    Ok(file.sync()?)
}

/// Opens the local store for writing; waits while another process writes to it, unless `watch` cancels.
pub(crate) fn open_writer(env: &Env, folder: &Path, watch: &Watch) -> Result<StoreWriter> {
    let end = env.clock.now() + WRITER_WAIT;
    loop {
        match StoreWriter::open(env, folder) {
            Err(error) if error.is_busy() && env.clock.now() < end => {
                watch.add(0)?;
                env.clock.sleep(WRITER_INTERVAL);
            }
            opened => return Ok(opened?),
        }
    }
}
