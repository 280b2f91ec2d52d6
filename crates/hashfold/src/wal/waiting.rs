//! Group commit in all interleavings: tests of the code of `Commits` on the locks and threads of a
//! scheduler that tries different orders.

use crate::error::{ErrorKind, Result};
use shuttle::{
    sync::{Arc, Mutex},
    thread,
};

mod sync {
    pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic::AtomicU64};
}

#[path = "commit.rs"]
mod commit;

use self::commit::{Commit, Commits};

/// Number of random orders per case.
const ORDERS: usize = 4000;

/// A log without bytes: the numbers of appended and of durable changes.
struct Log {
    commits: Commits,
    appended: Mutex<u64>,
    device: Mutex<u64>,
    /// Number of rounds until the disk is full, and until a sync fails.
    faults: Mutex<(u32, u32)>,
}

impl Log {
    fn new(full_at: u32, fails_at: u32) -> Log {
        Log {
            commits: Commits::new(0),
            appended: Mutex::new(0),
            device: Mutex::new(0),
            faults: Mutex::new((full_at, fails_at)),
        }
    }

    fn append(&self) -> u64 {
        let mut appended = self.appended.lock().unwrap();
        *appended += 1;
        *appended
    }

    /// Takes all changes, or leaves those after `seq` for the next round.
    fn take(&self, seq: u64) -> Result<(u64, u64)> {
        let end = *self.appended.lock().unwrap();
        let end = if end.is_multiple_of(2) { seq } else { end };
        let faults = &mut *self.faults.lock().unwrap();
        faults.0 = faults.0.wrapping_sub(1);
        if faults.0 == 0 { Err(ErrorKind::Stopped.into()) } else { Ok((end, end)) }
    }

    fn write(&self, end: u64) -> Result<()> {
        let faults = &mut *self.faults.lock().unwrap();
        faults.1 = faults.1.wrapping_sub(1);
        if faults.1 == 0 {
            return Err(ErrorKind::Stopped.into());
        }
        thread::yield_now();
        let before = std::mem::replace(&mut *self.device.lock().unwrap(), end);
        assert!(before < end, "rounds come one after the other, each with something to do");
        Ok(())
    }

    fn commit(&self, seq: u64) -> Result<Commit> {
        let mut patience = seq % 3;
        let stay_awake = || {
            thread::yield_now();
            patience = patience.saturating_sub(1);
            patience > 0
        };
        let done = self.commits.commit(seq, stay_awake, || self.take(seq), |end| self.write(end));
        if matches!(done, Ok(Commit::Durable)) {
            assert!(*self.device.lock().unwrap() >= seq);
            assert!(self.commits.durable() >= seq);
        }
        done
    }
}

/// Runs threads that append and commit, each a few times. Returns the results of their commits. The
/// scheduler reports a thread that waits forever.
fn run(threads: u32, commits: u32, (full_at, fails_at): (u32, u32)) -> Vec<Result<Commit>> {
    let log = Arc::new(Log::new(full_at, fails_at));
    let start = |_| {
        let log = log.clone();
        thread::spawn(move || (0..commits).map(|_| log.commit(log.append())).collect::<Vec<_>>())
    };
    let threads: Vec<_> = (0..threads).map(start).collect();
    threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn every_commit_ends_and_is_durable_in_every_order() {
    for (threads, commits) in [(1, 3), (2, 2), (3, 2), (5, 1)] {
        let check = move || {
            let ends = run(threads, commits, (0, 0));
            assert!(ends.iter().all(|end| matches!(end, Ok(Commit::Durable))));
        };
        shuttle::check_random(check, ORDERS);
    }
    let two = || assert_eq!(run(2, 1, (0, 0)).len(), 2);
    shuttle::check_dfs(two, Some(20_000));
}

#[test]
fn no_thread_waits_forever_when_the_disk_is_full_or_a_sync_fails() {
    for fault in 1..4 {
        let full = move || {
            let ends = run(3, 2, (fault, 0));
            assert!(ends.iter().filter(|end| end.is_err()).count() <= 1);
        };
        shuttle::check_random(full, ORDERS);
        let failed = move || {
            let ends = run(3, 2, (0, fault));
            assert!(ends.iter().filter(|end| end.is_err()).count() <= 1);
            let is_last = |end: &Result<Commit>| !matches!(end, Ok(Commit::Durable));
            assert!(!ends.iter().any(is_last) || ends.iter().any(Result::is_err));
        };
        shuttle::check_random(failed, ORDERS);
    }
}
