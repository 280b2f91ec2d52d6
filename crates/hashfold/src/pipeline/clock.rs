//! The clock of a stream: the least of the watermarks of its sources.
//!
//! A source is a connection, or all files together. Its watermark is the latest time of its events. The clock of the
//! stream is the least watermark of the sources that are active, and never goes back: a source that is behind the others
//! is not late. A source that sends nothing for the idle time holds the clock no longer, nor does one that is behind it by more than
//! an event may be ahead: its clock is wrong, or it has to catch up, and its events can be late then. One that has sent no event holds it
//! at the beginning of the stream only: later, connections that come and go all the time would stop it.
//!
//! An event is *ahead* if its time is later than the clock and all watermarks by more than the allowed time. For live
//! sources, the time that has passed on the machine since then is allowed, too, also that between two runs. What becomes of it
//! depends on the other sources:
//!
//! - Another source that is not idle contradicts: its last event was not ahead. Then the event is refused, since its sender has a
//!   wrong clock, and moves nothing.
//! - No other source contradicts. Then the event is held. When [`HELD_STREAK`] successive events are ahead, time has
//!   really passed: the clock moves to the earliest of them, and all that are held are handled. When an event comes before
//!   that which is not ahead, those that are held had wrong times, and are refused.
//!
//! A live source may be alone, so that no other shows that its first times are wrong, or that they run away step by step.
//! Hence an event of such a source is refused, too, if its time is later than that of the machine by more than the future
//! that is allowed.

use super::{
    checkpoint::{VERSION_DATE, VERSION_SOURCES},
    events::TIME_MS_MAX,
};
use crate::{
    codec::Decoder,
    error::{Error, Result},
};
use std::collections::BTreeMap;

/// Successive events that are ahead before the clock moves to them.
pub(super) const HELD_STREAK: u32 = 100;

/// Number of the source of all batches that are not pushed for another one.
pub(super) const MAIN_SOURCE: u64 = 0;

/// The source of a batch, and when it came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Number of the source.
    pub(super) source: u64,
    /// Time of the machine when the batch was pushed, in milliseconds.
    pub(super) at_ms: i64,
    /// Whether the source ends with this batch.
    pub(super) is_last: bool,
    /// Time of the machine's calendar then, in milliseconds since 1970.
    pub(super) date_ms: i64,
    /// Whether events come while they happen, so that time that passes on the machine passes in the source.
    pub(super) is_live: bool,
}

/// Bounds of the distance between sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockLimits {
    /// Maximum time by which an event can be ahead, in milliseconds.
    pub(super) ahead_ms: i64,
    /// Maximum time by which an event of a live source can be after the date of the machine, in milliseconds.
    pub(super) future_ms: i64,
    /// Time without events after which a source is not active, in milliseconds.
    pub(super) idle_ms: i64,
}

/// The decision about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The event is handled. Events that are held are refused.
    Taken,
    /// The event is held.
    Held,
    /// The event is held, and with it all others are handled now.
    Confirmed,
    /// The event is refused.
    Refused,
}

/// The state of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SourceClock {
    /// Latest time of its events, in milliseconds since 1970.
    watermark_ms: Option<i64>,
    /// Time of the machine at its last event that was taken, or when it was opened.
    active_at_ms: i64,
    /// Whether its last event was ahead. Then it neither holds the clock nor contradicts.
    is_ahead: bool,
    /// Whether it has begun, and not ended.
    is_open: bool,
}

impl Arrival {
    /// Returns the time that an event of this batch has at most, if it was `time_ms` when the machine's was `since_ms`.
    fn expected_ms(&self, time_ms: Option<i64>, since_ms: i64) -> Option<i64> {
        let passed_ms = if self.is_live { self.at_ms.saturating_sub(since_ms).max(0) } else { 0 };
        time_ms.map(|time_ms| time_ms.saturating_add(passed_ms))
    }
}

