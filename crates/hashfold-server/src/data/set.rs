//! A table, a store, a map or a data set in memory that is served under a name.

use super::{
    home::FilterHome,
    latency::Latency,
    map::{MapSettings, ServedMap},
    memory::{MemorySettings, ServedMemory},
    view::View,
};
use crate::metrics::CommandCounts;
use arc_swap::ArcSwapOption;
use hashfold::{
    Env, Error, ErrorClass, ErrorKind, Place, ReadOptions, Result,
    manifest::Kind,
    store::{StoreReader, Version},
    table::Table,
    work::{Clock, MemoryBudget, Watch},
};
use hashfold_deploy::OpenVersions;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};
use tracing::warn;

/// The reply to commands on a store that has no version yet.
const LOADING: &str = "LOADING Hashfold is loading the dataset in memory";

/// Time after which a version is served all the same if it is not in memory yet.
const WARM_MAX: Duration = Duration::from_secs(10);

/// Returns a watch that ends the warming of a version when it takes too long, or when `is_over`.
pub(crate) fn warming(
    clock: &Arc<dyn Clock>,
    is_over: impl Fn() -> bool + Send + Sync + 'static,
) -> Watch {
    let (clock, end) = (clock.clone(), clock.now() + WARM_MAX);
    Watch::new(move |_| match is_over() || clock.now() > end {
        true => Err(ErrorKind::Stopped.into()),
        false => Ok(()),
    })
}

/// Returns the reply to commands on something that the configuration does not have any more.
pub(crate) fn gone(what: &str) -> String {
    format!(
        "ERR {what} is no longer served, or in another way: the configuration has changed; connect again"
    )
}

/// Whether another copy of a store can do better, or a server with more memory.
fn is_of_local_copy(error: &Error) -> bool {
    error.class() == ErrorClass::Damage || matches!(error.kind(), ErrorKind::Memory { .. })
}

/// A table, a store, a map or a data set in memory. Reading its current view takes no lock.
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
    /// The versions of a store that are open, by this server or by the follower of its group.
    opened: OpenVersions,
    /// Number of lookups in current versions that could not be answered.
    failed_reads: Arc<AtomicU64>,
    /// Whether the group has no version any more, after a rollback to a time before its first one.
    is_withdrawn: AtomicBool,
    /// Whether the configuration does not have the data set any more.
    is_gone: AtomicBool,
    /// Views that were opened besides the current one, or were current before; connections may use them.
    others: Mutex<Vec<Weak<View>>>,
    /// Held while a version is opened that is not current.
    opening: Mutex<()>,
    /// Held while the data set switches to the version that is current in its folder.
    switching: Mutex<()>,
    /// The number of the version that was current before, and the times of lookups in it: a bad version
    /// shows beside the one before.
    before: Mutex<Option<(u64, Arc<Latency>)>>,
}

