//! A job whose result the caller waits for. A job that no thread has begun is run by the waiting
//! thread.

use super::{
    Executor,
    sync::{Arc, Condvar, Mutex, MutexGuard},
};
use std::{
    fmt, mem,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
};

/// The result of a job that may not have begun yet.
///
/// A job is run once, by a thread of its executor or by the thread that waits for it.
pub struct Pending<T>(Arc<Task<T>>);

/// A job and its result, shared by the executor and the waiting thread.
struct Task<T> {
    state: Mutex<TaskState<T>>,
    /// Notified when the state becomes [`TaskState::Done`].
    done: Condvar,
}

enum TaskState<T> {
    /// No thread has begun the job.
    Queued(Box<dyn FnOnce() -> T + Send>),
    Running,
    /// The job has returned, or it has panicked.
    Done(thread::Result<T>),
}

impl<T: Send + 'static> Pending<T> {
    /// Starts a job on `executor`.
    pub fn start(executor: &dyn Executor, work: impl FnOnce() -> T + Send + 'static) -> Pending<T> {
        let state = Mutex::new(TaskState::Queued(Box::new(work)));
        let task = Arc::new(Task { state, done: Condvar::new() });
        let pending = Pending(task.clone());
        executor.spawn(Box::new(move || task.run()));
        pending
    }

    /// Returns the result. If no thread has begun the job, the caller's thread runs it. A panic of
    /// the job is resumed here.
    pub fn wait(self) -> T {
        self.0.run();
        match self.0.result() {
            Ok(value) => value,
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<T> Task<T> {
    /// Runs the job, unless it has begun.
    fn run(&self) {
        let mut state = self.lock();
        match mem::replace(&mut *state, TaskState::Running) {
            TaskState::Queued(work) => {
                drop(state);
                let result = catch_unwind(AssertUnwindSafe(work));
                *self.lock() = TaskState::Done(result);
                self.done.notify_all();
            }
            begun => *state = begun,
        }
    }

    /// Waits for the result of a job that has begun, and takes it.
    fn result(&self) -> thread::Result<T> {
        let mut state = self.lock();
        loop {
            match mem::replace(&mut *state, TaskState::Running) {
                TaskState::Done(result) => return result,
                begun => *state = begun,
            }
            state = self.done.wait(state).expect("nothing panics under this lock");
        }
    }

    fn lock(&self) -> MutexGuard<'_, TaskState<T>> {
        self.state.lock().expect("nothing panics under this lock")
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self.0.lock() {
            TaskState::Queued(_) => "Pending(queued)",
            TaskState::Running => "Pending(running)",
            TaskState::Done(_) => "Pending(done)",
        })
    }
}
