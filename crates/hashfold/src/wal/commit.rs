//! Group commit: one of the threads that wait for their records to be durable writes and syncs for
//! all of them.
//!
//! ```text
//!  round 1:  leader takes what was appended ─ writes, syncs ─→ wakes those of round 1
//!  meanwhile others append and wait for round 2             └→ wakes one of round 2, which leads
//! ```

use super::sync::{Condvar, Mutex, MutexGuard};
use crate::error::Result;
use std::{fmt, mem, sync::PoisonError};

/// The rounds of a group commit, their waiting threads, and the durable part of the log.
pub(super) struct Commits {
    state: Mutex<State>,
    /// Condition variables of the even and the odd rounds, so that a thread wakes up for its own
    /// round only.
    done: [Condvar; 2],
}

struct State {
    /// Changes with lower sequence numbers are durable.
    durable: u64,
    /// Changes with lower sequence numbers are durable after the round that was begun last.
    writing: u64,
    /// Number of the round that was begun last.
    round: usize,
    /// Whether a thread leads a round, or is about to.
    is_led: bool,
    /// Whether a round has failed; there will be no further round.
    has_failed: bool,
    /// Numbers of threads that wait for even and for odd rounds, without the leading thread.
    waiting: [usize; 2],
    /// Number of threads that may commit in the next round: those of the last round, and those that
    /// waited when it ended.
    expected: usize,
}

/// How [`Commits::commit`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commit {
    Durable,
    /// A round of another thread failed.
    FailedBefore,
}

/// Whether all threads that may commit in a round wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gathered {
    All,
    Some,
}

impl Commits {
    pub(super) fn new(durable: u64) -> Commits {
        let state = State {
            durable,
            writing: durable,
            round: 0,
            is_led: false,
            has_failed: false,
            waiting: [0, 0],
            expected: 1,
        };
        Commits { state: Mutex::new(state), done: [Condvar::new(), Condvar::new()] }
    }

    pub(super) fn durable(&self) -> u64 {
        self.lock().durable
    }

    /// Waits until all changes before `seq` are durable. If no other thread leads, this one does: it
    /// waits for the threads of the last round as long as `give_way` returns `true`, takes appended
    /// records with `take`, which returns the sequence number after them, and makes them durable
    /// with `write`.
    ///
    /// # Errors
    /// The error of `take`, after which another thread tries; the error of `write`, after which every commit
    /// fails.
    pub(super) fn commit<Taken>(
        &self,
        seq: u64,
        mut give_way: impl FnMut() -> bool,
        take: impl Fn(Gathered) -> Result<(u64, Taken)>,
        write: impl Fn(Taken) -> Result<()>,
    ) -> Result<Commit> {
        loop {
            if let Some(commit) = self.wait_to_lead(seq) {
                return Ok(commit);
            }
            // If `take` or `write` fails for good or panics, no thread may wait for this one.
            let lead = Lead(self);
            let gathered = self.gather(&mut give_way);
            let mut state = self.lock();
            let taken = take(gathered).map(|(end, taken)| {
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

    /// Waits for the threads of the last round, as long as `give_way` returns `true`.
    fn gather(&self, give_way: &mut impl FnMut() -> bool) -> Gathered {
        loop {
            let state = self.lock();
            if state.waiting[(state.round + 1) % 2] + 1 >= state.expected {
                return Gathered::All;
            }
            drop(state);
            if !give_way() {
                return Gathered::Some;
            }
        }
    }

    /// Wakes the threads whose changes are now durable, if they are, and one thread of the next
    /// round.
    fn end_lead(&self, is_durable: bool) {
        let mut state = self.lock();
        state.is_led = false;
        let (now, next) = (state.round % 2, (state.round + 1) % 2);
        if is_durable {
            state.durable = state.writing;
            state.expected = 1 + mem::take(&mut state.waiting[now]) + state.waiting[next];
        }
        drop(state);
        // The next leader first: while it writes, the others wake up and append.
        self.done[next].notify_one();
        if is_durable {
            self.done[now].notify_all();
        }
    }

    /// Waits until changes are durable, or will never be. Returns `None` if this thread must lead.
    fn wait_to_lead(&self, seq: u64) -> Option<Commit> {
        let mut state = self.lock();
        let mut counted = None;
        loop {
            if state.durable >= seq {
                return Some(Commit::Durable);
            }
            if state.has_failed {
                return Some(Commit::FailedBefore);
            }
            let next = state.round + 1;
            if !state.is_led {
                state.is_led = true;
                state.waiting[next % 2] -= usize::from(counted == Some(next));
                return None;
            }
            let round = if seq <= state.writing { state.round } else { next };
            if counted != Some(round) {
                state.waiting[round % 2] += 1;
                counted = Some(round);
            }
            state = self.done[round % 2].wait(state).unwrap_or_else(PoisonError::into_inner);
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
        self.0.done.iter().for_each(Condvar::notify_all);
    }
}

impl fmt::Debug for Commits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Commits(durable before {})", self.durable())
    }
}
