//! A sketch for each group of rows: `SELECT group, count(DISTINCT key) … GROUP BY group`, for millions
//! of groups, in bounded memory.
//!
//! ```text
//!             group's hash     one job at a time for each shard        merge of a shard's segments
//! rows ─add─→ ┌ inbox ─────→ shard: dictionary, log ─ full: sort ─→ segments ─┐
//!             ├ inbox ─────→ shard …                                          ├─→ GroupRun ─→ table
//!             └ …              (group number, register, value)                ┘      └─┐
//!                                          tables of groups ──scan──→ GroupUnion ──────┴─→ table
//! ```
//!
//! A shard has the groups whose hashes begin with some bits. It numbers its groups, and keeps 8 bytes
//! for each row: the group's number, the register and its value. When its part of the memory is full,
//! it sorts them and keeps the largest value of each register. If that frees less than half, it writes
//! its groups, in hash order, to a segment of the spill file. [`GroupBuilder::finish`] merges the segments
//! of each shard. The result is a [`Run`](crate::run::Run), so that a
//! group-by is a table: the key is the group, and the value is [`Hll::to_bytes`](super::Hll::to_bytes).
//!
//! Neither the order of the rows nor the memory changes a byte of the result. [`GroupUnion`] merges tables of
//! groups in one sequential pass; the union of the tables of parts of the rows is that of all rows.
//!
//! ```
//! use hashfold::{Env, io::MemoryDisk, run::Run, sketch::{GroupBuilder, GroupOptions, Hll}};
//! use std::sync::Arc;
//! let env = Env::on(Arc::new(MemoryDisk::default()));
//! let mut visitors = GroupBuilder::new(&env, "spill", &GroupOptions::new())?;
//! for (page, visitor) in [("home", "anna"), ("home", "ben"), ("shop", "ben"), ("home", "ben")] {
//!     visitors.add(page.as_bytes(), visitor.as_bytes())?;
//! }
//! let mut run = visitors.finish()?;
//! while run.advance()? {
//!     let (page, sketch) = (run.entry().key, Hll::from_bytes(run.entry().value.unwrap())?);
//!     assert_eq!(sketch.estimate().round(), if page == b"home" { 2.0 } else { 1.0 });
//! }
//! # Ok::<(), hashfold::Error>(())
//! ```

mod builder;
mod dictionary;
mod inbox;
mod options;
mod segment;
mod shard;
#[cfg(test)]
mod tests;
mod together;
mod union;

pub use self::{
    builder::{GroupBuilder, GroupRun, GroupStats},
    options::{GROUPS_ATTRIBUTE, GroupOptions, MEMORY_BYTES_MIN},
    union::GroupUnion,
};
