//! Counters of what a server did. Each network thread has its own, which it alone changes, so that no
//! cache line moves between threads; readers add them up.

use crate::command::TABLE;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Number of powers of two of a distribution of times: up to 2^23 microseconds, 8 seconds.
pub(crate) const POWERS: usize = 24;

/// Maximum number of error codes that are counted apart.
const ERROR_CODES_MAX: usize = 64;

/// The counters of all threads.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    threads: Mutex<Vec<Arc<ThreadMetrics>>>,
    errors: Mutex<BTreeMap<String, u64>>,
    /// Commands at the last two looks of the timer, and the time between these in milliseconds.
    rate: Mutex<Rate>,
}

#[derive(Debug, Default)]
struct Rate {
    at: Duration,
    commands: u64,
    per_second: u64,
}

/// The counters of one thread.
#[derive(Debug)]
pub(crate) struct ThreadMetrics {
    pub(crate) connections: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) input_bytes: AtomicU64,
    pub(crate) output_bytes: AtomicU64,
    /// Bytes that buffers of connections take now.
    pub(crate) buffer_bytes: AtomicU64,
    /// Connections that were closed because buffers took too much memory.
    pub(crate) shed: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    commands: Box<[CommandMetrics]>,
}

/// The counters of a command, or of lookups in a version, by one thread.
#[derive(Debug, Default)]
pub(crate) struct CommandMetrics {
    calls: AtomicU64,
    microseconds: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    by_power: [AtomicU64; POWERS],
}

impl CommandMetrics {
    /// Notes `calls` that together took `took`, of which some replied with an error.
    #[inline]
    pub(crate) fn note(&self, calls: u64, took: Duration, failed: u64) {
        let microseconds = took.as_micros() as u64;
        add(&self.calls, calls);
        add(&self.microseconds, microseconds);
        if failed > 0 {
            add(&self.failed, failed);
        }
        add(&self.by_power[power(microseconds / calls.max(1))], calls);
    }

    /// Adds the counters to a sum.
    pub(crate) fn add_to(&self, sum: &mut CommandCounts) {
        sum.calls += self.calls.load(Relaxed);
        sum.microseconds += self.microseconds.load(Relaxed);
        sum.rejected += self.rejected.load(Relaxed);
        sum.failed += self.failed.load(Relaxed);
        for (sum, count) in sum.by_power.iter_mut().zip(&self.by_power) {
            *sum += count.load(Relaxed);
        }
    }
}

/// The sums of the counters of a command, or of lookups in a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandCounts {
    pub(crate) calls: u64,
    pub(crate) microseconds: u64,
    /// Calls that were refused before they did anything.
    pub(crate) rejected: u64,
    /// Calls whose reply was an error.
    pub(crate) failed: u64,
    /// Calls that took at most 1, 2, 4… microseconds and more than half of that.
    pub(crate) by_power: [u64; POWERS],
}

/// The sums of all counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) connections: u64,
    pub(crate) refused: u64,
    pub(crate) commands: u64,
    pub(crate) errors: u64,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
    pub(crate) buffer_bytes: u64,
    pub(crate) shed: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// Adds to a counter that only the calling thread changes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed) + more, Relaxed);
}

impl ThreadMetrics {
    fn new() -> ThreadMetrics {
        let commands = (0..TABLE.count()).map(|_| CommandMetrics::default()).collect();
        ThreadMetrics {
            connections: AtomicU64::default(),
            refused: AtomicU64::default(),
            input_bytes: AtomicU64::default(),
            output_bytes: AtomicU64::default(),
            buffer_bytes: AtomicU64::default(),
            shed: AtomicU64::default(),
            hits: AtomicU64::default(),
            misses: AtomicU64::default(),
            commands,
        }
    }

    /// Notes `calls` of a command that together took `took`, of which some replied with an error.
    #[inline]
    pub(crate) fn note(&self, number: usize, calls: u64, took: Duration, failed: u64) {
        self.commands[number].note(calls, took, failed);
    }

    /// Notes a call that was refused.
    pub(crate) fn note_rejected(&self, number: usize) {
        add(&self.commands[number].rejected, 1);
    }
}

/// Returns the least power of two that a time is at most.
fn power(microseconds: u64) -> usize {
    let power = u64::BITS - microseconds.saturating_sub(1).leading_zeros();
    (power as usize).min(POWERS - 1)
}

