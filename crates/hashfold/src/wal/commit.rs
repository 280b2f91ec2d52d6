//! Group commit: one of the threads that wait for their records to be durable is the leader. It
//! writes and syncs for all of them.
//!
//! ```text
//!  round 1:    leader takes all records ─ writes, syncs ─→ wakes the threads of round 1
//!  meanwhile:  other threads append and wait for round 2 └→ a thread of round 2 leads
//! ```
//!
//! Waking a sleeping thread takes about 10 µs of CPU time, a sync of a fast device about 100 µs. With
//! many threads, waking them takes longer than the sync that they wait for. So a thread stays awake
//! for a while, and yields the CPU to other threads, before it sleeps. RocksDB's group commit waits
//! in the same two steps.

use super::sync::{AtomicU64, Condvar, Mutex, MutexGuard};
use crate::error::Result;
use std::{
    fmt, mem,
    sync::{PoisonError, atomic::Ordering::Relaxed},
};

/// The rounds of a group commit, their waiting threads, and the durable part of the log.
pub(super) struct Commits {
    state: Mutex<State>,
    /// Number of rounds that have ended. Changes under the lock of the state.
    ended: AtomicU64,
    /// Condition variables of the even and the odd rounds, so that a thread wakes up for its own
    /// round only.
    done: [Condvar; 2],
}

struct State {
    /// Changes with lower sequence numbers are durable.
    durable: u64,
    /// Changes with lower sequence numbers are durable after the last round that began.
    writing: u64,
    /// Number of the last round that began.
    round: usize,
    /// Whether a thread leads a round, or is about to lead one.
    is_led: bool,
    /// Whether a round has failed; there will be no further round.
    has_failed: bool,
    /// Numbers of threads that sleep until the end of even and of odd rounds.
    asleep: [usize; 2],
}

/// The result of [`Commits::commit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commit {
    Durable,
    /// A round of another thread failed.
    FailedBefore,
}

impl Commits {
    pub(super) fn new(durable: u64) -> Commits {
        let state = State {
            durable,
            writing: durable,
            round: 0,
            is_led: false,
            has_failed: false,
            asleep: [0, 0],
        };
        Commits {
            state: Mutex::new(state),
            ended: AtomicU64::new(0),
            done: [Condvar::new(), Condvar::new()],
        }
    }

    pub(super) fn durable(&self) -> u64 {
        self.lock().durable
    }

    /// Waits until all changes before `seq` are durable. The thread stays awake while `stay_awake`,
    /// which yields the CPU, returns `true`, and then sleeps. If no other thread leads, this thread
    /// does: it takes appended records with `take`, which returns the sequence number after them,
    /// and makes them durable with `write`.
    ///
    /// # Errors
    /// The error of `take`, after which another thread leads; the error of `write`, after which
    /// every commit fails.
    pub(super) fn commit<Taken>(
        &self,
        seq: u64,
        mut stay_awake: impl FnMut() -> bool,
        take: impl Fn() -> Result<(u64, Taken)>,
        write: impl Fn(Taken) -> Result<()>,
    ) -> Result<Commit> {
        loop {
            if let Some(commit) = self.wait_to_lead(seq, &mut stay_awake) {
                return Ok(commit);
            }
            // If `take` or `write` fails for good or panics, other threads must not wait for this
            // thread.
            let lead = Lead(self);
            let mut state = self.lock();
            let taken = take().map(|(end, taken)| {
                state.round += 1;
                state.writing = end;
                taken
            });
            drop(state);
            let result = match taken {
                Ok(taken) => write(taken).map(Ok)?,
                Err(error) => Err(error),
            };
            mem::forget(lead);
            self.end_lead(result.is_ok());
            result?;
        }
    }

    /// Waits until changes are durable, or can never be. Returns `None` if this thread must lead.
    fn wait_to_lead(&self, seq: u64, stay_awake: &mut impl FnMut() -> bool) -> Option<Commit> {
        let mut is_awake = true;
        let mut state = self.lock();
        loop {
            if state.durable >= seq {
                return Some(Commit::Durable);
            }
            if state.has_failed {
                return Some(Commit::FailedBefore);
            }
            if !state.is_led {
                state.is_led = true;
                return None;
            }
            if is_awake {
                let ended = self.ended.load(Relaxed);
                drop(state);
                // The lock is released, because the leader needs it.
                while is_awake && self.ended.load(Relaxed) == ended {
                    is_awake = stay_awake();
                }
                state = self.lock();
                continue;
            }
            let parity = (state.round + usize::from(seq > state.writing)) % 2;
            state.asleep[parity] += 1;
            state = self.done[parity].wait(state).unwrap_or_else(PoisonError::into_inner);
            state.asleep[parity] -= 1;
        }
    }

    /// Wakes one thread of the next round and, if the round succeeded, the threads whose changes
    /// are now durable.
    fn end_lead(&self, is_durable: bool) {
        let mut state = self.lock();
        state.is_led = false;
        if is_durable {
            state.durable = state.writing;
        }
        self.ended.fetch_add(1, Relaxed);
        let (now, next, asleep) = (state.round % 2, (state.round + 1) % 2, state.asleep);
        drop(state);
        // The next leader wakes first: while it writes, the other threads wake and append.
        if asleep[next] > 0 {
            self.done[next].notify_one();
        }
        if is_durable && asleep[now] > 0 {
            self.done[now].notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that makes the log fail if the leading thread panics.
struct Lead<'a>(&'a Commits);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.is_led, state.has_failed) = (false, true);
        self.0.ended.fetch_add(1, Relaxed);
        self.0.done.iter().for_each(Condvar::notify_all);
    }
}

impl fmt::Debug for Commits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Commits(durable before {})", self.durable())
    }
}
