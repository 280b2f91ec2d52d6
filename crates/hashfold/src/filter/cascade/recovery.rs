//! Creating the folder of a filter, and opening it after a crash.

use super::{
    catalog::{self, Catalog, Identity, View},
    core::Core,
    options::CascadeSettings,
    resident::MemoryBudget,
    run_file::{self, RunFile},
};
use crate::{
    error::{Error, ErrorKind, Place, Result},
    folder::{self, LockedFolder, Site},
    io::{Access, Disk},
    manifest::{FIRST_NAME, Kind, NAME, NEW_NAME},
};
use std::{path::Path, sync::Arc};

/// Creates the folder of a new filter, without a manifest.
pub(super) fn create(folder: &Path, identity: Identity, settings: CascadeSettings) -> Result<Core> {
    let folder = LockedFolder::create(settings.env.disk.clone(), folder, Kind::Filter, Site::Own)?;
    folder.sync_above()?;
    folder::check_kind(folder.disk.as_ref(), &folder.path, Kind::Filter)?;
    if folder.disk.exists(&folder.path.join(NAME))? {
        return Err(Error::new(ErrorKind::Exists).at(&Place::file(&folder.path)));
    }
    // Run files of an unfinished first build are removed before the file that marks the first
    // build.
    if folder.disk.exists(&folder.path.join(FIRST_NAME))? {
        folder.remove(|name| run_number(name).is_some() || name == NEW_NAME)?;
        folder.disk.sync_folder(&folder.path)?;
    }
    let budget = MemoryBudget::new(settings.shares(identity.mode, identity.universe).run_files);
    let now = || settings.env.clock.unix_time();
    let epoch = identity.window.map_or(0, |window| window.epoch_at(now()));
    Ok(Core::new(folder, (identity, settings), (Catalog::new(epoch), budget)))
}

/// Removes the file that marks a filter without its first manifest.
pub(super) fn end_first(folder: &LockedFolder) -> Result<()> {
    folder.remove(|name| name == FIRST_NAME)
}

/// Opens a filter, and removes the remains of a crash.
pub(super) fn open(folder: &Path, settings: CascadeSettings) -> Result<Core> {
    folder::read_manifest(settings.env.disk.as_ref(), folder, Kind::Filter)?;
    let folder = LockedFolder::open(settings.env.disk.clone(), folder)?;
    // Names in the folder may come from a process that was killed, and not be durable yet.
    folder.disk.sync_folder(&folder.path)?;
    let (identity, state) = read_state(&*folder.disk, &folder.path)?;
    check_newest(&*folder.disk, &folder.path, &identity, &state)?;
    let budget = MemoryBudget::new(settings.shares(identity.mode, identity.universe).run_files);
    let access = settings.access;
    let view = open_runs(&*folder.disk, &folder.path, &identity, &state, access, &budget)?;
    sweep(&folder, &view)?;
    Ok(Core::new(folder, (identity, settings), (view, budget)))
}

/// Reads the manifest of a filter and opens its runs, whose indexes are claimed from `budget`.
pub(super) fn read(
    disk: &dyn Disk,
    folder: &Path,
    access: Access,
    budget: &Arc<MemoryBudget>,
) -> Result<(Identity, View)> {
    let (identity, state) = read_state(disk, folder)?;
    check_newest(disk, folder, &identity, &state)?;
    let view = open_runs(disk, folder, &identity, &state, access, budget)?;
    Ok((identity, view))
}

fn open_runs(
    disk: &dyn Disk,
    folder: &Path,
    identity: &Identity,
    state: &Catalog<u64>,
    access: Access,
    budget: &Arc<MemoryBudget>,
) -> Result<View> {
    state.try_map(|&number| {
        RunFile::open(disk, folder, identity.run(number), access, budget).map(Arc::new)
    })
}

/// Reads the manifest of a filter.
pub(super) fn read_state(disk: &dyn Disk, folder: &Path) -> Result<(Identity, Catalog<u64>)> {
    let manifest = folder::read_manifest(disk, folder, Kind::Filter)?;
    catalog::decode(&manifest).map_err(|error| error.at(&Place::file(&folder.join(NAME))))
}

/// Refuses a manifest that is older than a run, because it may have been restored from a copy, and
/// a sweep would remove newer runs. A run that a crash left is not newer than the manifest: it
/// contains the generation that was current when it was begun.
///
/// A reader beside a writer may see a new run with an old manifest. In that case, the manifest has
/// been replaced since.
pub(super) fn check_newest(
    disk: &dyn Disk,
    folder: &Path,
    identity: &Identity,
    state: &Catalog<u64>,
) -> Result<()> {
    for name in disk.list(folder)? {
        let Some(number) = run_number(&name) else { continue };
        if state.runs().any(|&run| run == number) {
            continue;
        }
        let since = run_file::since(disk, folder, identity.run(number));
        if let Some(since) = since.filter(|&since| since > state.generation) {
            let expected = format!("at least {since}, which {name} was made after");
            let error = Error::field("generation of the manifest", expected, state.generation);
            return Err(error.at(&Place::file(&folder.join(NAME))));
        }
    }
    Ok(())
}

/// Removes the filter's runs that the catalog does not name, and unpublished manifests.
fn sweep(folder: &LockedFolder, view: &View) -> Result<()> {
    folder.remove(|name| match run_number(name) {
        Some(number) => !view.runs().any(|run| run.number() == number),
        None => [NEW_NAME, FIRST_NAME].contains(&name),
    })
}

/// Returns the number in the name of a run file.
fn run_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("run-")?.parse().ok()?;
    (name == run_file::name(number)).then_some(number)
}
