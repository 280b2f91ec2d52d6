//! The folder of a data set: its kind, and how its single writer creates, locks and sweeps it. To
//! sweep a folder is to remove the files that no manifest names, which a crash leaves.
//!
//! The `MANIFEST` of a table or a filter names its kind; a store has a `CURRENT` instead. If that
//! file is missing, the kind is inferred from the names of the other files, so that a data set that
//! lost a single file is not overwritten. No data set is created inside another data set, whose
//! sweep would remove it.

use crate::{
    error::{Error, ErrorClass, ErrorKind, Place, Result},
    io::{
        Access, BlockFile, Disk, Lock, folders_above,
        frame::{FileKind, Header},
    },
    manifest::{self, Kind, Manifest},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// The name of the file that names the current version of a store.
pub(crate) const CURRENT: &str = "CURRENT";
/// The folder of version files in a store's folder.
pub(crate) const VERSIONS: &str = "versions";
/// The folder of tables in a store's folder.
pub(crate) const TABLES: &str = "tables";
/// The folder of tables in a store's folder that are not complete yet: they come from another copy
/// of the store.
pub(crate) const INCOMING: &str = "incoming";

/// The contents of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// No data set: the folder is missing or empty, or has only other files.
    Nothing,
    /// A data set of this kind.
    DataSet(Kind),
    /// Files of a data set of this kind, without its `MANIFEST` or `CURRENT`.
    Headless(Kind),
    /// A manifest that cannot be read, and no other file that shows the kind.
    Unknown,
}

