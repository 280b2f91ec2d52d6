//! Clocks, and folders that are removed.

use crate::Result;
use rustix::time::{ClockId, clock_gettime};
use std::{
    fs,
    path::{Path, PathBuf},
    process,
    time::Instant,
};

/// Returns the CPU time of `work` on this thread, in seconds, which other programs disturb less
/// than wall time.
pub fn thread_seconds(work: impl FnOnce()) -> f64 {
    let start = seconds(ClockId::ThreadCPUTime);
    work();
    seconds(ClockId::ThreadCPUTime) - start
}

/// The cost of a piece of work, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub wall: f64,
    /// CPU time of all threads of the process, user and system, in seconds.
    pub cpu: f64,
}

/// Runs `work` and measures its cost.
pub fn cost<T>(work: impl FnOnce() -> Result<T>) -> Result<(Cost, T)> {
    let cpu = seconds(ClockId::ProcessCPUTime);
    let start = Instant::now();
    let result = work()?;
    let wall = start.elapsed().as_secs_f64();
    Ok((Cost { wall, cpu: seconds(ClockId::ProcessCPUTime) - cpu }, result))
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Fails unless the answers of a measurement are right.
pub fn ensure(right: bool, wrong: impl FnOnce() -> String) -> Result<()> {
    if right { Ok(()) } else { Err(wrong().into()) }
}

/// A folder that is removed with its content on drop.
#[derive(Debug)]
pub struct TemporaryFolder {
    pub path: PathBuf,
}

impl TemporaryFolder {
    pub fn create(parent: &Path, name: &str) -> Result<TemporaryFolder> {
        let path = parent.join(format!("figures-{name}-{}", process::id()));
        fs::create_dir_all(&path)?;
        Ok(TemporaryFolder { path })
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
