//! Events of the latency monitor: commands that took longer than a threshold, second by second.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Maximum number of samples of an event.
const SAMPLES_MAX: usize = 160;

/// The events of a server, by name: `command` and `fast-command`.
#[derive(Debug, Default)]
pub(crate) struct LatencyEvents {
    /// The least time of an event, in milliseconds; 0 turns the monitor off.
    pub(crate) threshold_ms: AtomicU64,
    series: Mutex<BTreeMap<&'static str, Series>>,
}

/// The times of one event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    /// The longest time of each second that had any: seconds since 1970, and milliseconds.
    pub(crate) samples: VecDeque<(u64, u64)>,
    pub(crate) max_ms: u64,
}

impl LatencyEvents {
    /// Whether a command that took this long is an event.
    #[inline]
    pub(crate) fn takes(&self, took: Duration) -> bool {
        let threshold = self.threshold_ms.load(Relaxed);
        threshold > 0 && took.as_millis() as u64 >= threshold
    }

    /// Adds an event.
    pub(crate) fn add(&self, name: &'static str, at: Duration, took: Duration) {
        let mut all = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let series = all.entry(name).or_default();
        let (second, ms) = (at.as_secs(), took.as_millis() as u64);
        series.max_ms = series.max_ms.max(ms);
        match series.samples.back_mut() {
            Some((last, longest)) if *last == second => *longest = ms.max(*longest),
            _ => series.samples.push_back((second, ms)),
        }
        if series.samples.len() > SAMPLES_MAX {
            series.samples.pop_front();
        }
    }

    /// Returns all events.
    pub(crate) fn all(&self) -> BTreeMap<&'static str, Series> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets events, by name; all if there is no name. Returns their number.
    pub(crate) fn forget(&self, names: &[String]) -> usize {
        let mut all = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.len();
        let is_named = |name: &str| names.iter().any(|it| it.eq_ignore_ascii_case(name));
        all.retain(|name, _| !names.is_empty() && !is_named(name));
        before - all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_one_sample_and_the_oldest_are_forgotten() {
        let events = LatencyEvents::default();
        assert!(!events.takes(Duration::MAX));
        events.threshold_ms.store(5, Relaxed);
        assert!(
            events.takes(Duration::from_millis(5)) && !events.takes(Duration::from_micros(4999))
        );
        let add = |second, ms| {
            events.add("command", Duration::from_secs(second), Duration::from_millis(ms));
        };
        add(1, 20);
        add(1, 10);
        add(1, 30);
        add(2, 7);
        let series = events.all()["command"].clone();
        assert_eq!((series.max_ms, series.samples.into()), (30, vec![(1, 30), (2, 7)]));
        (3..500).for_each(|second| add(second, 6));
        let series = events.all()["command"].clone();
        assert_eq!((series.max_ms, series.samples.len()), (30, SAMPLES_MAX));
        assert_eq!(events.forget(&["other".into()]), 0);
        assert_eq!(events.forget(&["COMMAND".into()]), 1);
        add(1, 20);
        assert_eq!(events.forget(&[]), 1);
    }
}
