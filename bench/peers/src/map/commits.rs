//! Durable commits of several threads.

use super::{
    Options,
    times::{Clock, Times},
};
use crate::{Result, measure::written_bytes};
use std::{sync::Barrier, thread, time::Instant};

/// Numbers of threads that commit.
pub(super) const THREADS: [u64; 3] = [1, 8, 64];

/// The commits of all threads.
pub(super) struct Commits {
    /// Number of commits of each thread.
    pub(super) counts: Vec<u64>,
    times: Times,
    seconds: f64,
    written_bytes: u64,
}

/// Commits in several threads until the time is over. `commit` gets the number of the thread, and of
/// its commit.
pub(super) fn run(
    options: &Options,
    threads: u64,
    commit: &(dyn Fn(u64, u64) -> Result<()> + Sync),
) -> Result<Commits> {
    let each = options.operations.div_ceil(threads);
    let start = Barrier::new(threads as usize + 1);
    let work = |thread: u64| -> Result<(u64, Times)> {
        start.wait();
        let (mut clock, mut count) = (Clock::start(options.seconds), 0);
        while count < each && !clock.is_over() {
            commit(thread, count)?;
            clock.lap();
            count += 1;
        }
        Ok((count, clock.times))
    };
    thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..threads).map(|i| scope.spawn(move || work(i))).collect();
        let written = written_bytes()?;
        start.wait();
        let begin = Instant::now();
        let all: Vec<_> =
            all.into_iter().map(|thread| thread.join().expect("no commit panics")).collect();
        let seconds = begin.elapsed().as_secs_f64();
        let written_bytes = written_bytes()? - written;
        let all = all.into_iter().collect::<Result<Vec<(u64, Times)>>>()?;
        let mut times = Times::new();
        all.iter().for_each(|(_, some)| times.merge(some));
        let counts = all.into_iter().map(|(count, _)| count).collect();
        Ok(Commits { counts, times, seconds, written_bytes })
    })
}

impl Commits {
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Passes the figures on.
    pub(super) fn say(&self, threads: u64, say: &mut dyn FnMut(&str, f64)) {
        let count = self.count() as f64;
        let mut say = |name: &str, value| say(&format!("commit_{threads}_{name}"), value);
        say("per_s", count / self.seconds);
        say("p50_us", self.times.quantile_us(0.5));
        say("p99_us", self.times.quantile_us(0.99));
        say("bytes", self.written_bytes as f64 / count);
    }
}
