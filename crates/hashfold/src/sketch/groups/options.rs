//! The options of a group-by, and the division of its memory.

use crate::{
    error::{Error, Result},
    key::Seed,
    run::KEY_BYTES_MAX,
    sketch::{Family, Hll},
};

/// Name of the attribute of a table whose values are sketches. Its value is an empty sketch
/// ([`Hll::to_bytes`]), whose hash function and precision are those of all values.
pub const GROUPS_ATTRIBUTE: &str = "hashfold.sketch";

/// Minimum memory of a group-by, in bytes.
pub const MEMORY_BYTES_MIN: usize = 1 << 20;

/// The options of a group-by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    pub(super) family: Family,
    pub(super) precision: u8,
    pub(super) seed: Seed,
    pub(super) memory_bytes: usize,
}

/// Precision of the sketches, unless another one is set.
const PRECISION: u8 = 14;
/// Memory budget unless another one is set, in bytes.
const MEMORY_BYTES: usize = 1 << 30;

impl Default for GroupOptions {
    /// Returns [`GroupOptions::new`].
    fn default() -> GroupOptions {
        GroupOptions::new()
    }
}

impl GroupOptions {
    /// Returns the default options: the hash function of [`Hll::new`], precision 14, groups in the
    /// order of the seed 0, and a memory budget of 1 GiB.
    pub fn new() -> GroupOptions {
        let (family, seed) = (Family::Hashfold(Seed(0)), Seed(0));
        GroupOptions { family, precision: PRECISION, seed, memory_bytes: MEMORY_BYTES }
    }

    /// Sets the hash function of the sketches.
    #[must_use]
    pub fn family(self, family: Family) -> GroupOptions {
        GroupOptions { family, ..self }
    }

    /// Sets the precision of the sketches: the binary logarithm of their number of registers.
    #[must_use]
    pub fn precision(self, precision: u8) -> GroupOptions {
        GroupOptions { precision, ..self }
    }

    /// Sets the seed that the groups are hashed with: that of the table. Only tables of one seed are
    /// united by a merge. A user who knows the seed can choose groups that slow the group-by down.
    #[must_use]
    pub fn seed(self, seed: Seed) -> GroupOptions {
        GroupOptions { seed, ..self }
    }

    /// Returns the seed that the groups are hashed with.
    pub fn group_seed(&self) -> Seed {
        self.seed
    }

    /// Sets the memory budget, in bytes: at least [`MEMORY_BYTES_MIN`], and 64 · 2^precision.
    #[must_use]
    pub fn memory(self, memory_bytes: usize) -> GroupOptions {
        GroupOptions { memory_bytes, ..self }
    }

    /// Returns the attribute of the table that is made of the groups: [`GROUPS_ATTRIBUTE`] and its
    /// value.
    ///
    /// # Errors
    /// `Argument` if the precision is out of range.
    pub fn attribute(&self) -> Result<(String, Vec<u8>)> {
        let empty = Hll::of_family(self.family, self.precision)?;
        Ok((GROUPS_ATTRIBUTE.to_owned(), empty.to_bytes()))
    }
}

/// Memory for each shard at which there are more shards, in bytes.
const SHARD_BYTES: usize = 4 << 20;
/// Maximum base-2 logarithm of the number of shards. More would miss the cache for each row.
const SHARD_BITS_MAX: u32 = 6;
/// Range of the size of an inbox, in bytes.
const INBOX_BYTES: (usize, usize) = (8 << 10, 128 << 10);
/// Range of the size of a block of the spill file, in bytes.
const BLOCK_BYTES: (usize, usize) = (1 << 12, 1 << 16);
/// Part of a shard's memory that is left for the growth of vectors, which copy themselves.
const SLACK_PART: usize = 8;

/// Minimum memory of a shard, in bytes for each register of a sketch.
const SHARD_SKETCHES: usize = 32;
/// Range of the number of segments that are merged at once.
const FAN_IN: (usize, usize) = (2, 256);

/// Returns the largest size of a group's registers in a segment, in bytes: each takes one byte if all have a
/// value, and fewer registers take fewer bytes.
pub(super) fn value_bytes(precision: u8) -> usize {
    1 << precision
}

/// Returns the memory for the registers of one group in a merge, in bytes: twice all of them, which are then
/// reduced to one of each, and those of the segment that is added.
pub(super) fn merge_bytes(precision: u8) -> usize {
    (3 * size_of::<u32>()) << precision
}

/// The division of the memory budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryPlan {
    /// Base-2 logarithm of the number of shards.
    pub(super) shard_bits: u32,
    /// Maximum memory of a shard without its inboxes, in bytes.
    pub(super) shard_bytes: usize,
    /// Size at which an inbox is full, in bytes. A shard has two.
    pub(super) inbox_bytes: usize,
    /// Size of a block of the spill file, in bytes.
    pub(super) block_bytes: usize,
    /// Maximum number of segments that are merged at once.
    pub(super) fan_in: usize,
}

impl MemoryPlan {
    pub(super) fn new(memory_bytes: usize, precision: u8) -> Result<MemoryPlan> {
        let bytes_min = MEMORY_BYTES_MIN.max((2 * SHARD_SKETCHES) << precision);
        if memory_bytes < bytes_min {
            let expected = format!("at least {bytes_min} with the precision {precision}");
            return Err(Error::argument("memory for groups in bytes", expected, memory_bytes));
        }
        let each = SHARD_BYTES.max(SHARD_SKETCHES << precision);
        let shard_bits = (memory_bytes / each).max(2).ilog2().min(SHARD_BITS_MAX);
        let whole = memory_bytes >> shard_bits;
        let inbox_bytes = (whole / 64).clamp(INBOX_BYTES.0, INBOX_BYTES.1);
        // An inbox may exceed its size by the longest key.
        let inboxes = 2 * (inbox_bytes + KEY_BYTES_MAX);
        let shard_bytes = whole - whole / SLACK_PART - inboxes;
        let block_bytes = (1 << (shard_bytes / 64).ilog2()).clamp(BLOCK_BYTES.0, BLOCK_BYTES.1);
        // A merge has a block and a value of each segment, and the registers of one group.
        let blocks = shard_bytes / 2 - merge_bytes(precision).min(shard_bytes / 4);
        let fan_in = (blocks / (block_bytes + value_bytes(precision))).clamp(FAN_IN.0, FAN_IN.1);
        Ok(MemoryPlan { shard_bits, shard_bytes, inbox_bytes, block_bytes, fan_in })
    }
}
