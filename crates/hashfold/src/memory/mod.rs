//! Tables in RAM for very many keys, which grow without a pause.
//!
//! ```text
//! hash ─8 bits→ region ─directory→ group ─last 48 bits→ one of up to 8 chunks, two of its 32 lines of 4 or 5 slots
//! ```
//!
//! [`GroupTable`] maps 64-bit keys to numbers. [`AppendTable`] maps byte keys to values that grow: its index maps
//! hashes to blocks of memory, each of which begins with the key.
//!
//! A table is divided into groups of about a thousand keys, in the order of their hashes. A full group gets a further chunk,
//! which takes a part of the keys of each of its other chunks; one of eight chunks splits in two, each with four of them,
//! and no key moves. The whole table never grows at once. A key is in one of two cache lines of its chunk. A removed key
//! leaves nothing behind: groups shrink, and merge. Memory in which nothing is left is given back to the system, 64 KiB or
//! 2 MiB at a time.
//!
//! Groups are in the order of hashes, so a table is read in that order by sorting one group at a time; and it can be
//! read as it was at one moment while writers go on, by copying the groups that change before they are read.
//!
//! Nothing is durable: a table lives as long as the process, or is written to a file as a run.

mod ahead;
mod append_shard;
mod append_snapshot;
mod append_table;
mod arena;
mod bits;
mod choice;
mod classes;
mod copies;
mod directory;
mod displace;
mod division;
mod fill;
mod group;
mod group_snapshot;
mod group_table;
mod grow;
mod index;
mod kernel;
mod line;
mod merge;
mod mix;
mod options;
mod order;
#[cfg(test)]
mod orders;
mod owners;
mod place;
mod queue;
mod scratch;
mod shape;
mod shards;
mod short;
mod slabs;
mod slot;
mod snapshots;
mod stack;
mod stat;
mod steps;
#[cfg(test)]
mod tests;
mod values;

pub use self::{
    append_snapshot::{AppendRun, AppendSnapshot},
    append_table::AppendTable,
    group_snapshot::GroupSnapshot,
    group_table::GroupTable,
    options::{MemoryOptions, SHARDS_MAX},
    owners::{Hand, Owners},
    slot::Slot,
    stat::{AppendStats, GroupStats},
};

/// Runs the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/guide/memory.md")]
struct Guide;

/// The locks of [`shards`] and of the tables; a test replaces them by the locks of a scheduler that tries many orders.
mod sync {
    pub(super) use std::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
}
