//! Where a data set in memory is loaded from, and saved to.

use super::MemorySettings;
use hashfold::{
    Env, Error, Place, ReadOptions, Result, Store, StoreOptions,
    folder::Contents,
    manifest::Kind,
    memory::AppendSnapshot,
    run::{Run, SortOptions},
    store::{Retention, StoreReader, UpdateMode, Version},
    table::Table,
    work::Watch,
};
use hashfold_rows::Schema;
use std::{path::Path, sync::Arc};
use tracing::warn;

/// Memory for sorting the entries of a version that is saved, in bytes.
pub(super) const SORT_BYTES: usize = 32 << 20;

/// Number of saved versions that stay besides the current one.
const VERSIONS_KEPT: usize = 1;

/// Age below which versions stay that were never current, in seconds.
const UNPUBLISHED_AGE_S: u64 = 3600;

/// The data that a data set in memory begins with.
pub(super) enum Source {
    Table(Table),
    Version(Arc<Version>),
}

impl Source {
    /// Opens the last version that was saved, or else what is loaded the first time; `None` if there is neither.
    ///
    /// # Errors
    /// A folder has a data set of another kind, or one that cannot be opened.
    pub(super) fn open(env: &Env, settings: &MemorySettings) -> Result<Option<Source>> {
        if let Some(folder) = &settings.path
            && let Some(saved) = Source::saved(env, folder)?
        {
            return Ok(Some(saved));
        }
        settings.load.as_ref().map(|folder| Source::first(env, folder)).transpose()
    }

    /// Opens the current version of the store that the data are saved to, if it has one.
    fn saved(env: &Env, folder: &Path) -> Result<Option<Source>> {
        match Contents::of(env.disk.as_ref(), folder)?.kind() {
            None => Ok(None),
            Some(Kind::Store) => match StoreReader::open_with(folder, &options(env)) {
                Ok(reader) => Ok(Some(Source::Version(reader.version()))),
                Err(error) if error.is_absent() => Ok(None),
                Err(error) => Err(error),
            },
            Some(kind) => Err(wrong_kind("path", "a store, or an empty folder", kind, folder)),
        }
    }

    /// Opens the table, or the current version of the store, that the data begin with.
    fn first(env: &Env, folder: &Path) -> Result<Source> {
        match Contents::of(env.disk.as_ref(), folder)?.kind() {
            Some(Kind::Store) => {
                Ok(Source::Version(StoreReader::open_with(folder, &options(env))?.version()))
            }
            // A folder without a data set gets the error of opening a table.
            None | Some(Kind::Table) => Ok(Source::Table(Table::open_with(folder, &options(env))?)),
            Some(kind) => Err(wrong_kind("load", "a table or a store", kind, folder)),
        }
    }

    /// Returns the schema of the values.
    ///
    /// # Errors
    /// A schema that is damaged.
    pub(super) fn schema(&self) -> Result<Schema> {
        match self {
            Source::Table(table) => Schema::of_table(table),
            Source::Version(version) => Schema::of_version(version.info()),
        }
    }

    /// Returns all entries.
    pub(super) fn scan(&self) -> Box<dyn Run> {
        match self {
            Source::Table(table) => Box::new(table.scan()),
            Source::Version(version) => version.scan_all(),
        }
    }
}

/// Returns the options of reading all entries once: an index would only take memory.
fn options(env: &Env) -> ReadOptions {
    ReadOptions::new().env(env.clone()).without_index()
}

fn wrong_kind(what: &'static str, expected: &str, kind: Kind, folder: &Path) -> Error {
    Error::argument(what, expected, format!("a {}", kind.name())).at(&Place::file(folder))
}

/// Publishes the entries of a snapshot as a version of the store in a folder, which is made if it does not exist.
/// Returns the number of the version.
///
/// # Errors
/// Another process writes to the store, or the device fails: the version before stays.
pub(super) fn save(
    env: &Env,
    folder: &Path,
    snapshot: AppendSnapshot,
    schema: &Schema,
) -> Result<u64> {
    let mut entries = snapshot.scan();
    let mut options = StoreOptions::new().env(env.clone()).seed(entries.seed());
    if *schema != Schema::unnamed() {
        options = options.attributes(vec![(Schema::ATTRIBUTE.to_owned(), schema.to_json())]);
    }
    let store = Store::open_or_create_with(folder, options)?;
    let mut update =
        store.update_within(SortOptions::within(SORT_BYTES))?.mode(UpdateMode::Replace);
    update.merge(&mut entries)?;
    let number = update.publish()?.name.number;
    // The version is there: older ones that cannot be removed only take space.
    if let Err(error) = remove_older(env, &store) {
        warn!(store = %folder.display(), %error, "older versions cannot be removed");
    }
    Ok(number)
}

fn remove_older(env: &Env, store: &Store) -> Result<()> {
    let rules = Retention {
        keep: VERSIONS_KEPT,
        unpublished_age_s_min: UNPUBLISHED_AGE_S,
        now_s: env.clock.unix_time().as_secs(),
        ..Retention::default()
    };
    store.writer()?.collect(&rules, &Watch::default()).map(drop)
}
