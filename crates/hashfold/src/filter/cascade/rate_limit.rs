//! The rate limit of insertions: in the long run, they are as fast as background jobs.

use super::{core::Core, key_range::KeyRange};
use crate::error::Result;
use std::{mem, time::Duration};

/// The maximum delay of a key, when no memory is left for runs in RAM. While they are being flushed,
/// insertions are slowed down: many short waits are better than a long one in the end.
const DELAY_MAX: Duration = Duration::from_nanos(600);
/// Delays are summed up until they are worth a wait.
const DELAY_MIN: Duration = Duration::from_micros(100);

/// From this number of runs of tier 0 on, insertions wait for merges in proportion to the keys
/// inserted.
const DEBT_RUNS: usize = 16;
/// The number of fingerprints that merges must write for each key inserted.
const MOVES_OWED: u64 = 4;
/// The number of these by which insertions may be ahead: merges pause for tenths of a second while
/// their result is being made durable.
const MOVES_AHEAD: u64 = 48 << 20;
/// From this number of runs of tier 0 on, an error of merging is an error of inserting.
const DEBT_RUNS_MAX: usize = 192;

/// The rate limit of insertions.
#[derive(Debug, Default)]
pub(super) struct RateLimit {
    /// With too many runs: the number of fingerprints that background jobs must have written.
    owed: Option<u64>,
    /// The delay of each key.
    delay: Duration,
    /// The delays since the last wait.
    delayed: Duration,
}

impl RateLimit {
    /// Sets the limit for the next memtable.
    ///
    /// # Errors
    /// The error of a merge, if far too many runs wait for merges.
    pub(super) fn set(&mut self, core: &Core) -> Result<()> {
        self.owed = self.debt(core)?;
        self.delay = delay(core);
        Ok(())
    }

    /// Waits as long as `changes` changes must be delayed.
    pub(super) fn wait(&mut self, core: &Core, changes: usize) {
        if !self.delay.is_zero() {
            self.delayed += self.delay * changes as u32;
            if self.delayed >= DELAY_MIN {
                core.settings.clock.sleep(mem::take(&mut self.delayed));
                self.delay = delay(core);
            }
        }
        if let Some(owed) = &mut self.owed {
            *owed += MOVES_OWED * changes as u64;
            if !core.wait_for_moved(owed.saturating_sub(MOVES_AHEAD)) {
                self.owed = None;
            }
        }
    }

    /// The progress of background jobs, if there are too many runs: insertions go on as they do.
    fn debt(&self, core: &Core) -> Result<Option<u64>> {
        let mut shared = core.shared();
        let all = KeyRange::all(core.identity.universe).into();
        let uppers = shared.view().epochs[0].uppers.iter();
        let runs = uppers.filter(|upper| upper.tier == 0 && upper.ranges == all).count();
        if runs >= DEBT_RUNS_MAX
            && !shared.merging.is_running()
            && let Some(error) = shared.merging.take_error()
        {
            return Err(error);
        }
        let owed = || core.moved().max(self.owed.unwrap_or(0));
        Ok((runs >= DEBT_RUNS).then(owed))
    }
}

/// The delay of each key while runs in RAM are being flushed.
fn delay(core: &Core) -> Duration {
    let shared = core.shared();
    if !shared.ram_runs.is_flushing() {
        return Duration::ZERO;
    }
    // Half of the memory for runs in RAM is being flushed.
    let half = core.shares.ram_runs_max / 2;
    let beyond = shared.ram_runs.runs().len().saturating_sub(half).min(half);
    DELAY_MAX * (beyond * beyond) as u32 / (half * half) as u32
}