impl Contents {
    /// Inspects a folder.
    pub fn of(disk: &dyn Disk, folder: &Path) -> Result<Contents> {
        if disk.exists(&folder.join(CURRENT))? {
            return Ok(Contents::DataSet(Kind::Store));
        }
        if !disk.exists(&folder.join(manifest::NAME))? {
            return Ok(kind_by_names(disk, folder)?.map_or(Contents::Nothing, Contents::Headless));
        }
        match Manifest::read(disk, folder) {
            Ok(manifest) => Ok(Contents::DataSet(manifest.kind)),
            Err(error) if error.class() == ErrorClass::Damage => {
                let kind = kind_by_names(disk, folder)?;
                Ok(kind.map_or(Contents::Unknown, Contents::DataSet))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the kind of the data set in the folder, even if its manifest is missing.
    pub fn kind(self) -> Option<Kind> {
        match self {
            Contents::DataSet(kind) | Contents::Headless(kind) => Some(kind),
            Contents::Nothing | Contents::Unknown => None,
        }
    }
}

/// Infers the kind of a data set from the names in its folder.
fn kind_by_names(disk: &dyn Disk, folder: &Path) -> Result<Option<Kind>> {
    if !disk.exists(folder)? {
        return Ok(None);
    }
    let names = disk.list(folder)?;
    let is_file_of = |name: &str, role: &str, digits: fn(&str) -> bool| {
        name.strip_prefix(role).and_then(|rest| rest.strip_prefix('-')).is_some_and(digits)
    };
    let decimal = |text: &str| text.len() >= 10 && text.bytes().all(|byte| byte.is_ascii_digit());
    let id_and_generation = |text: &str| {
        let (id, generation) = text.split_once('-').unwrap_or((text, ""));
        id.len() == 16 && u64::from_str_radix(id, 16).is_ok() && generation.parse::<u64>().is_ok()
    };
    let any = |role: &str, digits: fn(&str) -> bool| {
        names.iter().any(|name| is_file_of(name, role, digits))
    };
    // After a killed first build, there is no data set yet.
    if names.iter().any(|name| name == manifest::FIRST_NAME) {
        return Ok(None);
    }
    if any("catalog", decimal) || names.iter().any(|name| name == "map-data") {
        return Ok(Some(Kind::Map));
    }
    if any("run", decimal) || any("wal", decimal) {
        return Ok(Some(Kind::Filter));
    }
    if any("data", id_and_generation) && any("index", id_and_generation) {
        return Ok(Some(Kind::Table));
    }
    let versions = folder.join(VERSIONS);
    if names.iter().any(|name| name == VERSIONS) && names.iter().any(|name| name == TABLES) {
        let is_version = |name: &String| decimal(name);
        return Ok(disk.list(&versions)?.iter().any(is_version).then_some(Kind::Store));
    }
    Ok(None)
}

/// Reads the manifest of a data set of the expected kind.
///
/// # Errors
/// `Absent` if there is no data set, `WrongKind` if there is one of another kind, `Missing` if only the
/// manifest is missing.
pub(crate) fn read_manifest(disk: &dyn Disk, folder: &Path, kind: Kind) -> Result<Manifest> {
    match Manifest::read(disk, folder) {
        Ok(manifest) if manifest.kind == kind => Ok(manifest),
        Ok(manifest) => Err(wrong_kind(folder, kind, manifest.kind)),
        Err(error) if error.is_absent() => {
            Err(check_kind(disk, folder, kind).err().unwrap_or(error))
        }
        Err(error) => Err(error),
    }
}

/// Refuses a folder with a data set of another kind, or with a data set of this kind whose manifest
/// (of a store: `CURRENT`) is missing.
pub(crate) fn check_kind(disk: &dyn Disk, folder: &Path, kind: Kind) -> Result<()> {
    match Contents::of(disk, folder)? {
        Contents::DataSet(got) | Contents::Headless(got) if got != kind => {
            Err(wrong_kind(folder, kind, got))
        }
        Contents::Headless(_) => {
            let name = if kind == Kind::Store { CURRENT } else { manifest::NAME };
            Err(Error::missing(format!("{name} of the {}", kind.name()), &folder.join(name)))
        }
        _ => Ok(()),
    }
}

fn wrong_kind(folder: &Path, expected: Kind, got: Kind) -> Error {
    let kind = ErrorKind::WrongKind { expected: expected.name(), got: got.name() };
    Error::new(kind).at(&Place::file(folder))
}

/// Opens a file that belongs to a data set; a missing file is an error about lost data.
pub(crate) fn open_file(
    disk: &dyn Disk,
    path: &Path,
    access: Access,
    what: &str,
) -> Result<Arc<dyn BlockFile>> {
    disk.open(path, access).map_err(|error| error.if_lost(what))
}

/// Removes a file that is no longer needed. A folder of that name was not created by this library,
/// and stays.
pub(crate) fn remove_file(disk: &dyn Disk, path: &Path) -> Result<()> {
    match disk.remove(path) {
        Err(_) if disk.list(path).is_ok() && !disk.is_link(path)? => Ok(()),
        removed => removed,
    }
}

/// The place where a new data set is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    /// A folder of the user's choice, which must be outside of all other data sets.
    Own,
    /// A folder inside the data set that the new data set is a part of.
    Part,
}

/// The locked folder of a data set: no other process writes to it.
#[derive(Debug)]
pub(crate) struct LockedFolder {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) path: PathBuf,
    /// Whether the folder did not exist before.
    pub(crate) is_new: bool,
    /// The folders above whose entries may be new.
    above: Vec<PathBuf>,
    _lock: Box<dyn Lock>,
}

impl LockedFolder {
    /// Creates and locks the folder of a new data set, or of a table that is to be replaced.
    ///
    /// # Errors
    /// `Busy` if another process writes there, `WrongKind` if a data set of another kind is there,
    /// `Argument` if the folder is inside another data set.
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        path: &Path,
        kind: Kind,
        site: Site,
    ) -> Result<LockedFolder> {
        if site == Site::Own {
            check_outside(disk.as_ref(), path)?;
        }
        let is_new = !disk.exists(path)?;
        let above = folders_above(disk.as_ref(), path)?;
        disk.create_folder(path)?;
        let lock = disk.lock(path)?;
        if let Some(got) = Contents::of(disk.as_ref(), path)?.kind().filter(|got| *got != kind) {
            return Err(wrong_kind(path, kind, got));
        }
        Ok(LockedFolder { disk, path: path.to_owned(), is_new, above, _lock: lock })
    }

