//! The number of cores of a measurement.

use crate::Result;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::thread::available_parallelism;

/// Limits this thread, and the threads that it starts, to a number of cores until it is dropped.
#[derive(Debug)]
pub struct Cores {
    before: CpuSet,
}

impl Cores {
    pub fn limit(count: usize) -> Result<Cores> {
        let before = sched_getaffinity(None)?;
        let mut limited = CpuSet::new();
        let all = (0..CpuSet::MAX_CPU).filter(|&core| before.is_set(core));
        all.take(count).for_each(|core| limited.set(core));
        if (limited.count() as usize) < count {
            let there = before.count();
            return Err(format!("{count} cores are asked for, {there} are there").into());
        }
        sched_setaffinity(None, &limited)?;
        Ok(Cores { before })
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        // These cores were allowed before.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Returns the default numbers of cores for builds: one, and two if they exist.
pub fn default_cores() -> Vec<usize> {
    let cores = available_parallelism().map_or(1, usize::from);
    (1..=cores.min(2)).collect()
}
