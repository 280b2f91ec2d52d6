//! What a user sees: one data set and any number of filters.

use super::{
    filter::{Duplicates, FilterKey},
    load::{LoadError, Loads, Site, decode, sweep},
    set::DataSet,
    view::View,
};
use hashfold::{
    Env, Error, Place,
    filter::{FilterOptions, Mode},
    work::MemoryBudget,
};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

/// The keys that a user sees: those of one table or store, and filters, each a key of its name.
#[derive(Debug)]
pub(crate) struct Space {
    data: Option<Arc<DataSet>>,
    /// Filters that the configuration names.
    filters: BTreeMap<Vec<u8>, Arc<FilterKey>>,
    /// Filters that clients make, if this user sees them.
    home: Option<Arc<FilterHome>>,
}

/// Maximum number of filters that clients make: each takes its memory.
const FILTERS_MAX: usize = 256;

/// A folder in which clients make filters. Spaces that share it see the same filters.
#[derive(Debug)]
pub(crate) struct FilterHome {
    env: Env,
    /// The folder that has a folder for each filter.
    folder: PathBuf,
    /// Memory of each filter, in bytes.
    memory_bytes: usize,
    /// The budget in which it is reserved.
    memory: MemoryBudget,
    filters: RwLock<BTreeMap<Vec<u8>, Arc<FilterKey>>>,
    /// Held while a filter is made.
    making: Mutex<()>,
    loads: Loads,
}

/// The reason why a filter is not made.
#[derive(Debug)]
pub(crate) enum MakeError {
    /// The user may make none.
    NoHome,
    /// There is one of this name.
    Exists,
    /// One of this name is being loaded.
    Loading,
    /// There are as many as there may be.
    TooMany(usize),
    Failed(Error),
}

impl FilterHome {
    /// Opens all filters in a folder, which is made if it does not exist.
    ///
    /// # Errors
    /// A filter is damaged, or open for writing elsewhere, or does not fit in memory.
    pub(crate) fn open(
        env: &Env,
        folder: &Path,
        memory_bytes: usize,
        memory: &MemoryBudget,
    ) -> Result<FilterHome, Error> {
        env.disk.create_folder(folder)?;
        let mut filters = BTreeMap::new();
        for name in env.disk.list(folder)? {
            let Some(key) = key_of(&name) else { continue };
            let options =
                FilterOptions::exact().env(env.clone()).memory_bytes(memory_bytes).wal(true);
            let place = Place::file(&folder.join(&name));
            let reserved = memory.reserve(memory_bytes as u64).map_err(|error| error.at(&place))?;
            match FilterKey::open_with(&key, &place.file, options, (memory, reserved)) {
                Ok(filter) => drop(filters.insert(key, Arc::new(filter))),
                // A crash during the making of a filter leaves a folder without one.
                Err(error) if error.is_absent() => sweep(env, &folder.join(&name)),
                Err(error) => return Err(error),
            }
        }
        let (env, folder) = (env.clone(), folder.to_owned());
        Ok(FilterHome {
            env,
            folder,
            memory_bytes,
            memory: memory.clone(),
            filters: RwLock::new(filters),
            making: Mutex::default(),
            loads: Loads::new(),
        })
    }

