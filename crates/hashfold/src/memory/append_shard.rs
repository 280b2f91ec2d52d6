//! A shard of an [`AppendTable`](super::AppendTable): an index from hashes to references, and the blocks that they
//! lead to.

use super::{
    AppendStats, MemoryOptions,
    ahead::{Ahead, BURST},
    arena::At,
    index::{Found, Index},
    line::Pair,
    place::Place,
    slabs::{Reference, Slabs},
    values::Values,
};
use crate::{
    error::{ErrorKind, Result},
    run::{SizeRange, Summary, VALUE_BYTES_MAX, check_sizes},
};
use std::ops::Range;

/// Number of deferred blocks that a change frees at most, beside as many as the change before deferred.
const FREED_MAX: usize = 8;
/// Number of deferred blocks that are freed at a time when nothing else is done.
const FREED_ASIDE: usize = 256;

/// An index and its blocks.
#[derive(Debug)]
pub(super) struct AppendShard {
    pub(super) index: Index,
    pub(super) values: Values,
    /// Total size of all keys and values, in bytes.
    data_bytes: u64,
    /// Sizes of all keys that were ever there.
    key_sizes: SizeRange,
    /// Sizes of all values that were ever there.
    value_sizes: SizeRange,
}

impl AppendShard {
    pub(super) fn new(options: &MemoryOptions, regions: Range<usize>) -> Result<AppendShard> {
        let slabs = Slabs::new(&options.budget, options.executor.clone());
        Ok(AppendShard {
            index: Index::new(options, regions)?,
            values: Values::new(slabs),
            data_bytes: 0,
            key_sizes: SizeRange::EMPTY,
            value_sizes: SizeRange::EMPTY,
        })
    }

    /// Returns the place of a hash.
    #[inline]
    pub(super) fn place(&self, hash: u64) -> Place {
        self.index.place(hash)
    }

