//! Shards: parts of a table with a lock each, by the first bits of hashes; and batches that visit each lock seldom.

use super::{
    MemoryOptions,
    division::REGION_BITS,
    index::BATCH,
    sync::{RwLock, RwLockReadGuard, RwLockWriteGuard},
};
use crate::error::Result;
use std::{ops::Range, sync::PoisonError};

/// Parts of a table, by the first bits of hashes.
#[derive(Debug)]
pub(super) struct Shards<T> {
    all: Box<[RwLock<T>]>,
    /// Number of first bits of a hash that select a shard.
    bits: u32,
}

impl<T> Shards<T> {
    /// Makes the shards; `make` gets the regions of each.
    ///
    /// # Errors
    /// `Argument` for bad options; errors of `make`.
    pub(super) fn new(
        options: &MemoryOptions,
        make: impl Fn(Range<usize>) -> Result<T>,
    ) -> Result<Shards<T>> {
        options.check()?;
        let bits = options.shards.ilog2();
        let regions = 1 << (REGION_BITS - bits);
        let shard = |shard: usize| make(shard * regions..(shard + 1) * regions).map(RwLock::new);
        Ok(Shards { all: (0..options.shards).map(shard).collect::<Result<_>>()?, bits })
    }

    /// Returns the number of shards.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the shard of a hash.
    #[inline]
    pub(super) fn of(&self, hash: u64) -> usize {
        // Two shifts: `bits` may be 0.
        (hash >> 1 >> (u64::BITS - 1 - self.bits)) as usize
    }

    /// Locks a shard for reading.
    #[inline]
    pub(super) fn read(&self, shard: usize) -> RwLockReadGuard<'_, T> {
        self.all[shard].read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks a shard for changes. Only a function of the caller may panic under this lock, and it runs before a change.
    #[inline]
    pub(super) fn write(&self, shard: usize) -> RwLockWriteGuard<'_, T> {
        self.all[shard].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks all shards for changes, in order.
    pub(super) fn write_all(&self) -> Vec<RwLockWriteGuard<'_, T>> {
        (0..self.len()).map(|shard| self.write(shard)).collect()
    }

    /// Calls `visit` with groups of at most [`BATCH`] positions of hashes that are in one shard, in their order, so
    /// that all positions are visited once.
    ///
    /// # Errors
    /// Those of `visit`, after which no other group is visited.
    #[inline]
    pub(super) fn in_batches(
        &self,
        hashes: impl Iterator<Item = u64>,
        mut visit: impl FnMut(usize, &[(usize, u64)]) -> Result<()>,
    ) -> Result<()> {
        let shards = self.len();
        let mut waiting = vec![Vec::new(); shards];
        for (position, hash) in hashes.enumerate() {
            let shard = self.of(hash);
            let batch = &mut waiting[shard];
            if batch.capacity() == 0 {
                batch.reserve_exact(BATCH);
            }
            batch.push((position, hash));
            if batch.len() == BATCH {
                visit(shard, batch)?;
                batch.clear();
            }
        }
        let mut left = waiting.iter().enumerate().filter(|(_, batch)| !batch.is_empty());
        left.try_for_each(|(shard, batch)| visit(shard, batch))
    }
}
