//! Runs: streams of entries in ascending hash order, in bounded memory.
//!
//! All bulk data travels as runs. [`Sorter`] makes a run of entries in any order, [`Merge`] makes
//! one run of several, every part's `scan` returns a run, and builders read one.
//!
//! Entries are ordered by ([`KeyHash`](crate::key::KeyHash), key): two keys with the same 128-bit hash
//! stand side by side.

mod entry;
mod merge;
pub(crate) mod prefetch;
mod sort;
mod summary;
#[cfg(test)]
mod tests;
mod vector;

pub use self::{
    entry::{Duplicates, Entry, KEY_BYTES_MAX, Run, VALUE_BYTES_MAX, check_sizes},
    merge::{Merge, Tombstones},
    sort::{MEMORY_BYTES_MIN, SortOptions, Sorted, Sorter},
    summary::{SizeRange, Summary},
    vector::VecRun,
};
