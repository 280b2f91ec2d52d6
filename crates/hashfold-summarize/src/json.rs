//! Events as JSON objects, one event a frame: fields by path, straight into the batch.

use crate::{
    config::{Format, Stream, TimeFormat},
    scalar,
};
use hashfold::pipeline::{Events, FieldKind, Value};
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Number;
use std::{cell::Cell, fmt};

/// Why a frame is no event.
const NO_OBJECT: &str = "no JSON object";

/// A parser of JSON objects. Other fields than those of the stream are skipped, however deep they are.
#[derive(Clone, Debug)]
pub struct JsonParser {
    root: Node,
    has_time: bool,
}

/// The uses of a value.
#[derive(Clone, Debug, Default)]
struct Node {
    fields: Vec<(usize, FieldKind)>,
    time: Option<TimeFormat>,
    /// The fields of an object, by name.
    inside: Vec<(String, Node)>,
}

impl JsonParser {
    /// Makes the parser of a stream of this format; `None` for other formats.
    pub fn new(stream: &Stream) -> Option<JsonParser> {
        if stream.format != Format::Json {
            return None;
        }
        let mut root = Node::default();
        for (i, (field, path)) in stream.fields.iter().zip(&stream.from).enumerate() {
            root.at(path).fields.push((i, field.kind));
        }
        if let Some(time) = &stream.time {
            root.at(&time.from).time = Some(time.format);
        }
        Some(JsonParser { root, has_time: stream.time.is_some() })
    }

    /// Parses a frame, and adds its event.
    ///
    /// # Errors
    /// The reason why the frame is no event.
    pub fn parse(&mut self, frame: &[u8], events: &mut Events) -> Result<(), &'static str> {
        events.begin();
        let time_ms = Cell::new(if self.has_time { None } else { Some(0) });
        let reason = Cell::new(NO_OBJECT);
        let mut parser = serde_json::Deserializer::from_slice(frame);
        let seed =
            Seed { node: &self.root, is_root: true, events, time_ms: &time_ms, reason: &reason };
        let parsed = seed.deserialize(&mut parser).and_then(|()| parser.end());
        parsed.map_err(|error| match is_out_of_range(&error) {
            true => scalar::NO_FLOAT,
            false => reason.get(),
        })?;
        events.end(time_ms.get().ok_or(scalar::NO_TIME)?);
        Ok(())
    }
}

/// Whether the error is a number beyond all floats, such as 1e400, which serde_json tells only by its message.
fn is_out_of_range(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("number out of range")
}

impl Node {
    /// Returns the node at a path such as `user.id`.
    fn at(&mut self, path: &str) -> &mut Node {
        path.split('.').fold(self, |node, name| {
            let place = node.inside.iter().position(|(known, _)| known == name);
            let place = place.unwrap_or_else(|| {
                node.inside.push((name.to_owned(), Node::default()));
                node.inside.len() - 1
            });
            &mut node.inside[place].1
        })
    }
}

/// Reads the value of a node. The depth of recursion is that of the paths.
struct Seed<'a> {
    node: &'a Node,
    is_root: bool,
    events: &'a mut Events,
    time_ms: &'a Cell<Option<i64>>,
    /// Why the event is rejected, if it is.
    reason: &'a Cell<&'static str>,
}

/// A value that is neither a list nor an object.
#[derive(Clone, Copy)]
enum Plain<'a> {
    Null,
    Text(&'a [u8]),
    Int(i64),
    /// An integer above those of 64 bits with a sign.
    Large(u64),
    Float(f64),
}

impl<'a> Plain<'a> {
    /// Returns the value of a field. A number in a field of text is the text that it has in JSON, which is put into `text`.
    fn value(self, kind: FieldKind, text: &'a mut String) -> Result<Value<'a>, &'static str> {
        match (self, kind) {
            (Plain::Null | Plain::Text(b""), _) => return Ok(Value::Null),
            (Plain::Text(text), FieldKind::Text) => return Ok(Value::Text(text)),
            (Plain::Int(value), FieldKind::Int) => return Ok(Value::Int(value)),
            // JSON has one kind of numbers: 7.0 is the integer 7.
            (Plain::Float(value), FieldKind::Int) => {
                return scalar::whole(value).map(Value::Int).ok_or(scalar::NO_INT);
            }
            (_, FieldKind::Int) => return Err(scalar::NO_INT),
            (Plain::Text(_), FieldKind::Float) => return Err(scalar::NO_FLOAT),
            (Plain::Int(value), FieldKind::Float) => return Ok(Value::Float(value as f64)),
            (Plain::Large(value), FieldKind::Float) => return Ok(Value::Float(value as f64)),
            (Plain::Float(value), FieldKind::Float) => {
                return scalar::finite(Some(value)).map(Value::Float).ok_or(scalar::NO_FLOAT);
            }
            (Plain::Int(value), FieldKind::Text) => *text = value.to_string(),
            (Plain::Large(value), FieldKind::Text) => *text = value.to_string(),
            (Plain::Float(value), FieldKind::Text) => {
                let number = Number::from_f64(value).ok_or(scalar::NO_FLOAT)?;
                *text = number.to_string();
            }
        }
        Ok(Value::Text(text.as_bytes()))
    }

    fn time(self, format: TimeFormat) -> Result<i64, &'static str> {
        match self {
            Plain::Null => Err(scalar::NO_TIME),
            Plain::Text(text) => scalar::time_of_text(format, text),
            Plain::Int(value) => scalar::time_of_int(format, value),
            Plain::Large(value) => scalar::time_of_float(format, value as f64),
            Plain::Float(value) => match scalar::whole(value) {
                Some(whole) => scalar::time_of_int(format, whole),
                None => scalar::time_of_float(format, value),
            },
        }
    }
}

impl Seed<'_> {
    fn set<E: serde::de::Error>(self, value: Plain<'_>) -> Result<(), E> {
        let failed = |reason| {
            self.reason.set(reason);
            E::custom(reason)
        };
        if self.is_root {
            return Err(failed(NO_OBJECT));
        }
        for (field, kind) in &self.node.fields {
            let mut text = String::new();
            self.events.set(*field, value.value(*kind, &mut text).map_err(failed)?);
        }
        if let Some(format) = self.node.time {
            self.time_ms.set(Some(value.time(format).map_err(failed)?));
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if !self.node.fields.is_empty() || self.node.time.is_some() {
            self.reason.set(scalar::NO_VALUE);
            return Err(A::Error::custom(scalar::NO_VALUE));
        }
        while let Some(place) = map.next_key_seed(Name(self.node))? {
            let Some(place) = place else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let node = &self.node.inside[place].1;
            let (time_ms, reason) = (self.time_ms, self.reason);
            map.next_value_seed(Seed {
                node,
                is_root: false,
                events: self.events,
                time_ms,
                reason,
            })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.is_root || !self.node.fields.is_empty() || self.node.time.is_some() {
            self.reason.set(if self.is_root { NO_OBJECT } else { scalar::NO_VALUE });
            return Err(A::Error::custom("a list"));
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.set(Plain::Text(text.as_bytes()))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.set(Plain::Int(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.set(i64::try_from(value).map_or(Plain::Large(value), Plain::Int))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.set(Plain::Float(value))
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.visit_str(if value { "true" } else { "false" })
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.set(Plain::Null)
    }
}

/// Reads the name of a field: its place in the node, if it is there.
struct Name<'a>(&'a Node);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<usize>, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.0.inside.iter().position(|(known, _)| known == name))
    }
}
