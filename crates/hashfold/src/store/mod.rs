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
//!   open. A [`StoreReader`] moves from version to version and never waits.
//! - A store has one writer at a time: an [`Update`], or a [`StoreWriter`], which also has gates,
//!   retention and deltas.
//!
//! [`Store`] shows an update, a reader and a rollback.

mod adopt;
mod batch;
mod chunks;
mod copy;
mod delta;
mod follow;
mod gates;
mod handle;
mod in_slots;
mod job;
mod join;
mod layer;
mod lend;
mod lookup;
mod mend;
mod open_slots;
mod options;
mod plan;
mod pointer;
mod publish;
mod read;
mod repeat;
mod retain;
mod scan;
mod slot;
mod tables;
#[cfg(test)]
mod tests;
mod transfer;
mod tree;
mod verify;
mod version;
mod write;

pub use self::{
    adopt::{incoming_path, is_complete, table_path, version_path},
    batch::Batch,
    chunks::ChunkSet,
    copy::copy,
    delta::{DeltaInfo, DeltaReader, VisitChange},
    follow::StoreReader,
    gates::{Gates, Objection, REMOVED_KEYS_GATE, Report, Sample, sample_changes},
    handle::{Store, Update},
    join::KeyChange,
    lend::ValueRef,
    mend::{CurrentFrom, Mending},
    options::StoreOptions,
    plan::{TableSizes, UpdateMode},
    pointer::{NAME, Pointer, VersionName},
    publish::Pin,
    read::{Version, versions},
    retain::{Reason, Removed, Retention},
    slot::{SLOTS, SlotMap, slot_of},
    transfer::{compare, diff},
    tree::{FilePiece, FileTree, Tree},
    verify::{StoreFigures, verify, verify_versions},
    version::{Attributes, Changes, DELTAS_MAX, Layer, Root, Shape, VersionInfo},
    write::{StoreWriter, VersionFacts},
};
