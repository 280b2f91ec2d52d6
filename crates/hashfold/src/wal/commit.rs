//! Group commit: of all threads that wait for their records to be durable, one writes and syncs for
//! all.
//!
//! ```text
//!  round 1:  leader takes what was appended ─ writes, syncs ─→ wakes those of round 1
//!  meanwhile others append and wait for round 2             └→ wakes one of round 2, which leads
//! ```

use super::sync::{Condvar, Mutex, MutexGuard};
use crate::error::Result;
use std::{fmt, mem, sync::PoisonError};

/// Who waits for which round, and how far the log is durable.
pub(super) struct Commits {
    state: Mutex<State>,
    /// Where the threads of even and of odd rounds wait: so each wakes up for its own round only.
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
    /// A round failed: there will be no other.
    has_failed: bool,
}

/// How [`Commits::commit`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commit {
    Durable,
    /// A round of another thread failed.
    FailedBefore,
}

impl Commits {
    pub(super) fn new(durable: u64) -> Commits {
        let state = State { durable, writing: durable, round: 0, is_led: false, has_failed: false };
        Commits { state: Mutex::new(state), done: [Condvar::new(), Condvar::new()] }
    }

    pub(super) fn durable(&self) -> u64 {
        self.lock().durable
    }

    /// Waits until all changes before `seq` are durable. If nobody else leads, this thread does: it
    /// waits for others with `gather`, takes all that was appended with `take`, which returns the
    /// sequence number after it, and makes it durable with `write`.
    ///
    /// # Errors
    /// The error of `take`, after which another thread tries; the error of `write`, after which
    /// nobody does.
    pub(super) fn commit<Taken>(
        &self,
        seq: u64,
        gather: impl FnOnce(),
        take: impl FnOnce() -> Result<(u64, Taken)>,
        write: impl FnOnce(Taken) -> Result<()>,
    ) -> Result<Commit> {
        if let Some(commit) = self.wait_to_lead(seq) {
            return Ok(commit);
        }
        // If `take` or `write` panics, nobody may wait for this thread.
        let lead = Lead(self);
        gather();
        let mut state = self.lock();
        let taken = take().map(|(end, taken)| {
            state.round += 1;
            state.writing = end;
            taken
        });
        drop(state);
        let result = match taken {
            Ok(taken) => write(taken).map(|()| Ok(Commit::Durable))?,
            Err(error) => Err(error),
        };
        mem::forget(lead);
        self.end_lead(result.is_ok());
        result
    }

    /// Wakes those whose changes are durable now, if they are, and one of the next round.
    fn end_lead(&self, is_durable: bool) {
        let mut state = self.lock();
        state.is_led = false;
        if is_durable {
            state.durable = state.writing;
            self.done[state.round % 2].notify_all();
        }
        self.done[(state.round + 1) % 2].notify_one();
    }

    /// Waits until changes are durable, or will never be. `None` if this thread is to lead.
    fn wait_to_lead(&self, seq: u64) -> Option<Commit> {
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
            let round = if seq <= state.writing { state.round } else { state.round + 1 };
            state = self.done[round % 2].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the log if the thread that leads gives up.
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
