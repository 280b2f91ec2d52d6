//! Options of tables in RAM.

use super::division::REGION_BITS;
use crate::{
    error::{Error, Result},
    key::Seed,
    work::{Executor, MemoryBudget},
};
use std::sync::Arc;

/// The largest number of shards: one for each value of the first 8 bits of a hash.
pub const SHARDS_MAX: usize = 1 << REGION_BITS;

/// Options of [`GroupTable`](super::GroupTable) and [`AppendTable`](super::AppendTable).
///
/// ```
/// use hashfold::{memory::{GroupTable, MemoryOptions}, work::MemoryBudget};
/// let options = MemoryOptions { budget: MemoryBudget::new(64 << 20), ..MemoryOptions::default() };
/// let table = GroupTable::new(options)?;
/// assert_eq!(table.put(7, 1)?, None);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The seed that keys are hashed with, [`Seed::default`] by default. Choose a random one if keys come from strangers: who
    /// knows the seed can choose keys whose hashes have the same first or last bits, which need more and more memory.
    pub seed: Seed,
    /// Number of shards, a power of two up to [`SHARDS_MAX`]: parts with a lock each, by the first bits of hashes. A
    /// shard has one writer at a time, or many readers. Each reserves addresses, not memory, in pieces of 34 MiB: at least
    /// three of them, and four with values in blocks. Limits of addresses (`ulimit -v`), and a system that counts all addresses
    /// as memory (`vm.overcommit_memory=2`), count these. 16 by default.
    pub shards: usize,
    /// Maximum load factor, the part of its slots that a group fills before it grows: 0.5 to 0.95. A group also grows when one
    /// of its chunks is full. More needs less memory and more time. 0.87 by default.
    pub load: f64,
    /// Whether the values of a [`GroupTable`](super::GroupTable) have 64 bits; a key needs 4 bytes more then. By
    /// default they have 48.
    pub wide_values: bool,
    /// The budget that memory is reserved in: groups, chunks, pages of blocks, and copies for snapshots.
    /// Directories (at most 8 MiB for each of 256 parts of the hashes, if keys are chosen for that), lists of pages, lists of
    /// blocks that wait for a snapshot, and buffers are not reserved. Memory that is given back to the system is free in
    /// the budget; it comes in steps of 64 KiB to 2 MiB. A change that exceeds the budget fails with `Memory` and changes
    /// nothing. Unlimited by default.
    pub budget: MemoryBudget,
    /// An executor of jobs that populate memory ahead of its use, which shortens pauses: the first access to a large
    /// page may take milliseconds. A shard has two areas of memory, with values in blocks three. Of each, a 128th, and at
    /// most 64 MiB, is populated ahead; or, if that is more, one or two steps of 64 KiB to 2 MiB. None by default.
    pub executor: Option<Arc<dyn Executor>>,
}

impl Default for MemoryOptions {
    fn default() -> MemoryOptions {
        MemoryOptions {
            seed: Seed::default(),
            shards: 16,
            load: 0.87,
            wide_values: false,
            budget: MemoryBudget::unlimited(),
            executor: None,
        }
    }
}

impl MemoryOptions {
    /// Checks the options.
    ///
    /// # Errors
    /// `Argument` if one is out of its range.
    pub(super) fn check(&self) -> Result<()> {
        if !self.shards.is_power_of_two() || self.shards > SHARDS_MAX {
            return Err(Error::argument("shards", "a power of two up to 256", self.shards));
        }
        if !(0.5..=0.95).contains(&self.load) {
            return Err(Error::argument("load", "0.5 to 0.95", self.load));
        }
        Ok(())
    }
}
