//! The cascade filter on flash: changes go to a memtable, memtables are packed into runs in RAM,
//! runs in RAM are flushed to run files, and run files are merged.

mod build;
mod catalog;
mod core;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod damage;
mod filter;
mod flush;
mod jobs;
mod kernel;
mod key_range;
mod logs;
mod lookup;
mod memtable;
mod merges;
mod merging;
mod obsolete;
mod options;
mod ordered;
mod pace;
mod packing;
mod plan;
mod publish;
mod ram_runs;
#[cfg(test)]
mod readers;
mod recovery;
mod resident;
mod run_file;
mod scan;
mod snapshot;
mod stats;
#[cfg(test)]
mod tests;
mod verify;
mod wal;
mod write;

pub use self::{
    filter::CascadeFilter,
    options::{CASCADE_MEMORY_DEFAULT, CASCADE_MEMORY_MIN, CascadeOptions, CascadeSettings},
    snapshot::{Snapshot, SnapshotScan},
    stats::{CascadeStats, EpochStats},
    verify::{CascadeFigures, verify_cascade},
};
