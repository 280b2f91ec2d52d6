//! Opening a data set of any kind.

use crate::{
    error::{Error, ErrorKind, Place, Result},
    filter::FilterReader,
    folder::Contents,
    manifest::Kind,
    map::{Map, MapOptions},
    options::ReadOptions,
    store::Store,
    table::Table,
};
use std::path::Path;

/// A data set of any kind, opened for reading.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DataSet {
    /// An immutable table.
    Table(Table),
    /// A store, with or without versions.
    Store(Store),
    /// The state of a filter when it was opened.
    Filter(FilterReader),
    /// A map, which no other process can have open.
    Map(Map),
}

/// Opens the data set in a folder for reading, whichever kind it is.
///
/// ```
/// # std::env::set_current_dir(std::env::temp_dir())?;
/// # let _ = std::fs::remove_dir_all("hashfold-any");
/// use hashfold::{DataSet, TableBuilder};
///
/// let mut builder = TableBuilder::new("hashfold-any")?;
/// builder.push("sky", "blue")?;
/// builder.finish()?;
/// match hashfold::open("hashfold-any")? {
///     DataSet::Table(table) => assert!(table.contains("sky")?),
///     other => panic!("{other:?}"),
/// }
/// # std::fs::remove_dir_all("hashfold-any")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// `Absent` if there is no data set in the folder; `Busy` if it is a map that is open already.
pub fn open(folder: impl AsRef<Path>) -> Result<DataSet> {
    open_with(folder, &ReadOptions::new())
}

/// Opens the data set in a folder for reading, as [`open`] does.
///
/// # Errors
/// The errors of [`open`].
pub fn open_with(folder: impl AsRef<Path>, options: &ReadOptions) -> Result<DataSet> {
    let folder = folder.as_ref();
    match Contents::of(options.env.disk.as_ref(), folder)?.kind() {
        Some(Kind::Table) => Table::open_with(folder, options).map(DataSet::Table),
        Some(Kind::Store) => Store::open_in(options.env.clone(), folder).map(DataSet::Store),
        Some(Kind::Filter) => FilterReader::open_with(folder, options).map(DataSet::Filter),
        Some(Kind::Map) => {
            let options = MapOptions::new().env(options.env.clone());
            Map::open_with(folder, options).map(DataSet::Map)
        }
        None => Err(Error::new(ErrorKind::Absent).at(&Place::file(folder))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        env::Env,
        filter::{Filter, FilterOptions},
        store::StoreOptions,
        table::{TableBuilder, TableOptions},
    };

    #[test]
    fn every_kind_of_data_set_is_opened_as_itself() {
        let env = Env::simulated(1);
        let options = ReadOptions::new().env(env.clone());
        let table = TableBuilder::with("table", TableOptions::new().env(env.clone())).unwrap();
        table.finish().unwrap();
        let store = StoreOptions::new().env(env.clone());
        Store::open_or_create_with("store", store).unwrap();
        Filter::create("filter", FilterOptions::exact().env(env.clone())).unwrap().close().unwrap();
        Map::create("map", MapOptions::new().env(env.clone())).unwrap().close().unwrap();
        env.disk.create_folder(Path::new("empty")).unwrap();
        let open = |name| open_with(name, &options);
        assert!(matches!(open("table").unwrap(), DataSet::Table(_)));
        assert!(matches!(open("store").unwrap(), DataSet::Store(_)));
        assert!(matches!(open("filter").unwrap(), DataSet::Filter(_)));
        assert!(matches!(open("map").unwrap(), DataSet::Map(_)));
        assert!(open("empty").unwrap_err().is_absent());
        assert!(open("nothing").unwrap_err().is_absent());
    }
}
