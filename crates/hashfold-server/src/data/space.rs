//! What a user sees: one data set and any number of filters.

use super::{
    filter::{Duplicates, FilterKey},
    home::{Admit, FilterHome, MakeError, NewFilter, ReservedKeys},
    load::LoadError,
    set::DataSet,
    view::View,
};
use hashfold::filter::FilterOptions;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The keys that a user sees: those of one table or store, and filters, each a key of its name.
#[derive(Debug)]
pub(crate) struct Space {
    data: Option<Arc<DataSet>>,
    /// Filters that the configuration names.
    filters: BTreeMap<Vec<u8>, Arc<FilterKey>>,
    /// Filters that clients make, if this user sees them.
    home: Option<Arc<FilterHome>>,
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

    /// Whether the data take large values from clients: those of a map, or in memory.
    pub(crate) fn takes_values(&self) -> bool {
        self.data().is_some_and(|data| data.map().is_some() || data.memory().is_some())
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

    /// Returns the folder in which the user makes filters, if it makes any.
    pub(crate) fn home(&self) -> Option<&Arc<FilterHome>> {
        self.home.as_ref()
    }

    /// Reserves the keys that a command gives to filters, if strings of other data sets may have them. To be called before
    /// anything is held but turns of filters.
    pub(crate) fn reserve(&self, keys: Vec<Vec<u8>>) -> Option<ReservedKeys> {
        let home = self.home().filter(|_| !keys.is_empty())?;
        let has_others = home.beside().iter().any(|data| !self.is_of(data));
        has_others.then(|| home.reserve(keys))
    }

    /// Refuses a key of a filter that is a string in the data sets of others who see the filter.
    ///
    /// # Errors
    /// The reply.
    pub(crate) fn check_no_string(&self, key: &[u8]) -> Result<(), String> {
        let beside = self.home().map_or(Vec::new(), |home| home.beside());
        for data in beside.iter().filter(|data| !self.is_of(data)) {
            let Some(view) = data.view() else { continue };
            if view.has_key(key).map_err(|error| format!("ERR {error}"))? {
                return Err(format!(
                    "ERR key '{}' is a string of {}, whose users see the same filters",
                    String::from_utf8_lossy(key),
                    data.name()
                ));
            }
        }
        Ok(())
    }

    fn is_of(&self, data: &Arc<DataSet>) -> bool {
        self.data().is_some_and(|own| Arc::ptr_eq(own, data))
    }

    /// Whether a key may be a filter.
    pub(crate) fn has_filters(&self) -> bool {
        !self.filters.is_empty() || self.home.is_some()
    }

    /// Whether the configuration names a filter of this key.
    pub(crate) fn is_named(&self, key: &[u8]) -> bool {
        self.filters.contains_key(key)
    }

    /// Returns all filters: first those that the configuration names.
    pub(crate) fn filters(&self) -> Vec<Arc<FilterKey>> {
        let made = self.home.iter().flat_map(|home| home.filters());
        let named = self.filters.values().filter(|filter| !filter.is_gone()).cloned();
        named.chain(made).collect()
    }

    /// Makes a filter, which becomes visible when `admit` says so.
    ///
    /// # Errors
    /// The key is a filter or a string, the user may make none, or it cannot be made.
    pub(crate) fn make_filter(
        &self,
        key: &[u8],
        options: FilterOptions,
        admit: Admit<'_>,
    ) -> Result<NewFilter, MakeError> {
        if self.filter(key).is_some() {
            return Err(MakeError::Exists);
        }
        self.home.as_ref().ok_or(MakeError::NoHome)?.make(key, options, admit)
    }

    /// Takes a piece of a filter that is loaded. After the last one, the filter becomes visible when `admit` says so.
    ///
    /// # Errors
    /// The key is a filter or a string, the user may make none, or the piece is not the next one.
    pub(crate) fn load_filter(
        &self,
        key: &[u8],
        duplicates: Duplicates,
        piece: (i64, &[u8]),
        now: Duration,
        admit: Admit<'_>,
    ) -> Result<Option<NewFilter>, LoadError> {
        if self.filter(key).is_some() {
            return Err(LoadError::Make(MakeError::Exists));
        }
        let home = self.home.as_ref().ok_or(LoadError::Make(MakeError::NoHome))?;
        home.load(key, duplicates, piece, now, admit)
    }
}
