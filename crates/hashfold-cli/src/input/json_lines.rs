//! JSON Lines: one object per line.
//!
//! The types of a field may vary from line to line, so a field is stored as its JSON text.
//! Without --value, the value is the rest of each object, so that no field is lost.

use super::{
    COLUMNS_MAX, Reader,
    selection::{Expected, Marker, Selection},
    sink::{Flaw, Sink},
    source::Meter,
    window::Window,
};
use crate::{
    cell::Cell,
    failure::Result,
    preview,
    row::RowEncoder,
    schema::{Column, Form, Kind, Schema},
    units,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use memchr::memchr;
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

/// Reads one JSON Lines input.
pub(crate) struct JsonReader {
    window: Window,
    schema: Schema,
    markers: Vec<Marker>,
    /// Names of fields that only mark deletions.
    not_values: Vec<String>,
    /// The number of the next line, from 1 on.
    line: u64,
}

/// The fields of an object in the order of its text. The last of equal names wins.
struct Fields<'a> {
    /// The first fields, at most [`COLUMNS_MAX`].
    kept: Vec<(Name<'a>, &'a RawValue)>,
    /// Number of all fields.
    count: usize,
}

/// The name of a field, without its escapes.
struct Name<'a>(Cow<'a, str>);

impl JsonReader {
    pub(crate) fn open(path: &str, selection: &Selection, meter: &Meter) -> Result<JsonReader> {
        let key = selection.key(path)?;
        let schema = if selection.is_of_objects() {
            Schema::objects(key)
        } else {
            let names = match &selection.expected {
                Some(Expected { schema, .. }) if selection.values.is_empty() => {
                    schema.columns.iter().map(|column| column.name.clone()).collect()
                }
                _ => selection.values.clone(),
            };
            let column = |name| Column { name, kind: Kind::Json };
            Schema::new(key, names.into_iter().map(column).collect())
        };
        let mut window = Window::open(path, meter)?;
        window.skip_byte_order_mark();
        let markers = selection.markers.clone();
        let names = markers.iter().map(|marker| marker.column.clone());
        let not_values = names.filter(|name| selection.is_marker_alone(name)).collect();
        Ok(JsonReader { window, schema, markers, not_values, line: 1 })
    }

