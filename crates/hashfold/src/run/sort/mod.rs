//! The external sort: takes entries in any order, returns a run, in bounded memory.
//!
//! The sort distributes entries by hash prefix and never merges. The top bits of its hash send an
//! entry to one of P buckets; the buckets are then emitted in order, each sorted in memory:
//!
//! ```text
//!            ┌ bucket 0 ▭▭▭▭  chunks in memory ─copy─┐
//! push ─hash→┤ bucket 1 ▭▭▭                          ├→ one buffer → hash, sort → emit
//!            │   …                                   │
//!            └ bucket P ░░░░▭ most of it spilled ─read┘
//! ```
//!
//! A bucket is a list of chunks from a pool. When the pool runs low, full chunks of the buckets
//! that will be emitted last are written to the spill files. Nothing is written if all entries fit
//! into memory; otherwise the part that fits is never written. Hashes are not stored: computing a
//! hash again is cheaper than writing and reading its 16 bytes.
//!
//! A bucket that does not fit into memory is split by the next bits in which its hashes differ. If
//! all hashes are equal (one key a billion times), the bucket is read once or several times, and
//! each pass collects as many distinct keys as fit into memory.

mod bucket;
mod distribute;
mod encode;
mod load;
mod sorted;
mod spill;

pub use self::sorted::Sorted;

use self::{distribute::Distributor, encode::Hasher, spill::Spill};
use super::{Duplicates, Summary, check_sizes};
use crate::{
    error::{Error, Result},
    io::{ALIGNMENT, Disk},
    key::Seed,
    work::Executor,
};
use std::{path::PathBuf, sync::Arc};

/// Minimum memory of a sort, in bytes.
pub const MEMORY_BYTES_MIN: usize = 1 << 20;

/// The options of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortOptions {
    /// Memory budget, in bytes. A single entry that is larger than the budget is allocated in
    /// addition.
    pub memory_bytes: usize,
    /// Treatment of keys that come more than once.
    pub duplicates: Duplicates,
    /// Maximum part of the spill that is written through the page cache, in bytes; a part that is
    /// soon read back may never reach the device. The rest bypasses the page cache.
    pub cached_bytes: usize,
}

impl Default for SortOptions {
    /// Returns a budget of 1 GiB of memory and 1 GiB of page cache; the last of equal keys is kept.
    fn default() -> SortOptions {
        SortOptions::within(1 << 30)
    }
}

impl SortOptions {
    /// Returns options with `memory_bytes` of memory and as much of the page cache; the last of
    /// equal keys is kept.
    pub fn within(memory_bytes: usize) -> SortOptions {
        let duplicates = Duplicates::default();
        SortOptions { memory_bytes, cached_bytes: memory_bytes, duplicates }
    }
}

/// The division of the memory budget.
#[derive(Clone, Copy, Debug)]
struct Plan {
    memory_bytes: usize,
    /// Size of a chunk, the unit of memory and of the spill.
    chunk_bytes: usize,
    /// Minimum number of chunks in the pool.
    chunk_count: usize,
    /// Base-2 logarithm of the number of buckets of one distribution.
    bucket_bits: u32,
    /// Number of chunks that are spilled at once.
    batch_chunks: usize,
    /// Number of chunks of the spill that go through the page cache.
    near_chunks: u32,
}

/// Minimum size of a chunk. Smaller chunks would lose too much memory to their alignment.
const CHUNK_BYTES_MIN: usize = 4 * ALIGNMENT;
/// Maximum size of a chunk. Larger chunks are not written any faster.
const CHUNK_BYTES_MAX: usize = 1 << 18;
/// Maximum of `bucket_bits`. More buckets cost more in cache and TLB misses than they save.
const BUCKET_BITS_MAX: u32 = 9;
/// Maximum of `first_bucket_bits`. A sort starts with few buckets, because each takes a whole chunk
/// of memory.
const FIRST_BUCKET_BITS_MAX: u32 = 4;
/// Average number of chunks of each first bucket before all buckets are opened.
const NARROW_CHUNKS: usize = 8;
const BATCH_CHUNKS_MAX: usize = 4;
/// Number of batches that are kept free or in flight to the spill; below it, chunks are spilled.
const SPARE_BATCHES: usize = 8;

impl Plan {
    fn new(options: &SortOptions) -> Result<Plan> {
        let memory_bytes = options.memory_bytes;
        if memory_bytes < MEMORY_BYTES_MIN {
            let expected = format!("at least {MEMORY_BYTES_MIN}");
            return Err(Error::argument("memory for sorting in bytes", expected, memory_bytes));
        }
        // Large chunks are written fast, and the system allocates them directly.
        let chunk_bytes =
            (1 << (memory_bytes / 256).ilog2()).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        // The other two fifths are for buckets that are being loaded, sorted and emitted. If these
        // turn out to be small, the pool grows.
        let chunk_count = memory_bytes / 5 * 3 / chunk_bytes;
        // Each bucket holds one chunk that is not full.
        let bucket_bits = (chunk_count / 4).ilog2().min(BUCKET_BITS_MAX);
        // The buckets take at most a quarter of the pool, and so do the spare batches and one more.
        let batch_chunks = (chunk_count / 4 / (SPARE_BATCHES + 1)).min(BATCH_CHUNKS_MAX);
        let near_chunks = u32::try_from(options.cached_bytes / chunk_bytes).unwrap_or(u32::MAX);
        let plan =
            Plan { memory_bytes, chunk_bytes, chunk_count, bucket_bits, batch_chunks, near_chunks };
        assert!(batch_chunks > 0);
        // Half of the pool may belong to a bucket that is being split. The other half always has a
        // chunk that can be spilled.
        assert!(plan.bucket_count() + plan.spare_chunks() + batch_chunks < chunk_count / 2);
        Ok(plan)
    }

