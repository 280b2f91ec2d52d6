//! The data set that a verb reads: a table, or a version of a store.

use crate::{
    device,
    failure::{Failure, Result},
    folder,
    output::write_note,
    units,
};
use clap::Args;
use hashfold::{
    Env, Error, ReadOptions,
    io::Access,
    manifest::Kind,
    map::{Map, MapOptions},
    options::AccessReason,
    run::Run,
    store::{StoreReader, Version},
    table::{Table, TableStats, VisitValue},
};
use hashfold_rows::Schema;
use std::{
    fmt::Display,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Options that name a data set and its version.
#[derive(Args, Debug)]
pub(crate) struct SourceArgs {
    /// Folder of the table, store or map
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Version of a store to read [default: the current one]
    #[arg(long, value_name = "N", value_parser = units::parse_number::<u64>)]
    pub(crate) version: Option<u64>,
}

/// An open data set, which stays the same.
pub(crate) enum Source {
    Table(Table),
    Version(Arc<Version>),
    Map(Map),
}

/// An open data set, and the reader that follows the current version of a store.
pub(crate) struct Followed {
    pub(crate) source: Source,
    reader: Option<StoreReader>,
}

impl Followed {
    /// Switches to the version that is current now. Returns whether it is another one.
    pub(crate) fn refresh(&mut self) -> Result<bool> {
        let Some(reader) = &self.reader else { return Ok(false) };
        reader.refresh()?;
        let version = reader.version();
        let is_new = !matches!(&self.source, Source::Version(held) if Arc::ptr_eq(held, &version));
        self.source = Source::Version(version);
        Ok(is_new)
    }
}

impl SourceArgs {
    /// Opens the table or version.
    pub(crate) fn open(&self, options: ReadOptions) -> Result<Source> {
        self.follow(options).map(|followed| followed.source)
    }

    /// Opens the table or version. If no version was given, [`Followed::refresh`] follows the current
    /// one.
    pub(crate) fn follow(&self, options: ReadOptions) -> Result<Followed> {
        let options = options.env(Env::on(device::disk()));
        let (source, reader) = match self.version_asked()? {
            Asked::Table => (Source::Table(Table::open_with(&self.folder, &options)?), None),
            Asked::Map => (Source::Map(Map::open_with(&self.folder, MapOptions::new())?), None),
            Asked::Version(number) => {
                let version = Version::open(&self.folder, number, &options)
                    .map_err(folder::about_version(&self.folder, number))?;
                (Source::Version(Arc::new(version)), None)
            }
            Asked::Current => {
                folder::current(&self.folder)?;
                let reader = StoreReader::open_with(&self.folder, &options)?;
                (Source::Version(reader.version()), Some(reader))
            }
        };
        Ok(Followed { source, reader })
    }

    /// Returns whether the folder holds a store. `--version` is an error elsewhere.
    pub(crate) fn is_store(&self) -> Result<bool> {
        Ok(matches!(self.version_asked()?, Asked::Version(_) | Asked::Current))
    }

    fn version_asked(&self) -> Result<Asked> {
        folder::refuse_filter(&self.folder)?;
        if folder::holds(&self.folder)?.kind() != Some(Kind::Store) {
            if self.version.is_some() {
                folder::refuse_table(&self.folder)?;
            }
            if folder::holds(&self.folder)?.kind() == Some(Kind::Map) {
                return Ok(Asked::Map);
            }
            // An empty folder is not a table either; opening it gives the right error.
            return Ok(Asked::Table);
        }
        Ok(self.version.map_or(Asked::Current, Asked::Version))
    }
}

enum Asked {
    Table,
    Map,
    Current,
    Version(u64),
}

impl Source {
    pub(crate) fn schema(&self) -> Result<Schema> {
        match self {
            Source::Table(table) => Schema::of_table(table),
            Source::Version(version) => Schema::of_version(version.info()),
            Source::Map(map) => Schema::of_attribute(map.attribute(Schema::ATTRIBUTE)),
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
            Source::Map(map) => {
                let stats = map.stat();
                (stats.file_bytes - stats.free_bytes) / stats.entries_max.max(1)
            }
        }
    }

    /// Returns the ways in which the tables are read.
    pub(crate) fn accesses(&self) -> Accesses {
        match self {
            Source::Table(table) => Accesses::of([table.stats()].into_iter()),
            Source::Version(version) => Accesses::of(version.table_stats()),
            Source::Map(_) => Accesses::of([].into_iter()),
        }
    }

    /// Returns the damage of indexes, because of which lookups take more reads.
    pub(crate) fn index_damage(&self) -> Vec<&Error> {
        match self {
            Source::Table(table) => table.index_damage().into_iter().collect(),
            Source::Version(version) => version.index_damage().collect(),
            Source::Map(_) => Vec::new(),
        }
    }

    /// Prints a warning for each damaged index.
    pub(crate) fn note_index_damage(&self, folder: &Path) {
        let cure = match self {
            Source::Table(_) => Cure::Reindex,
            // A map has no index that could be damaged.
            Source::Version(_) | Source::Map(_) => Cure::Repair,
        };
        note_index_damage(folder, cure, self.index_damage().into_iter());
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(match self {
            Source::Table(table) => table.get(key)?,
            Source::Version(version) => version.get(key)?,
            Source::Map(map) => map.get(key)?,
        })
    }

    /// Calls `visit` with the index and the value of each key, or `None` if it is absent, in any
    /// order.
    pub(crate) fn get_many(&self, keys: &[Vec<u8>], visit: &mut VisitValue<'_>) -> Result<()> {
        match self {
            Source::Table(table) => table.get_many(keys, visit)?,
            Source::Version(version) => version.get_many(keys, visit)?,
            Source::Map(map) => {
                let values = map.get_many(keys)?;
                let mut values = values.iter().map(Option::as_deref).enumerate();
                values.try_for_each(|(i, value)| visit(i, value))?;
            }
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
            Source::Map(map) => vec![Box::new(map.snapshot().scan())],
        }
    }
}

/// The ways in which the tables of a data set are read, each with its reason and its number of tables.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Accesses(pub(crate) Vec<(Access, AccessReason, u64)>);

impl Accesses {
    pub(crate) fn of<'a>(tables: impl Iterator<Item = &'a TableStats>) -> Accesses {
        let mut all: Vec<(Access, AccessReason, u64)> = Vec::new();
        for table in tables {
            let same = |known: &&mut (Access, AccessReason, u64)| {
                (known.0, known.1) == (table.access, table.access_reason)
            };
            match all.iter_mut().find(same) {
                Some((_, _, count)) => *count += 1,
                None => all.push((table.access, table.access_reason, 1)),
            }
        }
        Accesses(all)
    }

    /// Whether any table is read in this way.
    pub(crate) fn is_any(&self, access: Access) -> bool {
        self.0.iter().any(|(other, ..)| *other == access)
    }
}

/// The verb that mends the index of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cure {
    /// `reindex`, for a table.
    Reindex,
    /// `verify --repair-from`, for a table in a store.
    Repair,
}

/// Prints a warning for each damaged index of the data set in a folder.
pub(crate) fn note_index_damage(
    folder: &Path,
    cure: Cure,
    damage: impl Iterator<Item = impl Display>,
) {
    let cure = match cure {
        Cure::Reindex => "hashfold reindex",
        Cure::Repair => "hashfold verify --repair-from COPY",
    };
    for damage in damage {
        write_note(format_args!(
            "hashfold: warning: {damage}; lookups take 2 to 4 reads each until `{cure} {}`",
            folder.display()
        ));
    }
}