/// The clock of a stream. Each worker has the same, since all see all events in one order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamClock {
    /// Time in milliseconds since 1970; `None` while a source has sent no event.
    pub(super) now_ms: Option<i64>,
    limits: ClockLimits,
    /// The sources, without that of the current batch.
    sources: BTreeMap<u64, SourceClock>,
    current: Current,
    /// Number of successive events that are ahead, and the earliest time of them.
    streak: u32,
    earliest_ms: i64,
    /// Time of the machine at the last event that was taken, or at the first batch; before that if an earlier run has taken one.
    taken_at_ms: Option<i64>,
    /// Date of the machine at the last event that was taken, also by an earlier run.
    taken_date_ms: Option<i64>,
    /// Time of the machine at the first batch.
    began_at_ms: Option<i64>,
}

/// The source of the current batch, and what its events are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Current {
    arrival: Arrival,
    source: SourceClock,
    /// The least watermark of the other sources that are active, if there are any; `None` inside of that if one of them has
    /// sent no event.
    least_ms: Option<Option<i64>>,
    /// The latest time that an event can have as far as the other sources know.
    expected_ms: Option<i64>,
    /// The latest time that an event can have by the calendar of the machine.
    latest_ms: i64,
    /// Whether the last event of another source was not ahead.
    is_contradicted: bool,
}

impl StreamClock {
    pub(super) fn new(limits: ClockLimits) -> StreamClock {
        StreamClock {
            now_ms: None,
            limits,
            sources: BTreeMap::new(),
            current: Current::default(),
            streak: 0,
            earliest_ms: 0,
            taken_at_ms: None,
            taken_date_ms: None,
            began_at_ms: None,
        }
    }

    /// Returns the time to compare events with: before all times while there is none.
    #[inline]
    pub(super) fn now(&self) -> i64 {
        self.now_ms.unwrap_or(i64::MIN)
    }

    /// Whether a source has begun, and not ended.
    pub(super) fn is_open(&self, source: u64) -> bool {
        self.sources.get(&source).is_some_and(|source| source.is_open)
    }

    /// Whether an open source holds the clock.
    fn is_held_by(&self, source: &SourceClock, at_ms: i64) -> bool {
        let is_beginning = self.now_ms.is_none() && !self.is_idle(self.began_at_ms, at_ms);
        let is_near = |mark_ms: i64| self.now().saturating_sub(mark_ms) <= self.limits.ahead_ms;
        !source.is_ahead
            && !self.is_idle(Some(source.active_at_ms), at_ms)
            && source.watermark_ms.map_or(is_beginning, is_near)
    }

    fn is_idle(&self, since_ms: Option<i64>, at_ms: i64) -> bool {
        since_ms.is_some_and(|since_ms| at_ms.saturating_sub(since_ms) > self.limits.idle_ms)
    }

    /// Begins a batch. [`StreamClock::admit`] takes its events, and [`StreamClock::end`] ends it.
    pub(super) fn begin(&mut self, arrival: Arrival) {
        let mut source = self.sources.remove(&arrival.source).unwrap_or_default();
        if !source.is_open {
            (source.is_open, source.active_at_ms) = (true, arrival.at_ms);
        }
        self.taken_at_ms.get_or_insert_with(|| {
            let date_ms = self.taken_date_ms.unwrap_or(arrival.date_ms);
            arrival.at_ms.saturating_sub(arrival.date_ms.saturating_sub(date_ms).max(0))
        });
        self.began_at_ms.get_or_insert(arrival.at_ms);
        let latest_ms = match arrival.is_live {
            true => arrival.date_ms.saturating_add(self.limits.future_ms),
            false => i64::MAX,
        };
        self.current = Current { arrival, source, latest_ms, ..Current::default() };
        self.compare();
    }