    /// Returns the size of the pool, in chunks, if `reserve_bytes` suffice for everything else that
    /// grows with the data.
    fn chunks_beside(&self, reserve_bytes: usize) -> usize {
        let pool = (self.memory_bytes / 8 * 7).saturating_sub(reserve_bytes);
        self.chunk_count.max(pool / self.chunk_bytes)
    }

    /// Returns the base-2 logarithm of the number of buckets for the first entries.
    fn first_bucket_bits(&self) -> u32 {
        self.bucket_bits.min(FIRST_BUCKET_BITS_MAX)
    }

    /// Returns the memory of chunks at which all buckets are opened, in bytes.
    fn narrow_bytes(&self) -> usize {
        (NARROW_CHUNKS << self.first_bucket_bits()).min(self.chunk_count / 4) * self.chunk_bytes
    }

    fn bucket_count(&self) -> usize {
        1 << self.bucket_bits
    }

    fn spare_chunks(&self) -> usize {
        self.batch_chunks * SPARE_BATCHES
    }
}

/// An external sort: takes entries in any order and returns them as a run, in bounded memory.
///
/// ```
/// use hashfold::{Seed, io::MemoryDisk, run::{Run, SortOptions, Sorter}, work::Inline};
/// use std::sync::Arc;
/// let (disk, executor) = (Arc::new(MemoryDisk::default()), Arc::new(Inline));
/// let mut sorter = Sorter::new(disk, "spill".into(), Seed(7), SortOptions::default(), executor)?;
/// sorter.push(b"key", Some(b"old"))?;
/// sorter.push(b"key", Some(b"new"))?;
/// sorter.push(b"gone", None)?;
/// let mut run = sorter.finish()?;
/// let mut values = Vec::new();
/// while run.advance()? {
///     values.push(run.entry().value.map(<[u8]>::to_vec));
/// }
/// values.sort();
/// assert_eq!(values, [None, Some(b"new".to_vec())]);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Debug)]
pub struct Sorter {
    buckets: Distributor,
    summary: Summary,
    duplicates: Duplicates,
}

impl Sorter {
    /// Makes a sorter. If the entries exceed the memory budget, the sorter spills to files on
    /// `disk` that it creates under the name `spill` and unlinks at once. `executor` runs writing,
    /// loading and sorting.
    ///
    /// # Errors
    /// `Argument` if the memory budget is below [`MEMORY_BYTES_MIN`].
    pub fn new(
        disk: Arc<dyn Disk>,
        spill: PathBuf,
        seed: Seed,
        options: SortOptions,
        executor: Arc<dyn Executor>,
    ) -> Result<Sorter> {
        Sorter::with_hasher(disk, spill, Hasher::new(seed), options, executor)
    }

    fn with_hasher(
        disk: Arc<dyn Disk>,
        spill: PathBuf,
        hasher: Hasher,
        options: SortOptions,
        executor: Arc<dyn Executor>,
    ) -> Result<Sorter> {
        let plan = Plan::new(&options)?;
        let spill = Spill::new(disk, spill, plan, executor);
        Ok(Sorter {
            buckets: Distributor::new(spill, hasher, plan),
            summary: Summary::EMPTY,
            duplicates: options.duplicates,
        })
    }

    /// Adds an entry; `None` is a tombstone. If a key is added several times,
    /// [`SortOptions::duplicates`] decides.
    ///
    /// # Errors
    /// `Limit` if the key or the value is too long; I/O errors of the spill.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_sizes(key, value)?;
        self.buckets.push(key, value)?;
        self.summary.add(key, value);
        Ok(())
    }

    /// Returns the summary of the entries pushed so far; duplicates count as entries.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// Ends the input and returns the run. The entries are sorted while the run is read.
    pub fn finish(mut self) -> Result<Sorted> {
        self.buckets.close()?;
        Ok(Sorted::new(self.buckets, self.summary, self.duplicates))
    }
}

#[cfg(test)]
pub(super) mod testing {
    //! Hooks for tests, which choose the hashes.
    use super::*;
    use crate::key::KeyHash;

    pub(in crate::run) fn sorter_with_hash(
        disk: Arc<dyn Disk>,
        hash: fn(&[u8]) -> KeyHash,
        options: SortOptions,
        executor: Arc<dyn Executor>,
    ) -> Sorter {
        Sorter::with_hasher(disk, "spill".into(), Hasher::forged(hash), options, executor).unwrap()
    }
}
