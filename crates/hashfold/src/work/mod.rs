//! Where background work runs.
//!
//! The library starts no thread of its own accord: a part that can use a second core or wait for
//! the disk in the background takes an [`Executor`]. [`Inline`] runs everything in the caller,
//! [`Threads`] is the pool that the command uses.
//!
//! Waiting helps: [`Pending::wait`] runs a job that no thread has begun. So a job may wait for
//! other jobs of its own executor, whatever the number of threads.

mod pending;
#[cfg(test)]
mod waiting;

pub use self::pending::Pending;

use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
};

/// The locks of [`pending`], which a test replaces by those of a scheduler that tries all orders.
mod sync {
    pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
}

/// A piece of work.
pub type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs, now or later, in the order given or not.
pub trait Executor: fmt::Debug + Send + Sync {
    /// Takes a job; it will be run exactly once.
    fn spawn(&self, job: Job);

    /// How many jobs can run at once besides the caller; 0 if `spawn` runs them in the caller.
    fn width(&self) -> usize;
}

/// Runs each job at once, in the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline;

impl Executor for Inline {
    fn spawn(&self, job: Job) {
        job();
    }

    fn width(&self) -> usize {
        0
    }
}

/// A fixed number of threads that take jobs from one queue. Dropping it waits for all jobs.
pub struct Threads {
    /// `None` if there are no threads, and while they end.
    queue: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

/// The jobs that wait for a thread.
type Queue = Arc<Mutex<Receiver<Job>>>;

impl Threads {
    /// A pool of `count` threads, at least one, or of fewer if the system refuses to start more.
    ///
    /// If the system refuses even the first thread, each job runs in its caller, as with
    /// [`Inline`]; [`width`](Executor::width) tells how many threads there are.
    pub fn new(count: usize) -> Threads {
        Threads::start(count, start_thread)
    }

    /// Starts threads with `start` until there are `count` or one is refused.
    fn start(
        count: usize,
        mut start: impl FnMut(usize, Queue) -> io::Result<JoinHandle<()>>,
    ) -> Threads {
        let (queue, jobs) = channel();
        let jobs = Arc::new(Mutex::new(jobs));
        let threads = (0..count.max(1)).map_while(|i| start(i, jobs.clone()).ok());
        let threads: Vec<_> = threads.collect();
        Threads { queue: (!threads.is_empty()).then_some(queue), threads }
    }
}

fn start_thread(i: usize, jobs: Queue) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(format!("hashfold-{i}")).spawn(move || {
        loop {
            let job = jobs.lock().expect("no job runs under this lock").recv();
            let Ok(job) = job else { return };
            run(job);
        }
    })
}

/// Runs a job. A panic reaches the job's `Pending::wait`; the thread lives on.
fn run(job: Job) {
    let _ = catch_unwind(AssertUnwindSafe(job));
}

impl Executor for Threads {
    fn spawn(&self, job: Job) {
        match &self.queue {
            Some(queue) => queue.send(job).expect("the threads live until drop"),
            None => run(job),
        }
    }

    fn width(&self) -> usize {
        self.threads.len()
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threads({})", self.threads.len())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.queue = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! An executor for tests in which background work lags behind.
    use super::*;
    use crate::key::{KeyHash, Seed};
    use std::{
        sync::atomic::{AtomicU64, Ordering::Relaxed},
        time::Duration,
    };

    const DELAY_US_MAX: u64 = 600;

    /// A pool that delays every other job, by a time that follows from the seed and the number of
    /// the job.
    #[derive(Debug)]
    pub(crate) struct Late {
        threads: Threads,
        seed: Seed,
        jobs: AtomicU64,
    }

    impl Late {
        /// A pool of `count` threads.
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
                    thread::sleep(Duration::from_micros(random.high() % DELAY_US_MAX));
                }
                job();
            }));
        }

        fn width(&self) -> usize {
            self.threads.width()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(executor: &dyn Executor) {
        let squares: Vec<_> = (0..100).map(|i| Pending::start(executor, move || i * i)).collect();
        let squares: Vec<u64> = squares.into_iter().map(Pending::wait).collect();
        assert_eq!(squares, (0..100).map(|i| i * i).collect::<Vec<_>>());
    }

    #[test]
    fn every_job_runs_once_whoever_runs_it() {
        check(&Inline);
        check(&Threads::new(1));
        check(&Threads::new(7));
    }

    /// A pool of 7 threads on a system that gives `limit`.
    fn limited(limit: usize) -> Threads {
        Threads::start(7, |i, jobs| match i < limit {
            true => start_thread(i, jobs),
            false => Err(io::ErrorKind::WouldBlock.into()),
        })
    }

    /// Issue 10: a thread that the system refused was a panic.
    #[test]
    fn every_job_runs_however_few_threads_the_system_gives() {
        for limit in [0, 1, 3, 7] {
            let pool = limited(limit);
            assert_eq!(pool.width(), limit);
            check(&pool);
            let pending = Pending::start(&pool, || panic!("on purpose"));
            assert!(catch_unwind(AssertUnwindSafe(|| pending.wait())).is_err());
            pool.spawn(Box::new(|| panic!("on purpose")));
            check(&pool);
        }
    }

    /// A job that waits for jobs of its own executor, three levels deep, on fewer threads than that.
    #[test]
    fn a_job_may_wait_for_jobs_of_its_executor() {
        fn sum(executor: &Arc<dyn Executor>, depth: u32) -> u64 {
            if depth == 0 {
                return 1;
            }
            let part = |_| {
                let executor_of_job = executor.clone();
                Pending::start(&**executor, move || sum(&executor_of_job, depth - 1))
            };
            let parts: Vec<_> = (0..5).map(part).collect();
            parts.into_iter().map(Pending::wait).sum()
        }
        for threads in [1, 2, 7] {
            assert_eq!(sum(&(Arc::new(Threads::new(threads)) as _), 3), 125);
        }
        assert_eq!(sum(&(Arc::new(Inline) as _), 3), 125);
    }

    #[test]
    fn a_panic_reaches_the_one_who_waits_and_the_pool_goes_on() {
        let pool = Threads::new(1);
        let pending = Pending::start(&pool, || panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(|| pending.wait())).is_err());
        check(&pool);
    }
}
