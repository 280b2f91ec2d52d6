//! Clocks, and the results of several rounds.

use crate::Result;
use rustix::time::{ClockId, clock_gettime};
use std::{
    fs,
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant},
};

/// The numbers of all rounds, in ascending order; at least one.
#[derive(Clone, Debug)]
pub struct Rounds(Vec<f64>);

impl Rounds {
    /// Measures `count` times.
    pub fn of(count: u32, mut measure: impl FnMut() -> Result<f64>) -> Result<Rounds> {
        assert!(count > 0);
        let numbers = (0..count).map(|_| measure()).collect::<Result<Vec<f64>>>()?;
        Ok(Rounds::from(numbers))
    }

    pub fn median(&self) -> f64 {
        (self.0[(self.0.len() - 1) / 2] + self.0[self.0.len() / 2]) / 2.0
    }

    pub fn min(&self) -> f64 {
        self.0[0]
    }

    pub fn max(&self) -> f64 {
        self.0[self.0.len() - 1]
    }
}

impl From<Vec<f64>> for Rounds {
    fn from(mut numbers: Vec<f64>) -> Rounds {
        assert!(!numbers.is_empty());
        numbers.sort_by(f64::total_cmp);
        Rounds(numbers)
    }
}

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

/// Waits until this process has used almost no CPU time for a while, so that no background job is
/// left. Returns the CPU time used until then, in seconds.
pub fn wait_until_idle() -> f64 {
    const PAUSE: Duration = Duration::from_millis(50);
    const CALM: u32 = 4;
    let start = seconds(ClockId::ProcessCPUTime);
    let (mut calm, mut last) = (0, start);
    while calm < CALM {
        thread::sleep(PAUSE);
        let now = seconds(ClockId::ProcessCPUTime);
        calm = if now - last < PAUSE.as_secs_f64() / 20.0 { calm + 1 } else { 0 };
        last = now;
    }
    last - start
}

/// Returns the number of bytes that this process has read from devices.
pub fn read_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    let field = text.lines().find_map(|line| line.strip_prefix("read_bytes:"));
    Ok(field.ok_or("/proc/self/io has no field read_bytes")?.trim().parse()?)
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
