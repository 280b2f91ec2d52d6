//! How fast insertions may be: as fast as the work in the background, in the long run.

use super::{core::Core, key_range::KeyRange};
use crate::error::Result;
use std::{mem, time::Duration};

/// Whoever inserts is slowed down while packed tables are being flushed and there is little memory
/// for more: better many short waits than a long one in the end. This is for each key when there
/// is none left.
const DELAY_MAX: Duration = Duration::from_nanos(600);
/// Delays are summed up until they are worth a wait.
const DELAY_MIN: Duration = Duration::from_micros(100);

/// With so many runs of the newest kind, whoever inserts waits for merges in proportion to what he
/// inserts.
const DEBT_RUNS: usize = 16;
/// What he waits for: so many fingerprints moved for each one inserted.
const MOVES_OWED: u64 = 4;
/// By so many of these he may be ahead: merges pause for tenths of a second while their result is
/// being made durable.
const MOVES_AHEAD: u64 = 48 << 20;
/// With so many runs of the newest kind, an error of merging is an error of inserting.
const DEBT_RUNS_MAX: usize = 192;

/// The pace of insertions.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Too many runs: up to which move of the background work to wait.
    owed: Option<u64>,
    /// Of each key.
    delay: Duration,
    /// What was not waited for yet.
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

    /// If there are too many runs, how far background work is: insertions go on as it does.
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

/// How much each key is delayed while packed tables are being flushed.
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
