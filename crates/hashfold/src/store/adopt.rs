//! Adopting a version whose files come from another copy of the store, such as object storage.
//!
//! The tables of the version are collected in the folder [`INCOMING`] of the store, which no sweep
//! touches, so an interrupted transfer can go on. When they are complete, [`StoreWriter::adopt`]
//! moves them to the other tables and adds the version file: `docs/formats/store.md` has the order of
//! all syncs.

use super::{
    layer::folder_of,
    tree::{self, Tree},
    version::{Layer, VersionInfo, file_name},
    write::{StoreWriter, remove_table},
};
use crate::{
    error::{Error, ErrorKind, Place, Result, check_same},
    folder::{INCOMING, TABLES, VERSIONS},
    io::{Access, BlockFile, Disk, MemoryDisk},
};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Returns the path of a version's file in a store's folder.
pub fn version_path(store: &Path, number: u64) -> PathBuf {
    store.join(VERSIONS).join(file_name(number))
}

/// Returns the folder of a table in a store's folder.
pub fn table_path(store: &Path, id: u64) -> PathBuf {
    folder_of(&store.join(TABLES), id)
}

/// Returns the folder in which the files of a table are collected before the table is complete.
pub fn incoming_path(store: &Path, id: u64) -> PathBuf {
    folder_of(&store.join(INCOMING), id)
}

