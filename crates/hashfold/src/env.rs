//! The environment of a data set: disk, executor and clock.

use crate::{
    io::{Disk, FaultPlan, FaultyDisk, OsDisk},
    work::{Clock, Executor, Inline, ManualClock, SystemClock},
};
use std::sync::Arc;

/// The disk, the executor and the clock that a data set uses. It uses no others.
///
/// ```
/// use hashfold::{env::Env, work::Threads};
/// use std::sync::Arc;
///
/// let env = Env { executor: Arc::new(Threads::new(4)), ..Env::system() };
/// ```
#[derive(Clone, Debug)]
pub struct Env {
    /// The disk that holds all files.
    pub disk: Arc<dyn Disk>,
    /// The executor that runs background jobs.
    pub executor: Arc<dyn Executor>,
    /// The clock for timeouts and rate limits.
    pub clock: Arc<dyn Clock>,
}

impl Env {
    /// Returns the file system and the clock of this machine, with background jobs run in the
    /// caller's thread.
    pub fn system() -> Env {
        Env { disk: Arc::new(OsDisk), executor: Arc::new(Inline), clock: Arc::new(SystemClock) }
    }

    /// Returns an environment for tests: an empty disk in RAM, background jobs in the caller's
    /// thread, and a clock whose waits take no time. `seed` is the seed of the disk's
    /// [`FaultPlan`], which has no faults.
    pub fn simulated(seed: u64) -> Env {
        let plan = FaultPlan { seed, faults: Vec::new() };
        Env {
            disk: Arc::new(FaultyDisk::new(plan)),
            executor: Arc::new(Inline),
            clock: Arc::new(ManualClock::new(1)),
        }
    }
}

impl Default for Env {
    fn default() -> Env {
        Env::system()
    }
}
