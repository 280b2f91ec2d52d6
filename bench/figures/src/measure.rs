//! Clocks, and what several rounds gave.

use crate::Result;
use rustix::time::{ClockId, clock_gettime};
use std::{
    fs,
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant},
};

/// The numbers of all rounds, in ascending order; never empty.
#[derive(Clone, Debug)]
pub struct Rounds(Vec<f64>);

impl Rounds {
    /// Measures so many times.
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

/// The CPU time of `work` on this thread, in seconds: less disturbed by what else the machine
/// does.
pub fn thread_seconds(work: impl FnOnce()) -> f64 {
    let start = seconds(ClockId::ThreadCPUTime);
    work();
    seconds(ClockId::ThreadCPUTime) - start
}

/// What a piece of work took, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub wall: f64,
    /// CPU time of all threads of the process, user and system, in seconds.
    pub cpu: f64,
}

/// Does `work` and says what it took.
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

/// Returns when this process has used next to no CPU time for a while, so that no work in the
/// background is left; how much it used until then, in seconds.
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

/// What this process fetched from devices so far, in bytes.
pub fn read_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    let field = text.lines().find_map(|line| line.strip_prefix("read_bytes:"));
    Ok(field.ok_or("/proc/self/io has no field read_bytes")?.trim().parse()?)
}

/// A measurement's answers must be right.
pub fn ensure(right: bool, wrong: impl FnOnce() -> String) -> Result<()> {
    if right { Ok(()) } else { Err(wrong().into()) }
}

/// A folder that is removed, with all that is in it, when this is dropped.
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
