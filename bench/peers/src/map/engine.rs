//! The interface of the engines: what a driver does with a map.

use super::{Options, Place, Program, round};
use crate::Result;
use std::path::Path;

/// Size of a key and of a value, in bytes.
pub(super) const SIZE: usize = 8;

pub(super) type Key = [u8; SIZE];
pub(super) type Value = [u8; SIZE];

/// A kind of map.
pub(super) trait Peer {
    fn name(&self) -> String;

    /// Returns the configuration.
    fn note(&self) -> String;

    /// Creates an empty map in a folder.
    fn create(&self, options: &Options, folder: &Path) -> Result<Box<dyn Engine>>;
}

impl<T: Peer> Program for T {
    fn name(&self) -> String {
        Peer::name(self)
    }

    fn note(&self) -> String {
        Peer::note(self)
    }

    fn round(&self, place: &mut Place<'_>) -> Result<()> {
        round::run(self.create(place.options, place.folder)?, place)
    }
}

/// Work of one thread that may change the map.
pub(super) type Changing<'a> = dyn FnMut(&mut dyn Changes) -> Result<()> + 'a;
/// Work of one thread that looks up keys.
pub(super) type Looking<'a> = dyn FnMut(&mut dyn Lookups) -> Result<()> + 'a;

/// An open map.
pub(super) trait Engine: Sync {
    /// Runs work, as one transaction if the engine has transactions. The changes need not be durable
    /// when this returns.
    fn change(&self, work: &mut Changing<'_>) -> Result<()>;

    /// Runs lookups, in one transaction if the engine has transactions.
    fn look_up(&self, work: &mut Looking<'_>) -> Result<()>;

    /// Makes all changes durable.
    fn sync(&self) -> Result<()>;

    /// Waits until no work in the background is left.
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    /// Makes [`Engine::commit`] durable, for engines that have a mode for that.
    fn start_commits(&mut self) -> Result<()> {
        Ok(())
    }

    /// Puts a value, durable when this returns. Many threads may do so at once.
    fn commit(&self, key: &Key, value: &Value) -> Result<()>;

    /// Gives free space back to the file system.
    fn compact(&mut self) -> Result<()>;
}

/// Lookups.
pub(super) trait Lookups {
    fn get(&mut self, key: &Key) -> Result<Option<Value>>;

    /// Looks up many keys, in the order that is the fastest for the engine. The values are in the order
    /// of the keys.
    fn get_many(&mut self, keys: &[Key]) -> Result<Vec<Option<Value>>>;
}

/// Lookups and changes. A lookup finds the changes before it.
pub(super) trait Changes: Lookups {
    fn put(&mut self, key: &Key, value: &Value) -> Result<()>;

    fn delete(&mut self, key: &Key) -> Result<()>;
}

/// Looks up keys in ascending order, in which a tree visits each inner page once.
pub(super) fn get_in_order(lookups: &mut dyn Lookups, keys: &[Key]) -> Result<Vec<Option<Value>>> {
    let mut order: Vec<(&Key, usize)> = keys.iter().zip(0..).collect();
    order.sort_unstable();
    let mut values = vec![None; keys.len()];
    for (key, i) in order {
        values[i] = lookups.get(key)?;
    }
    Ok(values)
}

/// Returns a value of the right size.
pub(super) fn value_of(bytes: &[u8]) -> Result<Value> {
    let got = bytes.len();
    Ok(bytes.try_into().map_err(|_| format!("expected a value of {SIZE} bytes, got {got}"))?)
}
