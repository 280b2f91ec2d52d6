//! Filters that are opened to change or read them, and the memory that this takes.

use crate::{device, failure::Result, folder, units};
use clap::Args;
use hashfold::{
    filter::cascade::{CASCADE_MEMORY_MIN, CascadeFilter, CascadeSettings, Snapshot},
    io::{Access, WRITER_BYTES_MAX},
    work::Executor,
};
use std::{path::Path, sync::Arc};

/// What changing a filter may take of the machine.
#[derive(Args, Debug)]
pub(crate) struct MachineArgs {
    /// The memory to use, 64MiB at least; Parquet files may take more
    #[arg(long, default_value = "256MiB", value_parser = parse_memory)]
    memory: usize,
    /// Threads that read and write the filter [default: the cores and two more]
    #[arg(long, value_name = "N", value_parser = units::parse_threads)]
    threads: Option<usize>,
}

/// What looking keys up may take of the machine.
#[derive(Args, Debug)]
pub(crate) struct MemoryArgs {
    /// The memory to use, 64MiB at least
    #[arg(long, default_value = "256MiB", value_parser = parse_memory)]
    memory: usize,
}

/// The least memory to work in, in bytes.
const MEMORY_MIN: usize = 64 << 20;

/// What the program itself takes: code, stacks, inputs, what the allocator keeps, in bytes.
const PROGRAM_BYTES: usize = 11 << 20;

/// What a batch of lookups takes, however many keys it has, in bytes.
const LOOKUP_BYTES: usize = 3 << 20;

/// What lookups have in flight on the device, in bytes.
const READS_BYTES: usize = 16 << 20;

/// What is being written of the filter, in bytes: a flush and two merges write a file each.
const WRITES_BYTES: usize = 3 * WRITER_BYTES_MAX;

/// What every use of a filter takes, in bytes.
const READER_BYTES: usize = PROGRAM_BYTES + LOOKUP_BYTES + READS_BYTES;

/// More memory than this for keys would hardly make it faster, in bytes.
const KEYS_BYTES_MAX: usize = 256 << 20;
const KEYS_BYTES_MIN: usize = 6 << 20;

/// The most memory for keys that are only looked up, in bytes. The larger a batch is, the more of its
/// keys are in one block.
const QUERY_BYTES_MAX: usize = 96 << 20;

const _: () =
    assert!(READER_BYTES + WRITES_BYTES + KEYS_BYTES_MIN + CASCADE_MEMORY_MIN <= MEMORY_MIN);
// Another filter takes the place of lookups and keys.
const _: () = assert!(READS_BYTES >= CASCADE_MEMORY_MIN);

/// Packing, a flush and two merges run side by side.
const WORKERS: usize = 4;

/// How the memory is shared out, and the threads.
#[derive(Debug)]
pub(super) struct Budget {
    /// For the filter.
    filter: usize,
    /// For keys that wait or are being looked up, in bytes.
    pub(super) keys: usize,
    threads: Option<usize>,
}

impl Budget {
    /// What is enough to change a filter without putting keys in.
    pub(super) fn least() -> Budget {
        Budget { filter: CASCADE_MEMORY_MIN, keys: 0, threads: None }
    }

    /// Opens another filter, of which all is read while no keys are looked up or put in.
    pub(super) fn open_other(&self, folder: &Path) -> Result<Snapshot> {
        let memory_bytes = READS_BYTES + self.keys;
        let disk = device::disk();
        Ok(Snapshot::open_within(disk.as_ref(), folder, Access::Direct, memory_bytes)?)
    }

    /// The filter's settings.
    pub(super) fn settings(&self) -> CascadeSettings {
        CascadeSettings {
            memory_bytes: self.filter,
            executor: self.executor(),
            ..CascadeSettings::default()
        }
    }

    /// Threads for packing, flushes and merges, and threads that read and write beside them.
    pub(super) fn executor(&self) -> Arc<dyn Executor> {
        device::executor_beside(WORKERS, self.threads)
    }
}

impl MachineArgs {
    pub(super) fn budget(&self) -> Budget {
        let rest = self.memory - READER_BYTES - WRITES_BYTES;
        let keys = (rest - rest.div_ceil(2).max(CASCADE_MEMORY_MIN)).min(KEYS_BYTES_MAX);
        Budget { filter: rest - keys, keys, threads: self.threads }
    }
}

impl MemoryArgs {
    /// Opens a filter to look keys up in it; with the memory for the keys, in bytes.
    pub(super) fn open(&self, folder: &Path) -> Result<(Snapshot, usize)> {
        folder::require_filter(folder)?;
        let rest = self.memory - READER_BYTES;
        let keys = (rest - CASCADE_MEMORY_MIN).min(QUERY_BYTES_MAX);
        let disk = device::disk();
        let snapshot = Snapshot::open_within(disk.as_ref(), folder, Access::Direct, rest - keys)?;
        Ok((snapshot, keys))
    }
}

/// Opens the filter in a folder to change it.
pub(super) fn open(folder: &Path, budget: &Budget) -> Result<CascadeFilter> {
    folder::require_filter(folder)?;
    Ok(CascadeFilter::open(device::disk(), folder, budget.settings())?)
}

fn parse_memory(text: &str) -> Result<usize, String> {
    match units::parse_bytes(text)? {
        bytes if bytes < MEMORY_MIN => Err("a filter works in 64MiB at least".into()),
        bytes => Ok(bytes),
    }
}
