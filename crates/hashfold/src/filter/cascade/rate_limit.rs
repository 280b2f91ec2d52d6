//! The rate limit of insertions: in the long run, insertions are as fast as the background jobs.

use super::{core::Core, key_range::KeyRange};
use crate::error::Result;
use std::{mem, time::Duration};

/// Maximum delay per key, when no memory is left for runs in RAM. While runs are flushed,
/// insertions are slowed down: many short waits are better than one long wait.
const DELAY_MAX: Duration = Duration::from_nanos(600);
/// Minimum wait: delays are summed up until they reach it.
const DELAY_MIN: Duration = Duration::from_micros(100);

/// Minimum number of runs of tier 0 for which insertions wait for merges, in proportion to the keys
/// inserted.
const DEBT_RUNS: usize = 16;
/// Number of fingerprints that merges must write for each inserted key.
const MOVES_OWED: u64 = 4;
/// Number of fingerprints by which insertions may be ahead of merges: merges pause for tenths of a
/// second while they sync their results.
const MOVES_AHEAD: u64 = 48 << 20;
/// Number of runs of tier 0 from which on insertions return the errors of merges.
const DEBT_RUNS_MAX: usize = 192;

/// The rate limit of insertions.
#[derive(Debug, Default)]
pub(super) struct RateLimit {
    /// Number of fingerprints that background jobs must have written, while there are too many
    /// runs.
    owed: Option<u64>,
    /// Delay per key.
    delay: Duration,
    /// Sum of the delays since the last wait.
    delayed: Duration,
}

impl RateLimit {
    /// Sets the limit for the next memtable.
    ///
    /// # Errors
    /// The error of a merge, if too many runs wait for merges.
    pub(super) fn set(&mut self, core: &Core) -> Result<()> {
        self.owed = self.debt(core)?;
        self.delay = delay(core);
        Ok(())
    }

    /// Delays the caller for `changes` changes.
    pub(super) fn wait(&mut self, core: &Core, changes: usize) {
        if !self.delay.is_zero() {
            self.delayed += self.delay * changes as u32;
            if self.delayed >= DELAY_MIN {
                core.settings.env.clock.sleep(mem::take(&mut self.delayed));
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

    /// Returns the number of fingerprints that background jobs must have written, if there are too
    /// many runs.
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

/// Returns the delay per key while runs in RAM are flushed.
fn delay(core: &Core) -> Duration {
    let shared = core.shared();
    if !shared.ram_runs.is_flushing() {
        return Duration::ZERO;
    }
    // A flush takes half of the memory for runs in RAM.
    let half = core.shares.ram_runs_max / 2;
    let beyond = shared.ram_runs.runs().len().saturating_sub(half).min(half);
    DELAY_MAX * (beyond * beyond) as u32 / (half * half) as u32
}
