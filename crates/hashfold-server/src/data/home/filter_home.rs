//! The filters of a home, and how they are made.

use super::{
    beside::Beside,
    names::{FilterNames, Listed, name_of},
    new_filter::NewFilter,
};
use crate::data::{
    filter::{Duplicates, FilterKey},
    load::{LoadError, Loaded, Loads, Site, decode},
};
use hashfold::{
    Env, Error,
    filter::{FilterOptions, Mode},
    work::MemoryBudget,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        Weak,
        atomic::{
            AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

/// Maximum number of filters that clients make: each takes its memory.
pub(super) const FILTERS_MAX: usize = if cfg!(test) { 4 } else { 256 };

/// Filters by key.
pub(super) type Filters = BTreeMap<Vec<u8>, Arc<FilterKey>>;

/// Calls its argument, which makes a filter visible, at a moment at which the key is no string and becomes none. Returns
/// `false` without a call if it is one.
pub(crate) type Admit<'a> = &'a dyn Fn(&mut dyn FnMut()) -> Result<bool, Error>;

/// A folder in which clients make filters. Spaces that share it see the same filters.
#[derive(Debug)]
pub(crate) struct FilterHome {
    pub(super) env: Env,
    /// The folder that has a folder for each filter.
    pub(super) folder: PathBuf,
    /// Memory of each filter, in bytes.
    memory_bytes: usize,
    /// The budget in which it is reserved.
    memory: MemoryBudget,
    /// All filters, also those that have expired since the last change.
    filters: RwLock<Filters>,
    /// Held while filters are made, removed and renamed, but not by a maker that waits for its moment, or whose filter
    /// becomes visible then: others hold what it waits for before this.
    state: Mutex<State>,
    /// Notified when a filter that was being made is visible, or will not be.
    is_made: Condvar,
    /// Number of times that keys have become filters.
    shown: AtomicU64,
    /// Held while files are removed.
    pub(super) sweeping: Mutex<()>,
    loads: Loads,
    /// Milliseconds since 1970 at the last look at the clock: they never go back.
    now_ms: AtomicU64,
    pub(super) beside: Beside,
}

/// The making of a filter, from its folder on until it is visible, or will not be: also after a panic.
struct Making<'a> {
    home: &'a FilterHome,
    key: &'a [u8],
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.home.lock().making.retain(|it| it != self.key);
        self.home.is_made.notify_all();
    }
}

/// What is changed by one thread at a time.
#[derive(Debug)]
pub(super) struct State {
    /// The names that count.
    pub(super) names: FilterNames,
    /// Whether the names on the device may be others, because writing them has failed.
    pub(super) is_doubtful: bool,
    /// The folders in which filters are being made, as long as they are.
    claims: Vec<Weak<Path>>,
    /// The keys of filters that are made, and not visible yet.
    making: Vec<Vec<u8>>,
}

/// The reason why a filter is not made.
#[derive(Debug)]
pub(crate) enum MakeError {
    /// The user may make none.
    NoHome,
    /// There is one of this name.
    Exists,
    /// The key is a string.
    IsString,
    /// One of this name is being loaded.
    Loading,
    /// There are as many as there may be.
    TooMany(usize),
    Failed(Error),
}

impl From<Error> for MakeError {
    fn from(error: Error) -> MakeError {
        MakeError::Failed(error)
    }
}

impl State {
    pub(super) fn new(names: FilterNames) -> State {
        State { names, is_doubtful: false, claims: Vec::new(), making: Vec::new() }
    }

    /// Whether a filter is being made in a folder.
    pub(super) fn is_claimed(&self, folder: &Path) -> bool {
        self.claims.iter().any(|claim| claim.upgrade().is_some_and(|claim| *claim == *folder))
    }

    fn claim(&mut self, folder: PathBuf) -> Arc<Path> {
        let claim = Arc::from(folder);
        self.claims.retain(|other| other.strong_count() > 0);
        self.claims.push(Arc::downgrade(&claim));
        claim
    }
}

impl FilterHome {
    /// Returns a home with these filters.
    pub(super) fn new(
        (env, folder): (&Env, &Path),
        (memory_bytes, memory): (usize, &MemoryBudget),
        (filters, state): (Filters, State),
    ) -> FilterHome {
        FilterHome {
            env: env.clone(),
            folder: folder.to_owned(),
            memory_bytes,
            memory: memory.clone(),
            filters: RwLock::new(filters),
            state: Mutex::new(state),
            is_made: Condvar::new(),
            shown: AtomicU64::new(0),
            sweeping: Mutex::default(),
            loads: Loads::new(),
            now_ms: AtomicU64::new(0),
            beside: Beside::default(),
        }
    }

