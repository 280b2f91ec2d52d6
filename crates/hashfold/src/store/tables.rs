//! The open tables of a version. A table that cannot be opened keeps no other table shut.

use super::{
    layer::folder_of,
    version::{Layer, VersionInfo},
};
use crate::{
    error::{Error, ErrorClass, ErrorKind, Place, Result, check_same},
    folder::Site,
    io::Access,
    options::ReadOptions,
    table::Table,
    work::{Clock, Watch},
};
use rustix::io::Errno;
use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

/// The tables of a version, numbered in the order of its layers: the bases, then the deltas.
#[derive(Debug)]
pub(super) struct OpenTables {
    /// The folder of all tables.
    folder: PathBuf,
    options: ReadOptions,
    /// Empty for a table that is not open. Each use of it tries again.
    tables: Vec<OnceLock<Arc<Table>>>,
}

impl OpenTables {
    /// Opens the wanted tables of a version, or shares those that are open in `other`. Also returns the errors of the tables that cannot be opened.
    ///
    /// # Errors
    /// Errors that are not of one table: too many open files, too little memory.
    pub(super) fn open(
        folder: &Path,
        options: &ReadOptions,
        info: &VersionInfo,
        is_wanted: &dyn Fn(&Layer) -> bool,
        other: Option<&OpenTables>,
    ) -> Result<(OpenTables, Vec<Error>)> {
        let wanted = info.layers().filter(|layer| is_wanted(layer));
        let options = &options.for_bytes(wanted.map(|layer| layer.bytes).sum());
        let shared: HashMap<u64, &Arc<Table>> = other.map(OpenTables::by_id).unwrap_or_default();
        let mut damage = Vec::new();
        let mut open = |layer: &Layer| {
            if !is_wanted(layer) {
                return Ok(OnceLock::new());
            }
            if let Some(table) = shared.get(&layer.table) {
                return Ok(OnceLock::from((*table).clone()));
            }
            match open_layer(folder, info, layer, options) {
                Ok(table) => Ok(OnceLock::from(Arc::new(table))),
                Err(error) if is_of_table(&error) => {
                    damage.push(error);
                    Ok(OnceLock::new())
                }
                Err(error) => Err(error),
            }
        };
        let tables: Result<Vec<OnceLock<Arc<Table>>>> = info.layers().map(&mut open).collect();
        let (folder, options) = (folder.to_owned(), options.clone());
        Ok((OpenTables { folder, options, tables: tables? }, damage))
    }

    /// Returns the clock that the tables were opened with.
    pub(super) fn clock(&self) -> &dyn Clock {
        self.options.env.clock.as_ref()
    }

    /// Opens more tables of the version.
    ///
    /// # Errors
    /// The first table that cannot be opened; others may be open then.
    pub(super) fn open_more(
        &self,
        info: &VersionInfo,
        is_wanted: &dyn Fn(&Layer) -> bool,
    ) -> Result<()> {
        let all = info.layers().zip(&self.tables);
        let lacking: Vec<(&Layer, &OnceLock<Arc<Table>>)> =
            all.filter(|(layer, table)| table.get().is_none() && is_wanted(layer)).collect();
        let options =
            self.options.for_more_bytes(lacking.iter().map(|(layer, _)| layer.bytes).sum());
        for (layer, table) in lacking {
            let opened = open_layer(&self.folder, info, layer, &options)?;
            table.get_or_init(|| Arc::new(opened));
        }
        Ok(())
    }

    /// Returns the open tables.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.iter().filter_map(OnceLock::get)
    }

    /// Brings the mapped tables into memory that `used` does not have, unless they take more than half of it.
    pub(super) fn warm(&self, used: Option<&OpenTables>, watch: &Watch) -> Result<()> {
        let warm: HashSet<u64> =
            used.iter().flat_map(|used| used.iter()).map(|table| table.stats().id).collect();
        let cold = |table: &&Arc<Table>| {
            table.stats().access == Access::Mapped && !warm.contains(&table.stats().id)
        };
        let bytes: u64 = self.iter().filter(cold).map(|table| table.stats().data_bytes).sum();
        match bytes > self.options.env.disk.free_memory() / 2 {
            true => Ok(()),
            false => self.iter().filter(cold).try_for_each(|table| table.warm(watch)),
        }
    }

    /// Returns the open tables by their ids, but those whose indexes were damaged: these may have been
    /// repaired meanwhile.
    fn by_id(&self) -> HashMap<u64, &Arc<Table>> {
        let whole = self.iter().filter(|table| table.index_damage().is_none());
        whole.map(|table| (table.stats().id, table)).collect()
    }

    /// Returns a table of this version by its number. Opens it if it was damaged before: it may have
    /// been repaired meanwhile.
    pub(super) fn get(&self, info: &VersionInfo, number: usize) -> Result<&Arc<Table>> {
        let table = &self.tables[number];
        if let Some(table) = table.get() {
            return Ok(table);
        }
        let layer = info.layers().nth(number).expect("each table has a layer");
        let opened = open_layer(&self.folder, info, layer, &self.options)?;
        Ok(table.get_or_init(|| Arc::new(opened)))
    }
}

/// Whether an error is one of this table, and not of the whole process.
pub(super) fn is_of_table(error: &Error) -> bool {
    match (error.kind(), error.class()) {
        (ErrorKind::Io { source, .. }, _) => !matches!(
            Errno::from_io_error(source),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM)
        ),
        (_, class) => class == ErrorClass::Damage,
    }
}

/// Opens the table of a layer, which must be the one that the version file describes.
pub(super) fn open_layer(
    tables: &Path,
    info: &VersionInfo,
    layer: &Layer,
    options: &ReadOptions,
) -> Result<Table> {
    let folder = folder_of(tables, layer.table);
    let table =
        Table::open_at(&folder, options, Site::Part).map_err(|error| match error.is_absent() {
            true => Error::missing("table of the version", &folder),
            false => error,
        })?;
    let stats = table.stats();
    check_same("table id", layer.table, stats.id)
        .and_then(|()| check_same("seed", info.seed.0, stats.seed.0))
        .and_then(|()| check_same("number of entries", layer.entries, stats.entries))
        .map_err(|error| error.at(&Place::file(&folder)))?;
    Ok(table)
}
