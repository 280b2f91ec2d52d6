//! Options of the readers of all data sets.

use crate::{
    env::Env,
    error::Result,
    io::Access,
    work::{MemoryBudget, Reserved},
};
use arc_swap::ArcSwap;
use std::{ops::Range, sync::Arc};

/// Options for opening a table, a version of a store, or a filter for reading.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    pub(crate) env: Env,
    pub(crate) data: DataAccess,
    pub(crate) checks: Checks,
    pub(crate) index: Access,
    pub(crate) without_index: bool,
    pub(crate) memory: Option<MemoryBudget>,
    pub(crate) slots: Option<ChosenSlots>,
}

/// The slots that a server opens of its stores. The server can choose others at any time; clones are the same
/// choice.
///
/// Versions that are opened later have the slots of the new choice. Those that are open get more slots by
/// `Version::open_chosen`, and keep those that are no longer chosen.
#[derive(Clone, Debug)]
pub struct ChosenSlots(Arc<ArcSwap<Vec<Range<u32>>>>);

impl ChosenSlots {
    /// Chooses ranges of slots, below 16384.
    pub fn new(ranges: Vec<Range<u32>>) -> ChosenSlots {
        ChosenSlots(Arc::new(ArcSwap::from_pointee(ranges)))
    }

    /// Chooses other ranges.
    pub fn set(&self, ranges: Vec<Range<u32>>) {
        self.0.store(Arc::new(ranges));
    }

    /// Returns the ranges that are chosen now.
    pub fn get(&self) -> Arc<Vec<Range<u32>>> {
        self.0.load_full()
    }
}

/// How often the checksum of a block is checked, if the data are mapped. Blocks that are read are
/// checked each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checks {
    /// When the block is used for the first time since its file was opened.
    #[default]
    Once,
    /// Each time that the block is used: about 1 µs per lookup for blocks of 4096 bytes.
    Always,
}

/// The reason why data are read in the way in which they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessReason {
    /// The caller chose the access ([`ReadOptions::data`]).
    Chosen,
    /// The data fit in the memory that was free when they were opened.
    FitsMemory,
    /// The data were larger than the memory that was free when they were opened.
    ExceedsMemory,
    /// The free memory is unknown, or the disk does not want its files to be mapped unasked.
    MemoryUnknown,
    /// The data would fit in memory, but the address space of the process has no gap for a map, or the
    /// process has as many maps as the system permits.
    NoAddressSpace,
}

/// How data files are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DataAccess {
    /// Mapped if the data fit in the memory that is free, else direct.
    #[default]
    Auto,
    /// The data fit in memory: mapped, or direct if the file cannot be mapped.
    Fitting,
    Decided(Access, AccessReason),
}

impl ReadOptions {
    /// Returns the default options: [`Env::system`], data mapped where they fit in memory, and the
    /// index in memory.
    pub fn new() -> ReadOptions {
        ReadOptions::default()
    }

    /// Sets the disk, the executor, the clock and the random numbers.
    #[must_use]
    pub fn env(self, env: Env) -> ReadOptions {
        ReadOptions { env, ..self }
    }

    /// Sets how blocks are read.
    ///
    /// By default, the data of a table or of a version are read with [`Access::Mapped`] if they fit in
    /// the memory that is free when they are opened ([`Disk::free_memory`](crate::io::Disk)), else with
    /// [`Access::Direct`]; filters with [`Access::Cached`]. `TableStats` say what was chosen, and why.
    ///
    /// Blocks of mapped data are checked once ([`ReadOptions::checks`]): damage that comes later, such
    /// as a bad memory cell or another program that writes to the file, is found by `verify` only.
    #[must_use]
    pub fn data(self, data: Access) -> ReadOptions {
        ReadOptions { data: DataAccess::Decided(data, AccessReason::Chosen), ..self }
    }

    /// Sets how often blocks of mapped data are checked. The default is [`Checks::Once`].
    #[must_use]
    pub fn checks(self, checks: Checks) -> ReadOptions {
        ReadOptions { checks, ..self }
    }

    /// Opens only the part of a version of a store that has the keys of a range of slots, below
    /// 16384, for a server that holds only these. Lookups of other keys are
    /// errors. Tables and filters have no slots.
    #[must_use]
    pub fn slots(self, slots: Range<u32>) -> ReadOptions {
        ReadOptions { slots: Some(ChosenSlots::new(vec![slots])), ..self }
    }

    /// Opens only the part of a version that has the keys of chosen slots, as [`ReadOptions::slots`] does;
    /// the choice can change later.
    #[must_use]
    pub fn chosen_slots(self, slots: ChosenSlots) -> ReadOptions {
        ReadOptions { slots: Some(slots), ..self }
    }

    /// Sets where the index is: in its file, which is mapped, with [`Access::Mapped`]; else in
    /// memory.
    #[must_use]
    pub fn index(self, index: Access) -> ReadOptions {
        ReadOptions { index, ..self }
    }

    /// Opens tables without their indexes, which then take no memory: a lookup searches the data file,
    /// with 2 to 4 reads of the device. Filters have an index in any case.
    #[must_use]
    pub fn without_index(self) -> ReadOptions {
        ReadOptions { without_index: true, ..self }
    }

    /// Sets the budget in which the memory of indexes is reserved, before they are read and as long as their
    /// tables are open. A table whose index does not fit is not opened. Filters reserve nothing.
    #[must_use]
    pub fn memory(self, memory: MemoryBudget) -> ReadOptions {
        ReadOptions { memory: Some(memory), ..self }
    }

    /// Reserves the memory of an index, whose file has this size.
    pub(crate) fn reserve_index(&self, bytes: u64) -> Result<Option<Reserved>> {
        match self.index {
            _ if self.without_index => Ok(None),
            Access::Mapped => Ok(None),
            _ => self.memory.as_ref().map(|memory| memory.reserve(bytes)).transpose(),
        }
    }

    /// Returns these options with a decision how `bytes` of data are read that are opened beside others, for
    /// which they were made.
    pub(crate) fn for_more_bytes(&self, bytes: u64) -> ReadOptions {
        match self.data {
            DataAccess::Fitting => {
                ReadOptions { data: DataAccess::Auto, ..self.clone() }.for_bytes(bytes)
            }
            _ => self.clone(),
        }
    }

    /// Returns these options with a decision how `bytes` of data are read.
    pub(crate) fn for_bytes(&self, bytes: u64) -> ReadOptions {
        let decided = |reason| DataAccess::Decided(Access::Direct, reason);
        let data = match self.data {
            DataAccess::Auto => match self.env.disk.free_memory() {
                free if bytes <= free => DataAccess::Fitting,
                0 => decided(AccessReason::MemoryUnknown),
                _ => decided(AccessReason::ExceedsMemory),
            },
            decided => decided,
        };
        ReadOptions { data, ..self.clone() }
    }

    /// Returns the access for data that are read block by block, in no particular order.
    pub(crate) fn access(&self) -> Access {
        match self.data {
            DataAccess::Decided(access, _) => access,
            DataAccess::Auto | DataAccess::Fitting => Access::Cached,
        }
    }
}
