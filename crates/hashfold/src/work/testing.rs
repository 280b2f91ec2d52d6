//! An executor for tests, whose background jobs are late.

use super::{Clock as _, Executor, Job, SystemClock, Threads};
use crate::key::{KeyHash, Seed};
use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

const DELAY_US_MAX: u64 = 600;

/// A pool that delays about half of the jobs. The seed and the number of a job determine its delay.
#[derive(Debug)]
pub(crate) struct Late {
    threads: Threads,
    seed: Seed,
    jobs: AtomicU64,
}

impl Late {
    /// Makes a pool of `count` threads.
    pub(crate) fn new(count: usize, seed: Seed) -> Late {
        Late { threads: Threads::new(count), seed, jobs: AtomicU64::new(0) }
    }
}

impl Executor for Late {
    fn spawn(&self, job: Job) {
        let number = self.jobs.fetch_add(1, Relaxed);
        let random = KeyHash::of(&number.to_le_bytes(), self.seed);
        let is_late = random.low() & 1 == 1;
        self.threads.spawn(Box::new(move || {
            if is_late {
                SystemClock.sleep(Duration::from_micros(random.high() % DELAY_US_MAX));
            }
            job();
        }));
    }

    fn width(&self) -> usize {
        self.threads.width()
    }
}
