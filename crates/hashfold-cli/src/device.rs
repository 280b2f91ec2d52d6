//! What the library is given: the disk, threads, random numbers.

use crate::failure::{Failure, Result};
use hashfold::{
    io::{Disk, OsDisk},
    work::{Executor, Threads},
};
use std::{num::NonZero, sync::Arc, thread, time::SystemTime};

/// More threads than cores, so that some can wait for the disk.
const WAITING_THREADS: usize = 2;

/// The file system of this machine.
pub(crate) fn disk() -> Arc<dyn Disk> {
    Arc::new(OsDisk)
}

/// A pool of so many threads, or of as many as suit this machine.
pub(crate) fn executor(threads: Option<usize>) -> Arc<dyn Executor> {
    executor_beside(0, threads)
}

/// A pool of `workers` threads for long jobs, and of others for what these wait for.
pub(crate) fn executor_beside(workers: usize, threads: Option<usize>) -> Arc<dyn Executor> {
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    Arc::new(Threads::new(workers + threads.unwrap_or_else(|| cores() + WAITING_THREADS)))
}

/// The time, in seconds since 1970.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A number that nobody can foresee.
pub(crate) fn random() -> Result<u64> {
    getrandom::u64().map_err(|error| Failure::io("random numbers", "be read", &error.into()))
}