    /// Sets what events of the current batch are compared with.
    fn compare(&mut self) {
        let Current { arrival, .. } = self.current;
        let others = || self.sources.values().filter(|other| other.is_open);
        let known = || others().filter(|other| !other.is_ahead && other.watermark_ms.is_some());
        let active = others().filter(|other| self.is_held_by(other, arrival.at_ms));
        // No watermark is less than each watermark.
        let least_ms = active.map(|other| other.watermark_ms).min();
        let expected =
            |other: &SourceClock| arrival.expected_ms(other.watermark_ms, other.active_at_ms);
        let expected_ms = known().filter_map(expected).max();
        let is_idle = |other: &SourceClock| self.is_idle(Some(other.active_at_ms), arrival.at_ms);
        let is_contradicted = known().any(|other| !is_idle(other));
        let current = &mut self.current;
        (current.least_ms, current.expected_ms) = (least_ms, expected_ms);
        current.is_contradicted = is_contradicted;
    }

    /// Decides about an event of the current batch, and moves the clock.
    #[inline]
    pub(super) fn admit(&mut self, time_ms: i64) -> Verdict {
        let Current { arrival, source, expected_ms, latest_ms, is_contradicted, .. } =
            &mut self.current;
        if time_ms > *latest_ms {
            source.is_ahead = true;
            return Verdict::Refused;
        }
        let own_ms = arrival.expected_ms(source.watermark_ms, source.active_at_ms);
        let since_ms = self.taken_at_ms.unwrap_or(arrival.at_ms);
        let clock_ms = arrival.expected_ms(self.now_ms, since_ms);
        let expected_ms = own_ms.max(clock_ms).max(*expected_ms);
        let by_ms = expected_ms.map_or(0, |expected_ms| time_ms.saturating_sub(expected_ms));
        if by_ms <= self.limits.ahead_ms {
            self.follow(time_ms);
            return Verdict::Taken;
        }
        source.is_ahead = true;
        if *is_contradicted {
            return Verdict::Refused;
        }
        self.earliest_ms = if self.streak == 0 { time_ms } else { self.earliest_ms.min(time_ms) };
        self.streak += 1;
        if self.streak >= HELD_STREAK { Verdict::Confirmed } else { Verdict::Held }
    }

    /// Moves the watermark of the current source, and the clock, to the time of an event.
    #[inline]
    fn follow(&mut self, time_ms: i64) {
        if self.now_ms.is_none() && self.current.source.watermark_ms.is_none() {
            self.doubt(time_ms);
        }
        let Current { arrival, source, least_ms, .. } = &mut self.current;
        source.watermark_ms = source.watermark_ms.max(Some(time_ms));
        source.active_at_ms = arrival.at_ms;
        source.is_ahead = false;
        self.taken_at_ms = Some(arrival.at_ms);
        self.taken_date_ms = Some(arrival.date_ms);
        self.streak = 0;
        let own_ms = source.watermark_ms;
        self.now_ms = self.now_ms.max(least_ms.map_or(own_ms, |least_ms| least_ms.min(own_ms)));
    }

    /// Forgets the watermarks of other sources that are ahead of the first event of the current one. The clock of the stream is
    /// not set yet, so it was not known before who is right; in doubt, the one that is not ahead.
    #[cold]
    fn doubt(&mut self, time_ms: i64) {
        let ahead_ms = self.limits.ahead_ms;
        let is_ahead = |source: &&mut SourceClock| {
            source.watermark_ms.is_some_and(|mark_ms| mark_ms.saturating_sub(time_ms) > ahead_ms)
        };
        for source in self.sources.values_mut().filter(is_ahead) {
            (source.watermark_ms, source.is_ahead) = (None, true);
        }
        self.compare();
    }

    /// Ends a batch. If its source ends, too, that holds the clock no longer.
    pub(super) fn end(&mut self) {
        let Current { arrival, source, least_ms, .. } = &mut self.current;
        if arrival.is_last {
            source.is_open = false;
            self.now_ms = self.now_ms.max(least_ms.flatten());
        }
        self.pause();
    }

    /// Interrupts a batch; [`StreamClock::begin`] goes on with it.
    fn pause(&mut self) {
        let Current { arrival, source, .. } = self.current;
        // The main source may go on later, such as with a file that grows.
        if source.is_open || arrival.source == MAIN_SOURCE {
            self.sources.insert(arrival.source, source);
        }
    }

