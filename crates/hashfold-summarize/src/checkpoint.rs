//! Checkpoints in files.

use hashfold::{
    Env, ErrorKind, Result,
    io::{Access, read_all, replace_file},
    pipeline::Checkpoint,
};
use std::path::Path;

/// Size of the largest checkpoint, in bytes.
const BYTES_MAX: u64 = 16 << 30;

/// Reads a checkpoint; `None` if there is no file.
pub(crate) fn read(env: &Env, path: &Path) -> Result<Option<Checkpoint>> {
    let file = match env.disk.open(path, Access::Cached) {
        Err(error) if error.is_not_found() => return Ok(None),
        file => file?,
    };
    let bytes = read_all(file.as_ref(), BYTES_MAX)?;
    Checkpoint::from_bytes(&bytes).map(Some).map_err(|error| error.at(file.place()))
}

/// Replaces a checkpoint, durably and as a whole.
///
/// # Errors
/// `Limit` for a checkpoint that [`read`] would refuse, and errors of the device: the one before stays.
pub(crate) fn write(env: &Env, path: &Path, checkpoint: &Checkpoint) -> Result<()> {
    let bytes = checkpoint.to_bytes();
    let (limit, got) = (BYTES_MAX, bytes.len() as u64);
    if got > limit {
        return Err(ErrorKind::Limit { what: "size of a checkpoint in bytes", limit, got }.into());
    }
    replace_file(env.disk.as_ref(), path, |file| file.write_at(0, &bytes))
}
