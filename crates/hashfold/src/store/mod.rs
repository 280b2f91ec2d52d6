//! A data set that changes in whole versions, without stopping its readers.
//!
//! ```text
//! DIR/CURRENT              names the current version; the only file that is replaced
//!     versions/0000000001  describes a version: its chunks and its tables
//!     versions/0000000002
//!     tables/5d0b…/        an immutable table of one or several versions
//! ```
//!
//! A version is a set of chunks; each chunk holds the keys of a range of Redis Cluster slots. A
//! chunk is a part of a base table and of any number of deltas over it. Small neighbouring chunks
//! share a table, so many chunks cost no more than one; a large chunk has a table of its own. An
//! update sorts only its batch and merges it with the old tables in one pass. A table without
//! changes is shared with the version before. File formats: `docs/formats/store.md`.
//! `docs/papers/voldemort.md` compares with Voldemort's read-only stores.
//!
//! - A version is complete and durable, or does not exist; it never changes.
//! - Publishing and rolling back write only the pointer, for data of any size.
//! - A [`Version`] is one version for its whole life. Its files stay as long as any process has it
//!   open. A [`Follower`] moves from version to version and never waits.
//! - A store has one writer at a time: [`StoreWriter`].
//!
//! ```
//! use hashfold::{Seed, io::{Disk, MemoryDisk}, run::SortOptions, store::*, table::{IndexOptions, ReadOptions}, work::{Inline, Watch}};
//! use std::{path::Path, sync::Arc};
//!
//! let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
//! let folder = Path::new("colours");
//! let shape = Shape { slots: SlotMap::new(1)?, index: IndexOptions::default(), block_size: 4096 };
//! let options = StoreOptions { seed: Seed(1), id: 1, shape, attributes: Vec::new() };
//! let mut writer = StoreWriter::create(disk.clone(), folder, options, Arc::new(Inline))?;
//!
//! let mut batch = writer.batch(SortOptions::default())?;
//! batch.push(b"sky", Some(b"blue"))?;
//! let first = writer.write(batch, UpdateMode::Auto, VersionFacts { id: 11, ..VersionFacts::default() }, &Watch::default())?;
//! writer.publish(first.name.number)?;
//! let reader = Follower::open(disk, folder, ReadOptions::new())?;
//!
//! let mut night = writer.batch(SortOptions::default())?;
//! night.push(b"sky", Some(b"black"))?;
//! let second = writer.write(night, UpdateMode::Auto, VersionFacts { id: 12, ..VersionFacts::default() }, &Watch::default())?;
//! writer.publish(second.name.number)?;
//! assert_eq!(reader.version().get(b"sky")?.as_deref(), Some(&b"blue"[..]));
//! reader.refresh()?;
//! assert_eq!(reader.version().get(b"sky")?.as_deref(), Some(&b"black"[..]));
//!
//! writer.roll_back()?;
//! reader.refresh()?;
//! assert_eq!(reader.version().get(b"sky")?.as_deref(), Some(&b"blue"[..]));
//! # Ok::<(), hashfold::Error>(())
//! ```

mod batch;
mod chunks;
mod delta;
mod gates;
mod in_slots;
mod job;
mod join;
mod layer;
mod mend;
mod plan;
mod pointer;
mod publish;
mod read;
mod retain;
mod slot;
#[cfg(test)]
mod tests;
mod transfer;
mod tree;
mod verify;
mod version;
mod write;

pub use self::{
    batch::Batch,
    chunks::ChunkSet,
    delta::{DeltaInfo, DeltaReader, VisitChange},
    gates::{Gates, Objection, Report, Sample},
    mend::{CurrentFrom, Mending},
    plan::{TableSizes, UpdateMode},
    pointer::{NAME, Pointer, VersionName},
    publish::Pin,
    read::{Follower, Version, versions},
    retain::{Reason, Removed, Retention},
    slot::{SLOTS, SlotMap, slot_of},
    transfer::diff,
    verify::{StoreFigures, verify},
    version::{Attributes, Changes, DELTAS_MAX, Layer, Root, Shape, VersionInfo},
    write::{StoreOptions, StoreWriter, VersionFacts},
};
