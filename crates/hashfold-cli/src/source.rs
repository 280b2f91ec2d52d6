//! The data set that a verb reads: a table, or a version of a store.

use crate::{
    device,
    failure::{Failure, Result},
    folder, units,
};
use clap::Args;
use hashfold::{
    Env, ReadOptions,
    manifest::Kind,
    run::Run,
    store::{StoreReader, Version},
    table::{Table, VisitValue},
};
use hashfold_rows::Schema;
use std::{path::PathBuf, sync::Arc};

/// Options that name a data set and its version.
#[derive(Args, Debug)]
pub(crate) struct SourceArgs {
    /// Folder of the table or store
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Version of a store to read [default: the current one]
    #[arg(long, value_name = "N", value_parser = units::parse_number::<u64>)]
    pub(crate) version: Option<u64>,
}

/// An open data set.
pub(crate) enum Source {
    Table(Table),
    /// A version, which stays the same.
    Version(Arc<Version>),
    /// The version that was current at the last refresh.
    Current(StoreReader),
}

impl SourceArgs {
    /// Opens the table or version, which stays the same.
    pub(crate) fn open(&self, options: ReadOptions) -> Result<Source> {
        Ok(match self.follow(options)? {
            Source::Current(follower) => Source::Version(follower.version()),
            other => other,
        })
    }

    /// Opens the table or version. If no version was given, [`Source::refresh`] follows the current
    /// one.
    pub(crate) fn follow(&self, options: ReadOptions) -> Result<Source> {
        let disk = device::disk();
        Ok(match self.version_asked()? {
            Asked::Table => Source::Table(Table::open_with(&self.folder, &options)?),
            Asked::Version(number) => {
                let version =
                    Version::open(&self.folder, number, &options.env(Env::on(disk.clone())));
                let version = version.map_err(folder::about_version(&self.folder, number))?;
                Source::Version(Arc::new(version))
            }
            Asked::Current => {
                folder::current(&self.folder)?;
                Source::Current(StoreReader::open_with(
                    &self.folder,
                    &options.env(Env::on(disk.clone())),
                )?)
            }
        })
    }

    /// Returns whether the folder holds a store. `--version` is an error elsewhere.
    pub(crate) fn is_store(&self) -> Result<bool> {
        Ok(!matches!(self.version_asked()?, Asked::Table))
    }

    fn version_asked(&self) -> Result<Asked> {
        folder::refuse_filter(&self.folder)?;
        if folder::holds(&self.folder)?.kind() != Some(Kind::Store) {
            if self.version.is_some() {
                folder::refuse_table(&self.folder)?;
            }
            // An empty folder is not a table either; opening it gives the right error.
            return Ok(Asked::Table);
        }
        Ok(self.version.map_or(Asked::Current, Asked::Version))
    }
}

enum Asked {
    Table,
    Current,
    Version(u64),
}

impl Source {
    /// Switches to the version that is current now.
    pub(crate) fn refresh(&self) -> Result<()> {
        match self {
            Source::Table(_) | Source::Version(_) => Ok(()),
            Source::Current(follower) => Ok(follower.refresh().map(drop)?),
        }
    }

    pub(crate) fn schema(&self) -> Result<Schema> {
        match self {
            Source::Table(table) => Schema::of_table(table),
            Source::Version(version) => Schema::of_version(version.info()),
            Source::Current(follower) => Schema::of_version(follower.version().info()),
        }
        .map_err(Failure::from)
    }

    /// Average size of a value, in bytes.
    pub(crate) fn mean_value_bytes(&self) -> u64 {
        let of_version = |version: &Version| {
            let layers = || version.info().layers().map(|layer| layer.sizes);
            let entries: u64 = layers().map(|sizes| sizes.entries_max).sum();
            layers().map(|sizes| sizes.bytes_max).sum::<u64>() / entries.max(1)
        };
        match self {
            Source::Table(table) => table.stats().value_bytes / table.stats().entries.max(1),
            Source::Version(version) => of_version(version),
            Source::Current(follower) => of_version(&follower.version()),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(match self {
            Source::Table(table) => table.get(key)?,
            Source::Version(version) => version.get(key)?,
            Source::Current(follower) => follower.version().get(key)?,
        })
    }

    /// Calls `visit` with the index and the value of each key, or `None` if it is absent, in any
    /// order.
    pub(crate) fn get_many(&self, keys: &[Vec<u8>], visit: &mut VisitValue<'_>) -> Result<()> {
        match self {
            Source::Table(table) => table.get_many(keys, visit)?,
            Source::Version(version) => version.get_many(keys, visit)?,
            Source::Current(follower) => follower.version().get_many(keys, visit)?,
        }
        Ok(())
    }

    /// Returns runs of all entries: one for a table, one per base of a version.
    pub(crate) fn scans(&self) -> Vec<Box<dyn Run + '_>> {
        let of_version = |version: &Version| {
            version.parts().map(|chunks| version.scan_chunks(chunks) as _).collect()
        };
        match self {
            Source::Table(table) => vec![Box::new(table.scan())],
            Source::Version(version) => of_version(version),
            Source::Current(follower) => of_version(&follower.version()),
        }
    }
}
