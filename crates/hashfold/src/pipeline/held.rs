//! Events that are held until it is known whether their times are right: see [`clock`](super::clock).

use super::{
    batch::Batch,
    clock::{HELD_STREAK, MAIN_SOURCE},
    events::{Events, Value},
};
use crate::{
    codec::{Decoder, put_bytes, put_varint},
    error::{Error, Result},
};

/// Bytes of the frames that are held, at most; further events are refused.
const HELD_BYTES_MAX: usize = 16 << 20;
/// Number of a source that has ended with an earlier run.
const ENDED_SOURCE: u64 = u64::MAX;

const NULL: u8 = 0;
const INT: u8 = 1;
const FLOAT: u8 = 2;
const TEXT: u8 = 3;

/// Events that are held, in the order in which they came.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) events: Events,
    pub(super) origins: Vec<Origin>,
    /// Bytes of all frames, also of those that are not kept.
    bytes: usize,
    keeps_frames: bool,
}

/// Where an event comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) source: u64,
    /// Size of its frame in bytes.
    bytes: usize,
    /// The frame, if it is kept.
    pub(super) frame: Vec<u8>,
}

impl Held {
    /// Makes a place for events with this number of fields.
    pub(super) fn new(width: usize) -> Held {
        Held { events: Events::new(width), origins: Vec::new(), bytes: 0, keeps_frames: true }
    }

    /// Returns the events without their frames, and keeps none from then on: for workers that never give a frame away. They hold
    /// as many events as the others.
    pub(super) fn without_frames(mut self) -> Held {
        self.keeps_frames = false;
        self.origins.iter_mut().for_each(|origin| origin.frame = Vec::new());
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.origins.len()
    }

    /// Holds an event of a batch. Returns whether there is room for it.
    pub(super) fn hold(&mut self, batch: &Batch, event: usize) -> bool {
        let frame = batch.frame(batch.frame_of(event));
        let (source, bytes) = (batch.arrival.source, frame.len());
        self.add(&batch.events, event, (source, bytes, frame))
    }

    /// Holds an event again that was held before.
    pub(super) fn hold_again(&mut self, held: &Held, event: usize) -> bool {
        let Origin { source, bytes, frame } = &held.origins[event];
        self.add(&held.events, event, (*source, *bytes, frame))
    }

    /// Adds an event with its source, and the size and bytes of its frame.
    fn add(
        &mut self,
        events: &Events,
        event: usize,
        (source, bytes, frame): (u64, usize, &[u8]),
    ) -> bool {
        if self.bytes + bytes > HELD_BYTES_MAX {
            return false;
        }
        self.bytes += bytes;
        self.events.begin();
        for field in 0..events.width() {
            self.events.set(field, events.get(event, field));
        }
        self.events.end(events.times()[event]);
        let frame = if self.keeps_frames { frame.to_vec() } else { Vec::new() };
        self.origins.push(Origin { source, bytes, frame });
        true
    }

    /// Removes and returns all events.
    pub(super) fn take_all(&mut self) -> Held {
        let empty = Held { keeps_frames: self.keeps_frames, ..Held::new(self.events.width()) };
        std::mem::replace(self, empty)
    }

    /// Appends all events to a checkpoint.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for (event, Origin { source, frame, .. }) in self.origins.iter().enumerate() {
            out.push(u8::from(*source != MAIN_SOURCE));
            out.extend(self.events.times()[event].to_le_bytes());
            for field in 0..self.events.width() {
                put_value(out, self.events.get(event, field));
            }
            put_bytes(out, frame);
        }
    }

    /// Reads events with this number of fields from a checkpoint.
    pub(super) fn take(width: usize, fields: &mut Decoder<'_>) -> Result<Held> {
        let mut held = Held::new(width);
        let count = fields.varint()?;
        if count >= u64::from(HELD_STREAK) {
            let expected = format!("less than {HELD_STREAK}");
            return Err(Error::field("number of events that are held", expected, count));
        }
        for _ in 0..count {
            let source = if fields.u8()? == 0 { MAIN_SOURCE } else { ENDED_SOURCE };
            let time_ms = fields.u64()? as i64;
            held.events.begin();
            for field in 0..width {
                held.events.set(field, take_value(fields)?);
            }
            held.events.end(time_ms);
            let frame = fields.sized_bytes()?.to_vec();
            held.bytes += frame.len();
            held.origins.push(Origin { source, bytes: frame.len(), frame });
        }
        Ok(held)
    }
}

