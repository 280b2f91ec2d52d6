//! The write-ahead log: where changes are durable first.
//!
//! ```text
//!  append ─→ batch in memory ─┬ commit: one thread writes and syncs for all who wait ─┐
//!                             └ full: written in the background, not synced ──────────┤
//!                                                                                     ↓
//!  wal-0000000006 (ended) │ wal-0000000007 (batch, batch, …, room) │ wal-0000000008 (made ahead)
//!        └ truncate: recycled under a later number, or removed
//! ```
//!
//! A [`Wal`] takes records: bytes of the caller, and the number of changes in them. Changes are numbered
//! without gaps from the number on that the caller starts with; a record's *sequence number* (`seq`) is
//! that of its first change. What was committed is shown by [`replay`], in order and once; what was not
//! is absent, or it is a whole record and everything before it is there too.
//!
//! A log that fails once fails for good: after a sync that failed, a later one may succeed although
//! bytes are lost, so none is tried again. A new [`Wal::open`] finds what is on the device.
//!
//! File format: `docs/formats/wal.md`.

mod batch;
mod commit;
mod reader;
mod segment;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod waiting;
mod writer;

pub use self::{
    batch::{PAYLOAD_SIZE_MAX, Record},
    reader::{Replayed, replay},
    segment::{Segments, WalFiles, WalFolder},
    writer::{WAL_BYTES_MAX, Wal},
};

/// The locks of [`commit`]; a test replaces them by those of a scheduler that tries all orders.
mod sync {
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU64};
}