    /// Locks the folder of an existing data set.
    ///
    /// # Errors
    /// `Busy` if another process writes there, `Absent` if the folder does not exist.
    pub(crate) fn open(disk: Arc<dyn Disk>, path: &Path) -> Result<LockedFolder> {
        if !disk.exists(path)? {
            return Err(Error::new(ErrorKind::Absent).at(&Place::file(path)));
        }
        let lock = disk.lock(path)?;
        let above = Vec::new();
        Ok(LockedFolder { disk, path: path.to_owned(), is_new: false, above, _lock: lock })
    }

    /// Creates the file that marks a folder without its first manifest: data files beside it were
    /// left by a crashed first build, not by a data set whose manifest was lost.
    pub(crate) fn begin_first(&self) -> Result<()> {
        let path = self.path.join(manifest::FIRST_NAME);
        // The name of a file that is created anew is not durable until the folder is synced.
        if !self.disk.exists(&path)? {
            self.disk.create(&path, Access::Cached)?;
        }
        self.disk.sync_folder(&self.path)
    }

    /// Syncs the folders above, so that the path of this folder is durable.
    pub(crate) fn sync_above(&self) -> Result<()> {
        for folder in &self.above {
            match self.disk.sync_folder(folder) {
                // If the parent folder cannot be read, this process has created no name in it.
                Err(error) if !self.is_new && error.is_denied() => {}
                synced => synced?,
            }
        }
        Ok(())
    }

    /// Publishes the manifest, after the path of the folder has been made durable.
    pub(crate) fn publish(&self, manifest: &Manifest) -> Result<()> {
        self.sync_above()?;
        manifest.publish(self.disk.as_ref(), &self.path)
    }

    /// Removes the files whose names `which` accepts.
    pub(crate) fn remove(&self, which: impl Fn(&str) -> bool) -> Result<()> {
        for name in self.disk.list(&self.path)? {
            if which(&name) {
                remove_file(self.disk.as_ref(), &self.path.join(&name))?;
            }
        }
        Ok(())
    }
}

/// Refuses a path inside a data set: its sweep might remove the new file, or the new file might
/// damage the data set.
///
/// # Errors
/// `Argument`, which names the data set.
pub fn check_outside(disk: &dyn Disk, path: &Path) -> Result<()> {
    for folder in disk.absolute(path)?.ancestors().skip(1) {
        if let Some(kind) = kind_above(disk, folder)? {
            let expected = format!("a path outside of the {} {}", kind.name(), folder.display());
            return Err(Error::argument("path to write to", expected, path.display()));
        }
    }
    Ok(())
}

/// Returns the kind of the data set in a folder that may belong to another user.
fn kind_above(disk: &dyn Disk, folder: &Path) -> Result<Option<Kind>> {
    // Other programs may have files with these names.
    let is_ours = |name: &str, kind: FileKind| -> Result<bool> {
        let path = folder.join(name);
        Ok(disk.exists(&path)? && is_framed(disk, &path, kind))
    };
    let is_store = || -> Result<bool> {
        Ok(disk.exists(&folder.join(VERSIONS))?
            && disk.exists(&folder.join(TABLES))?
            && kind_by_names(disk, folder)? == Some(Kind::Store))
    };
    let kind = match () {
        () if is_ours(CURRENT, FileKind::Pointer)? => Some(Kind::Store),
        () if is_ours(manifest::NAME, FileKind::Manifest)? => Contents::of(disk, folder)?.kind(),
        () if is_store()? => Some(Kind::Store),
        () => None,
    };
    Ok(kind)
}

/// Whether a file can be read and starts like a file of this kind.
fn is_framed(disk: &dyn Disk, path: &Path, kind: FileKind) -> bool {
    disk.open(path, Access::Cached).and_then(|file| Header::read(file.as_ref(), kind)).is_ok()
}
