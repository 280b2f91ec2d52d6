//! `hashfold bench memory`: tables in RAM.

mod append;
mod group;

#[cfg(all(feature = "deploy", feature = "serve"))]
pub(super) use self::append::{RECORD, record, records};

use super::{MemoryBench, measure::Report};
use crate::failure::Result;
use hashfold::{
    KeyHash, Seed,
    memory::MemoryOptions,
    work::{Executor, Threads},
};
use std::{sync::Arc, time::Duration};

/// Number of parts of equal work whose times are compared.
const INTERVALS: u64 = 100;

pub(super) fn run(bench: &MemoryBench, report: &Report) -> Result<()> {
    let wants = |group: &str| bench.only.is_empty() || bench.only.iter().any(|only| only == group);
    if wants("group") {
        group::run(bench, report)?;
    }
    if wants("append") {
        append::run(bench, report)?;
    }
    Ok(())
}

/// Returns options for one writer; threads populate memory ahead.
fn options(bench: &MemoryBench) -> MemoryOptions {
    let threads: Arc<dyn Executor> = Arc::new(Threads::new(bench.threads));
    let (seed, load, executor) = (Seed(bench.seed), bench.load, Some(threads));
    MemoryOptions { seed, shards: 1, load, executor, ..MemoryOptions::default() }
}

/// Returns a pseudorandom key.
pub(super) fn key(i: u64, seed: u64) -> u64 {
    KeyHash::of(&i.to_le_bytes(), Seed(seed)).high()
}

/// The times of parts of equal work.
#[derive(Debug, Default)]
struct Intervals {
    current: Duration,
    times: Vec<f64>,
}

impl Intervals {
    /// Adds the time of some work, after which `done` of `all` steps are done.
    fn add(&mut self, time: Duration, done: u64, all: u64) {
        self.current += time;
        if done * INTERVALS / all > self.times.len() as u64 {
            self.times.push(self.current.as_secs_f64());
            self.current = Duration::ZERO;
        }
    }

    /// Returns the time of all work in seconds, and that of the slowest part divided by the median.
    fn finish(mut self) -> (f64, f64) {
        let all = self.times.iter().sum::<f64>() + self.current.as_secs_f64();
        self.times.sort_by(f64::total_cmp);
        let median = super::measure::median(&self.times);
        (all, self.times.last().map_or(f64::NAN, |slowest| slowest / median))
    }
}
