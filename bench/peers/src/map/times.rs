//! A histogram of times, and a clock that fills it.

use std::time::{Duration, Instant};

/// Buckets per power of two.
const PARTS: u64 = 32;
const PARTS_LOG2: u32 = PARTS.ilog2();

/// Times, counted with a resolution of 1/32: a list of millions would take the memory of an engine.
#[derive(Clone, Debug)]
pub(super) struct Times {
    counts: Vec<u64>,
    total: u64,
    max_ns: u64,
}

impl Times {
    pub(super) fn new() -> Times {
        let buckets = PARTS * u64::from(u64::BITS - PARTS_LOG2 + 1);
        Times { counts: vec![0; buckets as usize], total: 0, max_ns: 0 }
    }

    fn add(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds all times of another histogram.
    pub(super) fn merge(&mut self, other: &Times) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub(super) fn max_ms(&self) -> f64 {
        self.max_ns as f64 / 1e6
    }

    /// Returns the time below which this fraction of all times lies, in microseconds; 0 if there are
    /// none.
    pub(super) fn quantile_us(&self, part: f64) -> f64 {
        let rank = (self.total as f64 * part).ceil() as u64;
        let mut passed = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            passed += count;
            if passed >= rank && *count > 0 {
                return least_ns(bucket) as f64 / 1e3;
            }
        }
        0.0
    }
}

fn bucket(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(PARTS_LOG2 + 1);
    (u64::from(shift) * PARTS + (ns >> shift)) as usize
}

/// Returns the smallest time of a bucket.
fn least_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / PARTS).saturating_sub(1);
    (bucket - shift * PARTS) << shift
}

/// Measures operations that follow each other without a pause: each lasts from the end of the one
/// before. So the end of a transaction counts for the operation after it.
#[derive(Debug)]
pub(super) struct Clock {
    pub(super) times: Times,
    last: Instant,
    deadline: Instant,
}

impl Clock {
    /// Starts a clock for operations that should take this time at most.
    pub(super) fn start(seconds: f64) -> Clock {
        let now = Instant::now();
        Clock { times: Times::new(), last: now, deadline: now + Duration::from_secs_f64(seconds) }
    }

    /// Ends an operation.
    pub(super) fn lap(&mut self) {
        let now = Instant::now();
        self.times.add(now - self.last);
        self.last = now;
    }

    /// Whether the time was over at the end of the last operation.
    pub(super) fn is_over(&self) -> bool {
        self.last >= self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_bucket_of_the_least_time_that_is_close_to_it() {
        for ns in (0..5000).chain((0..64).map(|bit| 1 << bit)).chain([u64::MAX]) {
            let least = least_ns(bucket(ns));
            assert!(least <= ns && ns - least <= ns / PARTS, "{ns} is counted as {least}");
            assert_eq!(bucket(least), bucket(ns));
        }
    }

    #[test]
    fn quantiles_are_those_of_a_sorted_list() {
        let mut times = Times::new();
        (1..=1000).for_each(|us| times.add(Duration::from_micros(us)));
        for (part, us) in [(0.5, 500.0), (0.999, 999.0), (1.0, 1000.0)] {
            let got = times.quantile_us(part);
            assert!(got <= us && got >= us * (1.0 - 1.0 / PARTS as f64), "{part}: {got}");
        }
        let mut twice = times.clone();
        twice.merge(&times);
        assert_eq!((twice.total, twice.max_ms()), (2000, 1.0));
        assert_eq!(twice.quantile_us(0.5), times.quantile_us(0.5));
        assert_eq!(Times::new().quantile_us(0.5), 0.0);
    }
}
