//! Writes of a transaction that are on the device, because they exceed the memory for them.
//!
//! A *spill* writes large values to blocks of their own, and the other writes, in order of (hash, key), as parts of
//! the record that the transaction will have in the log. RAM keeps the place of each part, a Bloom filter of its
//! hashes, and fences between which a lookup reads. No part is changed: a later one wins over those before it, in
//! lookups as when they are applied. The commit reads them part by part. Dropping the transaction frees the blocks.

use super::{
    Expiring,
    block::BLOCK_SIZE,
    bloom::Bloom,
    checkpoint::own_blocks,
    core::Core,
    item::{Change, Value},
    kept::{EncodedPart, Fence, Kept},
    large::{self, OWNER_BYTES, Owner, Owners},
    log::{self, Expand, LIST_SIZE_MAX, Part, RECORD_SIZE_MAX},
    lookup::resolve,
    pointer::INLINE_BYTES_MAX,
    write::Reserve,
};
use crate::{error::Result, key::KeyHash};
use std::ops::Range;

/// Maximum size of all encoded changes of a transaction, in bytes.
pub(super) const TRANSACTION_SIZE_MAX: u64 = if cfg!(test) { 2 << 20 } else { 64 << 30 };
// All lists, the parts after the last list and the rest fit in a record, also if all parts are as small as can be.
const _: () = {
    let parts = TRANSACTION_SIZE_MAX / (INLINE_BYTES_MAX as u64 + 1);
    let place = log::PART_SIZE_MAX as u64;
    let lists = parts * place / (LIST_SIZE_MAX as u64 - place) + 1;
    let size = lists * place + LIST_SIZE_MAX as u64 + INLINE_BYTES_MAX as u64;
    assert!(size < RECORD_SIZE_MAX as u64);
};
/// A write is spilled only if all writes of the transaction take more than this fraction of the memory that all
/// transactions may take: small parts make lookups slow.
const SPILL_FRACTION: usize = 16;
/// The Bloom filters of a transaction take at most this fraction of the memory that all transactions may take.
const FILTERS_FRACTION: usize = 4;

/// The writes on the device.
#[derive(Debug, Default)]
pub(super) struct Spilled {
    /// Whether there was a spill, also if it has written large values only.
    pub(super) has_begun: bool,
    /// The parts of each spill; they ascend. The newest spill comes last.
    spills: Vec<Vec<SpilledPart>>,
    /// The encoded places of lists of parts.
    lists: Vec<u8>,
    /// The encoded places of the parts after those in lists.
    places: Vec<u8>,
    /// Number of changes in the parts of `places`.
    placed: u64,
    /// Owners of parts, of lists, and of large values of changes in parts.
    owners: Owners,
    /// Number of changes in parts.
    count: u64,
    /// Maximum size of the encoded changes in parts, in bytes: the sum of [`Write::size`](super::Write::size).
    size: u64,
    /// Size of the parts in bytes.
    bytes: u64,
    /// Memory of the Bloom filters, in bytes.
    filter_bytes: usize,
    /// Memory of all but lists and places, in bytes.
    memory: usize,
}

#[derive(Debug)]
struct SpilledPart {
    part: Part,
    filter: Bloom,
    fences: Box<[Fence]>,
}

impl SpilledPart {
    /// Returns the high half of the first hash.
    fn first(&self) -> u64 {
        self.fences[0].high
    }

    /// Returns the bytes of the part that may have a hash.
    fn range(&self, hash: KeyHash) -> Range<usize> {
        let fences = &self.fences;
        // Keys whose hashes have one high half may be on both sides of a fence.
        let start = fences.partition_point(|fence| fence.high < hash.high()).saturating_sub(1);
        let end = fences.partition_point(|fence| fence.high <= hash.high());
        let end = fences.get(end).map_or(self.part.pointer.size, |fence| fence.offset);
        fences[start].offset as usize..end as usize
    }
}

/// Whether a transaction with these writes in RAM should spill them.
pub(super) fn is_due(core: &Core, kept: &Kept) -> bool {
    let max = core.options.shape.transaction_bytes;
    kept.memory() > max / SPILL_FRACTION && core.transaction_bytes() > max
}

