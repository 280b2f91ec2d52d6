//! A group of a new map: entries that are copied from another one, or those of a run.

use super::{
    batch::Batch,
    core::Core,
    item::{Change, Content, Item, Value},
    large::Owners,
    merge::write_spans,
    pointer::{INLINE_BYTES_MAX, Pointer},
    prefix::Prefix,
    span::Stored,
};
use crate::{error::Result, io::WriteQueue, key::KeyHash};

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
                let value = self.write_large(new, read(pointer)?.as_ref())?;
                Change { content: Content { value, ..change.content }, ..change }
            }
            Value::Tombstone | Value::Inline(_) => change,
        };
        self.batch.push(change, 0);
        Ok(())
    }

    /// Adds an entry that does not expire.
    ///
    /// # Errors
    /// The device of the new map failed, or is full.
    pub(super) fn put(
        &mut self,
        new: &Core,
        (hash, key): (KeyHash, &[u8]),
        value: &[u8],
    ) -> Result<()> {
        let value = match value.len() > INLINE_BYTES_MAX {
            true => self.write_large(new, value)?,
            false => Value::Inline(value),
        };
        self.batch.push(Change { hash, key, content: Content::lasting(value) }, 0);
        Ok(())
    }

    /// Writes a large value to the new map.
    fn write_large(&mut self, new: &Core, value: &[u8]) -> Result<Value<'static>> {
        let (pointer, owner) = new.write_large(value)?;
        self.owners.insert(&owner);
        Ok(Value::Large(pointer))
    }

    /// Returns the key of the last entry.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        let item = self.batch.items.last()?;
        Some(&self.batch.bytes[item.start as usize..][..item.key_size.into()])
    }

    /// Returns the size of all entries, in bytes: about that in blocks.
    pub(super) fn size(&self) -> usize {
        self.batch.bytes.len()
    }

    /// Returns the size of the first entries, those in a key range, in bytes.
    pub(super) fn size_within(&self, range: Prefix) -> usize {
        self.batch.bytes_before(self.count_within(range))
    }

    /// Returns the number of the first entries, those in a key range.
    fn count_within(&self, range: Prefix) -> usize {
        range.part(&self.batch.items, |item| item.hash).end
    }

    /// Writes the entries to spans of the new map.
    ///
    /// # Errors
    /// The device of the new map failed, or is full.
    pub(super) fn write(&self, new: &Core, prefix: Prefix, groups: &mut Vec<Stored>) -> Result<()> {
        let owner = |first| self.owners.get(first);
        let items = (&self.batch.items[..], &self.batch.bytes[..]);
        write_spans(new, &mut Core::write_blocks, prefix, items, &owner, groups)
    }

    /// Writes the first entries, those in a key range, to spans of the new map, and removes them. The spans
    /// are on the device once the queue has no write in flight.
    ///
    /// # Errors
    /// The errors of [`NewGroup::write`].
    pub(super) fn start_within(
        &mut self,
        (new, queue): (&Core, &mut WriteQueue),
        range: Prefix,
        groups: &mut Vec<Stored>,
    ) -> Result<()> {
        let (count, before) = (self.count_within(range), groups.len());
        let owner = |first| self.owners.get(first);
        let items = (&self.batch.items[..count], &self.batch.bytes[..]);
        let mut write = |core: &Core, kind, items: (&[Item], &[u8]), starts: &[usize]| {
            core.start_blocks(queue, kind, items, starts)
        };
        write_spans(new, &mut write, range, items, &owner, groups)?;
        // The spans own their large values.
        for owner in groups[before..].iter().flat_map(Stored::owners).flatten() {
            self.owners.remove(owner.first);
        }
        self.batch.remove_first(count);
        Ok(())
    }
}
