//! The entries of an [`AppendTable`](super::AppendTable) at one moment, as a run.

use super::{
    append_shard::AppendShard,
    line::Pair,
    order,
    scratch::PAIRS_MAX,
    shards::Shards,
    slabs::{Reference, Slabs},
};
use crate::{
    error::Result,
    key::{KeyHash, Seed},
    run::{Entry, Run, Summary},
};
use std::sync::Arc;

/// Number of entries that are copied at once, under a lock.
const ENTRIES_MAX: usize = 64;
/// Number of bytes from which on no other entry is copied at once.
const BYTES_MAX: usize = 1 << 16;

/// All entries of an [`AppendTable`](super::AppendTable) at the moment when the snapshot began.
///
/// Writers go on: groups of the index that change are copied, and what they replace or remove stays until no snapshot
/// that began before is left: dropping the last of them frees it, and merges groups that have lost keys. Values are not
/// copied.
#[derive(Debug)]
pub struct AppendSnapshot {
    shards: Arc<Shards<AppendShard>>,
    seed: Seed,
    /// The number of the snapshot in each shard.
    epochs: Vec<u32>,
    summary: Summary,
}

impl AppendSnapshot {
    pub(super) fn begin(shards: Arc<Shards<AppendShard>>, seed: Seed) -> Result<AppendSnapshot> {
        let (mut epochs, mut summary) = (Vec::with_capacity(shards.len()), Summary::EMPTY);
        let begun = shards.write_all().iter_mut().try_for_each(|shard| {
            epochs.push(shard.index.begin_snapshot()?);
            summary = summary.union(shard.summary());
            Ok(())
        });
        let snapshot = AppendSnapshot { shards, seed, epochs, summary };
        begun.map(|()| snapshot)
    }

    /// Reads the entries as a run, in the order of hashes, in a few hundred kilobytes of memory and what the longest
    /// value needs.
    ///
    /// ```
    /// use hashfold::{Table, TableBuilder, TableOptions, work::Watch};
    /// use hashfold::memory::{AppendTable, MemoryOptions};
    /// # let folder = std::env::temp_dir().join("hf-append-table");
    /// # let _ = std::fs::remove_dir_all(&folder);
    /// let clicks = AppendTable::new(MemoryOptions::default())?;
    /// clicks.append("eve", "abc")?;
    /// let restored = AppendTable::new(MemoryOptions::default())?;
    /// restored.restore(clicks.snapshot()?.scan(), &Watch::default())?;
    /// assert_eq!(restored.get("eve").as_deref(), Some(&b"abc"[..]));
    /// // A table on flash:
    /// let builder = TableBuilder::with(&folder, TableOptions::new().seed(clicks.seed()))?;
    /// builder.build(&mut clicks.snapshot()?.scan(), &Watch::default())?;
    /// assert!(Table::open(&folder)?.contains("eve")?);
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scan(self) -> AppendRun {
        let pairs = || Vec::with_capacity(PAIRS_MAX);
        AppendRun {
            snapshot: self,
            shard: 0,
            pairs: pairs(),
            buffer: pairs(),
            read: 0,
            bytes: Vec::new(),
            entries: Vec::with_capacity(ENTRIES_MAX),
            current: 0,
        }
    }
}

impl Drop for AppendSnapshot {
    fn drop(&mut self) {
        for (shard, epoch) in self.epochs.iter().enumerate() {
            self.shards.write(shard).index.end_snapshot(*epoch);
            // Some at a time, so that writers go on.
            while self.shards.write(shard).free_deferred() {}
            while self.shards.write(shard).index.merge_due() {}
        }
    }
}

/// The place of a copied entry.
#[derive(Clone, Copy, Debug)]
struct Place {
    hash: KeyHash,
    key_start: usize,
    value_start: usize,
    end: usize,
}

/// The entries of an [`AppendSnapshot`] as a run.
#[derive(Debug)]
pub struct AppendRun {
    snapshot: AppendSnapshot,
    shard: usize,
    /// The pairs of the current group, in order, of which the first `read` are copied.
    pairs: Vec<Pair>,
    buffer: Vec<Pair>,
    read: usize,
    /// The keys and values of `entries`.
    bytes: Vec<u8>,
    entries: Vec<Place>,
    /// Number of these entries that `advance` has passed; the last of them is the current one.
    current: usize,
}

impl AppendRun {
    /// Copies the next entries; returns `false` at the end.
    fn fill(&mut self) -> bool {
        self.bytes.clear();
        self.entries.clear();
        self.current = 0;
        while self.read == self.pairs.len() {
            if !self.next_group() {
                return false;
            }
        }
        let shard = self.snapshot.shards.read(self.shard);
        let rest = &self.pairs[self.read..];
        let next = &rest[..rest.len().min(ENTRIES_MAX)];
        let lines = next.iter().flat_map(|pair| Slabs::ends(Reference(pair.value)));
        lines.for_each(|line| shard.values.slabs.prefetch(line));
        for pair in next {
            let key_start = self.bytes.len();
            let key_len = shard.values.read(Reference(pair.value), &mut self.bytes);
            let (value_start, end) = (key_start + key_len, self.bytes.len());
            let key = &self.bytes[key_start..value_start];
            let hash = KeyHash::of(key, self.snapshot.seed);
            self.entries.push(Place { hash, key_start, value_start, end });
            self.read += 1;
            if end >= BYTES_MAX {
                break;
            }
        }
        true
    }

    /// Reads and sorts the next group; returns `false` at the end.
    fn next_group(&mut self) -> bool {
        let Some(epoch) = self.snapshot.epochs.get(self.shard) else { return false };
        let shards = &self.snapshot.shards;
        self.read = 0;
        let depth = shards.write(self.shard).index.next_of_snapshot(*epoch, &mut self.pairs);
        let Some(depth) = depth else {
            self.shard += 1;
            return true;
        };
        order::by_hash(&mut self.pairs, &mut self.buffer, depth);
        if self.pairs.windows(2).any(|two| two[0].hash == two[1].hash) {
            sort_equal(&mut self.pairs, &shards.read(self.shard), self.snapshot.seed);
        }
        true
    }
}

/// Sorts the pairs whose hashes agree in 64 bits by all 128, and by key.
#[cold]
fn sort_equal(pairs: &mut [Pair], shard: &AppendShard, seed: Seed) {
    for equal in pairs.chunk_by_mut(|a, b| a.hash == b.hash).filter(|equal| equal.len() > 1) {
        equal.sort_by_cached_key(|pair| {
            let mut key = Vec::new();
            let key_len = shard.values.read(Reference(pair.value), &mut key);
            key.truncate(key_len);
            (KeyHash::of(&key, seed), key)
        });
    }
}

impl Run for AppendRun {
    fn seed(&self) -> Seed {
        self.snapshot.seed
    }

    fn summary(&self) -> Summary {
        self.snapshot.summary
    }

    fn advance(&mut self) -> Result<bool> {
        if self.current == self.entries.len() && !self.fill() {
            return Ok(false);
        }
        self.current += 1;
        Ok(true)
    }

    fn entry(&self) -> Entry<'_> {
        let place = &self.entries[self.current - 1];
        let key = &self.bytes[place.key_start..place.value_start];
        Entry { hash: place.hash, key, value: Some(&self.bytes[place.value_start..place.end]) }
    }
}