    /// Returns all filters.
    pub(crate) fn filters(&self) -> Vec<Arc<FilterKey>> {
        self.filters.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn filter(&self, key: &[u8]) -> Option<Arc<FilterKey>> {
        self.filters.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn make(&self, key: &[u8], options: FilterOptions) -> Result<Arc<FilterKey>, MakeError> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if self.loads.has(key) {
            return Err(MakeError::Loading);
        }
        self.check_room(key)?;
        let options = options.env(self.env.clone()).memory_bytes(self.memory_bytes).wal(true);
        let reserved = self.memory.reserve(self.memory_bytes as u64).map_err(MakeError::Failed)?;
        let folder = self.folder.join(name_of(key));
        let filter = FilterKey::create(key, &folder, options, (&self.memory, reserved));
        Ok(self.add(filter.map_err(MakeError::Failed)?))
    }

    /// Refuses a filter whose name is taken, or for which there is no room.
    fn check_room(&self, key: &[u8]) -> Result<(), MakeError> {
        if self.filter(key).is_some() {
            return Err(MakeError::Exists);
        }
        let made = self.filters.read().unwrap_or_else(PoisonError::into_inner).len();
        let others = self.loads.count() - usize::from(self.loads.has(key));
        match made + others < FILTERS_MAX {
            true => Ok(()),
            false => Err(MakeError::TooMany(FILTERS_MAX)),
        }
    }

    fn add(&self, filter: FilterKey) -> Arc<FilterKey> {
        let filter = Arc::new(filter);
        let mut filters = self.filters.write().unwrap_or_else(PoisonError::into_inner);
        filters.insert(filter.key().to_vec(), filter.clone());
        filter
    }

    /// Takes a piece of a filter that is loaded. The last piece makes the filter.
    fn load(
        &self,
        key: &[u8],
        duplicates: Duplicates,
        (iterator, bytes): (i64, &[u8]),
        now: Duration,
    ) -> Result<(), LoadError> {
        let (piece, sum) = decode(iterator, bytes)?;
        let is_counted = piece.of.mode == Mode::Multiset;
        if is_counted != (duplicates == Duplicates::Counted) {
            return Err(LoadError::BadPiece);
        }
        self.check_room(key).map_err(LoadError::Make)?;
        let site = Site {
            env: self.env.clone(),
            folder: self.folder.join(name_of(key)),
            memory_bytes: self.memory_bytes,
            memory: self.memory.clone(),
        };
        let folder = site.folder.clone();
        if let Some((cascade, reserved)) = self.loads.take(key, (piece, sum), site, now)? {
            self.add(FilterKey::of(key, &folder, cascade, (&self.memory, reserved)));
        }
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
}

/// Returns the name of the folder of a filter: the key, in which all bytes but letters, digits, `_` and `-`
/// are `%` and two hexadecimal digits.
fn name_of(key: &[u8]) -> String {
    let mut name = String::new();
    for byte in key {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => name.push(char::from(*byte)),
            _ => write!(name, "%{byte:02x}").expect("a string takes all text"),
        }
    }
    // The empty key has a folder, too.
    if name.is_empty() { "%".into() } else { name }
}

/// Returns the key of a folder's name; `None` if no key has it.
fn key_of(name: &str) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    let mut rest = name.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match (first, after) {
            (b'%', [high, low, ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).ok()?;
                key.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &after[2..];
            }
            _ => key.push(*first),
        }
    }
    let key = if name == "%" { Vec::new() } else { key };
    (name_of(&key) == name).then_some(key)
}

impl Space {
    /// Returns a space of a data set, of filters, and of those that clients make.
    pub(crate) fn new(
        data: Option<Arc<DataSet>>,
        filters: impl IntoIterator<Item = Arc<FilterKey>>,
        home: Option<Arc<FilterHome>>,
    ) -> Space {
        let filters = filters.into_iter().map(|filter| (filter.key().to_vec(), filter)).collect();
        Space { data, filters, home }
    }

    /// Returns the table or store.
    pub(crate) fn data(&self) -> Option<&Arc<DataSet>> {
        self.data.as_ref()
    }

    /// Returns the current view of the table or store.
    ///
    /// # Errors
    /// The error reply if the store has no version yet, or is not served any more.
    #[inline]
    pub(crate) fn view(&self) -> Result<Option<Arc<View>>, String> {
        let Some(data) = &self.data else { return Ok(None) };
        data.view().map(Some).ok_or_else(|| data.refusal())
    }

    /// Returns the filter that a key is. Spaces without filters take no lock.
    #[inline]
    pub(crate) fn filter(&self, key: &[u8]) -> Option<Arc<FilterKey>> {
        let named = if self.filters.is_empty() { None } else { self.filters.get(key).cloned() };
        named.or_else(|| self.home.as_ref()?.filter(key))
    }

    /// Returns all filters: first those that the configuration names.
    pub(crate) fn filters(&self) -> Vec<Arc<FilterKey>> {
        let made = self.home.iter().flat_map(|home| home.filters());
        let named = self.filters.values().filter(|filter| !filter.is_gone()).cloned();
        named.chain(made).collect()
    }

    /// Makes a filter.
    ///
    /// # Errors
    /// There is one of this name, the user may make none, or it cannot be made.
    pub(crate) fn make_filter(
        &self,
        key: &[u8],
        options: FilterOptions,
    ) -> Result<Arc<FilterKey>, MakeError> {
        if self.filter(key).is_some() {
            return Err(MakeError::Exists);
        }
        self.home.as_ref().ok_or(MakeError::NoHome)?.make(key, options)
    }

    /// Takes a piece of a filter that is loaded.
    ///
    /// # Errors
    /// There is a filter of this name, the user may make none, or the piece is not the next one.
    pub(crate) fn load_filter(
        &self,
        key: &[u8],
        duplicates: Duplicates,
        piece: (i64, &[u8]),
        now: Duration,
    ) -> Result<(), LoadError> {
        if self.filter(key).is_some() {
            return Err(LoadError::Make(MakeError::Exists));
        }
        let home = self.home.as_ref().ok_or(LoadError::Make(MakeError::NoHome))?;
        home.load(key, duplicates, piece, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_folders_and_keys_are_one_to_one() {
        for key in [&b"seen"[..], b"", b"../x", b"a b", b"%", b"\xff\0", b".hidden", b"Z_9-"] {
            let name = name_of(key);
            assert!(!name.contains(['/', '.', '\0']), "{name}");
            assert_eq!(key_of(&name).as_deref(), Some(key));
        }
        for name in ["%zz", "a.b", "%2", "%41", "%2F"] {
            assert_eq!(key_of(name), None, "{name}");
        }
    }
}