    /// Returns whether the fields mark a deletion.
    fn deletes(&self, fields: &[(Name<'_>, &RawValue)]) -> bool {
        let mut text = Vec::new();
        self.markers.iter().any(|Marker { column, mark }| {
            find(fields, column).is_some_and(|json| {
                let json = json.get();
                let cell = if json == "null" { Cell::Null } else { Cell::Json(json.as_bytes()) };
                text.clear();
                cell.write_text(&mut text);
                mark.is_in(&text)
            })
        })
    }

    /// Reads the complete lines in the window; returns their length.
    fn read_window(&mut self, sink: &mut Sink) -> Result<usize> {
        let bytes = self.window.bytes();
        let mut start = 0;
        while start < bytes.len() {
            let len = match memchr(b'\n', &bytes[start..]) {
                Some(end) => end,
                None if self.window.at_end => bytes.len() - start,
                None => break,
            };
            let line = bytes[start..start + len].trim_ascii();
            let outcome = if line.is_empty() { Ok(()) } else { self.take(line, sink) };
            sink.end_row(&self.window.file, self.line, outcome, line)?;
            self.line += 1;
            start = (start + len + 1).min(bytes.len());
        }
        Ok(start)
    }

    fn take(&self, line: &[u8], sink: &mut Sink) -> Result<(), Flaw> {
        let Fields { kept: fields, count } =
            serde_json::from_slice(line).map_err(|error| flaw(&error))?;
        if count > COLUMNS_MAX {
            return Err(Flaw::new(format!(
                "the object has {} fields, the most accepted is {}",
                units::count(count as u64),
                units::count(COLUMNS_MAX as u64)
            )));
        }
        let key = match find(&fields, &self.schema.key) {
            Some(json) => key_bytes(json.get()).map_err(|reason| {
                Flaw::new(format!("the key \"{}\" {reason}", preview::name(&self.schema.key)))
                    .at(offset(line, json) + 1)
            })?,
            None => {
                let key = preview::name(&self.schema.key);
                return Err(Flaw::new(format!("there is no key \"{key}\"")));
            }
        };
        if self.deletes(&fields) {
            return sink.delete(&key);
        }
        let is_value = |name: &str| {
            name != self.schema.key && !self.not_values.iter().any(|other| other == name)
        };
        sink.push(&key, |out| match self.schema.form {
            Form::Object => put_object(&fields, is_value, out),
            Form::Plain => {
                let json = find(&fields, &self.schema.columns[0].name);
                out.extend_from_slice(json.map_or("null", RawValue::get).as_bytes());
            }
            Form::Row => {
                let mut row = RowEncoder::new(out, self.schema.columns.len());
                for column in &self.schema.columns {
                    match find(&fields, &column.name) {
                        Some(json) if json.get() != "null" => row.bytes(json.get().as_bytes()),
                        _ => row.null(),
                    }
                }
            }
        })
    }
}

impl Reader for JsonReader {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn read(mut self: Box<Self>, sink: &mut Sink) -> Result<()> {
        loop {
            let used = self.read_window(sink)?;
            self.window.consume(used);
            if !self.window.fill(self.line)? {
                return Ok(());
            }
        }
    }
}

#[inline]
fn find<'a>(fields: &[(Name<'_>, &'a RawValue)], name: &str) -> Option<&'a RawValue> {
    fields.iter().rev().find(|(field, _)| field.0 == name).map(|(_, json)| *json)
}

/// Writes the object with only the fields of the value.
fn put_object(
    fields: &[(Name<'_>, &RawValue)],
    is_value: impl Fn(&str) -> bool,
    out: &mut Vec<u8>,
) {
    out.push(b'{');
    let start = out.len();
    for (name, json) in fields.iter().filter(|(name, _)| is_value(&name.0)) {
        if out.len() > start {
            out.push(b',');
        }
        serde_json::to_writer(&mut *out, &name.0).expect("a vector takes all bytes");
        out.push(b':');
        out.extend_from_slice(json.get().as_bytes());
    }
    out.push(b'}');
}

/// Returns the bytes of a key: those of a string, of the text of a number or boolean, or of decoded
/// base64.
fn key_bytes(json: &str) -> Result<Cow<'_, [u8]>, &'static str> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Binary {
        base64: String,
    }
    match json.as_bytes() {
        [b'"', text @ .., b'"'] if memchr(b'\\', text).is_none() => Ok(Cow::Borrowed(text)),
        [b'"', ..] => match serde_json::from_str::<String>(json) {
            Ok(text) => Ok(Cow::Owned(text.into_bytes())),
            Err(_) => Err("is not Unicode text"),
        },
        b"null" => Err("is null"),
        [b'[', ..] => Err("is a list, expected a string or a number"),
        [b'{', ..] => serde_json::from_str::<Binary>(json)
            .ok()
            .and_then(|binary| BASE64_STANDARD.decode(binary.base64).ok())
            .map(Cow::Owned)
            .ok_or("is an object, expected a string or a number"),
        number => Ok(Cow::Borrowed(number)),
    }
}

/// Returns the offset of a field's text in its line.
fn offset(line: &[u8], json: &RawValue) -> usize {
    json.get().as_ptr().addr() - line.as_ptr().addr()
}

fn flaw(error: &serde_json::Error) -> Flaw {
    let text = error.to_string();
    // The decoder counts lines from 1 in each line of the file, so its line number is dropped.
    let text = text.rsplit_once(" at line ").map_or(&text[..], |(text, _)| text);
    Flaw::new(format!("not a JSON object: {}", preview::reason(&text))).at(error.column().max(1))
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields<'de>, M::Error> {
                let (mut kept, mut count) = (Vec::with_capacity(8), 0);
                while let Some(field) = map.next_entry()? {
                    if count < COLUMNS_MAX {
                        kept.push(field);
                    }
                    count += 1;
                }
                Ok(Fields { kept, count })
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.into())))
            }
        }
        deserializer.deserialize_str(Text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, key: Result<&[u8], &str>) {
        assert_eq!(key_bytes(json).as_deref(), key.as_deref());
    }

    #[test]
    fn keys_are_bytes() {
        check(r#""a b""#, Ok(b"a b"));
        check(r#""a\u0062\n""#, Ok(b"ab\n"));
        check("-1.50", Ok(b"-1.50"));
        check("true", Ok(b"true"));
        check(r#"{"base64":"/wA="}"#, Ok(&[0xff, 0]));
        check("null", Err("is null"));
        check(r#""\ud800""#, Err("is not Unicode text"));
        check("[1]", Err("is a list, expected a string or a number"));
        check(r#"{"a":1}"#, Err("is an object, expected a string or a number"));
    }

    #[test]
    fn an_object_keeps_its_other_fields_as_they_are() {
        let line = r#"{ "k" : 1, "a\"\u0062" : [ 1,  2 ], "x":null}"#;
        let Fields { kept: fields, .. } = serde_json::from_str(line).unwrap();
        let mut out = Vec::new();
        put_object(&fields, |name| name != "k", &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"a\"b":[ 1,  2 ],"x":null}"#);
    }
}
