//! The write-ahead log, in which changes become durable first.
//!
//! ```text
//!  append ─→ batch in memory ─┬ commit: one thread writes and syncs for all ──────────┐
//!                             └ full: written in the background, not synced ──────────┤
//!                                                                                     ↓
//!  wal-0000000006 (ended) │ wal-0000000007 (batch, batch, …, free) │ wal-0000000008 (next)
//!        └ truncate: recycled under a later number, or removed
//! ```
//!
//! A [`Wal`] takes records: the caller's bytes, and the number of changes in them. Changes are
//! numbered without gaps, from a number that the caller chooses. The *sequence number* (`seq`) of a
//! record is that of its first change. [`replay`] returns all committed records, in order and once.
//! A record that was not committed may be missing, but it is never returned in part, or without all
//! records before it.
//!
//! A log that fails once fails for good: after a failed sync, a later sync may succeed although
//! bytes are lost, so the log does not sync again. A new [`Wal::open`] finds the records that are on the device.
//!
//! File format: `docs/formats/wal.md`.

mod batch;
mod commit;
mod reader;
mod salvage;
mod segment;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod waiting;
mod writer;

pub use self::{
    batch::{PAYLOAD_SIZE_MAX, Record},
    reader::{Replayed, replay},
    salvage::{LostRecords, salvage},
    segment::{Segments, WalFiles, WalFolder},
    writer::{WAL_BYTES_MAX, Wal},
};

/// The locks of a log; a test of [`commit`] replaces them by the locks of a scheduler that tries all
/// interleavings, and so do the tests of maps that are built with `hashfold_orders`.
mod sync {
    #[cfg(all(test, hashfold_orders))]
    pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU64};
    #[cfg(not(all(test, hashfold_orders)))]
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU64};
}
