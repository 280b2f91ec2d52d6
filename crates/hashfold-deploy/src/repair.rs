//! Repairing a version of a local store: what is damaged is fetched again.
//!
//! A damaged file is replaced as a whole, by a rename: the right pieces are copied to a new file, the
//! others are fetched. So readers see the old file or the new one, and an interrupted repair begins again
//! with what is still damaged.

use crate::{
    error::Result,
    fetch::{
        FetchOptions, check_free, check_is_of, lock_incoming, read_tree, remove_with_files,
        write_file,
    },
    layout::{self, TREE},
    pieces::Transfer,
    remote::{Remote, RemoteVersion},
};
use hashfold::{
    Env, ErrorClass, ErrorKind as StoreErrorKind, Place,
    io::{Access, Disk, read_all},
    store::{
        FileTree, Layer, Pointer, StoreWriter, Tree, VersionInfo, incoming_path, table_path,
        version_path, versions,
    },
    work::Watch,
};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
};

/// The result of repairing a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// Number of files that were damaged or missing, and were replaced.
    pub files: u64,
    /// Bytes that were fetched.
    pub bytes: u64,
}

/// Compares all bytes of a version in the local store in `folder` with the hashes of the remote, and
/// replaces each file that is damaged or missing. Readers that have the version open stay with the old files
/// until they open it again. `watch` counts the bytes of the version's tables.
///
/// # Errors
/// `Absent` if the version was not pushed; `Untrusted` if none of the trusted keys has signed it; `Damaged`,
/// with object and offset, if three attempts gave wrong bytes; `Space` if there is no room for a copy of a
/// damaged file. `Store` with `Mismatch` if the folder has another store, `Exists` if it has another version of
/// this number, `Absent` if it has no store or no such version, `Busy` if another process fetches into it.
pub fn repair(
    env: &Env,
    remote: &Remote,
    store: &str,
    number: u64,
    folder: &Path,
    options: &FetchOptions,
    watch: &Watch,
) -> Result<Repaired> {
    let RemoteVersion { bytes, info } =
        remote.read_trusted(store, number, &options.trusted_keys)?;
    let transfer = Transfer::new(env, remote, options, watch);
    let disk = env.disk.as_ref();
    check_is_there(&Pointer::read(disk, folder)?, folder, &info)?;
    let _lock = lock_incoming(disk, folder)?;
    let mut files = u64::from(repair_version_file(disk, folder, number, &bytes)?);
    let mut seen = HashSet::new();
    for layer in info.layers().filter(|layer| seen.insert(layer.table)) {
        let table = Damaged { transfer: &transfer, options, store, layer, folder };
        files += table.repair()?;
    }
    Ok(Repaired { files, bytes: transfer.fetched.load(Relaxed) })
}

/// Makes a local store usable whose file `CURRENT` is damaged or lost: makes it again from the version files. If
/// none of them can be read, removes what is left of them, so that all versions can be fetched. Returns the
/// damage; `None` if there is none, or no store.
///
/// # Errors
/// `Busy` if another process writes to the store; `CURRENT` has a newer format; errors of the device.
pub fn mend_pointer(env: &Env, folder: &Path) -> Result<Option<hashfold::Error>> {
    let disk = env.disk.as_ref();
    let damage = match Pointer::read(disk, folder) {
        Ok(_) => return Ok(None),
        Err(error) if error.is_absent() => return Ok(None),
        Err(error) if is_mendable(&error) => error,
        Err(error) => return Err(error.into()),
    };
    match StoreWriter::mend(env, folder, None, None) {
        Ok(_) => {}
        Err(error) if is_mendable(&error) => remove_remains(env, folder, error)?,
        Err(error) => return Err(error.into()),
    }
    Ok(Some(damage))
}

/// Whether an error is damage, and not a file of a newer format.
fn is_mendable(error: &hashfold::Error) -> bool {
    let is_newer = matches!(error.kind(), StoreErrorKind::Version { .. });
    error.class() == ErrorClass::Damage && !is_newer
}

