//! The table from 64-bit keys to numbers.

use super::{
    GroupSnapshot, GroupStats, MemoryOptions,
    ahead::Ahead,
    index::{BATCH, Index},
    line::NARROW_VALUE_MAX,
    mix::mix,
    owners::{Owners, with_owners},
    place::Place,
    shards::Shards,
};
use crate::{
    error::{Error, ErrorKind, Result},
    run::Run,
    work::Watch,
};
use std::sync::Arc;

/// A table in RAM from 64-bit keys to numbers of 48 bits, or 64 as an option. Clones are the same table.
///
/// A key needs 16 to 18 bytes, or 20 to 22 with values of 64 bits, if there are millions of keys in each shard. Smaller
/// tables need more: a shard grows in steps of up to 2 MiB, and an empty one has 64 KiB and buffers of 65 KB. The table
/// grows in groups of about a thousand keys, so no change takes long. A group that has lost about half of its keys shrinks,
/// and memory in which nothing is left is given back to the system, but for a sixteenth of what is in use, or about 8 MiB at
/// most in each shard. Many keys at once are faster than one by
/// one: their cache misses overlap.
///
/// ```
/// use hashfold::memory::{GroupTable, MemoryOptions};
/// let table = GroupTable::new(MemoryOptions::default())?;
/// assert_eq!(table.put(4711, 1)?, None);
/// assert_eq!(table.put(4711, 2)?, Some(1));
/// table.put_many(&[(1, 10), (2, 20)])?;
/// let mut found = [None; 3];
/// table.get_many(&[4711, 1, 3], &mut found);
/// assert_eq!(found, [Some(2), Some(10), None]);
/// assert_eq!(table.remove(4711)?, Some(2));
/// assert_eq!(table.len(), 2);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct GroupTable {
    shards: Arc<Shards<Index>>,
    options: MemoryOptions,
    value_max: u64,
}

impl GroupTable {
    /// Makes an empty table.
    ///
    /// # Errors
    /// `Argument` for bad options; `Memory` if the budget is exhausted; errors of the system.
    pub fn new(options: MemoryOptions) -> Result<GroupTable> {
        let shards = Shards::new(&options, |regions| Index::new(&options, regions))?;
        let value_max = if options.wide_values { u64::MAX } else { NARROW_VALUE_MAX };
        Ok(GroupTable { shards: Arc::new(shards), options, value_max })
    }

    fn hash(&self, key: u64) -> u64 {
        mix(key, self.options.seed)
    }

    fn check(&self, value: u64) -> Result<()> {
        let limit = self.value_max;
        if value <= limit {
            return Ok(());
        }
        Err(ErrorKind::Limit { what: "value", limit, got: value }.into())
    }

    /// Inserts a key, or replaces its value; returns the value before.
    ///
    /// # Errors
    /// `Limit` if the value has too many bits, or if too many keys have hashes with the same first bits; `Memory` if the
    /// budget is exhausted. No pair is changed then.
    #[inline]
    pub fn put(&self, key: u64, value: u64) -> Result<Option<u64>> {
        self.check(value)?;
        let hash = self.hash(key);
        let mut index = self.shards.write(self.shards.of(hash));
        let place = index.place(hash);
        index.put(&place, value)
    }

    /// Inserts keys, or replaces their values. Of equal keys, the last one counts.
    ///
    /// # Errors
    /// `Limit` if a value has too many bits, nothing is changed then. `Memory` if the budget is exhausted, and `Limit` if too
    /// many keys have hashes with the same first bits; some of the keys are inserted then.
    pub fn put_many(&self, pairs: &[(u64, u64)]) -> Result<()> {
        pairs.iter().try_for_each(|(_, value)| self.check(*value))?;
        let hashes = pairs.iter().map(|(key, _)| self.hash(*key));
        self.shards.in_batches(hashes, |shard, batch| {
            let mut index = self.shards.write(shard);
            let mut ahead = Ahead::new(batch);
            while let Some((position, place)) = ahead.next_to_insert(&index) {
                index.put(place, pairs[position].1)?;
            }
            Ok(())
        })
    }

