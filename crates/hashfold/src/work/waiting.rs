//! Jobs that wait for jobs, in all interleavings: tests of the code of `Pending` on the locks and
//! threads of a scheduler that tries different orders. Issue 11, point 2.

use super::{Executor, Job};
use shuttle::{
    sync::{Arc, Mutex, mpsc},
    thread,
};
use std::{
    fmt,
    panic::{self, AssertUnwindSafe},
};

mod sync {
    pub(super) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
}

#[path = "pending.rs"]
#[expect(unreachable_pub, reason = "it is public where it belongs")]
mod pending;

use self::pending::Pending;

/// Number of random orders of a case with too many orders to try all.
const ORDERS: usize = 3000;
/// Maximum number of orders of a small case, all of which are tried.
const ORDERS_MAX: usize = 20_000;

/// The job queue of a pool on the scheduler's threads, which end when the last handle is dropped.
struct Queue(Mutex<mpsc::Sender<Job>>);

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queue")
    }
}

impl Executor for Queue {
    fn spawn(&self, job: Job) {
        self.0.lock().unwrap().send(job).unwrap();
    }

    fn width(&self) -> usize {
        1
    }
}

/// Calls `act` with a pool of `count` threads, and waits until they have ended.
fn with_pool(count: usize, act: impl FnOnce(&Arc<Queue>)) {
    let (queue, jobs) = mpsc::channel::<Job>();
    let jobs = Arc::new(Mutex::new(jobs));
    let start = |_| {
        let jobs = jobs.clone();
        thread::spawn(move || {
            loop {
                let job = jobs.lock().unwrap().recv();
                let Ok(job) = job else { return };
                job();
            }
        })
    };
    let threads: Vec<_> = (0..count).map(start).collect();
    let queue = Arc::new(Queue(Mutex::new(queue)));
    act(&queue);
    drop(queue);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Returns a sum, computed by jobs that start jobs on their own executor and wait for them.
fn sum(executor: &Arc<Queue>, depth: u32, width: u64) -> u64 {
    if depth == 0 {
        return 1;
    }
    let start = |_| {
        let executor_of_job = executor.clone();
        Pending::start(&**executor, move || sum(&executor_of_job, depth - 1, width))
    };
    let parts: Vec<_> = (0..width).map(start).collect();
    parts.into_iter().map(Pending::wait).sum()
}

fn run(threads: usize, depth: u32, width: u64) {
    with_pool(threads, |pool| assert_eq!(sum(pool, depth, width), width.pow(depth)));
}

#[test]
fn one_job_is_run_once_in_every_order() {
    shuttle::check_dfs(|| run(1, 1, 1), Some(ORDERS_MAX));
    shuttle::check_dfs(|| run(1, 1, 2), Some(ORDERS_MAX));
}

#[test]
fn jobs_that_wait_for_jobs_of_their_executor_never_wait_for_ever() {
    for (threads, depth, width) in [(1, 2, 2), (1, 3, 1), (2, 2, 2), (2, 3, 2)] {
        shuttle::check_random(move || run(threads, depth, width), ORDERS);
    }
}

#[test]
fn a_panic_of_a_job_reaches_the_waiting_thread_on_any_thread() {
    let check = || {
        with_pool(1, |pool| {
            let panic = || -> u64 { panic::resume_unwind(Box::new(7)) };
            let pending = Pending::start(&**pool, panic);
            let panic = panic::catch_unwind(AssertUnwindSafe(|| pending.wait())).unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&7));
        });
    };
    shuttle::check_random(check, ORDERS);
}
