//! The cascade filter: a filter on flash, for more keys than fit in RAM.
//!
//! ```text
//!                    RAM                       │                   flash
//! changes ─→ memtable ─ pack ─→ runs in RAM ─ flush ─→ run files of tier 0 ─ merge ─→ tier 1 …
//!    └─→ write-ahead log                       │               └─ merge ─→ last level: shards
//! ```
//!
//! Background jobs pack, flush and merge; several key ranges are merged at the same time. A lookup
//! queries the newest data first. A change is durable once its log record or its run file is
//! durable. Byte tables: `docs/formats/cascade.md`.

mod build;
mod catalog;
mod core;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod damage;
mod filter;
mod flush;
#[cfg(test)]
mod forgetting;
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
mod packing;
mod plan;
mod publish;
mod ram_runs;
mod rate_limit;
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
mod window;
mod write;

pub use self::{
    filter::CascadeFilter,
    options::{CascadeOptions, CascadeSettings, MEMORY_DEFAULT, MEMORY_MIN},
    snapshot::Snapshot,
    stats::{CascadeStats, EpochStats},
    verify::{CascadeFigures, verify},
    window::Window,
};
