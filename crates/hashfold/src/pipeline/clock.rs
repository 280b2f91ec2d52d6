//! The clock of a stream: the latest time of its events.

use crate::{codec::Decoder, error::Result};

/// Successive events that are too far ahead of the clock before the clock moves to them: then time has really
/// passed, and no single event had a wrong time.
const AHEAD_STREAK: u32 = 100;

/// The latest time of the events so far. Each worker has the same, since all see all events in one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamClock {
    /// Time in milliseconds since 1970; `None` before the first event.
    pub(super) now_ms: Option<i64>,
    /// Number of events since the last one that was not ahead.
    streak: u32,
    /// Maximum step of the clock, in milliseconds.
    ahead_ms_max: i64,
}

impl StreamClock {
    pub(super) fn new(ahead_ms_max: i64) -> StreamClock {
        StreamClock { now_ms: None, streak: 0, ahead_ms_max }
    }

    /// Moves the clock to the time of an event, if that is later. Returns whether the event can be used: its
    /// time is not too far ahead.
    #[inline]
    pub(super) fn admit(&mut self, time_ms: i64) -> bool {
        let Some(now) = self.now_ms else {
            self.now_ms = Some(time_ms);
            return true;
        };
        if time_ms.saturating_sub(now) > self.ahead_ms_max {
            self.streak += 1;
            if self.streak < AHEAD_STREAK {
                return false;
            }
        }
        self.streak = 0;
        self.now_ms = Some(now.max(time_ms));
        true
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.now_ms.is_some()));
        out.extend(self.now_ms.unwrap_or(0).to_le_bytes());
        out.extend(self.streak.to_le_bytes());
    }

    pub(super) fn take(ahead_ms_max: i64, fields: &mut Decoder<'_>) -> Result<StreamClock> {
        let is_set = fields.u8()? != 0;
        let now_ms = fields.u64()? as i64;
        let streak = fields.u32()?.min(AHEAD_STREAK);
        Ok(StreamClock { now_ms: is_set.then_some(now_ms), streak, ahead_ms_max })
    }
}
