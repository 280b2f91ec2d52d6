//! A limit of bytes per second, which can be changed while it is in use.

use hashfold::work::Clock;
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Maximum time for which an unused limit saves up bytes.
const BURST: Duration = Duration::from_millis(100);

/// A limit of bytes per second. Clones are the same limit, so several transfers can share it, and
/// another thread can change it while they run.
#[derive(Clone, Debug, Default)]
pub struct RateLimit(Arc<Limit>);

#[derive(Debug, Default)]
struct Limit {
    /// Bytes per second; 0 is no limit.
    bytes_per_s: AtomicU64,
    /// Time from which on the next bytes may be transferred.
    next: Mutex<Duration>,
}

impl RateLimit {
    /// Makes a limit; 0 is no limit.
    pub fn new(bytes_per_s: u64) -> RateLimit {
        let limit = RateLimit::default();
        limit.set(bytes_per_s);
        limit
    }

    /// Changes the limit, in bytes per second; 0 is no limit. Transfers that wait already, each for
    /// one piece, are not woken.
    pub fn set(&self, bytes_per_s: u64) {
        self.0.bytes_per_s.store(bytes_per_s, Relaxed);
    }

    /// Returns the limit, in bytes per second; 0 is no limit.
    pub fn get(&self) -> u64 {
        self.0.bytes_per_s.load(Relaxed)
    }

    /// Blocks until this number of bytes may be transferred.
    pub(crate) fn take(&self, clock: &dyn Clock, bytes: u64) {
        let bytes_per_s = self.get();
        if bytes_per_s == 0 {
            return;
        }
        let now = clock.now();
        let cost = Duration::from_secs_f64(bytes as f64 / bytes_per_s as f64);
        let start = {
            // A time is never half written, so it can be used after a panic.
            let mut next = self.0.next.lock().unwrap_or_else(PoisonError::into_inner);
            let start = (*next).max(now.saturating_sub(BURST));
            *next = start.saturating_add(cost);
            start
        };
        if start > now {
            clock.sleep(start - now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashfold::work::ManualClock;

    #[test]
    fn bytes_take_as_long_as_the_limit_says_and_follow_its_changes() {
        let (clock, limit) = (ManualClock::new(1), RateLimit::new(1000));
        (0..11).for_each(|_| limit.take(&clock, 1000));
        assert_eq!(clock.now(), Duration::from_secs(10));
        limit.set(10_000);
        let before = clock.now();
        (0..11).for_each(|_| limit.take(&clock, 1000));
        // The bytes before the change have been paid at its start.
        let passed = clock.now() - before;
        assert!(
            (Duration::from_secs(1)..=Duration::from_millis(2100)).contains(&passed),
            "{passed:?}"
        );
        limit.set(0);
        limit.take(&clock, u64::MAX);
        assert_eq!(clock.now() - before, passed);
    }
}