    /// Returns the milliseconds since 1970 by which filters expire: they never go back.
    pub(crate) fn now_ms(&self) -> u64 {
        let now = self.env.clock.unix_time().as_millis() as u64;
        self.now_ms.fetch_max(now, Relaxed).max(now)
    }

    /// Returns all filters.
    pub(crate) fn filters(&self) -> Vec<Arc<FilterKey>> {
        let now_ms = self.now_ms();
        self.read().values().filter(|filter| filter.is_live(now_ms)).cloned().collect()
    }

    /// Returns a filter, unless it has expired.
    pub(crate) fn filter(&self, key: &[u8]) -> Option<Arc<FilterKey>> {
        let filter = self.read().get(key).cloned()?;
        let is_live = filter.expires_at().is_none() || filter.is_live(self.now_ms());
        is_live.then_some(filter)
    }

    /// Makes a filter, which becomes visible when `admit` says so.
    ///
    /// # Errors
    /// The key is a filter or a string, or the filter cannot be made.
    pub(crate) fn make(
        self: &Arc<Self>,
        key: &[u8],
        options: FilterOptions,
        admit: Admit<'_>,
    ) -> Result<NewFilter, MakeError> {
        let mut state = self.lock_to_make(key);
        if self.is_loading(key) {
            return Err(MakeError::Loading);
        }
        self.remove_expired(&mut state)?;
        self.check_room(key, &state)?;
        let options = options.env(self.env.clone()).memory_bytes(self.memory_bytes).wal(true);
        let reserved = self.memory.reserve(self.memory_bytes as u64)?;
        let folder = self.claim(&mut state, key)?;
        let filter = FilterKey::create(key, &folder, options, (&self.memory, reserved))?;
        let _making = self.begin_making(state, key);
        self.show(NewFilter::new(self, filter, folder), admit)
    }

