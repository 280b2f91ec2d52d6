//! The background jobs of a filter. Threads of its executor run them. A caller that waits for a job
//! runs it if no thread has begun it.

use crate::work::Executor;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard},
};

/// Kinds of background jobs, the most urgent one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobKind {
    /// Makes a run in RAM from the immutable memtable.
    Pack,
    /// Writes runs in RAM as one run file.
    Flush,
    /// Merges run files.
    Merge,
}

type Work = Box<dyn FnOnce() + Send>;

/// The jobs of one filter that have not ended.
#[derive(Default)]
pub(super) struct Jobs {
    unfinished: Mutex<Unfinished>,
    /// Notified when a job is added, and when one ends.
    changed: Condvar,
}

#[derive(Default)]
struct Unfinished {
    /// The jobs that no thread has begun, oldest first.
    queue: Vec<(JobKind, Work)>,
    running: usize,
}

impl Jobs {
    /// Passes a job to the executor. The job's captured values are dropped before the job counts as
    /// ended.
    pub(super) fn spawn(self: &Arc<Self>, executor: &dyn Executor, kind: JobKind, work: Work) {
        self.lock().queue.push((kind, work));
        self.changed.notify_all();
        let jobs = self.clone();
        // Each call runs one job, the most urgent one, so every job is run.
        executor.spawn(Box::new(move || {
            jobs.run_one(None);
        }));
    }

    /// Whether a caller that waits for a job of this kind should run one that no thread has begun.
    /// Merges take long, so a caller runs a merge only if no other job is running.
    pub(super) fn needs_help(&self, kind: JobKind) -> bool {
        let jobs = self.lock();
        let is_stuck = kind != JobKind::Merge || jobs.running == 0;
        is_stuck && jobs.queue.iter().any(|job| job.0 == kind)
    }

    /// Runs a job of this kind that no thread has begun; returns whether there was one.
    pub(super) fn help(&self, kind: JobKind) -> bool {
        self.run_one(Some(kind))
    }

    /// Waits until all jobs have ended. Runs those that no thread has begun.
    pub(super) fn finish_all(&self) {
        loop {
            while self.run_one(None) {}
            let jobs = self.lock();
            if jobs.queue.is_empty() {
                if jobs.running == 0 {
                    return;
                }
                drop(self.changed.wait(jobs).expect("nothing panics under this lock"));
            }
        }
    }

    /// Runs the oldest job of this kind, or of the most urgent kind.
    fn run_one(&self, kind: Option<JobKind>) -> bool {
        let mut jobs = self.lock();
        let kind = kind.or_else(|| jobs.queue.iter().map(|job| job.0).min());
        let Some(i) = jobs.queue.iter().position(|job| Some(job.0) == kind) else { return false };
        let (_, work) = jobs.queue.remove(i);
        jobs.running += 1;
        drop(jobs);
        // Jobs report panics themselves. A job that panics anyway still counts as ended.
        let _ = catch_unwind(AssertUnwindSafe(work));
        self.lock().running -= 1;
        self.changed.notify_all();
        true
    }

    fn lock(&self) -> MutexGuard<'_, Unfinished> {
        self.unfinished.lock().expect("nothing panics under this lock")
    }
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let jobs = self.lock();
        write!(f, "Jobs({} running, {} waiting)", jobs.running, jobs.queue.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::{Inline, Job, Threads};
    use std::{
        mem,
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
    };

    /// An executor whose only thread is busy until [`Busy::go_on`].
    #[derive(Default)]
    struct Busy(Mutex<Vec<Job>>);

    impl std::fmt::Debug for Busy {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("Busy")
        }
    }

    impl Executor for Busy {
        fn spawn(&self, job: Job) {
            self.0.lock().unwrap().push(job);
        }

        fn width(&self) -> usize {
            1
        }
    }

    impl Busy {
        fn go_on(&self) {
            let jobs = mem::take(&mut *self.0.lock().unwrap());
            jobs.into_iter().for_each(|job| job());
        }
    }

    /// Returns jobs that record their kinds when they run.
    fn noted(executor: &dyn Executor) -> (Arc<Jobs>, Arc<Mutex<Vec<JobKind>>>) {
        let (jobs, done) = (Arc::new(Jobs::default()), Arc::new(Mutex::new(Vec::new())));
        for kind in [JobKind::Merge, JobKind::Flush, JobKind::Pack, JobKind::Merge] {
            let done = done.clone();
            jobs.spawn(executor, kind, Box::new(move || done.lock().unwrap().push(kind)));
        }
        (jobs, done)
    }

    const BY_URGENCY: [JobKind; 4] =
        [JobKind::Pack, JobKind::Flush, JobKind::Merge, JobKind::Merge];

    #[test]
    fn the_most_urgent_job_runs_first_and_each_once() {
        let busy = Busy::default();
        let (jobs, done) = noted(&busy);
        busy.go_on();
        assert_eq!(*done.lock().unwrap(), BY_URGENCY);
        jobs.finish_all();
        assert_eq!(done.lock().unwrap().len(), 4);
    }

    #[test]
    fn a_waiting_caller_runs_a_job_that_no_thread_has_begun() {
        let busy = Busy::default();
        let (jobs, done) = noted(&busy);
        assert!(jobs.help(JobKind::Flush));
        assert!(!jobs.help(JobKind::Flush));
        jobs.finish_all();
        let rest = [JobKind::Flush, JobKind::Pack, JobKind::Merge, JobKind::Merge];
        assert_eq!(*done.lock().unwrap(), rest);
        // The executor is too late: the job has run already.
        busy.go_on();
        assert_eq!(done.lock().unwrap().len(), 4);
    }

    #[test]
    fn a_merge_is_not_run_by_a_caller_while_another_job_runs() {
        let busy = Busy::default();
        let (jobs, _) = noted(&busy);
        assert!(jobs.help(JobKind::Pack));
        let others = jobs.clone();
        let helped = Arc::new(Mutex::new(None));
        let note = helped.clone();
        let act = move || *note.lock().unwrap() = Some(others.needs_help(JobKind::Merge));
        jobs.spawn(&Inline, JobKind::Pack, Box::new(act));
        assert_eq!(*helped.lock().unwrap(), Some(false));
        assert!(jobs.needs_help(JobKind::Merge) && jobs.needs_help(JobKind::Flush));
        busy.go_on();
        assert!(!jobs.needs_help(JobKind::Merge));
    }

    /// The captured values of a job are dropped before a wait for the job ends, also after a panic.
    #[test]
    fn the_memory_of_ended_jobs_is_freed() {
        let pool = Threads::new(2);
        let (jobs, held) = (Arc::new(Jobs::default()), Arc::new(AtomicUsize::new(0)));
        for i in 0..200 {
            let held = held.clone();
            let work = move || assert!(held.fetch_add(1, SeqCst) % 7 != i % 7, "on purpose");
            jobs.spawn(&pool, JobKind::Flush, Box::new(work));
        }
        jobs.finish_all();
        assert_eq!((held.load(SeqCst), Arc::strong_count(&held)), (200, 1));
    }
}
