//! The order of the batches of a map and of new filters beside it: no filter becomes visible during a batch.
//!
//! ```text
//!  the map's thread ─ begin ─ is the key a filter? ─ its string is changed, written, visible ─ end ─┐
//!  makers of filters ──────────── between: is the key a string? ─ the filter is visible ─ dropped ──┴→ in turn
//! ```
//!
//! So no key of the map becomes both: makers wait for all data sets of users who see the filter. The map's thread pauses its
//! batch while it waits for the turns of filters, which makers hold. A maker waits for data sets in memory first; so what
//! a maker between two batches waits for is only the end of batches of other maps, which wait for no maker.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Keeps the batches of a map and new filters apart. Filters come first, so that they do not wait for ever.
#[derive(Debug, Default)]
pub(super) struct Batches {
    now: Mutex<Now>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Now {
    /// Whether a batch runs.
    is_running: bool,
    /// Number of makers of filters that wait, or are between two batches.
    makers: usize,
}

/// The time between two batches, which lasts as long as this exists.
#[derive(Debug)]
pub(crate) struct BetweenBatches<'a>(&'a Batches);

impl Batches {
    /// Begins a batch, or goes on with one that was paused.
    pub(super) fn begin(&self) {
        let now = self.changed.wait_while(self.lock(), |now| now.makers > 0);
        now.unwrap_or_else(PoisonError::into_inner).is_running = true;
    }

    /// Ends or pauses a batch, all changes of which are visible.
    pub(super) fn end(&self) {
        let mut now = self.lock();
        now.is_running = false;
        if now.makers > 0 {
            self.changed.notify_all();
        }
    }

    /// Waits until no batch runs. None goes on while the result exists.
    pub(super) fn between(&self) -> BetweenBatches<'_> {
        let mut now = self.lock();
        now.makers += 1;
        drop(self.changed.wait_while(now, |now| now.is_running));
        BetweenBatches(self)
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a maker of a filter waits for the end of the batch.
    #[cfg(test)]
    pub(super) fn wait_for_a_maker(&self) {
        while self.lock().makers == 0 {
            std::thread::yield_now();
        }
    }
}

impl Drop for BetweenBatches<'_> {
    fn drop(&mut self) {
        let mut now = self.0.lock();
        now.makers -= 1;
        if now.makers == 0 {
            self.0.changed.notify_all();
        }
    }
}
