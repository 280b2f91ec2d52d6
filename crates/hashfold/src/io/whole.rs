//! Small files, read and replaced as a whole.

use super::{Access, BlockFile, Buffer, Disk};
use crate::error::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// Reads a whole file of at most `size_max` bytes into an aligned buffer.
///
/// # Errors
/// `Limit` if the file is larger.
pub fn read_all(file: &dyn BlockFile, size_max: u64) -> Result<Buffer> {
    let size = file.size()?;
    if size > size_max {
        let kind = ErrorKind::Limit { what: "file size", limit: size_max, got: size };
        return Err(Error::new(kind).at(file.place()));
    }
    let mut bytes = Buffer::zeroed(size as usize);
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Replaces a small file atomically: `write` fills a new file, whose name has the suffix `.new`;
/// the new file is synced and renamed. A crash leaves either the old file or the new one, and
/// perhaps a file with the suffix, which can be removed.
///
/// # Errors
/// Those of the disk and of `write`; the old file stays.
pub fn replace_file(
    disk: &dyn Disk,
    path: &Path,
    write: impl FnOnce(&dyn BlockFile) -> Result<()>,
) -> Result<()> {
    let new = new_name(path);
    let file = disk.create(&new, Access::Cached)?;
    write(file.as_ref())?;
    file.sync()?;
    drop(file);
    disk.rename(&new, path)?;
    disk.sync_folder(path.parent().unwrap_or(Path::new("")))
}

/// Returns the missing folders above `path` and the first existing one: the folders that get a new
/// entry when `path` is created.
pub(crate) fn folders_above(disk: &dyn Disk, path: &Path) -> Result<Vec<PathBuf>> {
    let mut above = Vec::new();
    for folder in path.ancestors().skip(1) {
        above.push(folder.to_owned());
        if disk.exists(folder)? {
            break;
        }
    }
    Ok(above)
}

/// Creates a folder and its missing parents, and waits until their names are durable. Succeeds if the folder exists.
///
/// # Errors
/// `Argument` if the path is that of a file, or below a file; those of the disk.
pub fn create_durable_folder(disk: &dyn Disk, path: &Path) -> Result<()> {
    let no_folder = |error: Error| error.if_no_folder(path);
    let above = folders_above(disk, path).map_err(no_folder)?;
    disk.create_folder(path).map_err(no_folder)?;
    above.iter().try_for_each(|folder| disk.sync_folder(folder))
}

/// Returns the name under which [`replace_file`] writes.
pub(crate) fn new_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}
