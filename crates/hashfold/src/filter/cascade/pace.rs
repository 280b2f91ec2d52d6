//! Backpressure: insertions are, on average, as fast as the background jobs.

use super::{core::Core, key_range::KeyRange};
use crate::error::Result;
use std::{mem, time::Duration};

/// Delay per key when there is no memory left for runs in RAM. Insertions are delayed while runs in
/// RAM are flushed and their memory runs low: many short waits are better than one long wait at the
/// end.
const DELAY_MAX: Duration = Duration::from_nanos(600);
/// Delays are summed up until they are worth a wait.
const DELAY_MIN: Duration = Duration::from_micros(100);

/// With so many runs of the newest kind, whoever inserts waits for merges in proportion to what he
/// inserts.
const DEBT_RUNS: usize = 16;
/// Number of fingerprints that background jobs must write for each inserted key while there are too
/// many runs.
const MOVES_OWED: u64 = 4;
/// By so many of these he may be ahead: merges pause for tenths of a second while their result is
/// being made durable.
const MOVES_AHEAD: u64 = 48 << 20;
/// With so many runs of the newest kind, an error of merging is an error of inserting.
const DEBT_RUNS_MAX: usize = 192;

/// The pace of insertions.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The number of written fingerprints to wait for, if there are too many runs.
    owed: Option<u64>,
    /// Delay per key.
    delay: Duration,
    /// The part of the delay that was not waited for yet.
    delayed: Duration,
}

impl Pace {
    /// Sets the pace for the next table.
    ///
    /// # Errors
    /// Why merges fail, if far too many runs wait for them.
    pub(super) fn set(&mut self, core: &Core) -> Result<()> {
        self.owed = self.debt(core)?;
        self.delay = delay(core);
        Ok(())
    }

    /// Waits, if need be, after so many changes.
    pub(super) fn keep(&mut self, core: &Core, changes: usize) {
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

    /// Returns the progress of the background jobs if there are too many runs: insertions must wait
    /// for more.
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

/// Returns the delay per key while runs in RAM are being flushed.
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
