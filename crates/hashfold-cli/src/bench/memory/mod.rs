//! `hashfold bench memory`: tables in RAM.

mod append;
mod day;
mod group;
mod read;

#[cfg(all(feature = "deploy", feature = "serve"))]
pub(super) use self::append::{RECORD, record, records};

use super::{
    MemoryBench,
    measure::{Report, wall_seconds},
};
use crate::failure::Result;
use hashfold::{
    KeyHash, Seed,
    memory::MemoryOptions,
    work::{Executor, Threads},
};
use std::{sync::Arc, thread, time::Duration};

/// Number of parts of equal work whose times are compared.
const INTERVALS: u64 = 100;

/// Number of shards, with a writer each, of a table that more than one thread changes.
const SHARDS: usize = 2;

/// Number of items that are handed to the writers at a time.
const HANDED_OVER: usize = 1 << 20;

pub(super) fn run(bench: &MemoryBench, report: &Report) -> Result<()> {
    let wants = |group: &str| bench.only.is_empty() || bench.only.iter().any(|only| only == group);
    if wants("group") {
        group::run(bench, report)?;
    }
    if wants("append") {
        append::run(bench, report)?;
    }
    if bench.only.iter().any(|only| only == "day") {
        day::run(bench, report)?;
    }
    Ok(())
}

/// Returns options for a writer of each shard; threads populate memory ahead.
fn options(bench: &MemoryBench, shards: usize) -> MemoryOptions {
    let threads: Arc<dyn Executor> = Arc::new(Threads::new(bench.threads));
    let (seed, load, executor) = (Seed(bench.seed), bench.load, Some(threads));
    MemoryOptions { seed, shards, load, executor, ..MemoryOptions::default() }
}

/// Hands items to a thread for each of [`SHARDS`] shards, and returns the time in which all threads write them, in
/// seconds. `write` gets a batch of items of one shard.
fn write_shards<T: Sync>(
    items: impl Iterator<Item = (usize, T)>,
    batch: usize,
    write: impl Fn(&[T]) -> hashfold::Result<()> + Sync,
) -> Result<f64> {
    let (mut items, mut seconds) = (items.peekable(), 0.0);
    let write_all = |items: &[T]| items.chunks(batch).try_for_each(&write);
    while items.peek().is_some() {
        let mut shards: [Vec<T>; SHARDS] = Default::default();
        items.by_ref().take(HANDED_OVER).for_each(|(shard, item)| shards[shard].push(item));
        let (time, written) = wall_seconds(|| {
            thread::scope(|scope| {
                let writers = shards.each_ref().map(|items| scope.spawn(|| write_all(items)));
                writers.map(|writer| writer.join().expect("a writer does not panic"))
            })
        });
        written.into_iter().collect::<hashfold::Result<()>>()?;
        seconds += time;
    }
    Ok(seconds)
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
