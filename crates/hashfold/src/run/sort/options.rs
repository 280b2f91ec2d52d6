//! The options of a sort, and the division of its memory.

use crate::{
    error::{Error, Result},
    io::ALIGNMENT,
    run::Duplicates,
};

/// Minimum memory of a sort, in bytes.
pub const MEMORY_BYTES_MIN: usize = 1 << 20;

/// The options of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortOptions {
    /// Memory budget, in bytes. A single entry that is larger than the budget is allocated in
    /// addition.
    pub memory_bytes: usize,
    /// Treatment of keys that occur more than once.
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

/// Maximum number of buckets that are loaded and sorted in the background at once.
pub(super) const AHEAD_MAX: usize = 2;

/// The division of the memory budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryPlan {
    pub(super) memory_bytes: usize,
    /// Size of a chunk, the unit of memory and of the spill.
    pub(super) chunk_bytes: usize,
    /// Minimum number of chunks in the pool.
    pub(super) chunk_count: usize,
    /// Base-2 logarithm of the number of buckets of one distribution.
    pub(super) bucket_bits: u32,
    /// Number of chunks that are spilled at once.
    pub(super) batch_chunks: usize,
    /// Number of chunks of the spill that go through the page cache.
    pub(super) near_chunks: u32,
}

/// Minimum size of a chunk. Smaller chunks would lose too much memory to their alignment.
const CHUNK_BYTES_MIN: usize = 4 * ALIGNMENT;
/// Maximum size of a chunk. Larger chunks are not written any faster.
const CHUNK_BYTES_MAX: usize = 1 << 18;
/// Maximum of `bucket_bits`. More buckets cost more in cache and TLB misses than they save.
const BUCKET_BITS_MAX: u32 = 9;
/// Maximum of `bucket_bits` for little data. A sort starts with one bucket, then opens a few, then
/// all, because each takes a whole chunk of memory.
const FEW_BUCKET_BITS_MAX: u32 = 4;
/// Average number of chunks of each bucket before more buckets are opened.
const NARROW_CHUNKS: usize = 8;
const BATCH_CHUNKS_MAX: usize = 4;
/// Number of batches that are kept free or in flight to the spill; below it, chunks are spilled.
const SPARE_BATCHES: usize = 8;

impl MemoryPlan {
    pub(super) fn new(options: &SortOptions) -> Result<MemoryPlan> {
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
            Self { memory_bytes, chunk_bytes, chunk_count, bucket_bits, batch_chunks, near_chunks };
        assert!(batch_chunks > 0);
        // Half of the pool may belong to a bucket that is being split. The other half always has a
        // chunk that can be spilled.
        assert!(plan.bucket_count() + plan.spare_chunks() + batch_chunks < chunk_count / 2);
        Ok(plan)
    }

    /// Returns the size of the pool, in chunks, if `reserve_bytes` suffice for everything else that
    /// grows with the data.
    pub(super) fn chunks_beside(&self, reserve_bytes: usize) -> usize {
        let pool = (self.memory_bytes / 8 * 7).saturating_sub(reserve_bytes);
        self.chunk_count.max(pool / self.chunk_bytes)
    }

    /// Returns the base-2 logarithm of the number of buckets that replace `1 << bucket_bits` ones.
    pub(super) fn wider(&self, bucket_bits: u32) -> u32 {
        match bucket_bits {
            0 => self.bucket_bits.min(FEW_BUCKET_BITS_MAX),
            _ => self.bucket_bits,
        }
    }

    /// Returns the memory of chunks at which more than `1 << bucket_bits` buckets are opened, in
    /// bytes.
    pub(super) fn narrow_bytes(&self, bucket_bits: u32) -> usize {
        (NARROW_CHUNKS << bucket_bits).min(self.chunk_count / 4) * self.chunk_bytes
    }

    pub(super) fn bucket_count(&self) -> usize {
        1 << self.bucket_bits
    }

    pub(super) fn spare_chunks(&self) -> usize {
        self.batch_chunks * SPARE_BATCHES
    }
}
