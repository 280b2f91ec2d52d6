//! Folders of data sets as sets of keys, of which a prefix is read.

use super::groups;
use crate::{
    device,
    failure::{Failure, Result},
    folder,
    output::write_line,
    progress::{Progress, Show, Unit},
    stop::Stop,
    units,
};
use hashfold::{
    Env, Error, ErrorKind, Map, MapOptions, ReadOptions, Table,
    error::Place,
    filter::cascade::{self, Snapshot},
    io::{Access, CountingDisk},
    manifest::Kind,
    sketch::{Expression, Precision, PrefixSample, PrefixSet, SETS_MAX},
    store::{StoreReader, Version},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Whether the paths are those of folders, and not of sketches.
///
/// # Errors
/// If some are folders and some are not, or if there are too many.
pub(super) fn are_folders(paths: &[PathBuf]) -> Result<bool> {
    let Some(folder) = paths.iter().find(|path| path.is_dir()) else { return Ok(false) };
    match paths.iter().find(|path| !path.is_dir()) {
        None if paths.len() > SETS_MAX => {
            let message = format!("{} folders are given, up to {SETS_MAX} are read", paths.len());
            Err(Failure::usage(message))
        }
        None => Ok(true),
        Some(absent) if !absent.exists() && groups::split(absent).is_none() => {
            Err(Failure::usage(format!("{}: there is nothing here", absent.display())))
        }
        Some(other) => Err(Failure::usage(format!(
            "{}: is not a folder, but {} is; give folders only, or sketches only",
            other.display(),
            folder.display()
        ))),
    }
}

/// An open data set.
enum Opened {
    Table(Table),
    Version(Arc<Version>),
    Filter(Snapshot),
    Map(Map),
}

impl Opened {
    /// Opens the data set in a folder, without an index for lookups. Its reads are counted.
    fn open(folder: &Path, disk: &CountingDisk) -> Result<Opened> {
        let env = Env::on(Arc::new(disk.clone()));
        let options = ReadOptions::new().env(env.clone()).data(Access::Cached).without_index();
        Ok(match folder::holds(folder)?.kind() {
            Some(Kind::Store) => {
                folder::current(folder)?;
                Opened::Version(StoreReader::open_with(folder, &options)?.version())
            }
            Some(Kind::Filter) => {
                let memory = cascade::MEMORY_DEFAULT;
                Opened::Filter(Snapshot::open_within(&env, folder, Access::Cached, memory)?)
            }
            Some(Kind::Map) => Opened::Map(Map::open_with(folder, MapOptions::new().env(env))?),
            // An empty folder is not a table either; opening it gives the right error.
            Some(Kind::Table) | None => Opened::Table(Table::open_with(folder, &options)?),
        })
    }

    fn set(&self) -> hashfold::Result<PrefixSet<'_>> {
        Ok(match self {
            Opened::Table(table) => PrefixSet::of_run(table.scan()),
            Opened::Version(version) => PrefixSet::of_run(version.scan_all()),
            Opened::Filter(snapshot) => PrefixSet::of_fingerprints(snapshot.scan_prefix()?)?,
            Opened::Map(map) => PrefixSet::of_run(map.snapshot().scan()),
        })
    }
}

/// Reads the first hashes of the data sets in folders until an expression is estimated.
pub(super) fn sample(
    folders: &[PathBuf],
    expression: &Expression,
    precision: Precision,
) -> Result<PrefixSample> {
    let disk = CountingDisk::on(device::disk());
    let stop = Stop::on_signals()?;
    let phase = Progress::start(Show::Text, "reading", Unit::Entries, None);
    let precision = precision.watch(stop.watch(phase)).counting(disk.clone());
    // Each folder is opened once: a map can be opened no second time.
    let (mut opened, mut numbers) = (Vec::new(), BTreeMap::new());
    for folder in folders {
        if let Entry::Vacant(place) = numbers.entry(real_path(folder)?) {
            place.insert(opened.len());
            opened.push(Opened::open(folder, &disk)?);
        }
    }
    let mut sets: Vec<PrefixSet<'_>> = Vec::new();
    for folder in folders {
        let place = Place::file(folder);
        let data = &opened[numbers[&real_path(folder)?]];
        let set = data.set().map_err(|error| error.at(&place))?;
        if let Some(expected) = sets.first().map(PrefixSet::seed)
            && expected != set.seed()
        {
            let kind = ErrorKind::WrongSeed { expected, got: set.seed() };
            return Err(Error::new(kind).at(&place).into());
        }
        sets.push(set);
    }
    Ok(PrefixSample::read(sets, expression, &precision)?)
}

/// Returns the path of a folder without links.
fn real_path(folder: &Path) -> Result<PathBuf> {
    fs::canonicalize(folder).map_err(|error| Failure::io(folder.display(), "open", &error))
}

/// Prints what was read for the estimates above it: nothing from sketches.
pub(super) fn write_read(sample: &PrefixSample, width: usize) -> Result<()> {
    let Some(bytes) = sample.bytes_read() else { return Ok(()) };
    write_line(format_args!(
        "{:<width$} {} of data, {}: {} of all hashes",
        "read",
        units::bytes(bytes),
        units::counted(sample.keys_read(), "key", "keys"),
        units::percent(sample.theta()),
    ))
}

/// Adds what was read to the estimates.
pub(super) fn add_read(sample: &PrefixSample, json: &mut Value) {
    if let Some(bytes) = sample.bytes_read() {
        json["read"] =
            json!({ "bytes": bytes, "keys": sample.keys_read(), "fraction": sample.theta() });
    }
}
