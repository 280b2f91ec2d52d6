//! A group of a new map: entries that are copied from another one.

use super::{
    batch::Batch,
    core::Core,
    item::{Change, Content, Value},
    large::Owners,
    merge::write_spans,
    pointer::Pointer,
    prefix::Prefix,
    span::Stored,
};
use crate::error::Result;

/// The entries of a group of a new map, in hash order. Large values are in the new map already.
#[derive(Default)]
pub(super) struct NewGroup {
    batch: Batch,
    owners: Owners,
}

impl NewGroup {
    /// Adds an entry. `read` returns its value if that is large.
    ///
    /// # Errors
    /// The errors of `read`; the device of the new map failed, or is full.
    pub(super) fn push<V: AsRef<[u8]>>(
        &mut self,
        new: &Core,
        change: Change<'_>,
        read: impl FnOnce(Pointer) -> Result<V>,
    ) -> Result<()> {
        let change = match change.content.value {
            Value::Large(pointer) => {
                let (pointer, owner) = new.write_large(read(pointer)?.as_ref())?;
                self.owners.insert(&owner);
                let content = Content { value: Value::Large(pointer), ..change.content };
                Change { content, ..change }
            }
            Value::Tombstone | Value::Inline(_) => change,
        };
        self.batch.push(change, 0);
        Ok(())
    }

    /// Writes the entries to spans of the new map.
    ///
    /// # Errors
    /// The device of the new map failed, or is full.
    pub(super) fn write(&self, new: &Core, prefix: Prefix, groups: &mut Vec<Stored>) -> Result<()> {
        let owner = |first| self.owners.get(first);
        write_spans(new, prefix, (&self.batch.items, &self.batch.bytes), &owner, groups)
    }
}
