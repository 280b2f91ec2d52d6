//! Times of lookups in one version.

use crate::metrics::{CommandCounts, CommandMetrics};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Times of lookups in one view. Each network thread has counters of its own, which it alone changes.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    threads: Mutex<Vec<Arc<CommandMetrics>>>,
}

impl Latency {
    /// Returns new counters for a thread.
    pub(crate) fn of_thread(&self) -> Arc<CommandMetrics> {
        let counts = Arc::new(CommandMetrics::default());
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(counts.clone());
        counts
    }

    /// Adds the counters of all threads to a sum.
    pub(crate) fn add_to(&self, sum: &mut CommandCounts) {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().for_each(|counts| counts.add_to(sum));
    }
}

/// The counters that a network thread has for the views that it has looked up keys in.
#[derive(Debug, Default)]
pub(crate) struct OwnLatencies(Vec<(Weak<Latency>, Arc<CommandMetrics>)>);

impl OwnLatencies {
    /// Returns the thread's counters for a view. Only the first call for a view takes a lock.
    #[inline]
    pub(crate) fn of(&mut self, latency: &Arc<Latency>) -> &CommandMetrics {
        let is_it = |(known, _): &(Weak<Latency>, _)| known.as_ptr() == Arc::as_ptr(latency);
        let place = self.0.iter().position(is_it).unwrap_or_else(|| {
            self.0.push((Arc::downgrade(latency), latency.of_thread()));
            self.0.len() - 1
        });
        &self.0[place].1
    }

    /// Forgets the counters of views that nobody holds any more.
    pub(crate) fn forget_unused(&mut self) {
        self.0.retain(|(latency, _)| latency.strong_count() > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn threads_are_added_up_and_forget_what_is_gone() {
        let (one, two) = (Arc::<Latency>::default(), Arc::<Latency>::default());
        let (mut here, mut there) = (OwnLatencies::default(), OwnLatencies::default());
        for own in [&mut here, &mut there] {
            own.of(&one).note(2, Duration::from_micros(100), 1);
            own.of(&two).note(1, Duration::from_micros(7), 0);
            own.of(&one).note(1, Duration::from_micros(10), 0);
        }
        let sum = |latency: &Latency| {
            let mut sum = CommandCounts::default();
            latency.add_to(&mut sum);
            (sum.calls, sum.microseconds, sum.failed)
        };
        assert_eq!((sum(&one), sum(&two)), ((6, 220, 2), (2, 14, 0)));
        drop(two);
        here.forget_unused();
        there.forget_unused();
        assert_eq!((here.0.len(), there.0.len()), (1, 1));
    }
}