impl CommandCounts {
    /// Returns the time that this fraction of all calls took at most, in microseconds, to the next
    /// power of two.
    pub(crate) fn at_most_us(&self, fraction: f64) -> u64 {
        let wanted = (self.calls as f64 * fraction).ceil() as u64;
        let mut sum = 0;
        let found = self.by_power.iter().position(|count| {
            sum += count;
            sum >= wanted
        });
        1 << found.unwrap_or(POWERS - 1)
    }
}

impl Metrics {
    /// Returns new counters for a thread.
    pub(crate) fn of_thread(&self) -> Arc<ThreadMetrics> {
        let metrics = Arc::new(ThreadMetrics::new());
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(metrics.clone());
        metrics
    }

    /// Counts an error reply by its first word.
    pub(crate) fn note_error(&self, message: &str) {
        let code = message.split(' ').next().unwrap_or("ERR");
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() < ERROR_CODES_MAX || errors.contains_key(code) {
            *errors.entry(code.to_owned()).or_default() += 1;
        }
    }

    /// Returns the number of error replies by code.
    pub(crate) fn errors(&self) -> Vec<(String, u64)> {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.iter().map(|(code, count)| (code.clone(), *count)).collect()
    }

    fn threads(&self) -> Vec<Arc<ThreadMetrics>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the bytes that buffers of connections take now, by the last looks of all threads.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.threads().iter().map(|thread| thread.buffer_bytes.load(Relaxed)).sum()
    }

    /// Returns the counters of all commands, by number.
    pub(crate) fn commands(&self) -> Vec<CommandCounts> {
        let mut sums = vec![CommandCounts::default(); TABLE.count()];
        for thread in self.threads() {
            sums.iter_mut().zip(&thread.commands).for_each(|(sum, counts)| counts.add_to(sum));
        }
        sums
    }

    /// Returns the sums of all counters.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals {
            commands: self.commands().iter().map(|counts| counts.calls).sum(),
            errors: self.errors().iter().map(|(_, count)| count).sum(),
            ..Totals::default()
        };
        for thread in self.threads() {
            totals.connections += thread.connections.load(Relaxed);
            totals.refused += thread.refused.load(Relaxed);
            totals.input_bytes += thread.input_bytes.load(Relaxed);
            totals.output_bytes += thread.output_bytes.load(Relaxed);
            totals.buffer_bytes += thread.buffer_bytes.load(Relaxed);
            totals.shed += thread.shed.load(Relaxed);
            totals.hits += thread.hits.load(Relaxed);
            totals.misses += thread.misses.load(Relaxed);
        }
        totals
    }

    /// Sets the counters of commands and errors to 0.
    pub(crate) fn reset(&self) {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for thread in self.threads() {
            for counts in &thread.commands {
                let all = [&counts.calls, &counts.microseconds, &counts.rejected, &counts.failed];
                all.into_iter()
                    .chain(&counts.by_power)
                    .for_each(|counter| counter.store(0, Relaxed));
            }
        }
    }

    /// Computes the rate of commands since the last look.
    pub(crate) fn look(&self, now: Duration) {
        let commands = self.totals().commands;
        let mut rate = self.rate.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_sub(rate.at).as_secs_f64();
        if passed > 0.0 {
            rate.per_second = (commands.saturating_sub(rate.commands) as f64 / passed) as u64;
        }
        (rate.at, rate.commands) = (now, commands);
    }

    /// Returns the commands per second between the last two looks.
    pub(crate) fn commands_per_second(&self) -> u64 {
        self.rate.lock().unwrap_or_else(PoisonError::into_inner).per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_by_powers_of_two() {
        for (microseconds, expected) in
            [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1 << 40, POWERS - 1)]
        {
            assert_eq!(power(microseconds), expected, "{microseconds}");
        }
    }

    #[test]
    fn threads_are_added_up_and_commands_can_be_reset() {
        let metrics = Metrics::default();
        let (one, two) = (metrics.of_thread(), metrics.of_thread());
        one.note(3, 2, Duration::from_micros(10), 1);
        two.note(3, 1, Duration::from_micros(100), 0);
        add(&one.hits, 5);
        metrics.note_error("WRONGTYPE of key");
        let counts = metrics.commands()[3].clone();
        assert_eq!((counts.calls, counts.microseconds, counts.failed), (3, 110, 1));
        assert_eq!((counts.at_most_us(0.5), counts.at_most_us(1.0)), (8, 128));
        let totals = metrics.totals();
        assert_eq!((totals.commands, totals.hits, totals.errors), (3, 5, 1));
        metrics.look(Duration::from_secs(1));
        assert_eq!(metrics.commands_per_second(), 3);
        metrics.reset();
        assert_eq!(metrics.commands()[3], CommandCounts::default());
        assert_eq!(metrics.errors(), []);
    }
}
