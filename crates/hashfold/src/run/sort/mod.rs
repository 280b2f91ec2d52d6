//! The external sort: entries in any order in, a run out, in bounded memory.
//!
//! It distributes by hash prefix and never merges. Entries go to one of P buckets by the top bits
//! of their hashes; the buckets are then emitted in order, each sorted in memory:
//!
//! ```text
//!            ┌ bucket 0 ▭▭▭▭  chunks in memory ─copy─┐
//! push ─hash→┤ bucket 1 ▭▭▭                          ├→ one buffer → hash, sort → emit
//!            │   …                                   │
//!            └ bucket P ░░░░▭ most of it spilled ─read┘
//! ```
//!
//! A bucket is a list of chunks from a pool. When the pool runs dry, full chunks of the buckets
//! that will be emitted last are written to the spill. So nothing is written when all fits
//! into memory, and beyond that the traffic is less by what stays in memory. The hash is not
//! stored: computing it again costs less than writing and reading its 16 bytes.
//!
//! A bucket that does not fit into memory is split by the next bits in which its hashes differ.
//! If there are none (one key a billion times), its distinct keys are collected while its entries
//! stream by, as many at a time as memory holds.

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

/// The least memory that a sort can be given, in bytes.
pub const MEMORY_BYTES_MIN: usize = 1 << 20;

/// How to sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortOptions {
    /// The memory to use, in bytes; a single entry larger than this comes on top.
    pub memory_bytes: usize,
    /// What to do with a key that comes twice.
    pub duplicates: Duplicates,
    /// The part of a spill that may go through the page cache, in bytes; what is read back soon
    /// may then never have to be written. The rest goes past it.
    pub cached_bytes: usize,
}

impl Default for SortOptions {
    /// 1 GiB of memory, and as much of the page cache; the last of equal keys stays.
    fn default() -> SortOptions {
        SortOptions::within(1 << 30)
    }
}

impl SortOptions {
    /// So much memory, in bytes, and as much of the page cache; the last of equal keys stays.
    pub fn within(memory_bytes: usize) -> SortOptions {
        let duplicates = Duplicates::default();
        SortOptions { memory_bytes, cached_bytes: memory_bytes, duplicates }
    }
}

/// How the memory is shared out.
#[derive(Clone, Copy, Debug)]
struct Plan {
    memory_bytes: usize,
    /// The unit of memory and of the spill.
    chunk_bytes: usize,
    /// The size of the pool, at least.
    chunk_count: usize,
    /// The logarithm of the number of buckets that a distribution fills.
    bucket_bits: u32,
    /// The number of chunks that are written by one job.
    batch_chunks: usize,
    /// The number of chunks of the spill that go through the page cache.
    near_chunks: u32,
}

/// Smaller chunks would lose too much memory to their alignment.
const CHUNK_BYTES_MIN: usize = 4 * ALIGNMENT;
/// Still larger chunks make no faster writes.
const CHUNK_BYTES_MAX: usize = 1 << 18;
/// More buckets than this cost more cache and TLB misses than they save.
const BUCKET_BITS_MAX: u32 = 9;
/// As long as there is little data, there are few buckets: each takes a whole chunk of memory.
const FIRST_BUCKET_BITS_MAX: u32 = 4;
/// The chunks that each of the first buckets gets, on average.
const NARROW_CHUNKS: usize = 8;
const BATCH_CHUNKS_MAX: usize = 4;
/// Chunks are spilled so early that this many batches are free or on their way to a file.
const SPARE_BATCHES: usize = 8;

impl Plan {
    fn new(options: &SortOptions) -> Result<Plan> {
        let memory_bytes = options.memory_bytes;
        if memory_bytes < MEMORY_BYTES_MIN {
            let expected = format!("at least {MEMORY_BYTES_MIN}");
            return Err(Error::argument("memory for sorting in bytes", expected, memory_bytes));
        }
        // Large chunks make fast writes, and large ones come straight from the system.
        let chunk_bytes =
            (1 << (memory_bytes / 256).ilog2()).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        // The rest is for the buckets that are being loaded, sorted and emitted; if these turn
        // out small, the pool gets more.
        let chunk_count = memory_bytes / 5 * 3 / chunk_bytes;
        // Each bucket holds one chunk that is not full.
        let bucket_bits = (chunk_count / 4).ilog2().min(BUCKET_BITS_MAX);
        // The buckets take a quarter of the pool at most; so do the spare batches and one more.
        let batch_chunks = (chunk_count / 4 / (SPARE_BATCHES + 1)).min(BATCH_CHUNKS_MAX);
        let near_chunks = u32::try_from(options.cached_bytes / chunk_bytes).unwrap_or(u32::MAX);
        let plan =
            Plan { memory_bytes, chunk_bytes, chunk_count, bucket_bits, batch_chunks, near_chunks };
        assert!(batch_chunks > 0);
        // Half of the pool may belong to a bucket that is being split. In the other half, a chunk
        // that can be spilled is always found.
        assert!(plan.bucket_count() + plan.spare_chunks() + batch_chunks < chunk_count / 2);
        Ok(plan)
    }

    /// The size of the pool if `reserve_bytes` are enough for all else that grows with the data.
    fn chunks_beside(&self, reserve_bytes: usize) -> usize {
        let pool = (self.memory_bytes / 8 * 7).saturating_sub(reserve_bytes);
        self.chunk_count.max(pool / self.chunk_bytes)
    }

    /// The logarithm of the number of buckets for the first entries.
    fn first_bucket_bits(&self) -> u32 {
        self.bucket_bits.min(FIRST_BUCKET_BITS_MAX)
    }

    /// The memory of chunks that is left to the first buckets, before all are opened, in bytes.
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

/// Takes entries in any order and gives them back as a run, in bounded memory.
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
    /// A sorter that spills to `disk` if it must, to files that are made when they are first
    /// needed, under the name `spill`, and have no name from then on. Writing, loading and sorting go
    /// to `executor`.
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

    /// Takes an entry; `None` is a tombstone. Of equal keys the last one pushed wins.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_sizes(key, value)?;
        self.buckets.push(key, value)?;
        self.summary.add(key, value);
        Ok(())
    }

    /// What is known of the entries pushed so far.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Ends the input. The entries are sorted while the run is read.
    pub fn finish(mut self) -> Result<Sorted> {
        self.buckets.close()?;
        Ok(Sorted::new(self.buckets, self.summary, self.duplicates))
    }
}

#[cfg(test)]
pub(super) mod testing {
    //! What tests may do and callers may not: choose the hashes.
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
