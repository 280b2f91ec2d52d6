//! Filters that are opened to change them, and the memory that this takes.

use crate::{device, failure::Result, folder, units};
use clap::Args;
use hashfold::{
    filter::{CASCADE_MEMORY_MIN, CascadeFilter, CascadeSettings},
    work::{Executor, Threads},
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

/// The least memory to work in, in bytes.
const MEMORY_MIN: usize = 64 << 20;

/// What the program itself takes: code, stacks, inputs, what the allocator keeps, in bytes.
const PROGRAM_BYTES: usize = 14 << 20;

/// What is being read and written of the filter, in bytes: 16 MiB of reads at most, and three files
/// with four units of 1 MiB.
const IN_FLIGHT_BYTES: usize = 28 << 20;

/// More memory than this for keys would hardly make it faster, in bytes.
const KEYS_BYTES_MAX: usize = 256 << 20;
const KEYS_BYTES_MIN: usize = 6 << 20;

const _: () =
    assert!(PROGRAM_BYTES + IN_FLIGHT_BYTES + KEYS_BYTES_MIN + CASCADE_MEMORY_MIN <= MEMORY_MIN);

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

    /// The filter's settings.
    pub(super) fn settings(&self) -> CascadeSettings {
        CascadeSettings {
            memory_bytes: self.filter,
            work: Arc::new(Threads::new(WORKERS)),
            io: self.io(),
            ..CascadeSettings::default()
        }
    }

    /// Threads that read and write.
    pub(super) fn io(&self) -> Arc<dyn Executor> {
        device::executor(self.threads)
    }
}

impl MachineArgs {
    pub(super) fn budget(&self) -> Budget {
        let rest = self.memory - PROGRAM_BYTES - IN_FLIGHT_BYTES;
        let keys = (rest - rest.div_ceil(2).max(CASCADE_MEMORY_MIN)).min(KEYS_BYTES_MAX);
        Budget { filter: rest - keys, keys, threads: self.threads }
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
