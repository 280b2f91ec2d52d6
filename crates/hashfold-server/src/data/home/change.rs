//! Changes of the names of filters, and of when they expire.

use super::{
    filter_home::{FilterHome, Filters, State, folder_name},
    names::FilterNames,
};
use crate::data::filter::FilterKey;
use hashfold::Error;
use std::{collections::BTreeMap, sync::Arc};

/// A change of filters. Those that are not there are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterChange {
    /// Removes the filter of this key.
    Remove(Vec<u8>),
    /// Gives a filter another key, in place of the filter that has it. The time at which it expires stays.
    Rename { from: Vec<u8>, to: Vec<u8> },
    /// Sets when a filter expires, in milliseconds since 1970.
    Expire { key: Vec<u8>, at: Option<u64> },
}

impl FilterHome {
    /// Makes changes, one after the other: durably, and all of them or none. No command runs on these filters
    /// meanwhile.
    ///
    /// # Errors
    /// Errors of writing; nothing is changed then.
    pub(crate) fn apply(&self, changes: &[FilterChange]) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut state = self.lock();
        self.remove_expired(&mut state)?;
        self.commit(&mut state, changes)
    }

    /// Removes filters that have expired.
    ///
    /// # Errors
    /// Errors of writing; nothing is removed then.
    pub(super) fn remove_expired(&self, state: &mut State) -> Result<(), Error> {
        let now_ms = self.now_ms();
        let filters = self.read();
        let expired = filters.iter().filter(|(_, filter)| !filter.is_live(now_ms));
        let changes: Vec<_> = expired.map(|(key, _)| FilterChange::Remove(key.clone())).collect();
        drop(filters);
        if changes.is_empty() { Ok(()) } else { self.commit(state, &changes) }
    }

    fn commit(&self, state: &mut State, changes: &[FilterChange]) -> Result<(), Error> {
        let before = self.read().clone();
        let mut staged = Staged::new(&before, state.names.clone());
        changes.iter().for_each(|change| staged.apply(change));
        if staged.names != state.names {
            self.publish(state, staged.names)?;
        }
        let mut after = install(staged.filters);
        let mut filters = self.write();
        // Filters that became visible meanwhile; no command changes their keys.
        let is_new = |(key, _): &(&Vec<u8>, &Arc<FilterKey>)| !before.contains_key(*key);
        let new = filters.iter().filter(is_new).map(|(key, filter)| (key.clone(), filter.clone()));
        after.extend(new);
        let is_kept = |filter: &Arc<FilterKey>| after.values().any(|it| Arc::ptr_eq(it, filter));
        let gone: Vec<_> = before.values().filter(|filter| !is_kept(filter)).cloned().collect();
        *filters = after;
        self.note_shown();
        drop(filters);
        gone.iter().for_each(|filter| filter.retire());
        Ok(())
    }
}

/// Changes that are not made yet.
struct Staged {
    /// The filters by their new keys, and when each expires.
    filters: BTreeMap<Vec<u8>, (Arc<FilterKey>, Option<u64>)>,
    names: FilterNames,
}

impl Staged {
    fn new(filters: &Filters, names: FilterNames) -> Staged {
        let with_expiry = |(key, filter): (&Vec<u8>, &Arc<FilterKey>)| {
            (key.clone(), (filter.clone(), filter.expires_at()))
        };
        Staged { filters: filters.iter().map(with_expiry).collect(), names }
    }

    fn apply(&mut self, change: &FilterChange) {
        match change {
            FilterChange::Remove(key) => {
                if let Some((filter, _)) = self.filters.remove(key) {
                    self.names.remove(&folder_name(&filter));
                }
            }
            FilterChange::Rename { from, to } => {
                let Some((filter, expires_at)) = self.filters.remove(from) else { return };
                self.apply(&FilterChange::Remove(to.clone()));
                self.names.set(&folder_name(&filter), to, expires_at);
                self.filters.insert(to.clone(), (filter, expires_at));
            }
            FilterChange::Expire { key, at } => {
                if let Some((filter, expires_at)) = self.filters.get_mut(key) {
                    *expires_at = *at;
                    self.names.set(&folder_name(filter), key, *at);
                }
            }
        }
    }
}

/// Gives filters their new keys and times.
fn install(staged: BTreeMap<Vec<u8>, (Arc<FilterKey>, Option<u64>)>) -> Filters {
    let install = |(key, (filter, expires_at)): (Vec<u8>, (Arc<FilterKey>, Option<u64>))| {
        let filter = match filter.key() == key {
            true => filter,
            false => Arc::new(filter.renamed(&key)),
        };
        if filter.expires_at() != expires_at {
            filter.set_expiry(expires_at);
        }
        (key, filter)
    };
    staged.into_iter().map(install).collect()
}
