//! What a folder holds, and the writer of the store in it.

use crate::{
    device,
    failure::{Failure, Result},
};
use hashfold::{
    Error, ErrorKind, manifest,
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
}

/// Looks for the one file that each data set has.
pub(crate) fn holds(folder: &Path) -> Result<Holds> {
    let disk = device::disk();
    Ok(match () {
        () if disk.exists(&folder.join(store::NAME))? => Holds::Store,
        () if disk.exists(&folder.join(manifest::NAME))? => Holds::Table,
        () => Holds::Nothing,
    })
}

/// Refuses a store's folder where a table is meant; `hint` says what can be done.
pub(crate) fn refuse_store(folder: &Path, hint: &str) -> Result<()> {
    match holds(folder)? {
        Holds::Store => Err(Failure::usage(format!("{}: is a store; {hint}", folder.display()))),
        Holds::Table | Holds::Nothing => Ok(()),
    }
}

/// Refuses a table's folder where a store is meant.
pub(crate) fn refuse_table(folder: &Path) -> Result<()> {
    match holds(folder)? {
        Holds::Table => Err(Failure::usage(format!(
            "{}: is a table, which never changes; `hashfold build` makes another one, \
             `hashfold update` a store",
            folder.display()
        ))),
        Holds::Store | Holds::Nothing => Ok(()),
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
