//! Files of sketches.

use super::{
    groups::{self, Groups},
    image::{Image, Source},
};
use crate::failure::{Failure, Result};
use hashfold::{
    error::Place,
    io::{Access, Disk as _, OsDisk, read_all, replace_file},
    sketch::Hll,
};
use std::path::{Path, PathBuf};

/// The largest file that is read, in bytes: the largest sketch, one of DataSketches, has half of it.
const SIZE_MAX: u64 = 8 << 20;

/// Reads a sketch in any of the formats; `None` if there is no file.
pub(super) fn read_image_if_any(path: &Path, source: Option<Source>) -> Result<Option<Image>> {
    if !OsDisk.exists(path)? {
        return Ok(None);
    }
    let bytes = read_all(&*OsDisk.open(path, Access::Cached)?, SIZE_MAX)?;
    let image = Image::read(bytes.to_vec(), source);
    Ok(Some(image.map_err(|error| error.at(&Place::file(path)))?))
}

/// Refuses a folder where a file of a sketch is expected; `hint` says what to do.
pub(super) fn refuse_folder(path: &Path, hint: &str) -> Result<()> {
    match path.is_dir() {
        false => Ok(()),
        true => {
            let path = path.display();
            Err(Failure::usage(format!(
                "{path}: is a folder, expected the file of a sketch; {hint}"
            )))
        }
    }
}

/// Reads a sketch: a file in any of the formats, or `DIR:GROUP`.
pub(super) fn read_image(path: &Path, source: Option<Source>) -> Result<Image> {
    if let Some((folder, group)) = groups::split(path).filter(|_| !path.exists()) {
        return Ok(Image::Hashfold(Groups::open(folder)?.get(group.as_bytes())?));
    }
    refuse_folder(path, "one group of a table is DIR:GROUP")?;
    read_image_if_any(path, source)?.ok_or_else(|| {
        let path = path.display();
        Failure::usage(format!(
            "{path}: there is no sketch here; `hashfold sketch add {path}` makes one"
        ))
    })
}

/// Reads a sketch as [`read_image`] does, as one that can be united with others.
pub(super) fn read(path: &Path) -> Result<Hll> {
    Ok(read_image(path, None)?.to_hll()?)
}

/// Replaces a sketch by another, or makes the file. Durable when this returns.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let path =
        std::path::absolute(path).map_err(|error| Failure::io(path.display(), "find", &error))?;
    Ok(replace_file(&OsDisk, &path, |file| file.write_at(0, bytes))?)
}

/// Reads sketches and brings them to the lowest precision among them, which loses nothing else.
pub(super) fn read_alike(paths: &[PathBuf]) -> Result<Vec<Hll>> {
    let sketches: Vec<Hll> = paths.iter().map(|path| read(path)).collect::<Result<_>>()?;
    let precision = sketches.iter().map(Hll::precision).min().unwrap_or_default();
    let shorter = sketches.iter().map(|sketch| sketch.downsize(precision));
    Ok(shorter.collect::<hashfold::Result<_>>()?)
}

/// Returns the union of sketches in files.
pub(super) fn read_union(paths: &[PathBuf]) -> Result<Hll> {
    let mut sketches = read_alike(paths)?.into_iter();
    let mut union = sketches.next().expect("the command needs a file");
    for (sketch, path) in sketches.zip(&paths[1..]) {
        union.union(&sketch).map_err(|error| error.at(&Place::file(path)))?;
    }
    Ok(union)
}
