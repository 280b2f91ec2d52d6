//! Checkpoints in files.

use hashfold::{
    Env, Result,
    io::{Access, read_all, replace_file},
    pipeline::Checkpoint,
};
use std::path::Path;

/// Size of the largest checkpoint that is read, in bytes.
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
pub(crate) fn write(env: &Env, path: &Path, checkpoint: &Checkpoint) -> Result<()> {
    let bytes = checkpoint.to_bytes();
    replace_file(env.disk.as_ref(), path, |file| file.write_at(0, &bytes))
}
