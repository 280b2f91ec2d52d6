//! Copying a version to another folder: the first copy of a store, which deltas keep up to date.

use super::{
    pointer::{self, Pointer, VersionName},
    read::{Version, open_current},
    verify::{TableCopy, if_lost},
    version::{VersionInfo, file_name},
};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Place, Result},
    folder::{self, LockedFolder, Site, TABLES, VERSIONS},
    io::{Access, Disk, new_name, replace_file},
    manifest::{FIRST_NAME, Kind},
    options::ReadOptions,
    work::Watch,
};
use std::{collections::HashSet, path::Path};

/// Copies a version of the store in the folder `from`, the current one unless `number` is given, to
/// the folder `to`. That store then has this version alone, as its current one. `watch` counts the
/// bytes that are copied.
///
/// The store may be changed meanwhile: the version is locked like one that is read. Every piece is
/// compared with the hash that the version has of it. Readers see the copy when it is complete. A copy
/// that was interrupted can be repeated: pieces that are there are not copied again.
///
/// # Errors
/// `Exists` if there is a store in `to`, `Argument` if the folder is not empty or inside a data set,
/// `Absent` if there is no such version; damage, which names the file.
pub fn copy(
    env: &Env,
    from: &Path,
    number: Option<u64>,
    to: &Path,
    watch: &Watch,
) -> Result<VersionInfo> {
    let options = ReadOptions::new().env(env.clone()).data(Access::Cached).index(Access::Mapped);
    let version = match number {
        Some(number) => Version::open(from, number, &options)?,
        None => open_current(from, &options, None)?.0,
    };
    let info = version.info();
    let home = LockedFolder::create(env.disk.clone(), to, Kind::Store, Site::Own)?;
    let disk = env.disk.as_ref();
    check_free(disk, to)?;
    // Without the pointer, this file says that the folder is no store that lost its pointer.
    home.begin_first()?;
    let (versions, tables) = (to.join(VERSIONS), to.join(TABLES));
    [&versions, &tables].into_iter().try_for_each(|folder| disk.create_folder(folder))?;
    remove_others(disk, &versions, info.name)?;
    let other = from.join(TABLES);
    let copy = TableCopy { disk, tables: &tables, other: &other, watch };
    let mut seen = HashSet::new();
    for layer in info.layers().filter(|layer| seen.insert(layer.table)) {
        copy.mend(info, layer, &mut 0).map_err(if_lost)?;
    }
    disk.sync_folder(&tables)?;
    let bytes = info.encode()?;
    replace_file(disk, &versions.join(file_name(info.name.number)), |file| {
        file.write_at(0, &bytes)
    })?;
    disk.sync_folder(to)?;
    home.sync_above()?;
    let mut pointer = Pointer::new(info.seed, info.store);
    pointer.add(info.name);
    pointer.current = Some(info.name.number);
    pointer.replace(disk, to)?;
    home.remove(|name| name == FIRST_NAME)?;
    disk.sync_folder(to)?;
    Ok(info.clone())
}

/// Refuses a folder with anything but the remains of a copy.
fn check_free(disk: &dyn Disk, to: &Path) -> Result<()> {
    folder::check_kind(disk, to, Kind::Store)?;
    let names = disk.list(to)?;
    if names.iter().any(|name| name == pointer::NAME) {
        return Err(Error::new(ErrorKind::Exists).at(&Place::file(to)));
    }
    let new = new_name(Path::new(pointer::NAME));
    let ours = [FIRST_NAME, VERSIONS, TABLES];
    let is_ours = |name: &str| ours.contains(&name) || Path::new(name) == new;
    let is_copy = names.iter().any(|name| name == FIRST_NAME);
    match names.iter().find(|name| !is_copy || !is_ours(name)) {
        None => Ok(()),
        Some(name) => {
            let got = format!("a folder with \"{name}\"");
            Err(Error::argument("folder to copy to", "an empty folder", got).at(&Place::file(to)))
        }
    }
}

/// Removes what an interrupted copy of another version has left among the version files.
fn remove_others(disk: &dyn Disk, versions: &Path, name: VersionName) -> Result<()> {
    let ours = file_name(name.number);
    let names = disk.list(versions)?;
    names
        .iter()
        .filter(|name| **name != ours)
        .try_for_each(|name| folder::remove_file(disk, &versions.join(name)))
}