    /// Interrupts a batch, and moves the watermarks of the sources that are ahead to the earliest event that is held. All that
    /// are held are admitted again then, each as a batch.
    pub(super) fn confirm(&mut self) {
        self.pause();
        let earliest_ms = Some(self.earliest_ms);
        let mut is_gone = true;
        for source in self.sources.values_mut().filter(|source| source.is_ahead) {
            source.watermark_ms = source.watermark_ms.max(earliest_ms);
            is_gone = false;
        }
        if is_gone {
            self.now_ms = self.now_ms.max(earliest_ms);
        }
        self.forget_streak();
    }

    /// Forgets that events are held.
    pub(super) fn forget_streak(&mut self) {
        self.streak = 0;
        self.sources.values_mut().for_each(|source| source.is_ahead = false);
    }

    /// Lets time pass without an event: sources that are idle hold the clock no longer. If all are idle, the latest watermark
    /// counts.
    pub(super) fn pass(&mut self, at_ms: i64) {
        let open = || self.sources.values().filter(|source| source.is_open);
        let active = || open().filter(|source| self.is_held_by(source, at_ms));
        let moved_ms = match active().next() {
            Some(_) => active().map(|source| source.watermark_ms).min(),
            None => open().map(|source| source.watermark_ms).max(),
        };
        self.now_ms = self.now_ms.max(moved_ms.flatten());
    }

    /// Appends the clock and the main source to a checkpoint: other sources end with the run.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_time(out, self.now_ms);
        let main = self.sources.get(&MAIN_SOURCE).copied().unwrap_or_default();
        put_time(out, main.watermark_ms);
        out.push(u8::from(main.is_ahead));
        out.extend(self.streak.to_le_bytes());
        out.extend(self.earliest_ms.to_le_bytes());
        put_time(out, self.taken_date_ms);
    }

    /// Reads what [`StreamClock::put`] wrote, or the clock of a version without sources: the time of the clock, and a number
    /// of events that were not held.
    pub(super) fn take(
        limits: ClockLimits,
        version: u8,
        fields: &mut Decoder<'_>,
    ) -> Result<StreamClock> {
        let now_ms = take_time(fields)?;
        let has_sources = version >= VERSION_SOURCES;
        let mut main = SourceClock { watermark_ms: now_ms, ..SourceClock::default() };
        let mut clock = StreamClock { now_ms, ..StreamClock::new(limits) };
        if has_sources {
            main.watermark_ms = take_time(fields)?;
            main.is_ahead = fields.u8()? != 0;
            clock.streak = fields.u32()?;
            clock.earliest_ms = take_ms(fields)?;
            if version >= VERSION_DATE {
                clock.taken_date_ms = take_time(fields)?;
            }
        } else {
            fields.u32()?;
        }
        if clock.streak >= HELD_STREAK {
            let expected = format!("less than {HELD_STREAK}");
            return Err(Error::field("events that are ahead", expected, clock.streak));
        }
        clock.sources.insert(MAIN_SOURCE, main);
        Ok(clock)
    }
}

fn put_time(out: &mut Vec<u8>, time_ms: Option<i64>) {
    out.push(u8::from(time_ms.is_some()));
    out.extend(time_ms.unwrap_or(0).to_le_bytes());
}

fn take_time(fields: &mut Decoder<'_>) -> Result<Option<i64>> {
    let is_set = fields.u8()? != 0;
    let time_ms = take_ms(fields)?;
    Ok(is_set.then_some(time_ms))
}

/// Takes a time off a checkpoint, so near to 1970 that no computation with it overflows.
fn take_ms(fields: &mut Decoder<'_>) -> Result<i64> {
    let time_ms = fields.u64()? as i64;
    if time_ms.unsigned_abs() > TIME_MS_MAX as u64 {
        let expected = format!("at most {TIME_MS_MAX} from 0");
        return Err(Error::field("time in ms since 1970", expected, time_ms));
    }
    Ok(time_ms)
}
