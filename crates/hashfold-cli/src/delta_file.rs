//! Delta files as inputs of `hashfold update`.

use crate::failure::{Failure, Result};
use hashfold::{
    Env, ErrorKind,
    store::{DeltaReader, StoreWriter},
};
use std::path::Path;

/// Opens a delta file, which is an input: a wrong file is not damage of the store.
fn open(delta: &Path) -> Result<DeltaReader> {
    DeltaReader::open(&Env::system(), delta).map_err(|error| match error.kind() {
        ErrorKind::Magic { .. } | ErrorKind::FileKind { .. } | ErrorKind::Truncated { .. } => {
            Failure::input(
                delta.display(),
                "is not a delta file, or was cut short; expected one that `hashfold diff --out` wrote",
            )
        }
        _ if error.is_not_found() => Failure::usage(format!(
            "{}: there is no file of this name, expected a delta file",
            delta.display()
        )),
        _ => error.into(),
    })
}

/// Refuses a delta file that does not start at the current version. Returns its number of entries, or
/// `None` if it leads to the current version: it was applied before.
pub(crate) fn check(writer: &StoreWriter, store: &Path, delta: &Path) -> Result<Option<u64>> {
    let reader = open(delta)?;
    let (info, pointer) = (reader.info(), writer.pointer());
    if (info.store, info.seed) != (pointer.store, pointer.seed) {
        return Err(Failure::input(
            delta.display(),
            format_args!("is a delta of another store than {}", store.display()),
        ));
    }
    let numbers = writer.numbers()?;
    let with_id = |id: u64| {
        let has_id = |number: &u64| writer.version(*number).is_ok_and(|info| info.name.id == id);
        numbers.iter().copied().find(has_id)
    };
    let (current, folder) = (pointer.current, store.display());
    if let Some(number) = with_id(info.target) {
        if current == Some(number) {
            return Ok(None);
        }
        let (state, force) = match pointer.bad.contains(&number) {
            true => (" and is marked bad", " --force"),
            false => ("", ""),
        };
        return Err(Failure::input(
            delta.display(),
            format_args!(
                "leads to version {number} of {folder}, which exists{state}; `hashfold publish {folder} \
                 {number}{force}` makes it current"
            ),
        ));
    }
    let start = with_id(info.parent);
    if start.is_none() || start != current {
        let current =
            current.map_or("no version is".into(), |number| format!("version {number} is"));
        let what = match start {
            Some(start) => format!(
                "starts at version {start} of {folder}, but {current} current; `hashfold publish {folder} \
                 {start}` goes back to it"
            ),
            None => format!(
                "starts at a version that {folder} does not have, while {current} current; make a delta \
                 from that version, or copy the store again"
            ),
        };
        return Err(Failure::input(delta.display(), what));
    }
    Ok(Some(info.entries))
}
