//! The data sets beside a home: a key is a string of one of them or a filter, never both.
//!
//! They are those of all users who see the filters. A filter is made at a moment at which its key is no string in any of them
//! ([`crate::data::View::without_puts`]). A filter that gets another key is no new one, and the thread that renames it may not
//! wait while it changes strings; so it reserves the key before: strings are not put there from then on, until it is done.

use super::filter_home::FilterHome;
use crate::data::set::DataSet;
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use tracing::warn;

/// The data sets beside a home, and keys that filters are about to get.
#[derive(Debug, Default)]
pub(super) struct Beside {
    data: RwLock<Vec<Weak<DataSet>>>,
    reserved: Mutex<Vec<Vec<u8>>>,
    /// Number of the reserved keys.
    count: AtomicUsize,
}

/// Keys at which no string is put as long as this exists, but by commands that wait for their turn.
#[derive(Debug)]
pub(crate) struct ReservedKeys {
    home: Arc<FilterHome>,
    keys: Vec<Vec<u8>>,
}

impl FilterHome {
    /// Replaces the data sets beside the filters. Warns about keys that are strings of new ones, which the filters hide.
    pub(crate) fn share_keys(self: &Arc<Self>, data: &[Arc<DataSet>]) {
        let before = self.beside();
        let mut beside = self.beside.data.write().unwrap_or_else(PoisonError::into_inner);
        *beside = data.iter().map(Arc::downgrade).collect();
        drop(beside);
        let is_in =
            |all: &[Arc<DataSet>], one: &Arc<DataSet>| all.iter().any(|it| Arc::ptr_eq(it, one));
        before.iter().filter(|old| !is_in(data, old)).for_each(|old| old.set_filters(None));
        for new in data.iter().filter(|new| !is_in(&before, new)) {
            new.set_filters(Some(self));
            self.warn_of_hidden(new);
        }
    }

    fn warn_of_hidden(&self, data: &DataSet) {
        let Some(view) = data.view() else { return };
        for filter in self.filters() {
            // A block that cannot be read is met again by lookups.
            if view.has_key(filter.key()).unwrap_or(false) {
                warn!(key = %filter.name(), data = %data.name(), "the key is a filter, which hides the string of this key");
            }
        }
    }

    /// Returns the data sets beside the filters.
    pub(crate) fn beside(&self) -> Vec<Arc<DataSet>> {
        let data = self.beside.data.read().unwrap_or_else(PoisonError::into_inner);
        data.iter().filter_map(Weak::upgrade).collect()
    }

    /// Reserves keys that filters are about to get. Waits until all strings are visible that were put before that.
    pub(crate) fn reserve(self: &Arc<Self>, keys: Vec<Vec<u8>>) -> ReservedKeys {
        self.beside.count.fetch_add(keys.len(), SeqCst);
        self.lock_reserved().extend(keys.iter().cloned());
        let reserved = ReservedKeys { home: self.clone(), keys };
        let views: Vec<_> = self.beside().iter().filter_map(|data| data.view()).collect();
        views.iter().for_each(|view| drop(view.without_puts()));
        reserved
    }

    /// Whether filters are about to get keys.
    pub(crate) fn has_reserved(&self) -> bool {
        self.beside.count.load(SeqCst) > 0
    }

    /// Whether a filter is about to get this key.
    pub(crate) fn is_reserved(&self, key: &[u8]) -> bool {
        self.has_reserved() && self.lock_reserved().iter().any(|it| it == key)
    }

    fn lock_reserved(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.beside.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReservedKeys {
    fn drop(&mut self) {
        let mut reserved = self.home.lock_reserved();
        for key in &self.keys {
            // The same key may be reserved twice.
            if let Some(place) = reserved.iter().position(|it| it == key) {
                reserved.swap_remove(place);
            }
        }
        self.home.beside.count.fetch_sub(self.keys.len(), SeqCst);
    }
}

/// The reply to a command that would put a string where a filter is which its client does not see.
///
/// # Errors
/// The reply, if there is one.
pub(crate) fn check_no_filter(home: Option<&Arc<FilterHome>>, key: &[u8]) -> Result<(), String> {
    match home {
        Some(home) if home.filter(key).is_some() || home.is_reserved(key) => Err(format!(
            "NOPERM key '{}' is a filter that other users see, who have `makes-filters = true`",
            String::from_utf8_lossy(key)
        )),
        _ => Ok(()),
    }
}
