//! The reader, which should not notice any change.

use super::{
    Reader,
    book::{State, is_value},
};
use crate::{
    Result,
    data::{Data, mix},
};
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

/// The writer's phase while the reader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Quiet,
    /// Work before a reader can see the new state.
    Prepare,
    Switch,
    /// Work after the switch.
    Settle,
    RollBack,
}

const PHASES: usize = Phase::RollBack as usize + 1;

/// The reader's records of one phase.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub lookups: u64,
    pub time: Duration,
    /// The longest time between two answers.
    pub longest: Duration,
}

impl Seen {
    pub fn and(self, other: Seen) -> Seen {
        Seen {
            lookups: self.lookups + other.lookups,
            time: self.time + other.time,
            longest: self.longest.max(other.longest),
        }
    }

    pub fn per_second(self) -> Option<f64> {
        (self.lookups > 0).then(|| self.lookups as f64 / self.time.as_secs_f64())
    }

    pub fn longest_ms(self) -> f64 {
        self.longest.as_secs_f64() * 1000.0
    }
}

/// The signals from the writer to the reader.
#[derive(Debug, Default)]
pub struct Signals {
    phase: AtomicUsize,
    /// Whether the reader has got an answer.
    is_reading: AtomicBool,
    is_over: AtomicBool,
}

impl Signals {
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as usize, Ordering::SeqCst);
    }

    /// Waits until the reader reads, or has failed.
    pub fn wait_for_reader(&self) {
        while !self.is_reading.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Ends the reading on drop, also after an error.
pub struct Ending<'a>(pub &'a Signals);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
    }
}

/// The states that an answer may show.
pub struct Expected<'a> {
    pub data: &'a Data,
    pub before: &'a [State],
    pub after: &'a [State],
}

/// Looks up keys until the end. Returns the records of each phase.
pub fn read(
    reader: Result<Box<dyn Reader + '_>>,
    expected: &Expected<'_>,
    signals: &Signals,
    seed: u64,
) -> Result<[Seen; PHASES]> {
    let result = reader.and_then(|mut reader| read_on(&mut *reader, expected, signals, seed));
    // The writer must not wait for a reader that has failed.
    signals.is_reading.store(true, Ordering::SeqCst);
    result
}

fn read_on(
    reader: &mut dyn Reader,
    expected: &Expected<'_>,
    signals: &Signals,
    seed: u64,
) -> Result<[Seen; PHASES]> {
    let mut seen = [Seen::default(); PHASES];
    let mut buffer = Vec::new();
    let mut phase = signals.phase.load(Ordering::SeqCst);
    let mut last: Option<Instant> = None;
    for n in 0.. {
        if signals.is_over.load(Ordering::Relaxed) {
            break;
        }
        let i = mix(mix(seed) ^ n) % expected.data.count;
        look_up(reader, expected, i, &mut buffer)?;
        let now = Instant::now();
        let next = signals.phase.load(Ordering::SeqCst);
        // The first lookup warms up.
        if let Some(last) = last {
            let gap = now - last;
            seen[next].lookups += 1;
            seen[next].time += gap;
            // A stall counts for the phase in which it began, the phase in which it ended, and
            // those in between.
            for seen in &mut seen[phase.min(next)..=next] {
                seen.longest = seen.longest.max(gap);
            }
        } else {
            signals.is_reading.store(true, Ordering::SeqCst);
        }
        (last, phase) = (Some(now), next);
    }
    Ok(seen)
}

fn look_up(
    reader: &mut dyn Reader,
    expected: &Expected<'_>,
    i: u64,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    let Expected { data, before, after } = expected;
    let (before, after) = (before[i as usize], after[i as usize]);
    let mut is_right = false;
    reader.get(&data.key(i), &mut |value| {
        is_right = is_value(data, i, after, value, buffer)
            || (before != after && is_value(data, i, before, value, buffer));
    })?;
    if is_right { Ok(()) } else { Err(format!("key {i} has a wrong value, or none").into()) }
}

/// Looks up some of these keys, which must be in the state that `states` says.
pub fn check(
    reader: &mut dyn Reader,
    data: &Data,
    states: &[State],
    keys: impl Iterator<Item = u64>,
) -> Result<()> {
    let expected = Expected { data, before: states, after: states };
    let mut buffer = Vec::new();
    for i in keys {
        look_up(reader, &expected, i, &mut buffer)?;
    }
    Ok(())
}
