//! A clock for tests, whose time is independent of the machine's.

use super::{Clock, Signal};
use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// A clock whose time passes when [`advance`](ManualClock::advance) is called, or when all of its
/// threads wait: then it jumps to the earliest deadline. Clones are the same clock.
///
/// With one thread, each wait for a moment takes no real time and ends exactly at that moment:
///
/// ```
/// use hashfold::work::{Clock, ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::new(1);
/// clock.sleep(Duration::from_secs(3600));
/// assert_eq!(clock.now(), Duration::from_secs(3600));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Timers>>);

#[derive(Debug)]
struct Timers {
    now: Duration,
    /// Number of threads that use the clock.
    threads: usize,
    /// One timer per waiting thread.
    waiting: Vec<Timer>,
    /// Number of the next timer.
    next: u64,
}

#[derive(Debug)]
struct Timer {
    number: u64,
    signal: Signal,
    seen: u64,
    deadline: Duration,
}

impl ManualClock {
    /// Creates a clock that starts at zero and jumps when this number of threads wait for it.
    pub fn new(threads: usize) -> ManualClock {
        let timers = Timers { now: Duration::ZERO, threads, waiting: Vec::new(), next: 0 };
        ManualClock(Arc::new(Mutex::new(timers)))
    }

    /// Lets time pass, and ends the waits whose deadlines are reached.
    pub fn advance(&self, duration: Duration) {
        let mut timers = self.lock();
        let now = timers.now.saturating_add(duration);
        wake(timers.pass(now));
    }

    /// Removes the calling thread from the threads of the clock. A thread must call this before it
    /// ends, or before it waits for an event without a deadline.
    pub fn leave(&self) {
        let mut timers = self.lock();
        timers.threads -= 1;
        wake(timers.jump());
    }

    fn lock(&self) -> MutexGuard<'_, Timers> {
        self.0.lock().expect("nothing panics under this lock")
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        self.lock().now
    }

    /// Returns [`now`](Clock::now): the clock starts in 1970.
    fn unix_time(&self) -> Duration {
        self.now()
    }

    fn wait(&self, signal: &Signal, seen: u64, deadline: Duration) {
        let (number, reached) = self.lock().add(signal, seen, deadline);
        wake(reached);
        let is_early = || self.lock().now < deadline;
        signal.block(seen, || if is_early() { Duration::MAX } else { Duration::ZERO });
        self.lock().waiting.retain(|timer| timer.number != number);
    }
}

impl Timers {
    /// Adds the timer of a waiting thread. Returns its number, and the expired timers if the time
    /// jumps.
    fn add(&mut self, signal: &Signal, seen: u64, deadline: Duration) -> (u64, Vec<Timer>) {
        let number = self.next;
        self.next += 1;
        self.waiting.push(Timer { number, signal: signal.clone(), seen, deadline });
        (number, self.jump())
    }

    /// Jumps to the earliest deadline if all threads wait. Returns the expired timers.
    fn jump(&mut self) -> Vec<Timer> {
        // A thread whose signal was sent, or whose deadline is reached, is already running.
        let is_blocked = |timer: &&Timer| timer.signal.count() == timer.seen;
        let blocked = || self.waiting.iter().filter(is_blocked);
        let earliest = blocked().map(|timer| timer.deadline).min();
        match earliest {
            Some(time) if blocked().count() >= self.threads && time < Duration::MAX => {
                self.pass(time.max(self.now))
            }
            _ => Vec::new(),
        }
    }

    /// Sets the time. Returns the expired timers, which no longer count as waiting.
    fn pass(&mut self, now: Duration) -> Vec<Timer> {
        self.now = now;
        let is_over = |timer: &Timer| timer.deadline <= now;
        let (over, waiting) = mem::take(&mut self.waiting).into_iter().partition(is_over);
        self.waiting = waiting;
        over
    }
}

/// Wakes the threads of expired timers. Must not be called under the clock's lock, which these
/// threads take under the lock of their signal.
fn wake(over: Vec<Timer>) {
    for timer in over {
        timer.signal.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn time_passes_only_by_advance_while_a_thread_does_not_wait() {
        let clock = ManualClock::new(2);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| clock.sleep(10 * SECOND));
            while clock.lock().waiting.is_empty() {
                thread::yield_now();
            }
            clock.advance(9 * SECOND);
            assert!(!sleeper.is_finished());
            assert_eq!(clock.now(), 9 * SECOND);
            clock.advance(SECOND);
            sleeper.join().unwrap();
        });
        assert_eq!(clock.now(), 10 * SECOND);
    }

    #[test]
    fn time_jumps_to_the_earliest_deadline_when_all_threads_wait() {
        let clock = ManualClock::new(2);
        let times = Mutex::new(Vec::new());
        let sleeper = |name, seconds: u32, rounds| {
            let (clock, times) = (&clock, &times);
            move || {
                for _ in 0..rounds {
                    clock.sleep(seconds * SECOND);
                    times.lock().unwrap().push((clock.now().as_secs(), name));
                }
                clock.leave();
            }
        };
        thread::scope(|scope| {
            scope.spawn(sleeper("a", 3, 4));
            scope.spawn(sleeper("b", 5, 2));
        });
        let expected = [(3, "a"), (5, "b"), (6, "a"), (9, "a"), (10, "b"), (12, "a")];
        assert_eq!(*times.lock().unwrap(), expected);
    }

    #[test]
    fn a_signal_ends_a_wait_and_no_time_passes() {
        let clock = ManualClock::new(2);
        let signal = Signal::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                clock.wait(&signal, 0, 10 * SECOND);
                assert_eq!(clock.now(), Duration::ZERO);
                clock.leave();
            });
            signal.send();
            // The other thread counts as running from here on, even before it wakes.
            clock.leave();
        });
    }

    #[test]
    fn a_wait_whose_deadline_is_past_ends_at_once() {
        let clock = ManualClock::new(1);
        clock.advance(SECOND);
        clock.wait(&Signal::default(), 0, Duration::ZERO);
        assert_eq!(clock.now(), SECOND);
    }
}
