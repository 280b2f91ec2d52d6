//! `Salvage`: the entries that are left, as a run.

use super::{
    loss::{Loss, Lost},
    patient::Failures,
};
use crate::{
    error::{Error, ErrorClass, Result},
    folder::LockedFolder,
    io::BlockFile,
    key::Seed,
    map::{
        MapOptions,
        batch::untagged,
        devices::{DATA_NAME, Identity},
        item::{Change, Content, Value},
        large,
        pointer::Pointer,
    },
    run::{Entry, Run, Sorted, Summary},
};
use std::{fmt, sync::Arc};

/// The entries that a damaged map still holds, as a run: the newest value of each key that can be
/// read. Made by [`salvage`](super::salvage).
pub struct Salvage {
    /// The newest change of each key, with tagged values.
    pub(super) sorted: Sorted,
    pub(super) summary: Summary,
    pub(super) losses: Vec<Loss>,
    /// The damaged map, locked.
    pub(super) folder: LockedFolder,
    pub(super) identity: Identity,
    pub(super) options: MapOptions,
    pub(super) attributes: Vec<(String, Vec<u8>)>,
    /// The data file, if it is there.
    pub(super) file: Option<Arc<dyn BlockFile>>,
    pub(super) failures: Failures,
    /// The time in milliseconds since 1970-01-01 UTC: entries that have expired are left out.
    pub(super) now: u64,
    /// The value of the current entry, if it is large.
    pub(super) large: Vec<u8>,
}

impl Salvage {
    /// Returns the attributes of the map; none if its manifest is damaged.
    pub fn attributes(&self) -> &[(String, Vec<u8>)] {
        &self.attributes
    }

    /// Returns the parts of the map that could not be read so far: all of them after the run has
    /// ended, which reads values above 1 KiB.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// Returns the current entry, with the pointer of the damaged map to a large value; and its value
    /// if it is large.
    pub(super) fn change(&self) -> (Change<'_>, &[u8]) {
        let Entry { hash, key, .. } = self.sorted.entry();
        let content = self.content().expect("it was decoded before");
        (Change { hash, key, content }, &self.large)
    }

    fn content(&self) -> Result<Content<'_>> {
        Ok(untagged(self.sorted.entry().value)?.at(self.now))
    }

    /// Reads a large value.
    fn read_large(&self, pointer: Pointer) -> Result<Vec<u8>> {
        let Some(file) = &self.file else {
            return Err(Error::missing("data file of the map", &self.folder.path.join(DATA_NAME)));
        };
        large::read_unowned(&**file, self.identity.id, pointer)
    }
}

impl Run for Salvage {
    fn seed(&self) -> Seed {
        self.identity.seed
    }

    fn summary(&self) -> Summary {
        self.summary
    }

    fn advance(&mut self) -> Result<bool> {
        while self.sorted.advance()? {
            match self.content()?.value {
                Value::Tombstone => continue,
                Value::Inline(_) => return Ok(true),
                Value::Large(pointer) => match self.read_large(pointer) {
                    Ok(value) => {
                        self.large = value;
                        return Ok(true);
                    }
                    Err(error) if error.class() == ErrorClass::Damage => {
                        let error = self.failures.take().pop().unwrap_or(error);
                        let lost = Lost::Value(self.sorted.entry().key.to_vec());
                        self.losses.push(Loss { error, lost });
                    }
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(false)
    }

    fn entry(&self) -> Entry<'_> {
        let (Change { hash, key, content }, large) = self.change();
        let value = match content.value {
            Value::Tombstone => None,
            Value::Inline(value) => Some(value),
            Value::Large(_) => Some(large),
        };
        Entry { hash, key, value }
    }
}

impl fmt::Debug for Salvage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Salvage({}, {} losses)", self.folder.path.display(), self.losses.len())
    }
}