impl Spilled {
    /// Returns the number of changes in parts.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the maximum size of the encoded changes in parts, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.memory + self.lists.len() + self.places.len()
    }

    /// Spills writes when there are many. Few ones stay if large values have taken most of the memory.
    ///
    /// # Errors
    /// The disk is full, or the device failed. All writes are still there, in RAM or on the device.
    pub(super) fn spill(&mut self, core: &Core, kept: &mut Kept) -> Result<()> {
        self.begin(core, kept)?;
        match kept.memory() > core.options.shape.transaction_bytes / SPILL_FRACTION / 2 {
            true => self.add_all(core, kept),
            false => Ok(()),
        }
    }

    /// Spills all writes; but up to 1 KiB of them, without large values, stay.
    ///
    /// # Errors
    /// The errors of [`Spilled::spill`].
    fn spill_all(&mut self, core: &Core, kept: &mut Kept) -> Result<()> {
        self.begin(core, kept)?;
        self.add_all(core, kept)
    }

    fn begin(&mut self, core: &Core, kept: &mut Kept) -> Result<()> {
        core.check()?;
        own_blocks(core)?;
        self.has_begun = true;
        kept.write_large(core)
    }

    fn add_all(&mut self, core: &Core, kept: &mut Kept) -> Result<()> {
        if self.spills.last().is_none_or(|spill| !spill.is_empty()) {
            self.spills.push(Vec::new());
        }
        while let Some(encoded) = kept.first_part() {
            let before = kept.size();
            let count = encoded.hashes.len();
            self.add(core, encoded)?;
            kept.remove_first(count, |owner| self.keep(owner));
            self.size += before - kept.size();
        }
        Ok(())
    }

    fn keep(&mut self, owner: &Owner) {
        self.owners.insert(owner);
        self.memory += OWNER_BYTES;
    }

    /// Writes a part of the last spill.
    fn add(&mut self, core: &Core, encoded: EncodedPart) -> Result<()> {
        if self.places.len() + log::PART_SIZE_MAX > LIST_SIZE_MAX {
            self.end_list(core)?;
        }
        let EncodedPart { bytes, hashes, fences } = encoded;
        let (pointer, owner) = core.write_large(&bytes)?;
        self.keep(&owner);
        let part = Part { count: hashes.len() as u64, pointer };
        log::encode_part(&mut self.places, part);
        self.placed += part.count;
        self.count += part.count;
        self.bytes += bytes.len() as u64;
        let most = core.options.shape.transaction_bytes / FILTERS_FRACTION;
        let filter = match self.filter_bytes < most {
            true => Bloom::of(hashes.into_iter()),
            // One that contains every key.
            false => Bloom::from_bytes(&[]),
        };
        self.filter_bytes += filter.bytes().len();
        self.memory += size_of::<SpilledPart>() + filter.bytes().len() + size_of_val(&fences[..]);
        let fences = fences.into();
        let spill = self.spills.last_mut().expect("a spill has begun");
        spill.push(SpilledPart { part, filter, fences });
        Ok(())
    }

    /// Writes the places of parts as a list.
    fn end_list(&mut self, core: &Core) -> Result<()> {
        let (pointer, owner) = core.write_large(&self.places)?;
        self.keep(&owner);
        log::encode_list(&mut self.lists, Part { count: self.placed, pointer });
        self.places.clear();
        self.placed = 0;
        Ok(())
    }

    /// Returns the value that the newest part with a key gives it, if there is such a part.
    ///
    /// # Errors
    /// The device failed, or a block is damaged.
    pub(super) fn find(
        &self,
        core: &Core,
        (hash, key): (KeyHash, &[u8]),
    ) -> Result<Option<Option<Expiring>>> {
        for spill in self.spills.iter().rev() {
            let first = spill.partition_point(|part| part.first() < hash.high());
            let parts = spill[first.saturating_sub(1)..].iter();
            let parts = parts.take_while(|part| part.first() <= hash.high());
            for part in parts.filter(|part| part.filter.contains(hash)) {
                if let Some(found) = self.find_in(core, part, (hash, key))? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    fn find_in(
        &self,
        core: &Core,
        part: &SpilledPart,
        (hash, key): (KeyHash, &[u8]),
    ) -> Result<Option<Option<Expiring>>> {
        let pointer = part.part.pointer;
        let place = (pointer, self.owners.get(pointer.first));
        let (file, identity) = (&*core.space.file, core.identity);
        let bytes = large::read_range(file, identity.id, place, part.range(hash))?;
        let Some(content) = log::find_in_part(&bytes, identity.seed, key)? else {
            return Ok(None);
        };
        let owner = match content.value {
            Value::Large(pointer) => self.owners.get(pointer.first),
            Value::Tombstone | Value::Inline(_) => None,
        };
        resolve(core, content.at(core.now()), owner).map(Some)
    }

    /// Makes the record of all writes, which are on the device then and durable, but for up to 1 KiB of them.
    ///
    /// # Errors
    /// The errors of [`Spilled::spill`]; a part cannot be read back.
    pub(super) fn record(&mut self, core: &Core, kept: &mut Kept) -> Result<SpilledRecord<'_>> {
        self.spill_all(core, kept)?;
        kept.owners().for_each(|owner| self.keep(owner));
        // The log may become durable from the moment on that it points to the parts.
        core.sync_data()?;
        let mut payload = [&self.lists[..], &self.places].concat();
        kept.encode(&mut payload);
        let count = self.count + kept.len() as u64;
        let record = SpilledRecord { spilled: self, payload, count };
        // What cannot be read must be known before the log has the record.
        record.expand(core, &mut |_, _| Ok(()))?;
        Ok(record)
    }
}

/// The record of a transaction whose writes were spilled.
pub(super) struct SpilledRecord<'a> {
    spilled: &'a Spilled,
    /// The places of lists and of parts, and then the other changes.
    pub(super) payload: Vec<u8>,
    /// Number of changes.
    pub(super) count: u64,
}

