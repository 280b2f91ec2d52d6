//! A command on a data set in memory that runs alone.

use super::served::{ServedMemory, write_failed};
use crate::data::map::TOO_LONG;
use hashfold::{
    map::Expiring,
    memory::AppendTable,
    run::{KEY_BYTES_MAX, VALUE_BYTES_MAX},
};
use std::{collections::BTreeMap, sync::Arc};

/// The reply to commands that would make a key expire.
const NO_EXPIRY: &str = "ERR keys of a data set in memory do not expire";

/// Makes room for a copy of a value of this size, or returns the reply to a command for which there is none.
pub(crate) type MakeRoom<'a> = dyn FnMut(usize) -> Result<(), String> + 'a;

/// The values of a data set in memory, as a command that runs alone sees and changes them. Its changes are made when it
/// has ended without an error.
pub(crate) struct MemoryUnit<'a> {
    memory: &'a ServedMemory,
    table: Arc<AppendTable>,
    /// The new values of keys; `None` deletes one.
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Whether all keys without a change are deleted.
    is_cleared: bool,
    /// Whether the command sees the filters beside the data, so that its strings take their places.
    sees_filters: bool,
    /// Keys whose watches are told of a change also if there is none.
    noted: Vec<Vec<u8>>,
    /// The value that was returned last.
    value: Option<Expiring>,
    /// Makes room for each value before it is copied, if that is limited.
    room: Option<&'a mut MakeRoom<'a>>,
}

impl<'a> MemoryUnit<'a> {
    pub(super) fn new(memory: &'a ServedMemory) -> MemoryUnit<'a> {
        MemoryUnit {
            memory,
            table: memory.table(),
            changes: BTreeMap::new(),
            is_cleared: false,
            sees_filters: false,
            noted: Vec::new(),
            value: None,
            room: None,
        }
    }

    /// Begins a command that gets room for each value that it reads before the value is copied.
    pub(crate) fn with_room(self, room: &'a mut MakeRoom<'a>) -> MemoryUnit<'a> {
        MemoryUnit { room: Some(room), ..self }
    }

    /// Begins a command that sees the filters beside the data, or does not.
    pub(crate) fn set_sees_filters(&mut self, sees_filters: bool) {
        self.sees_filters = sees_filters;
    }

    /// Returns the time, in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        self.memory.now_ms()
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// The reply: there is no room for a copy of the value.
    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<&Expiring>, String> {
        if let (Some(size), Some(room)) = (self.size(key), &mut self.room) {
            room(size)?;
        }
        let value = match self.changes.get(key) {
            Some(changed) => changed.clone(),
            None if self.is_cleared => None,
            None => self.table.get(key),
        };
        self.value = value.map(|value| Expiring { value, expires_at: None });
        Ok(self.value.as_ref())
    }

    /// Returns the size of the value of a key in bytes; `None` if the key is not there.
    pub(crate) fn size(&self, key: &[u8]) -> Option<usize> {
        match self.changes.get(key) {
            Some(changed) => changed.as_ref().map(Vec::len),
            None if self.is_cleared => None,
            None => self.table.size(key),
        }
    }

    /// Refuses a key or a value that is too long.
    ///
    /// # Errors
    /// The reply.
    pub(crate) fn check(key: &[u8], value: &[u8]) -> Result<(), String> {
        if key.len() > KEY_BYTES_MAX {
            return Err(format!("ERR a key has at most {KEY_BYTES_MAX} bytes"));
        }
        match value.len() > VALUE_BYTES_MAX {
            true => Err(TOO_LONG.into()),
            false => Ok(()),
        }
    }

    /// Puts a value; one that has expired deletes the key.
    ///
    /// # Errors
    /// The reply: the key or the value is too long, it would expire, or the key is a filter that the client does not see.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        value: Vec<u8>,
        expires_at: Option<u64>,
    ) -> Result<(), String> {
        if !self.sees_filters {
            self.memory.check_no_filter(key)?;
        }
        match expires_at {
            Some(at) if at <= self.now_ms() => self.delete(key),
            Some(_) => return Err(NO_EXPIRY.into()),
            None => {
                MemoryUnit::check(key, &value)?;
                self.changes.insert(key.to_vec(), Some(value));
            }
        }
        Ok(())
    }

    /// Deletes a key, if it is there.
    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.changes.insert(key.to_vec(), None);
    }

    /// Deletes all keys.
    pub(crate) fn clear(&mut self) {
        self.changes.clear();
        self.is_cleared = true;
    }

    /// Makes the transactions null that watch a key, also if it is absent before and after the command.
    pub(crate) fn note_change(&mut self, key: &[u8]) {
        self.noted.push(key.to_vec());
    }

    /// Makes the changes: values first, so that a key which is renamed is not lost.
    ///
    /// # Errors
    /// The reply: there is no memory, or the data set has ended. Of several values, those before stay.
    pub(crate) fn end(mut self) -> Result<(), String> {
        self.memory.check_open()?;
        if self.is_cleared {
            self.memory.clear().map_err(|error| write_failed(&error))?;
            self.table = self.memory.table();
        }
        for (key, value) in &self.changes {
            if let Some(value) = value {
                self.table.put(key, value).map_err(|error| write_failed(&error))?;
                self.memory.note_change(key);
            }
        }
        for key in self.changes.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key) {
            if self.table.remove(key).map_err(|error| write_failed(&error))? {
                self.memory.note_change(key);
            }
        }
        self.noted.iter().for_each(|key| self.memory.note_watched(key));
        Ok(())
    }
}