/// Whether a folder has all files of a layer's table, with their sizes. The table's `TREE` is
/// checked, the bytes of the other files are not read.
///
/// # Errors
/// Errors of the device. A missing or damaged file is no error.
pub fn is_complete(disk: &dyn Disk, table: &Path, layer: &Layer) -> Result<bool> {
    if !disk.exists(&table.join(tree::NAME))? {
        return Ok(false);
    }
    let Ok(tree) = Tree::read(disk, table, layer.table, &layer.root) else { return Ok(false) };
    for file in &tree.files {
        let path = table.join(&file.name);
        if !disk.exists(&path)? || disk.open(&path, Access::Cached)?.size()? != file.size() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl VersionInfo {
    /// Decodes the bytes of a version file, as they are in another copy of the store. They must be of
    /// the version with this number.
    ///
    /// # Errors
    /// Damage, with the offset of the wrong bytes.
    pub fn from_bytes(bytes: &[u8], number: u64) -> Result<VersionInfo> {
        VersionInfo::of_file(in_memory(&file_name(number), bytes)?.as_ref(), number)
    }
}

impl Tree {
    /// Decodes the bytes of a file `TREE`, as they are in another copy of the store. They must be of
    /// the table of this layer.
    ///
    /// # Errors
    /// Damage, with the offset of the wrong bytes: also a tree with another root, and a tree with a
    /// file that no table has.
    pub fn from_bytes(bytes: &[u8], layer: &Layer) -> Result<Tree> {
        let file = in_memory(tree::NAME, bytes)?;
        let tree = Tree::of_file(file.as_ref(), layer.table, &layer.root)?;
        tree.check_is_of(layer).map_err(|error| error.at(file.place()))?;
        Ok(tree)
    }

    /// Reads the block tree of a layer's table from the table's folder.
    ///
    /// # Errors
    /// Damage of the file `TREE`, or the error of the device.
    pub fn open(disk: &dyn Disk, table: &Path, layer: &Layer) -> Result<Tree> {
        let tree = Tree::read(disk, table, layer.table, &layer.root)?;
        tree.check_is_of(layer).map_err(|error| error.at(&Place::file(&table.join(tree::NAME))))?;
        Ok(tree)
    }

    /// Refuses files that a table does not have, a file that is named twice, and another size than
    /// that of the layer: the names become paths, and the sizes are what the caller has agreed to.
    fn check_is_of(&self, layer: &Layer) -> Result<()> {
        let mut names = HashSet::new();
        let size = self.files.iter().map(|file| u128::from(file.size())).sum::<u128>();
        for file in &self.files {
            if !crate::table::is_table_file(&file.name) || !names.insert(&file.name) {
                let expected = "each file of a table once";
                return Err(Error::field("file in a block tree", expected, &file.name));
            }
        }
        match size == u128::from(layer.bytes) {
            true => Ok(()),
            false => Err(Error::field("size of all files", layer.bytes.to_string(), size)),
        }
    }
}

/// Returns a file in RAM with these bytes.
fn in_memory(name: &str, bytes: &[u8]) -> Result<Arc<dyn BlockFile>> {
    let file = MemoryDisk::default().create(Path::new(name), Access::Cached)?;
    file.write_at(0, bytes)?;
    Ok(file)
}

impl StoreWriter {
    /// Adds a version of another copy of this store. `bytes` are those of its version file, and its
    /// tables are in this store or complete in [`incoming_path`], with all bytes synced and compared
    /// with the table's [`Tree`]. The version keeps its number and its id, and is not published.
    ///
    /// Succeeds at once if the store has the version. After an error, the caller makes sure again that
    /// the tables are there: the next writer removes tables that were moved in vain.
    ///
    /// # Errors
    /// `Mismatch` if the version is of another store, `Exists` if the store has another version with
    /// this number, `Missing` if a table is not complete.
    pub fn adopt(&mut self, bytes: &[u8], number: u64) -> Result<VersionInfo> {
        self.settle()?;
        let info = VersionInfo::from_bytes(bytes, number)?;
        let place = Place::file(&self.versions().join(file_name(number)));
        check_same("store", self.pointer.store, info.store)
            .and_then(|()| check_same("seed", self.pointer.seed.0, info.seed.0))
            .map_err(|error| error.at(&place))?;
        if let Some(listed) = self.pointer.version(number) {
            // A listed version whose file is lost is damage, which `version` reports.
            self.version(number)?;
            return match listed == info.name {
                true => Ok(info),
                false => Err(Error::new(ErrorKind::Exists).at(&place)),
            };
        }
        if self.pointer.removing.contains(&number) || self.env.disk.exists(&place.file)? {
            // A reader still has a version open that was removed here.
            return Err(Error::new(ErrorKind::Busy).at(&place));
        }
        self.move_tables(&info)?;
        self.add_file(&info, bytes)?;
        Ok(info)
    }

    /// Moves the tables of a version that are not in the store yet, and makes their names durable.
    fn move_tables(&self, info: &VersionInfo) -> Result<()> {
        let disk = self.env.disk.as_ref();
        // The tables of all versions; unknown if one of them cannot be read.
        let used = self.used_tables(&[])?;
        let mut seen = HashSet::new();
        for layer in info.layers().filter(|layer| seen.insert(layer.table)) {
            let table = table_path(&self.folder, layer.table);
            let is_used = used.as_ref().map(|used| used.contains(&layer.table));
            if is_used == Some(true) && is_complete(disk, &table, layer)? {
                continue;
            }
            // A call that failed may have moved it, and its names may not be durable.
            if !is_complete(disk, &table, layer)? {
                if is_used != Some(false) && disk.exists(&table)? {
                    // Its damage must be repaired in place: another version has it.
                    Tree::open(disk, &table, layer)?;
                    let what = format!("rest of table {:016x}", layer.table);
                    return Err(Error::missing(what, &table));
                }
                self.move_table(layer, &table)?;
            }
            disk.sync_folder(&table)?;
        }
        disk.sync_folder(&self.tables())
    }

    /// Moves a complete table to its folder, where at most remains of it are.
    fn move_table(&self, layer: &Layer, to: &Path) -> Result<()> {
        let disk = self.env.disk.as_ref();
        let from = incoming_path(&self.folder, layer.table);
        if !is_complete(disk, &from, layer)? {
            return Err(Error::missing(format!("table {:016x}", layer.table), &from));
        }
        remove_table(disk, to)?;
        disk.create_folder(to)?;
        for name in disk.list(&from)? {
            disk.rename(&from.join(&name), &to.join(&name))?;
        }
        disk.sync_folder(to)?;
        disk.sync_folder(&from)?;
        disk.remove_folder(&from)
    }
}
