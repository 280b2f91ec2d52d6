//! Where background work runs: the caller decides.

use std::fmt;

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
