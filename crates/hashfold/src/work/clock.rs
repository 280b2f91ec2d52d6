//! Time: monotonic and of the calendar, and waiting for a deadline or a signal.

use std::{
    fmt,
    sync::{
        Arc, Condvar, LazyLock, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

/// A source of time, on which threads wait for a deadline or for a signal.
pub trait Clock: fmt::Debug + Send + Sync {
    /// Returns the time that has passed since a fixed moment. Never goes back.
    fn now(&self) -> Duration;

    /// Returns the time since 1970-01-01 00:00 UTC. May go back, when the machine's clock is set.
    fn unix_time(&self) -> Duration;

    /// Blocks until the signal's [count](Signal::count) is no longer `seen`, or until the time is
    /// `deadline`. With [`Duration::MAX`] there is no deadline.
    fn wait(&self, signal: &Signal, seen: u64, deadline: Duration);

    /// Blocks for this long.
    fn sleep(&self, duration: Duration) {
        self.wait(&Signal::default(), 0, self.now().saturating_add(duration));
    }
}

/// A signal that ends a [`Clock::wait`] before its deadline. Clones are the same signal.
///
/// A waiting thread reads [`count`](Signal::count), checks its condition under its own lock, and
/// then waits with that count. A signal that is sent in between ends the wait at once, so none is
/// missed.
///
/// ```
/// use hashfold::work::{Clock, Signal, SystemClock};
/// use std::{thread, time::Duration};
///
/// let signal = Signal::default();
/// let seen = signal.count();
/// let sender = signal.clone();
/// let thread = thread::spawn(move || sender.send());
/// SystemClock.wait(&signal, seen, Duration::MAX);
/// assert_eq!(signal.count(), seen + 1);
/// # thread.join().unwrap();
/// ```
#[derive(Clone, Default)]
pub struct Signal(Arc<SignalState>);

#[derive(Default)]
struct SignalState {
    count: AtomicU64,
    /// Held while the count changes and while a waiting thread decides to block, so that no thread
    /// blocks after its notification was sent.
    lock: Mutex<()>,
    sent: Condvar,
}

impl Signal {
    /// Returns the number of times that the signal was sent.
    pub fn count(&self) -> u64 {
        self.0.count.load(Ordering::Acquire)
    }

    /// Ends the waits of all threads that have seen an older count.
    pub fn send(&self) {
        let guard = self.lock();
        self.0.count.fetch_add(1, Ordering::Release);
        drop(guard);
        self.0.sent.notify_all();
    }

    /// Lets blocked threads read the time again.
    pub(super) fn wake(&self) {
        drop(self.lock());
        self.0.sent.notify_all();
    }

    /// Blocks until the count is no longer `seen`, or until no time is left. `time_left` is called
    /// under the signal's lock before each blocking.
    pub(super) fn block(&self, seen: u64, time_left: impl Fn() -> Duration) {
        let mut guard = self.lock();
        while self.count() == seen {
            let left = time_left();
            if left.is_zero() {
                return;
            }
            let woken = self.0.sent.wait_timeout(guard, left);
            guard = woken.expect("nothing panics under this lock").0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock.lock().expect("nothing panics under this lock")
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signal({})", self.count())
    }
}

/// The clock of the machine. Its time counts from the first use in the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[expect(clippy::disallowed_methods, reason = "all other code is given a clock")]
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        ORIGIN.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "all other code is given a clock")]
    fn unix_time(&self) -> Duration {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
    }

    fn wait(&self, signal: &Signal, seen: u64, deadline: Duration) {
        signal.block(seen, || deadline.saturating_sub(self.now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_takes_as_long_as_asked() {
        let start = SystemClock.now();
        SystemClock.sleep(Duration::from_millis(2));
        assert!(SystemClock.now() - start >= Duration::from_millis(2));
    }

    #[test]
    fn a_signal_sent_before_the_wait_ends_it_at_once() {
        let signal = Signal::default();
        let seen = signal.count();
        signal.send();
        SystemClock.wait(&signal, seen, Duration::MAX);
    }

    #[test]
    fn a_signal_wakes_all_threads_that_wait_for_it() {
        let signal = Signal::default();
        let wait = || SystemClock.wait(&signal, 0, Duration::MAX);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(wait);
            }
            signal.send();
        });
    }
}
