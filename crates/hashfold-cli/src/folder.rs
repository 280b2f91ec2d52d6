//! What a folder holds, and the writer of the store in it.

use crate::{
    device,
    failure::{Failure, Result},
};
use hashfold::{
    Error, ErrorClass, ErrorKind, filter,
    manifest::{self, Manifest},
    store::{self, Pointer, StoreWriter, VersionInfo},
    work::Executor,
};
use std::{path::Path, sync::Arc};

/// What a folder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// No data set.
    Nothing,
    Table,
    Store,
    Filter,
    /// A table or a filter: what says so is damaged.
    Unknown,
}

/// Looks for the one file that each data set has.
pub(crate) fn holds(folder: &Path) -> Result<Holds> {
    if folder.is_file() {
        return Err(Failure::usage(format!("{}: is a file, not a folder", folder.display())));
    }
    let disk = device::disk();
    Ok(match () {
        () if disk.exists(&folder.join(store::NAME))? => Holds::Store,
        () if disk.exists(&folder.join(manifest::NAME))? => {
            match Manifest::read(disk.as_ref(), folder) {
                Ok(manifest) if filter::is_cascade(&manifest) => Holds::Filter,
                Ok(_) => Holds::Table,
                Err(error) if error.class() == ErrorClass::Damage => Holds::Unknown,
                Err(error) => return Err(error.into()),
            }
        }
        () => Holds::Nothing,
    })
}

/// Refuses a filter's folder where something else is meant.
pub(crate) fn refuse_filter(folder: &Path) -> Result<()> {
    match holds(folder)? {
        Holds::Filter => Err(Failure::usage(format!(
            "{}: is a filter; `hashfold filter` has the verbs for it: stat, contains, verify ...",
            folder.display()
        ))),
        _ => Ok(()),
    }
}

/// Refuses a folder that is not a filter's.
pub(crate) fn require_filter(folder: &Path) -> Result<()> {
    let what = match holds(folder)? {
        Holds::Filter | Holds::Unknown => return Ok(()),
        Holds::Nothing => "there is no filter here; `hashfold filter create` makes one",
        Holds::Table => "is a table; `hashfold stat`, `get` and `verify` are for it",
        Holds::Store => "is a store; `hashfold stat`, `get` and `verify` are for it",
    };
    Err(Failure::usage(format!("{}: {what}", folder.display())))
}

/// Refuses a folder with anything in it but what is named here; `what` it is not.
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

/// Refuses a store's folder where a table is meant; `hint` says what can be done.
pub(crate) fn refuse_store(folder: &Path, hint: &str) -> Result<()> {
    match holds(folder)? {
        Holds::Store => Err(Failure::usage(format!("{}: is a store; {hint}", folder.display()))),
        _ => refuse_filter(folder),
    }
}

/// Refuses a table's folder where a store is meant.
pub(crate) fn refuse_table(folder: &Path) -> Result<()> {
    match holds(folder)? {
        Holds::Table | Holds::Unknown => Err(Failure::usage(format!(
            "{}: is a table, which never changes; `hashfold build` makes another one, \
             `hashfold update` a store",
            folder.display()
        ))),
        _ => refuse_filter(folder),
    }
}

/// Opens the store in a folder to change it.
pub(crate) fn open_store(folder: &Path, executor: Arc<dyn Executor>) -> Result<StoreWriter> {
    refuse_table(folder)?;
    Ok(StoreWriter::open(device::disk(), folder, executor)?)
}

/// Reads the pointer of the store in a folder.
pub(crate) fn read_pointer(folder: &Path) -> Result<Pointer> {
    refuse_table(folder)?;
    Ok(Pointer::read(device::disk().as_ref(), folder)?)
}

/// The number of the current version of the store in a folder.
pub(crate) fn current(folder: &Path) -> Result<u64> {
    read_pointer(folder)?.current.ok_or_else(|| {
        Failure::usage(format!(
            "{}: no version was published yet; `hashfold versions` lists what is there",
            folder.display()
        ))
    })
}

/// The version that says what the store in a folder is: the current one, else the newest. `None`
/// where there is no version.
pub(crate) fn newest_or_current(folder: &Path) -> Result<Option<VersionInfo>> {
    if holds(folder)? != Holds::Store {
        return Ok(None);
    }
    let current = read_pointer(folder)?.current;
    let mut newest = None;
    for (number, info) in store::versions(device::disk().as_ref(), folder)? {
        match info {
            Ok(info) if Some(number) == current => return Ok(Some(info)),
            Err(error) if Some(number) == current => return Err(error.into()),
            Ok(info) => newest = Some(info),
            Err(_) => {}
        }
    }
    Ok(newest)
}

/// What an error about a version says to the user, who may have named one that is not there.
pub(crate) fn about_version(folder: &Path, number: u64) -> impl FnOnce(Error) -> Failure {
    move |error| match error.kind() {
        ErrorKind::Absent => Failure::usage(format!(
            "{}: there is no version {number}; `hashfold versions` lists what is there",
            folder.display()
        )),
        _ => error.into(),
    }
}
