//! Opening filters, and dividing the memory budget.

use crate::{device, failure::Result, folder, units, wait::WaitArgs};
use clap::Args;
use hashfold::{
    Env,
    filter::cascade::{self, CascadeFilter, CascadeSettings, Snapshot},
    io::{Access, WRITER_BYTES_MAX},
    work::Executor,
};
use std::{path::Path, sync::Arc};

/// Options for the memory and threads of a verb that changes a filter.
#[derive(Args, Debug)]
pub(crate) struct MachineArgs {
    /// Memory budget, at least 64MiB; keys in Parquet files may take more
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_memory)]
    memory: usize,
    /// Threads that read and write the filter [default: number of cores + 2]
    #[arg(long, value_name = "N", value_parser = units::parse_threads)]
    threads: Option<usize>,
    #[command(flatten)]
    pub(super) wait: WaitArgs,
}

/// Options for the memory of lookups.
#[derive(Args, Debug)]
pub(crate) struct MemoryArgs {
    /// Memory budget, at least 64MiB
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_memory)]
    memory: usize,
}

/// Minimum memory budget, in bytes.
const MEMORY_MIN: usize = 64 << 20;

/// Memory of the program itself, in bytes: code, stacks, inputs, and free memory of the allocator.
const PROGRAM_BYTES: usize = 11 << 20;

/// Memory of a batch of lookups of any size, in bytes.
const LOOKUP_BYTES: usize = 3 << 20;

/// Memory of reads in flight during lookups, in bytes.
const READS_BYTES: usize = 16 << 20;

/// Memory of writers, in bytes: a flush and two merges each write a file.
const WRITES_BYTES: usize = 3 * WRITER_BYTES_MAX;

/// Memory that every use of a filter needs, in bytes.
const READER_BYTES: usize = PROGRAM_BYTES + LOOKUP_BYTES + READS_BYTES;

/// Maximum memory for keys, in bytes; more is hardly faster.
const KEYS_BYTES_MAX: usize = 256 << 20;
const KEYS_BYTES_MIN: usize = 6 << 20;

/// Maximum memory for keys that are only looked up, in bytes. In a larger batch, more keys share a
/// block.
const QUERY_BYTES_MAX: usize = 96 << 20;

const _: () =
    assert!(READER_BYTES + WRITES_BYTES + KEYS_BYTES_MIN + cascade::MEMORY_MIN <= MEMORY_MIN);
// Another filter, opened for a merge, takes the memory of lookups and keys.
const _: () = assert!(READS_BYTES >= cascade::MEMORY_MIN);

/// Number of background jobs that run in parallel: packing, a flush and two merges.
const WORKERS: usize = 4;

/// Shares of the memory budget, and the number of threads.
#[derive(Debug)]
pub(super) struct Budget {
    /// Memory of the filter, in bytes.
    filter: usize,
    /// Memory of keys that wait or are being looked up, in bytes.
    pub(super) keys: usize,
    threads: Option<usize>,
}

impl Budget {
    /// Returns the minimum budget for changing a filter without inserting keys.
    pub(super) fn least() -> Budget {
        Budget { filter: cascade::MEMORY_MIN, keys: 0, threads: None }
    }

    /// Opens another filter to read the whole filter, while no keys are looked up or inserted.
    pub(super) fn open_other(&self, folder: &Path) -> Result<Snapshot> {
        let memory_bytes = READS_BYTES + self.keys;
        Ok(Snapshot::open_within(&Env::system(), folder, Access::Direct, memory_bytes)?)
    }

    /// Returns the filter's settings.
    pub(super) fn settings(&self) -> CascadeSettings {
        CascadeSettings {
            memory_bytes: self.filter,
            ..CascadeSettings::new(Env { executor: self.executor(), ..Env::system() })
        }
    }

    /// Starts threads for packing, flushes and merges, and further threads for reads and writes.
    pub(super) fn executor(&self) -> Arc<dyn Executor> {
        device::executor_beside(WORKERS, self.threads)
    }
}

impl MachineArgs {
    pub(super) fn budget(&self) -> Budget {
        let rest = self.memory - READER_BYTES - WRITES_BYTES;
        let keys = (rest - rest.div_ceil(2).max(cascade::MEMORY_MIN)).min(KEYS_BYTES_MAX);
        Budget { filter: rest - keys, keys, threads: self.threads }
    }
}

impl MemoryArgs {
    /// Opens a filter for lookups; also returns the memory for keys, in bytes.
    pub(super) fn open(&self, folder: &Path) -> Result<(Snapshot, usize)> {
        folder::require_filter(folder)?;
        let rest = self.memory - READER_BYTES;
        let keys = (rest - cascade::MEMORY_MIN).min(QUERY_BYTES_MAX);
        let snapshot = Snapshot::open_within(&Env::system(), folder, Access::Direct, rest - keys)?;
        Ok((snapshot, keys))
    }
}

/// Opens a filter for writing.
pub(super) fn open(folder: &Path, budget: &Budget) -> Result<CascadeFilter> {
    folder::require_filter(folder)?;
    Ok(CascadeFilter::open(folder, budget.settings())?)
}

fn parse_memory(text: &str) -> Result<usize, String> {
    match units::parse_bytes(text)? {
        bytes if bytes < MEMORY_MIN => Err("expected at least 64MiB".into()),
        bytes => Ok(bytes),
    }
}
