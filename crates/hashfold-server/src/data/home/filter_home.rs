//! The filters of a home, and how they are made.

use super::names::{FilterNames, name_of};
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
        &self,
        key: &[u8],
        options: FilterOptions,
        admit: Admit<'_>,
    ) -> Result<Arc<FilterKey>, MakeError> {
        let is_being_made = |state: &mut State| state.making.iter().any(|it| it == key);
        let state = self.is_made.wait_while(self.lock(), is_being_made);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if self.is_loading(key) {
            return Err(MakeError::Loading);
        }
        self.remove_expired(&mut state)?;
        self.check_room(key, &state)?;
        let options = options.env(self.env.clone()).memory_bytes(self.memory_bytes).wal(true);
        let reserved = self.memory.reserve(self.memory_bytes as u64)?;
        let folder = self.claim(&mut state, key)?;
        let filter = FilterKey::create(key, &folder, options, (&self.memory, reserved))?;
        self.register(&mut state, &filter)?;
        state.making.push(key.to_vec());
        drop(state);
        let shown = self.show(filter, admit);
        self.lock().making.retain(|it| it != key);
        self.is_made.notify_all();
        shown
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

    /// Chooses the folder of a new filter: the one of its name, or the next free one with a number if another
    /// filter is there, or files that are to be removed. A crash leaves no filter in it until it is added.
    fn claim(&self, state: &mut State, key: &[u8]) -> Result<Arc<Path>, Error> {
        if state.is_doubtful {
            // The device may have an entry of the folder that is chosen here.
            let names = state.names.clone();
            self.publish(state, names)?;
        }
        let base = name_of(key);
        let used: Vec<PathBuf> =
            self.read().values().map(|filter| filter.folder().to_owned()).collect();
        let is_taken = |state: &State, name: &str| {
            let path = self.folder.join(name);
            state.names.has(name) || state.is_claimed(&path) || used.contains(&path)
        };
        if !is_taken(state, &base) {
            return Ok(state.claim(self.folder.join(base)));
        }
        let mut number = 1;
        loop {
            let name = format!("{base}.{number}");
            let path = self.folder.join(&name);
            if !is_taken(state, &name) && !self.env.disk.exists(&path)? {
                let mut names = state.names.clone();
                names.remove(&name);
                self.publish(state, names)?;
                return Ok(state.claim(path));
            }
            number += 1;
        }
    }

    /// Gives the folder of a new filter its key.
    fn register(&self, state: &mut State, filter: &FilterKey) -> Result<(), Error> {
        let folder = folder_name(filter);
        if !state.names.has(&folder) {
            return Ok(());
        }
        let mut names = state.names.clone();
        names.set(&folder, filter.key(), None);
        self.publish(state, names)
    }

    /// Makes a new filter one that clients see, or removes it.
    fn show(&self, filter: FilterKey, admit: Admit<'_>) -> Result<Arc<FilterKey>, MakeError> {
        let filter = Arc::new(filter);
        let mut is_shown = false;
        let admitted = admit(&mut || {
            // Without the lock of the state: others write files under it, and the data would wait for them.
            let mut filters = self.write();
            // Another connection may have loaded one of this name.
            if !filters.contains_key(filter.key()) {
                filters.insert(filter.key().to_vec(), filter.clone());
                self.note_shown();
                is_shown = true;
            }
        });
        let refused = match admitted {
            Ok(true) if is_shown => return Ok(filter),
            Ok(true) => MakeError::Exists,
            Ok(false) => MakeError::IsString,
            Err(error) => MakeError::Failed(error),
        };
        let mut state = self.lock();
        let mut names = state.names.clone();
        names.remove(&folder_name(&filter));
        filter.retire();
        if self.publish(&mut state, names.clone()).is_err() {
            state.names = names;
        }
        Err(refused)
    }

    /// Takes a piece of a filter that is loaded. The last piece makes the filter, which becomes visible when `admit` says
    /// so.
    ///
    /// # Errors
    /// The key is a filter or a string, the filter cannot be made, or the piece is not the next one.
    pub(crate) fn load(
        &self,
        key: &[u8],
        duplicates: Duplicates,
        (iterator, bytes): (i64, &[u8]),
        now: Duration,
        admit: Admit<'_>,
    ) -> Result<(), LoadError> {
        let (piece, sum) = decode(iterator, bytes)?;
        let is_counted = piece.of.mode == Mode::Multiset;
        if is_counted != (duplicates == Duplicates::Counted) {
            return Err(LoadError::BadPiece);
        }
        self.check_room(key, &self.lock()).map_err(LoadError::Make)?;
        let site = || self.site(key);
        match self.loads.take(key, (piece, sum), &site, now)? {
            Some(loaded) => self.add_loaded(key, loaded, admit),
            None => Ok(()),
        }
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

    fn add_loaded(&self, key: &[u8], loaded: Loaded, admit: Admit<'_>) -> Result<(), LoadError> {
        let Loaded { filter, memory, folder } = loaded;
        let filter = FilterKey::of(key, &folder, filter, (&self.memory, memory));
        let mut state = self.lock();
        self.remove_expired(&mut state)?;
        self.register(&mut state, &filter)?;
        drop(state);
        self.show(filter, admit).map_err(LoadError::Make)?;
        Ok(())
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
