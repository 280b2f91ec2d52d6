//! A mutable, crash-safe map from keys to values on flash: one device read per lookup, changes in
//! RAM and in a write-ahead log until they are written in large units.
//!
//! ```text
//! put, delete ─→ WAL ─→ list in RAM ─flush (many groups, one write)─→ packets ─┐
//!                          └──────────────── merge (one group) ────────────────┴→ span
//! get: list in RAM, then the packet whose Bloom filter has the key, or one block of the span
//! checkpoint: catalog of all groups ─→ MANIFEST; the WAL before it is truncated
//! ```
//!
//! A *group* holds the entries of one hash prefix. Its *span* is a sequence of full blocks in the
//! order of hashes; RAM has 32 bits per block to find the one block of a hash. Changes wait in RAM.
//! When RAM is full, the groups with the most changes are flushed together: each gets a *packet*
//! with a Bloom filter in RAM. A merge writes a new span from all of these, elsewhere, and splits a
//! group that is too large, or joins it with neighbours that are small, too. Groups are merged when
//! they have many packets, or when lookups have paid for it.
//!
//! - [`Map`] takes changes and lookups from many threads. A change is durable when the call returns,
//!   or later ([`Durability`]). After a crash, durable changes are there, and no part of any other.
//! - [`Transaction`]: several reads and writes, as if at one moment, also if the writes exceed the memory.
//! - An entry may expire ([`Map::put_expiring`]): from that time on it is absent to all reads, and
//!   the next merge of its group removes it.
//! - [`Map::import`] loads a run into an empty map in bulk: each group is written once, without the log.
//! - [`salvage`]: what a damaged map still holds, as a run.
//! - [`Snapshot`]: the state at one moment; its [`Snapshot::scan`] is a [`Run`](crate::run::Run),
//!   from which any other data set is built.
//! - Keys and values have at most [`KEY_BYTES_MAX`] and [`VALUE_BYTES_MAX`] bytes. A value above
//!   1 KiB has blocks of its own, is written once, and costs a lookup one more read.
//! - One process has a map open, also for reading.
//!
//! Formats: `docs/formats/map.md`. What was taken from the paper, and what was changed:
//! `docs/papers/sal.md`.

mod backup;
mod batch;
mod block;
mod bloom;
mod catalog;
mod checkpoint;
mod contract;
mod core;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod crash_states;
mod devices;
#[cfg(test)]
mod devices_tests;
mod directory;
mod entries;
mod expiries;
#[cfg(test)]
mod faults;
mod flush;
#[cfg(test)]
mod full_tests;
mod group;
mod handle;
#[cfg(test)]
mod histories;
mod import;
#[cfg(test)]
mod import_tests;
mod item;
mod kept;
mod large;
mod list;
mod log;
mod lookup;
mod maintain;
mod merge;
mod mirror;
#[cfg(test)]
mod mirror_tests;
mod mirroring;
mod new_group;
mod new_groups;
mod options;
#[cfg(all(test, hashfold_orders))]
mod orders;
#[cfg(test)]
mod parts_tests;
mod pointer;
mod prefix;
mod read;
mod recovery;
mod rental;
mod salvage;
mod sizes;
mod snapshot;
mod space;
mod span;
mod spill;
#[cfg(test)]
mod spill_tests;
mod stripes;
mod sync;
#[cfg(test)]
mod tests;
mod transaction;
#[cfg(test)]
mod transactions;
mod usage;
mod verify;
mod view;
mod write;

pub use self::{
    block::KEY_BYTES_MAX,
    devices::MapDevice,
    handle::Map,
    lookup::Expiring,
    options::{Durability, MAP_MEMORY_MIN, MapOptions, MapStats},
    pointer::VALUE_BYTES_MAX,
    salvage::{Loss, Lost, Salvage, salvage},
    sizes::EntryBounds,
    snapshot::{Scan, Snapshot},
    transaction::Transaction,
    usage::MapSpace,
    verify::{MapFigures, verify},
    write::{Prepared, Write},
};
