//! What commands on keys of any type see and change: the strings of a data set, and the filters beside them.

use super::entry::{Arguments, Command};
use crate::data::{FilterChange, FilterKey, MemoryUnit, Space, TurnGroup, Unit, View};
use hashfold::{ErrorClass, map::Expiring};
use std::sync::Arc;

/// The strings of a data set, as commands see and change them. An error is the reply.
pub(crate) trait Strings {
    /// Returns the time in milliseconds since 1970.
    fn now_ms(&self) -> u64;

    /// Returns the value of a key.
    fn get(&mut self, key: &[u8]) -> Result<Option<&Expiring>, String>;

    /// Returns when a key expires, in milliseconds since 1970, and `None` within if it does not; `None` if it is not there.
    fn expiry(&mut self, key: &[u8]) -> Result<Option<Option<u64>>, String> {
        Ok(self.get(key)?.map(|found| found.expires_at))
    }

    /// Whether a key has a value.
    fn has(&mut self, key: &[u8]) -> Result<bool, String> {
        Ok(self.expiry(key)?.is_some())
    }

    /// Refuses a key or a value that is too long.
    fn check(&self, key: &[u8], value: &[u8]) -> Result<(), String>;

    /// Puts a value that expires at a time, in milliseconds since 1970; one that has expired deletes the key.
    fn put(&mut self, key: &[u8], value: Vec<u8>, expires_at: Option<u64>) -> Result<(), String>;

    /// Deletes a key.
    fn delete(&mut self, key: &[u8]) -> Result<(), String>;

    /// Deletes the string that a filter of the same key hides, if strings can be deleted.
    fn delete_hidden(&mut self, key: &[u8]) -> Result<(), String>;

    /// Deletes all keys that can be deleted.
    fn clear(&mut self) -> Result<(), String>;

    /// Makes the transactions null that watch a key, also if it is as it was.
    fn note_change(&mut self, key: &[u8]);

    /// Whether changes are refused for now, because the last ones could not be made durable.
    fn refuses_changes(&self) -> bool;
}

