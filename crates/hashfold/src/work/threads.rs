//! A pool of threads.

use super::{Executor, Job};
use std::{
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, LazyLock, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
};

/// Number of threads of the shared executor beyond one per CPU.
const WAITING_THREADS: usize = 4;

/// An executor with a fixed number of threads and one job queue. Dropping it waits for all jobs.
pub struct Threads {
    /// The job queue; `None` if there are no threads, and while they end.
    queue: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

/// The receiving end of the job queue.
type Queue = Arc<Mutex<Receiver<Job>>>;

impl Threads {
    /// Starts a pool of `count` threads, at least one. If the system refuses to start more threads,
    /// the pool is smaller.
    ///
    /// If the system refuses even the first thread, each job runs in its caller's thread, as with
    /// [`Inline`](super::Inline). [`width`](Executor::width) returns the number of threads.
    pub fn new(count: usize) -> Threads {
        Threads::start(count, start_thread)
    }

    /// Returns the executor that all callers in the process share. It has a thread per CPU and four
    /// more, because some wait for the disk. They start with the first job and never end.
    pub fn shared() -> Arc<dyn Executor> {
        Arc::new(Shared)
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

/// Runs a job. If it panics, the thread survives, and [`Pending::wait`](super::Pending::wait)
/// resumes the panic.
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

/// The executor of [`Threads::shared`].
#[derive(Debug)]
struct Shared;

impl Shared {
    fn threads() -> &'static Threads {
        static THREADS: LazyLock<Threads> = LazyLock::new(|| {
            let cpus = thread::available_parallelism().map_or(1, usize::from);
            Threads::new(cpus + WAITING_THREADS)
        });
        &THREADS
    }
}

impl Executor for Shared {
    fn spawn(&self, job: Job) {
        Shared::threads().spawn(job);
    }

    fn width(&self) -> usize {
        Shared::threads().width()
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
mod tests {
    use super::*;
    use crate::work::{Inline, Pending};

    fn check(executor: &dyn Executor) {
        let squares: Vec<_> = (0..100).map(|i| Pending::start(executor, move || i * i)).collect();
        let squares: Vec<u64> = squares.into_iter().map(Pending::wait).collect();
        assert_eq!(squares, (0..100).map(|i| i * i).collect::<Vec<_>>());
    }

    #[test]
    fn every_job_runs_once_on_any_thread() {
        check(&Inline);
        check(&Threads::new(1));
        check(&Threads::new(7));
        check(&*Threads::shared());
    }

    /// Starts 7 threads on a system that allows `limit`.
    fn limited(limit: usize) -> Threads {
        Threads::start(7, |i, jobs| match i < limit {
            true => start_thread(i, jobs),
            false => Err(io::ErrorKind::WouldBlock.into()),
        })
    }

    /// Issue 10: a refused thread caused a panic.
    #[test]
    fn every_job_runs_with_any_number_of_threads() {
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

    /// A job that waits for jobs of its own executor, three levels deep, on fewer than three
    /// threads.
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
    fn a_panic_reaches_the_waiting_thread_and_the_pool_survives() {
        let pool = Threads::new(1);
        let pending = Pending::start(&pool, || panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(|| pending.wait())).is_err());
        check(&pool);
    }
}