    /// Returns the value of a key.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        let hash = self.hash(key);
        let index = self.shards.read(self.shards.of(hash));
        index.first(&index.place(hash))
    }

    /// Sets `values[i]` to the value of `keys[i]`.
    ///
    /// # Panics
    /// If the slices have different lengths.
    pub fn get_many(&self, keys: &[u64], values: &mut [Option<u64>]) {
        assert_eq!(keys.len(), values.len(), "a value for each key");
        let hashes = keys.iter().map(|key| self.hash(*key));
        let done = self.shards.in_batches(hashes, |shard, batch| {
            let index = self.shards.read(shard);
            let mut ahead = Ahead::new(batch);
            while let Some((position, place)) = ahead.next(&index) {
                values[position] = index.first(place);
            }
            Ok(())
        });
        debug_assert!(done.is_ok());
    }

    /// Runs `feed`, which hands pairs over to `owners` threads; each thread puts those of its own part of the shards.
    /// Faster than [`GroupTable::put_many`] from several threads, which wait for each other at the shards. The number of
    /// owners is at most that of the shards.
    ///
    /// ```
    /// use hashfold::memory::{GroupTable, MemoryOptions};
    /// let table = GroupTable::new(MemoryOptions::default())?;
    /// table.with_owners(2, |owners| {
    ///     let mut hand = owners.hand();
    ///     (0..100_000).try_for_each(|key| hand.give((key, key * 2)))
    /// })?;
    /// assert_eq!((table.len(), table.get(7)), (100_000, Some(14)));
    /// # Ok::<(), hashfold::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Argument` for a bad number of owners; the error of `feed`; those of [`GroupTable::put_many`].
    pub fn with_owners<R>(
        &self,
        owners: usize,
        feed: impl FnOnce(&Owners<'_, (u64, u64)>) -> Result<R>,
    ) -> Result<R> {
        let counts = (owners, self.shards.len());
        with_owners(counts, &|(key, _)| self.shard(*key), |pairs| self.put_many(pairs), feed)
    }

    /// Removes a key; returns its value.
    ///
    /// # Errors
    /// `Memory` if a snapshot needs a copy of a group and the budget is exhausted; nothing is changed then.
    pub fn remove(&self, key: u64) -> Result<Option<u64>> {
        let hash = self.hash(key);
        let mut index = self.shards.write(self.shards.of(hash));
        let place = index.place(hash);
        remove(&mut index, &place)
    }

    /// Removes keys; returns the number of those that were present.
    ///
    /// # Errors
    /// `Memory` as for [`GroupTable::remove`]; some keys are removed then.
    pub fn remove_many(&self, keys: &[u64]) -> Result<u64> {
        let mut count = 0;
        let hashes = keys.iter().map(|key| self.hash(*key));
        self.shards.in_batches(hashes, |shard, batch| {
            let mut index = self.shards.write(shard);
            let mut ahead = Ahead::new(batch);
            while let Some((_, place)) = ahead.next(&index) {
                count += u64::from(remove(&mut index, place)?.is_some());
            }
            Ok(())
        })?;
        Ok(count)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> u64 {
        (0..self.shards.len()).map(|shard| self.shards.read(shard).count).sum()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the figures of the table.
    pub fn stat(&self) -> GroupStats {
        let mut stats = GroupStats::default();
        for shard in 0..self.shards.len() {
            stats.add(&self.shards.read(shard));
        }
        stats
    }

    /// Returns the number of a key's shard. Threads that change different shards do not wait for each other.
    pub fn shard(&self, key: u64) -> usize {
        self.shards.of(self.hash(key))
    }

    /// Begins a snapshot: all pairs at this moment, while writers go on.
    ///
    /// # Errors
    /// `Limit` after 2^32 snapshots.
    pub fn snapshot(&self) -> Result<GroupSnapshot> {
        GroupSnapshot::begin(self.shards.clone(), self.options.seed)
    }

    /// Inserts the entries of a run, such as one of [`GroupSnapshot::scan`]: keys and values of 8 bytes, little-endian.
    /// The steps of `watch` are entries.
    ///
    /// # Errors
    /// `Field` for other entries; the errors of [`GroupTable::put_many`] and of the run.
    pub fn restore(&self, mut run: impl Run, watch: &Watch) -> Result<()> {
        let mut pairs = Vec::with_capacity(BATCH * self.shards.len());
        let mut steps = watch.steps();
        while run.advance()? {
            let entry = run.entry();
            let value = entry.value.ok_or_else(|| bad_entry("value", "none"))?;
            pairs.push((number("key", entry.key)?, number("value", value)?));
            if pairs.len() == pairs.capacity() {
                self.put_many(&pairs)?;
                pairs.clear();
            }
            steps.step()?;
        }
        self.put_many(&pairs)?;
        steps.finish()
    }
}

fn bad_entry(what: &'static str, got: impl std::fmt::Display) -> Error {
    Error::field(what, "8 bytes", got)
}

fn number(what: &'static str, bytes: &[u8]) -> Result<u64> {
    let number = bytes.try_into().map(u64::from_le_bytes);
    number.map_err(|_| bad_entry(what, format!("{} bytes", bytes.len())))
}

fn remove(index: &mut Index, place: &Place) -> Result<Option<u64>> {
    let Some(found) = index.find(place, |_| true) else { return Ok(None) };
    index.remove(place.hash, found)?;
    Ok(Some(found.value))
}