impl Strings for Unit<'_> {
    fn now_ms(&self) -> u64 {
        Unit::now_ms(self)
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<&Expiring>, String> {
        Unit::get(self, key)
    }

    fn check(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        Unit::check(self, key, value)
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>, expires_at: Option<u64>) -> Result<(), String> {
        Unit::put(self, key, value, expires_at)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), String> {
        Unit::delete(self, key);
        Ok(())
    }

    fn delete_hidden(&mut self, key: &[u8]) -> Result<(), String> {
        if Unit::get(self, key)?.is_some() {
            Unit::delete(self, key);
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<(), String> {
        Unit::clear(self)
    }

    fn note_change(&mut self, key: &[u8]) {
        Unit::note_change(self, key);
    }

    fn refuses_changes(&self) -> bool {
        Unit::refuses_changes(self)
    }
}

impl Strings for MemoryUnit<'_> {
    fn now_ms(&self) -> u64 {
        MemoryUnit::now_ms(self)
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<&Expiring>, String> {
        MemoryUnit::get(self, key)
    }

    fn expiry(&mut self, key: &[u8]) -> Result<Option<Option<u64>>, String> {
        // Keys in memory do not expire.
        Ok(self.size(key).map(|_| None))
    }

    fn check(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        MemoryUnit::check(key, value)
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>, expires_at: Option<u64>) -> Result<(), String> {
        MemoryUnit::put(self, key, value, expires_at)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), String> {
        MemoryUnit::delete(self, key);
        Ok(())
    }

    fn delete_hidden(&mut self, key: &[u8]) -> Result<(), String> {
        MemoryUnit::delete(self, key);
        Ok(())
    }

    fn clear(&mut self) -> Result<(), String> {
        MemoryUnit::clear(self);
        Ok(())
    }

    fn note_change(&mut self, key: &[u8]) {
        MemoryUnit::note_change(self, key);
    }

    fn refuses_changes(&self) -> bool {
        false
    }
}

/// The strings of a table, a store, or a map or data set in memory that is served for reading: commands are refused that
/// are about one of them.
pub(crate) struct FixedStrings {
    /// The data, or the error reply if there are none yet.
    pub(crate) view: Result<Option<Arc<View>>, String>,
    /// The reply to commands that would change a string.
    pub(crate) refusal: String,
    /// Whether the user makes filters, which a command on all keys deletes.
    pub(crate) has_home: bool,
}

impl Strings for FixedStrings {
    fn now_ms(&self) -> u64 {
        0
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<&Expiring>, String> {
        let Some(view) = self.view.as_ref().map_err(String::clone)? else { return Ok(None) };
        let mut is_there = false;
        let found = view.get_with(key, &mut |value| is_there = value.is_some());
        found.map_err(|error| match error.class() {
            ErrorClass::Damage => format!("DAMAGED {error}"),
            _ => format!("ERR {error}"),
        })?;
        if is_there { Err(self.refusal.clone()) } else { Ok(None) }
    }

    fn check(&self, _: &[u8], _: &[u8]) -> Result<(), String> {
        Err(self.refusal.clone())
    }

    fn put(&mut self, _: &[u8], _: Vec<u8>, _: Option<u64>) -> Result<(), String> {
        Err(self.refusal.clone())
    }

    fn delete(&mut self, _: &[u8]) -> Result<(), String> {
        Err(self.refusal.clone())
    }

    fn delete_hidden(&mut self, _: &[u8]) -> Result<(), String> {
        Ok(())
    }

    fn clear(&mut self) -> Result<(), String> {
        if self.has_home { Ok(()) } else { Err(self.refusal.clone()) }
    }

    fn note_change(&mut self, _: &[u8]) {}

    fn refuses_changes(&self) -> bool {
        true
    }
}

/// The filters of a space as a command sees them: with its own changes, which are made when it has ended.
pub(crate) struct FilterEdit {
    space: Option<Arc<Space>>,
    changes: Vec<FilterChange>,
}

impl FilterEdit {
    /// Begins without changes. A space that is not given has no filters.
    pub(crate) fn new(space: Option<Arc<Space>>) -> FilterEdit {
        FilterEdit { space, changes: Vec::new() }
    }

    /// Returns the time by which filters expire, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        self.space.as_ref().and_then(|space| space.home()).map_or(0, |home| home.now_ms())
    }

    /// Returns a filter, unless the command has removed it.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Arc<FilterKey>> {
        let filter = self.space.as_ref()?.filter(key)?;
        let is_removal =
            |it: &FilterChange| matches!(it, FilterChange::Remove(removed) if removed == key);
        (!self.changes.iter().any(is_removal)).then_some(filter)
    }

    /// Removes a filter. Returns whether there was one.
    ///
    /// # Errors
    /// The reply: clients may not remove it.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<bool, String> {
        if self.get(key).is_none() {
            return Ok(false);
        }
        self.check_made(key)?;
        self.changes.push(FilterChange::Remove(key.to_vec()));
        Ok(true)
    }

    /// Gives a filter another key, in place of the filter that has it.
    ///
    /// # Errors
    /// The reply: clients may not rename or remove one of them, one of the new key is being loaded, or the new key is a
    /// string of another data set whose users see the filters.
    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), String> {
        self.check_made(from)?;
        self.check_made(to)?;
        let home = self.space.as_ref().and_then(|space| space.home());
        if home.is_some_and(|home| home.is_loading(to)) {
            return Err("ERR a filter of this name is being loaded".into());
        }
        self.space.as_ref().map_or(Ok(()), |space| space.check_no_string(to))?;
        self.changes.push(FilterChange::Rename { from: from.to_vec(), to: to.to_vec() });
        Ok(())
    }

    /// Sets when a filter expires, in milliseconds since 1970.
    ///
    /// # Errors
    /// The reply: clients may not change that.
    pub(crate) fn expire(&mut self, key: &[u8], at: Option<u64>) -> Result<(), String> {
        self.check_made(key)?;
        self.changes.push(FilterChange::Expire { key: key.to_vec(), at });
        Ok(())
    }

    /// Removes all filters that clients have made.
    pub(crate) fn clear(&mut self) {
        let home = self.space.as_ref().and_then(|space| space.home());
        let made = home.map_or(Vec::new(), |home| home.filters());
        let removals = made.iter().map(|filter| FilterChange::Remove(filter.key().to_vec()));
        self.changes.extend(removals);
    }

    /// Refuses a filter that the configuration names.
    fn check_made(&self, key: &[u8]) -> Result<(), String> {
        match self.space.as_ref().is_some_and(|space| space.is_named(key)) {
            false => Ok(()),
            true => Err(format!(
                "NOPERM filter '{}' is one that the configuration names: clients do not delete or rename it, \
                 and it does not expire",
                String::from_utf8_lossy(key)
            )),
        }
    }

    /// Whether there are changes.
    pub(crate) fn is_changed(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Whether a filter gets another key.
    pub(crate) fn renames(&self) -> bool {
        self.changes.iter().any(|change| matches!(change, FilterChange::Rename { .. }))
    }

    /// Makes the changes.
    ///
    /// # Errors
    /// The reply: they cannot be written, and none is made.
    pub(crate) fn apply(self) -> Result<(), String> {
        let home = self.space.as_ref().and_then(|space| space.home());
        let applied = home.map_or(Ok(()), |home| home.apply(&self.changes));
        applied.map_err(|error| format!("MISCONF changes of filters cannot be written: {error}"))
    }
}

/// Returns the keys that a command gives to filters.
pub(crate) fn new_keys(command: &Command, arguments: &Arguments<'_>) -> Vec<Vec<u8>> {
    match command.name {
        "rename" | "renamenx" => vec![arguments.at(2).to_vec()],
        _ => Vec::new(),
    }
}

/// Returns the groups of filters that a command may change: those of its keys, or all.
pub(crate) fn turn_groups(command: &Command, arguments: &Arguments<'_>) -> Vec<TurnGroup> {
    match command.keys.count(arguments.len()) {
        0 => TurnGroup::all(),
        _ => {
            let places = command.keys.places(arguments.len());
            places.map(|at| TurnGroup::of(arguments.at(at))).collect()
        }
    }
}
