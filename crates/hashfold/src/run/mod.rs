//! Runs: streams of entries in ascending hash order, in bounded memory.
//!
//! All bulk data are runs. [`Sorter`] makes a run from entries in any order, [`Merge`] merges
//! several runs to one, the `scan` of every data set returns a run, and builders read one.
//!
//! Entries are ordered by ([`KeyHash`](crate::key::KeyHash), key), so two keys with the same
//! 128-bit hash are adjacent.

mod entry;
mod merge;
pub(crate) mod prefetch;
mod sort;
mod summary;
#[cfg(test)]
mod tests;
mod vector;

pub(crate) use self::sort::SpillFiles;
pub use self::{
    entry::{Duplicates, Entry, KEY_BYTES_MAX, Run, VALUE_BYTES_MAX, check_sizes},
    merge::{Merge, Tombstones},
    sort::{MEMORY_BYTES_MIN, SortOptions, Sorted, Sorter},
    summary::{SizeRange, Summary},
    vector::VecRun,
};
