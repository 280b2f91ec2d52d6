//! A table or a store that is served under a name.

use super::view::View;
use arc_swap::ArcSwapOption;
use hashfold::{
    Error, ErrorKind, Place, ReadOptions, Result,
    manifest::Kind,
    store::{StoreReader, Version},
    table::Table,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// A table or a store. Reading its current view takes no lock.
#[derive(Debug)]
pub(crate) struct DataSet {
    name: Arc<str>,
    folder: PathBuf,
    options: ReadOptions,
    following: Following,
    /// `None` before the first version of a store that follows a group.
    current: ArcSwapOption<View>,
    /// Set when a read of the current version has met damage, for who can repair it.
    is_damaged: Arc<AtomicBool>,
    /// Other versions that connections use.
    others: Mutex<BTreeMap<u64, Weak<View>>>,
}

/// The authority that decides which version of a data set is current.
#[derive(Debug)]
enum Following {
    /// Nothing: a table never changes.
    Nothing,
    /// The store's file `CURRENT`.
    Store(StoreReader),
    /// The pointer of a group; see [`DataSet::show`].
    Group,
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
        let (view, following) = match kind {
            Kind::Table => {
                (View::of_table(Table::open_with(folder, &options)?)?, Following::Nothing)
            }
            Kind::Store => {
                let reader = StoreReader::open_with(folder, &options)?;
                (View::of_version(reader.version())?, Following::Store(reader))
            }
            Kind::Filter => {
                return Err(Error::argument("data set", "a table or a store", "a filter")
                    .at(&Place::file(folder)));
            }
        };
        Ok(DataSet::new(name, folder, options, following, Some(view)))
    }

    /// Opens a store whose versions come from a group. If it has a current version, that is served until
    /// the group has another one.
    ///
    /// # Errors
    /// The current version cannot be opened.
    pub(crate) fn open_of_group(
        name: &str,
        folder: &Path,
        options: ReadOptions,
    ) -> Result<DataSet> {
        let view = match StoreReader::open_with(folder, &options) {
            Ok(reader) => Some(View::of_version(reader.version())?),
            Err(error) if error.is_absent() => None,
            Err(error) if matches!(error.kind(), ErrorKind::Unpublished) => None,
            Err(error) => return Err(error),
        };
        Ok(DataSet::new(name, folder, options, Following::Group, view))
    }

    fn new(
        name: &str,
        folder: &Path,
        options: ReadOptions,
        following: Following,
        view: Option<View>,
    ) -> DataSet {
        DataSet {
            name: name.into(),
            folder: folder.to_owned(),
            options,
            following,
            current: ArcSwapOption::from_pointee(view),
            is_damaged: Arc::default(),
            others: Mutex::default(),
        }
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
        !matches!(self.following, Following::Nothing)
    }

    /// Whether the pointer of a group decides which version is current.
    pub(crate) fn follows_group(&self) -> bool {
        matches!(self.following, Following::Group)
    }

    /// Returns the options with which versions are opened.
    pub(crate) fn options(&self) -> &ReadOptions {
        &self.options
    }

    /// Returns the view that is current now; `None` before the first version of a group.
    pub(crate) fn view(&self) -> Option<Arc<View>> {
        self.current.load_full()
    }

    /// Returns the flag that says that a read of the current version has met damage.
    pub(crate) fn damage(&self) -> &Arc<AtomicBool> {
        &self.is_damaged
    }

    /// Sets the flag if a read of the current version has met damage since the version was opened.
    pub(crate) fn look_for_damage(&self) {
        if self.view().is_some_and(|view| view.has_met_damage()) {
            self.is_damaged.store(true, Relaxed);
        }
    }

    /// Makes a view of a version of the group current.
    pub(crate) fn show(&self, view: Arc<View>) {
        self.current.store(Some(view));
    }

    /// Returns the view of a version of a store, which stays open as long as the view is held.
    ///
    /// # Errors
    /// `Absent` if there is no such version, or if the data set is a table.
    pub(crate) fn view_of(&self, number: u64) -> Result<Arc<View>> {
        if !self.is_store() {
            return Err(Error::new(ErrorKind::Absent).at(&Place::file(&self.folder)));
        }
        let is_it = |view: &Arc<View>| {
            view.version().is_some_and(|version| version.info().name.number == number)
        };
        if let Some(current) = self.view().filter(is_it) {
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
        let Following::Store(reader) = &self.following else { return Ok(false) };
        reader.refresh()?;
        let version = reader.version();
        let held = self.view();
        let held = held.as_ref().and_then(|view| view.version());
        if held.is_some_and(|held| Arc::ptr_eq(held, &version)) {
            return Ok(false);
        }
        self.show(Arc::new(View::of_version(version)?));
        Ok(true)
    }
}
