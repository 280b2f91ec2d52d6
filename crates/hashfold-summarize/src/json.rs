//! Events as JSON objects, one event a frame: fields by path, straight into the batch.

use crate::{
    config::{Format, Stream, TimeFormat},
    scalar,
};
use hashfold::pipeline::{Events, FieldKind, Value};
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
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
        parsed.map_err(|_| reason.get())?;
        events.end(time_ms.get().ok_or(scalar::NO_TIME)?);
        Ok(())
    }
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

impl Seed<'_> {
    fn set<E: serde::de::Error>(
        self,
        value: Result<Value<'_>, &'static str>,
        kind_of: impl Fn(FieldKind) -> Result<(), &'static str>,
        time: impl Fn(TimeFormat) -> Result<i64, &'static str>,
    ) -> Result<(), E> {
        let failed = |reason| {
            self.reason.set(reason);
            E::custom(reason)
        };
        if self.is_root {
            return Err(failed(NO_OBJECT));
        }
        for (field, kind) in &self.node.fields {
            kind_of(*kind).map_err(failed)?;
            let value = match (value.map_err(failed)?, kind) {
                (Value::Int(value), FieldKind::Float) => Value::Float(value as f64),
                (Value::Int(value), FieldKind::Text) => {
                    self.events.set(*field, Value::Text(value.to_string().as_bytes()));
                    continue;
                }
                (Value::Float(value), FieldKind::Text) => {
                    self.events.set(*field, Value::Text(value.to_string().as_bytes()));
                    continue;
                }
                (value, _) => value,
            };
            self.events.set(*field, value);
        }
        if let Some(format) = self.node.time {
            self.time_ms.set(Some(time(format).map_err(failed)?));
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
            self.reason.set(scalar::NO_TEXT);
            return Err(A::Error::custom(scalar::NO_TEXT));
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
            self.reason.set(if self.is_root { NO_OBJECT } else { scalar::NO_TEXT });
            return Err(A::Error::custom("a list"));
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        let kind_of = |kind| match kind {
            FieldKind::Text => Ok(()),
            FieldKind::Int => Err(scalar::NO_INT),
            FieldKind::Float => Err(scalar::NO_FLOAT),
        };
        let bytes = text.as_bytes();
        self.set(Ok(Value::Text(bytes)), kind_of, |format| scalar::time_of_text(format, bytes))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.set(Ok(Value::Int(value)), |_| Ok(()), |format| scalar::time_of_int(format, value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        let kind_of = |kind| if kind == FieldKind::Int { Err(scalar::NO_INT) } else { Ok(()) };
        let number = scalar::finite(Some(value)).map(Value::Float).ok_or(scalar::NO_FLOAT);
        self.set(number, kind_of, |format| scalar::time_of_float(format, value))
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.visit_str(if value { "true" } else { "false" })
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.set(Ok(Value::Null), |_| Ok(()), |_| Err(scalar::NO_TIME))
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
