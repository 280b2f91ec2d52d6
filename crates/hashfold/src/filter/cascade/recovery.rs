//! Making a filter's folder, and opening it after whatever happened.

use super::{
    core::Core,
    options::CascadeSettings,
    resident::Room,
    run::{self, Run, RunName},
    state::{self, Identity, State, View},
    wal,
};
use crate::{
    error::{Error, ErrorKind, Place, Result},
    io::{Access, Disk, folders_above},
    manifest::{Manifest, NAME, NEW_NAME},
};
use std::{path::Path, sync::Arc};

/// Makes the folder of a new filter.
pub(super) fn create(
    disk: Arc<dyn Disk>,
    folder: &Path,
    identity: Identity,
    settings: CascadeSettings,
) -> Result<Core> {
    let above = folders_above(&*disk, folder)?;
    disk.create_folder(folder)?;
    for folder in above {
        disk.sync_folder(&folder)?;
    }
    let lock = disk.lock(folder)?;
    if disk.exists(&folder.join(NAME))? {
        return Err(Error::new(ErrorKind::Exists).at(&Place::file(folder)));
    }
    let room = Room::new(settings.shares(identity.mode, identity.universe).runs);
    let parts = (State::new(), room);
    let core = Core::new(disk, folder.to_owned(), (identity, settings), parts, lock);
    core.publish(&[], |view| Some(view.clone()), |_| {})?;
    Ok(core)
}

/// Opens a filter, and removes what a crash left.
pub(super) fn open(disk: Arc<dyn Disk>, folder: &Path, settings: CascadeSettings) -> Result<Core> {
    if !disk.exists(&folder.join(NAME))? {
        return Err(Error::new(ErrorKind::Absent).at(&Place::file(folder)));
    }
    let lock = disk.lock(folder)?;
    // What is there may be from a process that was killed, and not be on the device yet.
    disk.sync_folder(folder)?;
    let (identity, state) = read_state(&*disk, folder)?;
    let room = Room::new(settings.shares(identity.mode, identity.universe).runs);
    let view = open_runs(&*disk, folder, &identity, &state, settings.access, &room)?;
    sweep(&*disk, folder, &view)?;
    Ok(Core::new(disk, folder.to_owned(), (identity, settings), (view, room), lock))
}

/// Reads the manifest of a filter and opens its runs, whose indexes take `room`.
pub(super) fn read(
    disk: &dyn Disk,
    folder: &Path,
    access: Access,
    room: &Arc<Room>,
) -> Result<(Identity, View)> {
    let (identity, state) = read_state(disk, folder)?;
    let view = open_runs(disk, folder, &identity, &state, access, room)?;
    Ok((identity, view))
}

fn open_runs(
    disk: &dyn Disk,
    folder: &Path,
    identity: &Identity,
    state: &State<u64>,
    access: Access,
    room: &Arc<Room>,
) -> Result<View> {
    let Identity { seed, id, universe, .. } = *identity;
    state.try_map(|&number| {
        let name = RunName { seed, id, universe, number };
        Run::open(disk, folder, name, access, room).map(Arc::new)
    })
}

/// Reads the manifest of a filter.
pub(super) fn read_state(disk: &dyn Disk, folder: &Path) -> Result<(Identity, State<u64>)> {
    let manifest = Manifest::read(disk, folder)?;
    state::decode(&manifest).map_err(|error| error.at(&Place::file(&folder.join(NAME))))
}

/// Removes files of ours that are not part of the filter.
fn sweep(disk: &dyn Disk, folder: &Path, view: &View) -> Result<()> {
    let logs = logs_from(disk, folder, view.first_log)?;
    for name in disk.list(folder)? {
        let is_needless = match (number(&name, "run-"), number(&name, "log-")) {
            (Some(number), _) => !view.runs().any(|run| run.number() == number),
            (_, Some(number)) => !logs.contains(&number),
            _ => name == NEW_NAME,
        };
        if is_needless {
            disk.remove(&folder.join(name))?;
        }
    }
    Ok(())
}

/// The number in a name that is exactly of our form.
fn number(name: &str, prefix: &str) -> Option<u64> {
    let number = name.strip_prefix(prefix)?.parse().ok()?;
    (name == run::name(number) || name == wal::name(number)).then_some(number)
}

/// The numbers of the logs that hold what the runs do not, ascending.
pub(super) fn logs(core: &Core) -> Result<Vec<u64>> {
    let first = core.shared().view.first_log;
    logs_from(&*core.disk, &core.folder, first)
}

/// The same of logs from this one on.
///
/// # Errors
/// If one is missing: each was made when those before it were there.
pub(super) fn logs_from(disk: &dyn Disk, folder: &Path, first: u64) -> Result<Vec<u64>> {
    let names = disk.list(folder)?;
    let mut logs: Vec<u64> = names.iter().filter_map(|name| number(name, "log-")).collect();
    logs.retain(|&number| number >= first);
    logs.sort_unstable();
    if let Some((expected, got)) = (first..).zip(&logs).find(|(expected, got)| expected != *got) {
        let error = Error::field("number of the next log", format!("{expected}"), got);
        return Err(error.at(&Place::file(&folder.join(wal::name(*got)))));
    }
    Ok(logs)
}