/// The authority that decides which version of a data set is current.
#[derive(Debug)]
enum Following {
    /// Nothing: a table never changes, and a map and a data set in memory have no versions.
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
            Kind::Filter | Kind::Map => {
                let got = format!("a {}", kind.name());
                return Err(
                    Error::argument("data set", "a table or a store", got).at(&Place::file(folder))
                );
            }
        };
        Ok(DataSet::new(name, folder, options, following, Some(view)))
    }

    /// Opens the map in a folder.
    ///
    /// # Errors
    /// `Busy` if it is open already, `Memory` if it does not fit; the errors of opening.
    pub(crate) fn open_map(
        name: &str,
        folder: &Path,
        settings: MapSettings,
        (env, memory): (&Env, &MemoryBudget),
    ) -> Result<DataSet> {
        let map = ServedMap::open(name, folder, settings, (env, memory))?;
        let options = ReadOptions::new().env(env.clone());
        Ok(DataSet::new(name, folder, options, Following::Nothing, Some(View::of_map(map)?)))
    }

    /// Makes a data set in memory, and loads it.
    ///
    /// # Errors
    /// `Memory` if it does not fit; the errors of what is loaded.
    pub(crate) fn open_memory(
        name: &str,
        settings: MemorySettings,
        (env, memory): (&Env, &MemoryBudget),
    ) -> Result<DataSet> {
        let folder = settings.path.clone().unwrap_or_default();
        let data = ServedMemory::open(name, settings, (env, memory))?;
        let options = ReadOptions::new().env(env.clone());
        let view = View::of_memory(data);
        Ok(DataSet::new(name, &folder, options, Following::Nothing, Some(view)))
    }

    /// Opens a store whose versions come from a group. If it has a current version, that is served until
    /// the group has another one. If that is damaged or does not fit in memory, none is served before the
    /// follower has repaired it or has another one.
    ///
    /// # Errors
    /// The current version cannot be opened, for another reason.
    pub(crate) fn open_of_group(
        name: &str,
        folder: &Path,
        options: ReadOptions,
    ) -> Result<DataSet> {
        let open = || View::of_version(StoreReader::open_with(folder, &options)?.version());
        let view = match open() {
            Ok(view) => Some(view),
            Err(error) if error.is_absent() => None,
            Err(error) if is_of_local_copy(&error) => {
                warn!(store = name, %error, "the local copy cannot be used as it is");
                None
            }
            Err(error) => return Err(error),
        };
        Ok(DataSet::new(name, folder, options, Following::Group, view))
    }

    /// Returns the error for which a store of a group has no view although its folder has a current version.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.view().is_some() {
            return Ok(());
        }
        match StoreReader::open_with(&self.folder, &self.options) {
            Err(error) if !error.is_absent() => Err(error),
            _ => Ok(()),
        }
    }

    fn new(
        name: &str,
        folder: &Path,
        options: ReadOptions,
        following: Following,
        view: Option<View>,
    ) -> DataSet {
        let opened = OpenVersions::default();
        if let Some(version) = view.as_ref().and_then(View::version) {
            // Nothing was chosen since it was opened.
            let _ = opened.add(version);
        }
        DataSet {
            opened,
            name: name.into(),
            folder: folder.to_owned(),
            options,
            following,
            current: ArcSwapOption::from_pointee(view),
            is_damaged: Arc::default(),
            is_withdrawn: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            failed_reads: Arc::default(),
            others: Mutex::default(),
            opening: Mutex::default(),
            switching: Mutex::default(),
            before: Mutex::default(),
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

    /// Returns the name of the kind of data set.
    pub(crate) fn kind(&self) -> &'static str {
        match self.is_store() {
            true => "store",
            false if self.map().is_some() => "map",
            false if self.memory().is_some() => "memory",
            false => "table",
        }
    }

    /// Returns the map, if the data set is one and is served.
    pub(crate) fn map(&self) -> Option<Arc<ServedMap>> {
        self.view().and_then(|view| view.map().cloned())
    }

    /// Returns the data set in memory, if it is one and is served.
    pub(crate) fn memory(&self) -> Option<Arc<ServedMemory>> {
        self.view().and_then(|view| view.memory().cloned())
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

    /// Returns the versions of a store that are open.
    pub(crate) fn opened(&self) -> &OpenVersions {
        &self.opened
    }

    /// Opens the slots that the server has chosen, in all open versions of a store.
    ///
    /// # Errors
    /// A table of these slots cannot be opened; a store that follows a group is then repaired.
    pub(crate) fn open_chosen(&self) -> Result<()> {
        let opened = self.opened.open_chosen();
        self.open_views().iter().for_each(|view| view.look_at_access());
        if opened.as_ref().is_err_and(|error| error.class() == ErrorClass::Damage) {
            self.is_damaged.store(true, Relaxed);
        }
        opened
    }

    /// Returns the number of lookups in current versions that could not be answered.
    pub(crate) fn failed_reads(&self) -> &Arc<AtomicU64> {
        &self.failed_reads
    }

    /// Counts failed lookups in the current version, and sets the flag if one has met damage since the
    /// version was opened.
    pub(crate) fn look_for_damage(&self) {
        let Some(view) = self.view() else { return };
        self.failed_reads.fetch_add(view.take_failed_reads(), Relaxed);
        if view.has_met_damage() {
            self.is_damaged.store(true, Relaxed);
        }
    }

    /// Ends the data set: connections that see it get an error from now on. A map is closed, and data in memory are saved.
    ///
    /// # Errors
    /// The changes of a map cannot be made durable, or the data in memory cannot be saved.
    pub(crate) fn end(&self) -> Result<()> {
        let (map, memory) = (self.map(), self.memory());
        self.is_gone.store(true, SeqCst);
        self.current.store(None);
        map.map_or(Ok(()), |map| map.close())?;
        memory.map_or(Ok(()), |memory| memory.close())
    }

    /// Whether the data set has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(SeqCst)
    }

    /// Whether the group has no version any more.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(SeqCst)
    }

    /// Sets the filters of which its keys are none. Those of tables and stores are not put one by one.
    pub(super) fn set_filters(&self, home: Option<&Arc<FilterHome>>) {
        self.map().into_iter().for_each(|map| map.set_filters(home.cloned()));
        self.memory().into_iter().for_each(|memory| memory.set_filters(home.cloned()));
    }

    /// Returns the error reply to commands on a data set that has no current view.
    #[cold]
    pub(crate) fn refusal(&self) -> String {
        match (self.is_gone(), self.is_withdrawn()) {
            (true, _) => gone(&format!("data set {}", self.name)),
            (false, true) => format!("NOVERSION {} has no current version", self.name),
            (false, false) => LOADING.to_owned(),
        }
    }

    /// Makes a view of another version current.
    pub(crate) fn show(&self, view: View) {
        let number = view.number();
        let view = Arc::new(view.go_on(self.latency_of(number)));
        let old = self.current.swap(Some(view.clone()));
        self.is_withdrawn.store(false, SeqCst);
        // Slots may have been opened since the view was made.
        view.look_at_access();
        if self.is_gone() {
            self.current.store(None);
        }
        self.keep(old, number);
    }

    /// Makes no view current.
    pub(crate) fn withdraw(&self) {
        self.is_withdrawn.store(true, SeqCst);
        self.keep(self.current.swap(None), None);
    }

    /// Keeps track of a view that was current before that of another version.
    fn keep(&self, old: Option<Arc<View>>, number: Option<u64>) {
        let Some(old) = old else { return };
        self.lock_others().push(Arc::downgrade(&old));
        // A version that was opened again, because it was repaired, is not the one before itself.
        if let Some(before) = old.number().filter(|old| Some(*old) != number) {
            *self.lock_before() = Some((before, old.latency().clone()));
        }
    }

    /// Returns the view of a version, if it is open: the latest one, if the version was opened again.
    fn open_view(&self, number: Option<u64>) -> Option<Arc<View>> {
        self.open_views().into_iter().rfind(|view| view.number() == number)
    }

    /// Returns the views that are open; the current one is the last one.
    fn open_views(&self) -> Vec<Arc<View>> {
        let others: Vec<Arc<View>> = self.lock_others().iter().filter_map(Weak::upgrade).collect();
        others.into_iter().chain(self.view()).collect()
    }

    /// Returns the times of lookups in a version, if it is open or was current before.
    fn latency_of(&self, number: Option<u64>) -> Option<Arc<Latency>> {
        if let Some(view) = self.open_view(number) {
            return Some(view.latency().clone());
        }
        let before = self.lock_before().clone();
        before.filter(|(before, _)| Some(*before) == number).map(|(_, latency)| latency)
    }

    /// Returns the times of lookups in each version that is open, and in the one that was current before,
    /// in the order of their numbers; in a table, those of the table.
    pub(crate) fn latencies(&self) -> Vec<(Option<u64>, CommandCounts)> {
        let open = self.open_views();
        let mut all: Vec<(Option<u64>, Arc<Latency>)> =
            open.iter().map(|view| (view.number(), view.latency().clone())).collect();
        let before = self.lock_before().clone();
        all.extend(before.map(|(number, latency)| (Some(number), latency)));
        let mut sums = BTreeMap::<_, CommandCounts>::new();
        for (i, (number, latency)) in all.iter().enumerate() {
            let sum = sums.entry(*number).or_default();
            if all[..i].iter().all(|(_, other)| !Arc::ptr_eq(other, latency)) {
                latency.add_to(sum);
            }
        }
        sums.into_iter().collect()
    }

    fn lock_others(&self) -> MutexGuard<'_, Vec<Weak<View>>> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.retain(|view| view.strong_count() > 0);
        others
    }

    fn lock_before(&self) -> MutexGuard<'_, Option<(u64, Arc<Latency>)>> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the view of a version of a store, which stays open as long as the view is held.
    ///
    /// # Errors
    /// `Absent` if there is no such version, or if the data set is a table.
    pub(crate) fn view_of(&self, number: u64) -> Result<Arc<View>> {
        if !self.is_store() {
            return Err(Error::new(ErrorKind::Absent).at(&Place::file(&self.folder)));
        }
        // Connections that ask for one version at the same time share it.
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = self.open_view(Some(number)) {
            return Ok(view);
        }
        let version = Arc::new(self.open_version(number)?);
        self.opened.add(&version)?;
        let view = View::of_version(version)?;
        let view = Arc::new(view.go_on(self.latency_of(Some(number))));
        self.lock_others().push(Arc::downgrade(&view));
        Ok(view)
    }

    /// Opens a version of a store. Tables that the current version has open are shared, unless one is damaged.
    fn open_version(&self, number: u64) -> Result<Version> {
        let view = self.view().filter(|view| !view.has_met_damage());
        match view.as_ref().and_then(|view| view.version()) {
            Some(current) => Version::open_sharing(&self.folder, number, &self.options, current),
            None => Version::open(&self.folder, number, &self.options),
        }
    }

    /// Switches to the version that is current in the store's folder, once it is in memory if it is mapped, or when
    /// `warming` has enough of that. Returns whether it is another one. After an error, the data set serves what it
    /// served before.
    ///
    /// # Errors
    /// The new version cannot be opened.
    pub(crate) fn refresh(&self, warming: &Watch) -> Result<bool> {
        let Following::Store(reader) = &self.following else { return Ok(false) };
        // Another thread must not show an older version after this one.
        let _switching = self.switching.lock().unwrap_or_else(PoisonError::into_inner);
        reader.refresh()?;
        let version = reader.version();
        let held = self.view();
        let held = held.as_ref().and_then(|view| view.version());
        if held.is_some_and(|held| Arc::ptr_eq(held, &version)) {
            return Ok(false);
        }
        // Lookups go on in the version before until this one is in memory. An error is met again by lookups.
        let _ = version.warm(held.map(|held| &**held), warming);
        self.opened.add(&version)?;
        self.show(View::of_version(version)?);
        Ok(true)
    }
}
