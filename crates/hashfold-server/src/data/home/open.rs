//! Opening a home: the filters that were there before.

use super::{
    filter_home::{FilterHome, Filters, State},
    names::{FilterNames, Listed, key_of},
};
use crate::data::{filter::FilterKey, load::sweep};
use hashfold::{Env, Error, Place, filter::FilterOptions, work::MemoryBudget};
use std::{path::Path, sync::Arc};

impl FilterHome {
    /// Opens all filters in a folder, which is made if it does not exist. Those that have expired, and what is
    /// left of those that were removed, are removed from the device.
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
        let mut opening = Opening::begin(env, folder)?;
        for name in env.disk.list(folder)? {
            let Some((key, expires_at)) = opening.filter_in(&name) else { continue };
            let options =
                FilterOptions::exact().env(env.clone()).memory_bytes(memory_bytes).wal(true);
            let place = Place::file(&folder.join(&name));
            let reserved = memory.reserve(memory_bytes as u64).map_err(|error| error.at(&place))?;
            match FilterKey::open_with(&key, &place.file, options, (memory, reserved)) {
                Ok(filter) => opening.add(filter, expires_at)?,
                // A crash during the making of a filter leaves a folder without one.
                Err(error) if error.is_absent() => sweep(env, &place.file),
                Err(error) => return Err(error),
            }
        }
        let Opening { filters, state, .. } = opening;
        let home = FilterHome::new((env, folder), (memory_bytes, memory), (filters, state));
        home.sweep();
        Ok(home)
    }
}

/// What is known while filters are opened.
struct Opening {
    filters: Filters,
    state: State,
    now_ms: u64,
}

impl Opening {
    fn begin(env: &Env, folder: &Path) -> Result<Opening, Error> {
        // Names in the folder may come from a process that was killed, and not be durable yet.
        env.disk.sync_folder(folder)?;
        let mut names = FilterNames::read(env.disk.as_ref(), folder)?;
        let there = env.disk.list(folder)?;
        // The entries of folders that are gone must not be those of new folders.
        let has_others = names.keep(|name| there.iter().any(|other| other == name));
        let mut state = State::new(names);
        state.is_doubtful = has_others;
        let now_ms = env.clock.unix_time().as_millis() as u64;
        Ok(Opening { filters: Filters::new(), state, now_ms })
    }

    /// Returns the key of the filter in a folder, and when it expires; `None` if the folder has none.
    fn filter_in(&mut self, folder: &str) -> Option<(Vec<u8>, Option<u64>)> {
        match self.state.names.get(folder) {
            None => Some((key_of(folder)?, None)),
            Some(Listed::Removed) => None,
            Some(Listed::Filter { expires_at: Some(at), .. }) if *at <= self.now_ms => {
                // A clock that goes back does not bring the filter back: its files will be removed.
                self.state.names.remove(folder);
                self.state.is_doubtful = true;
                None
            }
            Some(Listed::Filter { key, expires_at }) => Some((key.clone(), *expires_at)),
        }
    }

    fn add(&mut self, filter: FilterKey, expires_at: Option<u64>) -> Result<(), Error> {
        if let Some(other) = self.filters.get(filter.key()) {
            let got = format!("this one and {}", other.folder().display());
            let error = Error::argument("folders of a filter", "one for each name", got);
            return Err(error.at(&Place::file(filter.folder())));
        }
        filter.set_expiry(expires_at);
        self.filters.insert(filter.key().to_vec(), Arc::new(filter));
        Ok(())
    }
}
