//! Options of the readers of all data sets.

use crate::{env::Env, io::Access};
use std::ops::Range;

/// Options for opening a table, a version of a store, or a filter for reading.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    pub(crate) env: Env,
    pub(crate) data: DataAccess,
    pub(crate) index: Access,
    pub(crate) without_index: bool,
    pub(crate) slots: Option<Range<u32>>,
}

/// How data files are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DataAccess {
    /// Mapped if the data fit in the memory that is free, else direct.
    #[default]
    Auto,
    /// The data fit in memory: mapped, or direct if the address space has no room for a map.
    Fitting,
    Always(Access),
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
    /// [`Access::Direct`]; filters with [`Access::Cached`].
    #[must_use]
    pub fn data(self, data: Access) -> ReadOptions {
        ReadOptions { data: DataAccess::Always(data), ..self }
    }

    /// Opens only the part of a version of a store that has the keys of a range of slots, below
    /// 16384, for a server that holds only these. Lookups of other keys are
    /// errors. Tables and filters have no slots.
    #[must_use]
    pub fn slots(self, slots: Range<u32>) -> ReadOptions {
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

    /// Returns these options with a decision how `bytes` of data are read.
    pub(crate) fn for_bytes(&self, bytes: u64) -> ReadOptions {
        let data = match self.data {
            DataAccess::Auto if bytes <= self.env.disk.free_memory() => DataAccess::Fitting,
            DataAccess::Auto => DataAccess::Always(Access::Direct),
            decided => decided,
        };
        ReadOptions { data, ..self.clone() }
    }

    /// Returns the access for data that are read block by block, in no particular order.
    pub(crate) fn access(&self) -> Access {
        match self.data {
            DataAccess::Always(access) => access,
            DataAccess::Auto | DataAccess::Fitting => Access::Cached,
        }
    }
}
