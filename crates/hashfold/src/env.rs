//! The environment of a data set: disk, executor, clock and random numbers.

use crate::{
    io::{Disk, FaultPlan, FaultyDisk, OsDisk},
    work::{
        Clock, Executor, Inline, ManualClock, Random, SeededRandom, SystemClock, SystemRandom,
        Threads,
    },
};
use std::sync::Arc;

/// The disk, the executor, the clock and the random numbers of a data set, which uses no others.
/// Clones share them.
///
/// ```
/// use hashfold::{Env, work::Threads};
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
    /// The clock for timeouts, rate limits and the times of versions.
    pub clock: Arc<dyn Clock>,
    /// The random numbers for seeds and identifiers.
    pub random: Arc<dyn Random>,
}

impl Env {
    /// Returns the file system, the clock and the random numbers of this machine, and the
    /// executor that all data sets of the process share ([`Threads::shared`]).
    pub fn system() -> Env {
        Env {
            disk: Arc::new(OsDisk),
            executor: Threads::shared(),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
        }
    }

    /// Returns an environment with this disk, the clock and the random numbers of this machine, and
    /// background jobs in the caller's thread.
    pub fn on(disk: Arc<dyn Disk>) -> Env {
        Env { disk, executor: Arc::new(Inline), ..Env::system() }
    }

    /// Returns an environment for tests: an empty disk in RAM, background jobs in the caller's
    /// thread, a clock whose waits take no time, and random numbers that follow from `seed`, which
    /// is also the seed of the disk's [`FaultPlan`]. The plan has no faults.
    pub fn simulated(seed: u64) -> Env {
        let plan = FaultPlan { seed, faults: Vec::new() };
        Env {
            disk: Arc::new(FaultyDisk::new(plan)),
            executor: Arc::new(Inline),
            clock: Arc::new(ManualClock::new(1)),
            random: Arc::new(SeededRandom::new(seed)),
        }
    }
}

impl Default for Env {
    fn default() -> Env {
        Env::system()
    }
}