impl SpilledRecord<'_> {
    /// Returns the owners of lists, of parts and of large values.
    pub(super) fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.spilled.owners.iter()
    }

    /// Returns the memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.spilled.memory() + self.payload.len()
    }

    /// Returns the size of the changes and of their large values, in bytes.
    pub(super) fn size(&self) -> u64 {
        let blocks: u64 = self.owners().map(|owner| owner.count).sum();
        self.payload.len() as u64 + blocks * BLOCK_SIZE as u64
    }

    /// Takes blocks for the packets of the changes.
    pub(super) fn reserve(&self, core: &Core) -> Result<Reserve> {
        Reserve::take(core, self.count, self.spilled.bytes)
    }

    /// Calls `take` with each change in order, and with the owner of its large value. Reads one part at a time.
    ///
    /// # Errors
    /// A part cannot be read: `take` has had the changes before it. Those of `take`.
    pub(super) fn expand(
        &self,
        core: &Core,
        take: &mut dyn FnMut(Change<'_>, Option<&Owner>) -> Result<()>,
    ) -> Result<()> {
        let seed = core.identity.seed;
        let mut parts = Parts { core, owners: &self.spilled.owners, take };
        log::decode(&self.payload, self.count, seed, |logged| log::expand(logged, seed, &mut parts))
    }
}

/// The parts of a record that is in no log yet, or at its end.
struct Parts<'a> {
    core: &'a Core,
    owners: &'a Owners,
    take: &'a mut dyn FnMut(Change<'_>, Option<&Owner>) -> Result<()>,
}

impl Expand for Parts<'_> {
    fn read(&mut self, Part { pointer, .. }: Part) -> Result<Vec<u8>> {
        let Core { space, identity, .. } = self.core;
        large::read(&*space.file, identity.id, pointer, self.owners.get(pointer.first))
    }

    fn take(&mut self, change: Change<'_>) -> Result<()> {
        let owner = match change.content.value {
            Value::Large(pointer) => {
                Some(large::check_owner(pointer, self.owners.get(pointer.first))?)
            }
            Value::Tombstone | Value::Inline(_) => None,
        };
        (self.take)(change, owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::pointer::Pointer;

    /// Hashes with one high half may be on both sides of a fence, or of several.
    #[test]
    fn a_lookup_reads_all_bytes_that_may_have_a_hash() {
        let fences = [(3, 0), (5, 10), (5, 20), (5, 30), (8, 40)];
        let part = SpilledPart {
            part: Part { count: 1, pointer: Pointer { first: 1, write: 1, size: 50 } },
            filter: Bloom::from_bytes(&[]),
            fences: fences.map(|(high, offset)| Fence { high, offset }).into(),
        };
        let range = |high: u128| part.range(KeyHash::from_bits(high << 64 | 7));
        assert_eq!([3, 4].map(range), [0..10, 0..10]);
        assert_eq!([5, 6, 7].map(range), [0..40, 30..40, 30..40]);
        assert_eq!([8, 9].map(range), [30..50, 40..50]);
    }
}
