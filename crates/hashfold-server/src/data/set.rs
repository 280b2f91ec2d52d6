//! A table or a store that is served under a name.

use super::view::View;
use arc_swap::ArcSwap;
use hashfold::{
    Error, ErrorKind, Place, ReadOptions, Result,
    manifest::Kind,
    store::{StoreReader, Version},
    table::Table,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// A table or a store. Reading its current view takes no lock.
#[derive(Debug)]
pub(crate) struct DataSet {
    name: Arc<str>,
    folder: PathBuf,
    options: ReadOptions,
    /// Follows the current version of a store.
    reader: Option<StoreReader>,
    current: ArcSwap<View>,
    /// Other versions that connections use.
    others: Mutex<BTreeMap<u64, Weak<View>>>,
}

impl DataSet {
    /// Opens the table or the current version of the store in a folder.
    ///
    /// # Errors
    /// `WrongKind` if the folder has a filter, `Unpublished` if the store has no current version; the
    /// errors of opening.
    pub(crate) fn open(
        name: &str,
        folder: &Path,
        kind: Kind,
        options: ReadOptions,
    ) -> Result<DataSet> {
        let (view, reader) = match kind {
            Kind::Table => (View::of_table(Table::open_with(folder, &options)?)?, None),
            Kind::Store => {
                let reader = StoreReader::open_with(folder, &options)?;
                (View::of_version(reader.version())?, Some(reader))
            }
            Kind::Filter => {
                return Err(Error::argument("data set", "a table or a store", "a filter")
                    .at(&Place::file(folder)));
            }
        };
        Ok(DataSet {
            name: name.into(),
            folder: folder.to_owned(),
            options,
            reader,
            current: ArcSwap::from_pointee(view),
            others: Mutex::default(),
        })
    }

    /// Returns the name under which the data set is served.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns the folder of the data set.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the data set is a store, which has versions.
    pub(crate) fn is_store(&self) -> bool {
        self.reader.is_some()
    }

    /// Returns the view that is current now.
    pub(crate) fn view(&self) -> Arc<View> {
        self.current.load_full()
    }

    /// Returns the view of a version of a store, which stays open as long as the view is held.
    ///
    /// # Errors
    /// `Absent` if there is no such version, or if the data set is a table.
    pub(crate) fn view_of(&self, number: u64) -> Result<Arc<View>> {
        if self.reader.is_none() {
            return Err(Error::new(ErrorKind::Absent).at(&Place::file(&self.folder)));
        }
        let current = self.view();
        if current.version().is_some_and(|version| version.info().name.number == number) {
            return Ok(current);
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.retain(|_, view| view.strong_count() > 0);
        if let Some(view) = others.get(&number).and_then(Weak::upgrade) {
            return Ok(view);
        }
        let version = Version::open(&self.folder, number, &self.options)?;
        let view = Arc::new(View::of_version(Arc::new(version))?);
        others.insert(number, Arc::downgrade(&view));
        Ok(view)
    }

    /// Switches to the version that is current in the store's folder. Returns whether it is another
    /// one. After an error, the data set serves what it served before.
    ///
    /// # Errors
    /// The new version cannot be opened.
    pub(crate) fn refresh(&self) -> Result<bool> {
        let Some(reader) = &self.reader else { return Ok(false) };
        reader.refresh()?;
        let version = reader.version();
        if self.view().version().is_some_and(|held| Arc::ptr_eq(held, &version)) {
            return Ok(false);
        }
        self.current.store(Arc::new(View::of_version(version)?));
        Ok(true)
    }
}
