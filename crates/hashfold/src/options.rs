//! Options of the readers of all data sets.

use crate::{env::Env, io::Access};
use std::ops::Range;

/// Options for opening a table, a version of a store, or a filter for reading.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    pub(crate) env: Env,
    pub(crate) data: Access,
    pub(crate) index: Access,
    pub(crate) slots: Option<Range<u32>>,
}

impl ReadOptions {
    /// Returns the default options: [`Env::system`], reads through the page cache, and the index in
    /// memory.
    pub fn new() -> ReadOptions {
        ReadOptions::default()
    }

    /// Sets the disk, the executor, the clock and the random numbers.
    #[must_use]
    pub fn env(self, env: Env) -> ReadOptions {
        ReadOptions { env, ..self }
    }

    /// Sets how blocks are read. [`Access::Direct`] suits tables that are larger than RAM.
    #[must_use]
    pub fn data(self, data: Access) -> ReadOptions {
        ReadOptions { data, ..self }
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
}
