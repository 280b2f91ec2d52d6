//! The kind of data set in a folder, and opening its store.

use crate::{
    device,
    failure::{Failure, Result},
    output::write_note,
};
use hashfold::{
    Env, Error, ErrorKind,
    folder::Contents,
    manifest::Kind,
    store::{Pointer, StoreWriter},
    work::Executor,
};
use std::{path::Path, sync::Arc};

/// Returns what a folder holds.
pub(crate) fn holds(folder: &Path) -> Result<Contents> {
    if folder.is_file() {
        return Err(Failure::usage(format!("{}: is a file, not a folder", folder.display())));
    }
    Ok(Contents::of(device::disk().as_ref(), folder)?)
}

/// Refuses the folder of a filter where a table or store is expected.
pub(crate) fn refuse_filter(folder: &Path) -> Result<()> {
    match holds(folder)?.kind() {
        Some(Kind::Filter) => Err(Failure::usage(format!(
            "{}: is a filter, expected a table or store; use `hashfold filter` (stat, contains, verify ...)",
            folder.display()
        ))),
        _ => Ok(()),
    }
}

/// Refuses a folder that holds no filter.
pub(crate) fn require_filter(folder: &Path) -> Result<()> {
    let contents = holds(folder)?;
    let what = match contents.kind() {
        Some(Kind::Filter) => return Ok(()),
        None if contents == Contents::Unknown => return Ok(()),
        None => "there is no filter here; make one with `hashfold filter create`",
        Some(Kind::Table) => {
            "is a table, expected a filter; use `hashfold stat`, `get` and `verify`"
        }
        Some(Kind::Store) => {
            "is a store, expected a filter; use `hashfold stat`, `get` and `verify`"
        }
        Some(Kind::Map) => "is a map, expected a filter; use `hashfold map`",
    };
    Err(Failure::usage(format!("{}: {what}", folder.display())))
}

/// Refuses a folder that holds no map.
pub(crate) fn require_map(folder: &Path) -> Result<()> {
    let contents = holds(folder)?;
    let what = match contents.kind() {
        Some(Kind::Map) => return Ok(()),
        None if contents == Contents::Unknown => return Ok(()),
        None => "there is no map here; make one with `hashfold map create` or `import`",
        Some(Kind::Table) => "is a table, expected a map; use `hashfold stat`, `get` and `verify`",
        Some(Kind::Store) => "is a store, expected a map; use `hashfold update` and `get`",
        Some(Kind::Filter) => "is a filter, expected a map; use `hashfold filter`",
    };
    Err(Failure::usage(format!("{}: {what}", folder.display())))
}

/// Refuses the folder of a map where a table or store is expected.
pub(crate) fn refuse_map(folder: &Path) -> Result<()> {
    match holds(folder)?.kind() {
        Some(Kind::Map) => Err(Failure::usage(format!(
            "{}: is a map, which has no versions, expected a table or store; `hashfold map --help` lists \
             what maps can do",
            folder.display()
        ))),
        _ => Ok(()),
    }
}

/// Refuses a folder with any file but `ours`; `what` is the kind of data set to be made there.
pub(crate) fn check_empty(folder: &Path, what: &str, ours: &[&str]) -> Result<()> {
    if !device::disk().exists(folder)? {
        return Ok(());
    }
    let names = device::disk().list(folder)?;
    match names.iter().find(|name| !ours.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(Failure::usage(format!(
            "{}: is no {what}, and not empty: it has \"{name}\"; name another folder",
            folder.display()
        ))),
    }
}

/// Refuses the folder of a store where a table is expected; `hint` says what to do.
pub(crate) fn refuse_store(folder: &Path, hint: &str) -> Result<()> {
    match holds(folder)?.kind() {
        Some(Kind::Store) => {
            Err(Failure::usage(format!("{}: is a store; {hint}", folder.display())))
        }
        _ => refuse_filter(folder).and_then(|()| refuse_map(folder)),
    }
}

/// Refuses the folder of a table where a store is expected.
pub(crate) fn refuse_table(folder: &Path) -> Result<()> {
    let contents = holds(folder)?;
    match contents.kind() {
        None if contents != Contents::Unknown => Ok(()),
        None | Some(Kind::Table) => Err(Failure::usage(format!(
            "{}: is a table, which never changes, expected a store; `hashfold build` makes \
             another table, `hashfold update` a store",
            folder.display()
        ))),
        _ => refuse_filter(folder).and_then(|()| refuse_map(folder)),
    }
}

/// Opens a store for writing, and reports versions that `CURRENT` did not list.
pub(crate) fn open_store(folder: &Path, executor: Arc<dyn Executor>) -> Result<StoreWriter> {
    refuse_table(folder)?;
    let writer = StoreWriter::open(&Env { executor, ..Env::system() }, folder)?;
    note_unlisted(folder, &writer);
    Ok(writer)
}

/// Reports versions that `CURRENT` did not list. No data are lost; the user may have restored an
/// old copy of `CURRENT`.
pub(crate) fn note_unlisted(folder: &Path, writer: &StoreWriter) {
    let numbers: Vec<String> = writer.unlisted().iter().map(u64::to_string).collect();
    if !numbers.is_empty() {
        write_note(format_args!(
            "hashfold: note: {}: CURRENT did not list version {}: an update was killed, or CURRENT \
             is an older copy; the version is kept, and `hashfold publish` can make it current",
            folder.display(),
            numbers.join(", "),
        ));
    }
}

/// Reads the pointer of the store in a folder.
pub(crate) fn read_pointer(folder: &Path) -> Result<Pointer> {
    refuse_table(folder)?;
    Ok(Pointer::read(device::disk().as_ref(), folder)?)
}

/// Returns the number of a store's current version.
pub(crate) fn current(folder: &Path) -> Result<u64> {
    read_pointer(folder)?.current.ok_or_else(|| {
        Failure::usage(format!(
            "{}: no version was published yet; `hashfold versions` lists all versions",
            folder.display()
        ))
    })
}

/// Returns a function that turns an error about a version into a message for the user.
pub(crate) fn about_version(folder: &Path, number: u64) -> impl FnOnce(Error) -> Failure {
    move |error| match error.kind() {
        ErrorKind::Absent => Failure::usage(format!(
            "{}: there is no version {number}; `hashfold versions` lists all versions",
            folder.display()
        )),
        _ => error.into(),
    }
}
