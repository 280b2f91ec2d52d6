//! Disk, threads, time and random numbers for the library.

use crate::failure::{Failure, Result};
use hashfold::{
    io::{Disk, OsDisk},
    work::{Executor, Threads},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{num::NonZero, sync::Arc, thread, time::SystemTime};

/// Threads beyond the number of cores, which may wait for the disk.
const WAITING_THREADS: usize = 2;

/// The file system of this machine.
pub(crate) fn disk() -> Arc<dyn Disk> {
    Arc::new(OsDisk)
}

/// Starts a pool of `threads` threads; the default is the number of cores + 2.
pub(crate) fn executor(threads: Option<usize>) -> Arc<dyn Executor> {
    executor_beside(0, threads)
}

/// Starts a pool with `workers` more threads for long jobs, beside those for reads and writes.
pub(crate) fn executor_beside(workers: usize, threads: Option<usize>) -> Arc<dyn Executor> {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    Arc::new(Threads::new(workers + threads.unwrap_or_else(|| cores() + WAITING_THREADS)))
}

/// Returns the time in seconds since 1970.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Returns an unpredictable random number.
pub(crate) fn random() -> Result<u64> {
    getrandom::u64().map_err(|error| Failure::io("random numbers", "be read", &error.into()))
}

/// Raises the limit of open files to the most that this process may have: a version has two files
/// for each table. If that is refused, the limit stays, and an error names it when it is reached.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