    /// Waits until no filter of this key is being made.
    fn lock_to_make(&self, key: &[u8]) -> MutexGuard<'_, State> {
        let is_being_made = |state: &mut State| state.making.iter().any(|it| it == key);
        let state = self.is_made.wait_while(self.lock(), is_being_made);
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps others from making a filter of this key as long as the result exists.
    fn begin_making<'a>(&'a self, mut state: MutexGuard<'_, State>, key: &'a [u8]) -> Making<'a> {
        state.making.push(key.to_vec());
        Making { home: self, key }
    }

    /// Returns the number of times that keys have become filters.
    pub(crate) fn shown(&self) -> u64 {
        self.shown.load(SeqCst)
    }

    /// Notes that keys have become filters, before commands look for them again.
    pub(super) fn note_shown(&self) {
        self.shown.fetch_add(1, SeqCst);
    }

    /// Whether a filter of this name is being loaded.
    pub(crate) fn is_loading(&self, key: &[u8]) -> bool {
        self.loads.has(key)
    }

    /// Refuses a filter whose name is taken, or for which there is no room beside those that are being made.
    fn check_room(&self, key: &[u8], state: &State) -> Result<(), MakeError> {
        if self.filter(key).is_some() {
            return Err(MakeError::Exists);
        }
        let others = self.loads.count() - usize::from(self.is_loading(key));
        // One that is visible already counts once.
        let making = state.making.iter().filter(|key| self.filter(key).is_none()).count();
        match self.filters().len() + others + making < FILTERS_MAX {
            true => Ok(()),
            false => Err(MakeError::TooMany(FILTERS_MAX)),
        }
    }

    /// Chooses the folder of a new filter, and lists it as one to be removed: a crash leaves no filter in it until it is
    /// kept.
    fn claim(&self, state: &mut State, key: &[u8]) -> Result<Arc<Path>, Error> {
        let name = self.free_name(state, key)?;
        let mut names = state.names.clone();
        names.remove(&name);
        self.publish(state, names)?;
        Ok(state.claim(self.folder.join(name)))
    }

    /// Returns the name of a folder for a new filter: the one of its key, or the next free one with a number if another
    /// filter is there, or files that are to be removed.
    fn free_name(&self, state: &State, key: &[u8]) -> Result<String, Error> {
        let base = name_of(key);
        let used: Vec<PathBuf> =
            self.read().values().map(|filter| filter.folder().to_owned()).collect();
        let is_taken = |name: &str| {
            let path = self.folder.join(name);
            state.names.has(name) || state.is_claimed(&path) || used.contains(&path)
        };
        if !is_taken(&base) {
            return Ok(base);
        }
        let mut number = 1;
        loop {
            let name = format!("{base}.{number}");
            if !is_taken(&name) && !self.env.disk.exists(&self.folder.join(&name))? {
                return Ok(name);
            }
            number += 1;
        }
    }

    /// Makes a new filter one that clients see, or removes it.
    fn show(&self, new: NewFilter, admit: Admit<'_>) -> Result<NewFilter, MakeError> {
        let mut is_shown = false;
        let admitted = admit(&mut || {
            // Without the lock of the state: others write files under it, and the data would wait for them.
            let mut filters = self.write();
            let filter = new.filter();
            // Another connection may have loaded one of this name.
            if !filters.contains_key(filter.key()) {
                filters.insert(filter.key().to_vec(), filter.clone());
                self.note_shown();
                is_shown = true;
            }
        });
        match admitted {
            Ok(true) if is_shown => Ok(new),
            Ok(true) => Err(MakeError::Exists),
            Ok(false) => Err(MakeError::IsString),
            Err(error) => Err(MakeError::Failed(error)),
        }
    }

    /// Makes it durable that a filter is one which clients see.
    ///
    /// # Errors
    /// Errors of writing.
    pub(super) fn keep(&self, filter: &Arc<FilterKey>) -> Result<(), Error> {
        let mut state = self.lock();
        let folder = folder_name(filter);
        let is_shown = self.read().get(filter.key()).is_some_and(|it| Arc::ptr_eq(it, filter));
        // Who has changed the filter meanwhile has written what it is.
        if !is_shown || state.names.get(&folder) != Some(&Listed::Removed) {
            return Ok(());
        }
        let mut names = state.names.clone();
        names.set(&folder, filter.key(), filter.expires_at());
        self.publish(&mut state, names)
    }

    /// Removes a filter that is not kept. Its folder is listed as one to be removed.
    pub(super) fn take_back(&self, filter: &Arc<FilterKey>) {
        let mut filters = self.write();
        if filters.get(filter.key()).is_some_and(|it| Arc::ptr_eq(it, filter)) {
            filters.remove(filter.key());
        }
        drop(filters);
        filter.retire();
    }

    /// Takes a piece of a filter that is loaded. The last piece makes the filter, which becomes visible when `admit` says
    /// so, and is returned.
    ///
    /// # Errors
    /// The key is a filter or a string, the filter cannot be made, or the piece is not the next one.
    pub(crate) fn load(
        self: &Arc<Self>,
        key: &[u8],
        duplicates: Duplicates,
        (iterator, bytes): (i64, &[u8]),
        now: Duration,
        admit: Admit<'_>,
    ) -> Result<Option<NewFilter>, LoadError> {
        let (piece, sum) = decode(iterator, bytes)?;
        let is_counted = piece.of.mode == Mode::Multiset;
        if is_counted != (duplicates == Duplicates::Counted) {
            return Err(LoadError::BadPiece);
        }
        self.check_room(key, &self.lock()).map_err(LoadError::Make)?;
        let site = || self.site(key);
        let loaded = self.loads.take(key, (piece, sum), &site, now)?;
        loaded.map(|loaded| self.add_loaded(key, loaded, admit)).transpose()
    }

    /// Chooses where a filter is built from pieces.
    fn site(&self, key: &[u8]) -> Result<Site, Error> {
        let mut state = self.lock();
        self.remove_expired(&mut state)?;
        Ok(Site {
            env: self.env.clone(),
            folder: self.claim(&mut state, key)?,
            memory_bytes: self.memory_bytes,
            memory: self.memory.clone(),
        })
    }

    fn add_loaded(
        self: &Arc<Self>,
        key: &[u8],
        loaded: Loaded,
        admit: Admit<'_>,
    ) -> Result<NewFilter, LoadError> {
        let Loaded { filter, memory, folder } = loaded;
        let filter = FilterKey::of(key, &folder, filter, (&self.memory, memory));
        let new = NewFilter::new(self, filter, folder);
        let mut state = self.lock_to_make(key);
        self.remove_expired(&mut state)?;
        let _making = self.begin_making(state, key);
        self.show(new, admit).map_err(LoadError::Make)
    }

    /// Makes other names the current ones. After an error, the names from before count, and are written again
    /// by the next sweep.
    pub(super) fn publish(&self, state: &mut State, names: FilterNames) -> Result<(), Error> {
        state.is_doubtful = true;
        names.publish(self.env.disk.as_ref(), &self.folder)?;
        state.is_doubtful = false;
        state.names = names;
        Ok(())
    }

    /// Ends loads that get no further pieces.
    pub(crate) fn forget_idle(&self, now: Duration) {
        self.loads.forget_idle(now);
    }

    /// Ends all loads, of which nothing is left then.
    pub(crate) fn end_loads(&self) {
        self.loads.end();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Filters> {
        self.filters.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Filters> {
        self.filters.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of a filter's folder.
pub(super) fn folder_name(filter: &FilterKey) -> String {
    let name = filter.folder().file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
