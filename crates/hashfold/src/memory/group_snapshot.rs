//! The pairs of a [`GroupTable`](super::GroupTable) at one moment, in the order of their hashes.

use super::{index::Index, line::Pair, mix::unmix, order, scratch::PAIRS_MAX, shards::Shards};
use crate::{
    error::Result,
    key::Seed,
    run::{Sorted, Sorter},
};
use std::sync::Arc;

/// All pairs of a [`GroupTable`](super::GroupTable) at the moment when the snapshot began, read group by group in the
/// order of a 64-bit mix of the keys.
///
/// Writers go on. A group that changes before it is read is copied first: up to 16 bytes for each key of the table, if
/// all groups change before they are read. The copies are reserved in the budget. A copy is freed when it is read, and
/// dropping the snapshot frees the others. Groups that lose keys meanwhile are merged when the last snapshot is dropped.
///
/// ```
/// use hashfold::memory::{GroupTable, MemoryOptions};
/// let table = GroupTable::new(MemoryOptions::default())?;
/// table.put_many(&[(1, 10), (2, 20)])?;
/// let mut snapshot = table.snapshot()?;
/// table.put(3, 30)?;
/// let (mut all, mut group) = (Vec::new(), Vec::new());
/// while snapshot.next_group(&mut group) {
///     all.extend_from_slice(&group);
/// }
/// all.sort_unstable();
/// assert_eq!(all, [(1, 10), (2, 20)]);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Debug)]
pub struct GroupSnapshot {
    shards: Arc<Shards<Index>>,
    seed: Seed,
    /// The number of the snapshot in each shard.
    epochs: Vec<u32>,
    shard: usize,
    pairs: Vec<Pair>,
    buffer: Vec<Pair>,
}

impl GroupSnapshot {
    pub(super) fn begin(shards: Arc<Shards<Index>>, seed: Seed) -> Result<GroupSnapshot> {
        let mut epochs = Vec::with_capacity(shards.len());
        let begun = shards.write_all().iter_mut().try_for_each(|index| {
            epochs.push(index.begin_snapshot()?);
            Ok(())
        });
        let pairs = || Vec::with_capacity(PAIRS_MAX);
        let snapshot =
            GroupSnapshot { shards, seed, epochs, shard: 0, pairs: pairs(), buffer: pairs() };
        begun.map(|()| snapshot)
    }

    /// Replaces `pairs` by the keys and values of the next group, at most 1280, in the order of their mix; returns
    /// `false` at the end.
    pub fn next_group(&mut self, pairs: &mut Vec<(u64, u64)>) -> bool {
        pairs.clear();
        while let Some(epoch) = self.epochs.get(self.shard) {
            let mut index = self.shards.write(self.shard);
            let depth = index.next_of_snapshot(*epoch, &mut self.pairs);
            drop(index);
            let Some(depth) = depth else {
                self.shard += 1;
                continue;
            };
            order::by_hash(&mut self.pairs, &mut self.buffer, depth);
            let seed = self.seed;
            pairs.extend(self.pairs.iter().map(|pair| (unmix(pair.hash, seed), pair.value)));
            return true;
        }
        false
    }

    /// Sorts all pairs by the hashes of their keys: entries with keys and values of 8 bytes, little-endian, as a run.
    ///
    /// ```
    /// use hashfold::memory::{GroupTable, MemoryOptions};
    /// use hashfold::{TableBuilder, run::SortOptions, work::Watch};
    /// # let folder = std::env::temp_dir().join("hf-group-table");
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// let table = GroupTable::new(MemoryOptions::default())?;
    /// table.put_many(&(0..1000).map(|key| (key, key * 7)).collect::<Vec<_>>())?;
    /// let builder = TableBuilder::new(&folder)?;
    /// let mut run = table.snapshot()?.scan(builder.sorter(SortOptions::default())?)?;
    /// builder.build(&mut run, &Watch::default())?;
    ///
    /// let (on_flash, restored) = (hashfold::Table::open(&folder)?, GroupTable::new(MemoryOptions::default())?);
    /// restored.restore(on_flash.scan(), &Watch::default())?;
    /// assert!(restored.len() == 1000 && restored.get(6) == Some(42));
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of the sorter.
    pub fn scan(mut self, mut sorter: Sorter) -> Result<Sorted> {
        let mut pairs = Vec::with_capacity(PAIRS_MAX);
        while self.next_group(&mut pairs) {
            for (key, value) in &pairs {
                sorter.push(&key.to_le_bytes(), Some(&value.to_le_bytes()))?;
            }
        }
        sorter.finish()
    }
}

impl Drop for GroupSnapshot {
    fn drop(&mut self) {
        for (shard, epoch) in self.epochs.iter().enumerate() {
            self.shards.write(shard).end_snapshot(*epoch);
            // Some at a time, so that writers go on.
            while self.shards.write(shard).merge_due() {}
        }
    }
}