fn put_value(out: &mut Vec<u8>, value: Value<'_>) {
    match value {
        Value::Null => out.push(NULL),
        Value::Int(value) => {
            out.push(INT);
            out.extend(value.to_le_bytes());
        }
        Value::Float(value) => {
            out.push(FLOAT);
            out.extend(value.to_bits().to_le_bytes());
        }
        Value::Text(text) => {
            out.push(TEXT);
            put_bytes(out, text);
        }
    }
}

fn take_value<'a>(fields: &mut Decoder<'a>) -> Result<Value<'a>> {
    match fields.u8()? {
        NULL => Ok(Value::Null),
        INT => Ok(Value::Int(fields.u64()? as i64)),
        // A parser may set any number.
        FLOAT => Ok(Value::Float(f64::from_bits(fields.u64()?))),
        TEXT => Ok(Value::Text(fields.sized_bytes()?)),
        other => Err(Error::field("kind of a value", "0 to 3", other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Held {
        let mut events = Events::new(2);
        let rows = [
            (7, Value::Null, Value::Int(-1)),
            (-8, Value::Text(b"a\xff"), Value::Float(0.1)),
            (i64::MAX, Value::Text(b""), Value::Float(f64::INFINITY)),
        ];
        let mut held = Held::new(2);
        for (i, (time_ms, first, second)) in rows.into_iter().enumerate() {
            events.begin();
            events.set(0, first);
            events.set(1, second);
            events.end(time_ms);
            assert!(held.add(&events, i, (i as u64, 7, b"a frame")));
        }
        held
    }

    #[test]
    fn events_come_back_from_a_checkpoint_and_damage_is_noticed() {
        let held = some();
        let mut bytes = Vec::new();
        held.put(&mut bytes);
        let mut fields = Decoder::new(&bytes);
        let read = Held::take(2, &mut fields).unwrap();
        fields.end().unwrap();
        assert_eq!((read.len(), read.bytes), (3, 21));
        assert_eq!(read.events.times(), held.events.times());
        for (event, field) in (0..3).flat_map(|event| [(event, 0), (event, 1)]) {
            assert_eq!(read.events.get(event, field), held.events.get(event, field));
        }
        let frame = || b"a frame".to_vec();
        let sources = [MAIN_SOURCE, ENDED_SOURCE, ENDED_SOURCE];
        assert_eq!(read.origins, sources.map(|source| Origin { source, bytes: 7, frame: frame() }));
        for place in 0..bytes.len() {
            assert!(Held::take(2, &mut Decoder::new(&bytes[..place])).is_err(), "cut at {place}");
        }
        bytes[0] = 100;
        assert!(Held::take(2, &mut Decoder::new(&bytes)).is_err());
    }

    #[test]
    fn no_more_is_held_than_there_is_room_for() {
        let events = some().events;
        const HALF: usize = HELD_BYTES_MAX / 2;
        let frame = vec![b'x'; HALF];
        for mut held in [Held::new(2), Held::new(2).without_frames()] {
            assert!(held.add(&events, 0, (0, HALF, &frame)));
            assert!(held.add(&events, 1, (0, HALF, &frame)));
            assert!(!held.add(&events, 2, (0, 1, b"x")));
            let all = held.take_all();
            assert_eq!(all.len(), 2);
            assert!(held.is_empty() && held.hold_again(&all, 0) && held.hold_again(&all, 1));
            assert!(!held.add(&events, 2, (0, 1, b"x")));
            let kept: usize = held.origins.iter().map(|origin| origin.frame.len()).sum();
            assert_eq!(kept, if held.keeps_frames { HELD_BYTES_MAX } else { 0 });
        }
    }
}
