//! Where a part meets the world: disk, executor and clock.

use crate::{
    io::{Disk, FaultPlan, FaultyDisk, OsDisk},
    work::{Clock, Executor, Inline, ManualClock, SystemClock},
};
use std::sync::Arc;

/// What a part is given to work with; no part reaches past it.
///
/// ```
/// use hashfold::{env::Env, work::Threads};
/// use std::sync::Arc;
///
/// let env = Env { executor: Arc::new(Threads::new(4)), ..Env::system() };
/// ```
#[derive(Clone, Debug)]
pub struct Env {
    /// The files.
    pub disk: Arc<dyn Disk>,
    /// Where background work runs.
    pub executor: Arc<dyn Executor>,
    /// What waits and rate limits go by.
    pub clock: Arc<dyn Clock>,
}

impl Env {
    /// The file system and the clock of this machine, and all work in the caller's thread.
    pub fn system() -> Env {
        Env { disk: Arc::new(OsDisk), executor: Arc::new(Inline), clock: Arc::new(SystemClock) }
    }

    /// A world for tests: an empty disk in RAM, all work in the caller's thread, and a clock whose
    /// waits take no time. What happens in it follows from the seed, which is that of the disk's
    /// [`FaultPlan`]; there are no faults in the plan.
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
