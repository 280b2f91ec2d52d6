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
mod options;
mod slot;
mod sorted;
mod sorter;
mod spill;

#[cfg(test)]
pub(super) use self::sorter::testing;
pub(crate) use self::spill::SpillFiles;
pub use self::{
    options::{MEMORY_BYTES_MIN, SortOptions},
    sorted::Sorted,
    sorter::Sorter,
};