    /// Returns the position and the place of the next hash of a batch, and prefetches the values of later ones.
    #[inline]
    pub(super) fn next<'a>(&self, ahead: &'a mut Ahead<'_>) -> Option<(usize, &'a Place)> {
        ahead.next_and_reach(&self.index, |places| {
            let ends = self.prefetch_ends(places);
            ends.into_iter().for_each(|ends| self.values.slabs.prefetch_between(ends));
        })
    }

    /// Does what [`AppendShard::next`] does, and prefetches what changes of later keys need: their values, or of new keys, the
    /// lines that other pairs may move to.
    #[inline]
    pub(super) fn next_to_change<'a>(
        &self,
        ahead: &'a mut Ahead<'_>,
    ) -> Option<(usize, &'a Place)> {
        ahead.next_and_reach(&self.index, |places| {
            let ends = self.prefetch_ends(places);
            for (place, ends) in places.iter().zip(ends) {
                // A long value seldom moves, and the lines in its middle are not touched otherwise.
                self.values.slabs.prefetch_few_between(ends);
                if (place.seen == 0) & self.index.is_crowded(place) {
                    self.index.prefetch_others(place);
                }
            }
        })
    }

    /// Prefetches the first line and the last of each value of a burst of places, as fast one after the other as places are by
    /// [`Ahead`], and returns them; for keys that are not there, the first line of the first page. What is between is prefetched after
    /// the ends of all values: these are on different pages, and their TLB misses overlap.
    #[inline(always)]
    fn prefetch_ends(&self, places: &mut [Place; BURST]) -> [[At; 2]; BURST] {
        let mut all = [[At::FIRST; 2]; BURST];
        for (place, ends) in places.iter_mut().zip(&mut all) {
            *ends = Slabs::ends(Reference(self.index.see(place).unwrap_or(0)));
        }
        for which in 0..2 {
            all.iter().for_each(|ends| self.values.slabs.prefetch(ends[which]));
        }
        all
    }

    /// Finds a key, whose hash has this place.
    #[inline]
    pub(super) fn find(&self, place: &Place, key: &[u8]) -> Option<Found> {
        self.index.find(place, |value| self.values.is_key(Reference(value), key))
    }

    /// Prepares for a change of the group of a place: frees some of what no snapshot needs any more, and gives memory back
    /// that the change before has freed.
    #[inline]
    fn prepare(&mut self, place: &Place) -> Result<()> {
        let is_idle = self.index.snapshots.active.is_empty() && self.values.slabs.is_settled();
        if is_idle { Ok(()) } else { self.settle(place) }
    }

    /// Does what [`AppendShard::prepare`] does when there is something to do.
    #[inline(never)]
    fn settle(&mut self, place: &Place) -> Result<()> {
        let oldest = self.index.snapshots.oldest();
        self.values.slabs.kept_for = oldest.map(|_| self.index.snapshots.epoch());
        let limit = self.values.slabs.take_newly_deferred() + FREED_MAX;
        self.values.slabs.free_deferred(oldest, limit);
        self.values.slabs.give_back();
        self.index.prepare(place)
    }

    /// Changes values; if there is no memory, once more after all blocks are freed that no snapshot needs.
    #[inline]
    fn change_values<T>(&mut self, change: impl Fn(&mut Values) -> Result<T>) -> Result<T> {
        let changed = change(&mut self.values);
        let Err(error) = &changed else { return changed };
        if !matches!(error.kind(), ErrorKind::Memory { .. }) {
            return changed;
        }
        let (oldest, before) = (self.index.snapshots.oldest(), self.values.slabs.deferred());
        self.values.slabs.free_deferred(oldest, before);
        if self.values.slabs.deferred() < before { change(&mut self.values) } else { changed }
    }

    /// Lets a key that was found lead to another reference.
    #[inline]
    fn replace(&mut self, hash: u64, found: Found, reference: Reference) {
        if reference.0 != found.value {
            let replaced = self.index.replace(hash, found, reference.0);
            debug_assert!(replaced.is_ok(), "the group is prepared");
        }
    }

    /// Inserts a key, or replaces its value; returns whether the key was there.
    pub(super) fn put(&mut self, place: &Place, key: &[u8], value: &[u8]) -> Result<bool> {
        check_sizes(key, Some(value))?;
        self.prepare(place)?;
        self.value_sizes.add(value.len());
        let Some(found) = self.find(place, key) else {
            return self.insert(place, key, value).map(|()| false);
        };
        let old = Reference(found.value);
        let old_len = self.values.sizes(old).0;
        if let Some(reference) = self.values.overwrite(old, value) {
            self.replace(place.hash, found, reference);
        } else {
            let reference = self.change_values(|values| values.store(key, value))?;
            self.replace(place.hash, found, reference);
            self.values.free(old);
        }
        self.data_bytes += value.len() as u64;
        self.data_bytes -= old_len as u64;
        Ok(true)
    }

    /// Inserts a key that is not there.
    fn insert(&mut self, place: &Place, key: &[u8], value: &[u8]) -> Result<()> {
        let reference = self.change_values(|values| values.store(key, value))?;
        let inserted = self.index.insert(place, reference.0);
        if inserted.is_err() {
            self.values.free(reference);
            return inserted;
        }
        self.key_sizes.add(key.len());
        self.data_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// Adds bytes to the value of a key, which is inserted if it is not there. Returns the size of the value then.
    #[inline]
    pub(super) fn append(&mut self, place: &Place, key: &[u8], bytes: &[u8]) -> Result<usize> {
        check_sizes(key, Some(bytes))?;
        self.prepare(place)?;
        let Some(found) = self.find(place, key) else {
            self.value_sizes.add(bytes.len());
            return self.insert(place, key, bytes).map(|()| bytes.len());
        };
        let old = Reference(found.value);
        let len = self.values.sizes(old).0 + bytes.len();
        if len > VALUE_BYTES_MAX {
            let (limit, got) = (VALUE_BYTES_MAX as u64, len as u64);
            return Err(ErrorKind::Limit { what: "value size in bytes", limit, got }.into());
        }
        let reference = self.change_values(|values| values.append(old, bytes))?;
        self.replace(place.hash, found, reference);
        self.value_sizes.add(len);
        self.data_bytes += bytes.len() as u64;
        Ok(len)
    }

    /// Removes the first bytes of a value, as many as `drop` returns for it; returns their number, or `None` if the
    /// key is not there.
    pub(super) fn trim(
        &mut self,
        place: &Place,
        key: &[u8],
        drop: impl FnOnce(&[u8]) -> usize,
    ) -> Result<Option<usize>> {
        let Some(found) = self.find(place, key) else { return Ok(None) };
        let mut value = Vec::new();
        self.values.read_value(Reference(found.value), &mut value);
        let dropped = drop(&value).min(value.len());
        if dropped > 0 {
            self.keep_rest(place, key, found, (dropped, &value[dropped..]))?;
        }
        Ok(Some(dropped))
    }

    /// Removes the first bytes of a value, so that at most `keep` stay; returns the number of bytes removed, or `None` if the
    /// key is not there. Only those that stay are read.
    pub(super) fn trim_to(
        &mut self,
        place: &Place,
        key: &[u8],
        keep: usize,
    ) -> Result<Option<usize>> {
        let Some(found) = self.find(place, key) else { return Ok(None) };
        let reference = Reference(found.value);
        let dropped = self.values.sizes(reference).0.saturating_sub(keep);
        if dropped > 0 {
            let mut scratch = Vec::new();
            let rest = self.values.part(reference, |size| dropped..size, &mut scratch).0.to_vec();
            self.keep_rest(place, key, found, (dropped, &rest))?;
        }
        Ok(Some(dropped))
    }

    /// Replaces a value by what stays of it, after its first bytes, whose number is `dropped`, were removed.
    fn keep_rest(
        &mut self,
        place: &Place,
        key: &[u8],
        found: Found,
        (dropped, rest): (usize, &[u8]),
    ) -> Result<()> {
        self.prepare(place)?;
        let reference = self.change_values(|values| values.store(key, rest))?;
        self.replace(place.hash, found, reference);
        self.values.free(Reference(found.value));
        self.values.slabs.give_back();
        self.value_sizes.add(rest.len());
        self.data_bytes -= dropped as u64;
        Ok(())
    }

    /// Removes a key; returns whether it was there.
    pub(super) fn remove(&mut self, place: &Place, key: &[u8]) -> Result<bool> {
        let Some(found) = self.find(place, key) else { return Ok(false) };
        self.prepare(place)?;
        let reference = Reference(found.value);
        self.index.remove(place.hash, found)?;
        self.data_bytes -= (self.values.sizes(reference).0 + key.len()) as u64;
        self.values.free(reference);
        self.values.slabs.give_back();
        Ok(true)
    }

    /// Moves the values of the group of a hash that are to leave their pages; returns the last hash of the group.
    pub(super) fn leave_group(&mut self, hash: u64, pairs: &mut Vec<Pair>) -> Result<u64> {
        let last = self.index.group_at(hash, pairs);
        pairs.retain(|pair| self.values.is_leaving(Reference(pair.value)));
        for pair in pairs.iter() {
            let place = self.place(pair.hash);
            self.prepare(&place)?;
            let (moved, left) = self.values.leave(Reference(pair.value));
            let found = self.index.find(&place, |value| value == pair.value);
            self.replace(pair.hash, found.expect("the pair was gathered"), moved);
            left?;
        }
        self.values.slabs.give_some_back();
        Ok(last)
    }

    /// Returns bounds on the entries.
    pub(super) fn summary(&self) -> Summary {
        let (keys, values) = (self.key_sizes, self.value_sizes);
        Summary { entries_max: self.index.count, keys, values, bytes_max: self.data_bytes }
    }

    /// Frees some of the blocks that no snapshot needs any more; returns whether there were any.
    pub(super) fn free_deferred(&mut self) -> bool {
        let before = self.values.slabs.deferred();
        let oldest = self.index.snapshots.oldest();
        self.values.slabs.free_deferred(oldest, FREED_ASIDE);
        self.values.slabs.give_back();
        self.values.slabs.deferred() < before
    }

    /// Adds the figures of the shard.
    pub(super) fn add_to(&self, stats: &mut AppendStats) {
        let slabs = &self.values.slabs;
        stats.keys += self.index.count;
        stats.data_bytes += self.data_bytes;
        stats.index_bytes += self.index.bytes();
        stats.bytes += self.index.bytes() + slabs.bytes();
        stats.block_bytes += slabs.block_bytes();
        stats.page_bytes += slabs.page_bytes();
        stats.deferred_blocks += slabs.deferred() as u64;
        stats.snapshot_bytes += self.index.snapshots.bytes();
        stats.groups += self.index.groups.units();
        stats.rebuilds += self.index.rebuilds;
    }
}