/// Removes `CURRENT` and the version files of a store of which none can be read; else returns `error`.
fn remove_remains(env: &Env, folder: &Path, error: hashfold::Error) -> Result<()> {
    let disk = env.disk.as_ref();
    let _lock = disk.lock(folder)?;
    let is_lost = |read: &hashfold::Result<VersionInfo>| read.as_ref().is_err_and(is_mendable);
    let is_there = disk.exists(version_path(folder, 1).parent().expect("it is in a folder"))?;
    let all = if is_there { versions(env, folder)? } else { Vec::new() };
    if !all.iter().all(|(_, read)| is_lost(read)) {
        return Err(error.into());
    }
    for (number, _) in all {
        disk.remove(&version_path(folder, number))?;
    }
    // The pointer goes last: without it, nobody would look for what is left.
    let current = folder.join(hashfold::store::NAME);
    if disk.exists(&current)? {
        disk.remove(&current)?;
    }
    Ok(disk.sync_folder(folder)?)
}

/// Refuses a version that the local store does not have: the bytes of another one would replace its files.
fn check_is_there(pointer: &Pointer, folder: &Path, info: &VersionInfo) -> Result<()> {
    check_is_of(pointer, folder, info)?;
    match pointer.version(info.name.number) {
        Some(_) => Ok(()),
        None => {
            let place = Place::file(&version_path(folder, info.name.number));
            Err(hashfold::Error::new(StoreErrorKind::Absent).at(&place).into())
        }
    }
}

/// Replaces the file of a version if it has other bytes, or is missing. Returns whether it had.
fn repair_version_file(disk: &dyn Disk, folder: &Path, number: u64, bytes: &[u8]) -> Result<bool> {
    let version = version_path(folder, number);
    let read = disk.open(&version, Access::Cached);
    let read = read.and_then(|file| read_all(file.as_ref(), bytes.len() as u64));
    if read.is_ok_and(|read| *read == *bytes) {
        return Ok(false);
    }
    // No table has the id 0.
    let incoming = incoming_path(folder, 0);
    disk.create_folder(&incoming)?;
    let new = incoming.join("version");
    write_file(disk, &new, bytes)?;
    disk.rename(&new, &version)?;
    disk.sync_folder(version.parent().expect("a version's file is in a folder"))?;
    remove_with_files(disk, &incoming)?;
    Ok(true)
}

/// A table that may be damaged.
struct Damaged<'a> {
    transfer: &'a Transfer<'a>,
    options: &'a FetchOptions,
    store: &'a str,
    layer: &'a Layer,
    /// Folder of the local store.
    folder: &'a Path,
}

impl Damaged<'_> {
    /// Replaces all files of the table that are damaged or missing. Returns their number.
    fn repair(&self) -> Result<u64> {
        let disk = self.transfer.env.disk.as_ref();
        let (table, new) = (self.table(), incoming_path(self.folder, self.layer.table));
        let (tree_bytes, tree) = read_tree(self.transfer, self.store, self.layer)?;
        disk.create_folder(&table)?;
        disk.create_folder(&new)?;
        let mut replaced = 0;
        for file in &tree.files {
            replaced += u64::from(self.repair_file(file, &new)?);
        }
        if Tree::open(disk, &table, self.layer).is_err() {
            write_file(disk, &new.join(TREE), &tree_bytes)?;
            disk.rename(&new.join(TREE), &table.join(TREE))?;
            replaced += 1;
        }
        for folder in [table.as_path(), table.parent().expect("tables are in a folder")] {
            disk.sync_folder(folder)?;
        }
        remove_with_files(disk, &new)?;
        Ok(replaced)
    }

    fn table(&self) -> PathBuf {
        table_path(self.folder, self.layer.table)
    }

    /// Replaces a file if it is damaged or missing. Returns whether it was.
    fn repair_file(&self, file: &FileTree, new: &Path) -> Result<bool> {
        let disk = self.transfer.env.disk.as_ref();
        let (old, new) = (self.table().join(&file.name), new.join(&file.name));
        let is_right = self.transfer.right_pieces(&old, file)?;
        let size = |path| disk.open(path, Access::Cached)?.size();
        if !is_right.contains(&false) && disk.exists(&old)? && size(&old)? == file.size() {
            self.transfer.watch.add(file.size())?;
            return Ok(false);
        }
        check_free(disk, self.folder, file.size(), self.options)?;
        let right = file.pieces.iter().zip(&is_right).filter(|(_, is_right)| **is_right);
        self.transfer.copy_pieces(&old, &new, right.map(|(piece, _)| piece))?;
        let name = layout::table_file(self.store, self.layer.table, &file.name);
        self.transfer.file(&new, &name, file)?;
        disk.rename(&new, &old)?;
        Ok(true)
    }
}
