//! Executors run background jobs where the caller chooses.

use std::fmt;

/// A background job.
pub type Job = Box<dyn FnOnce() + Send>;

/// An executor of background jobs, which runs them in any order.
pub trait Executor: fmt::Debug + Send + Sync {
    /// Takes a job, which is run exactly once.
    fn spawn(&self, job: Job);

    /// Returns the number of jobs that can run at once besides the caller; 0 if `spawn` runs jobs
    /// in the caller's thread.
    fn width(&self) -> usize;
}

/// An executor that runs each job at once, in the caller's thread.
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
