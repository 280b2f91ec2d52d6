//! JSON Lines: one object per line.
//!
//! The types of a field may vary from line to line, so a field is stored as its JSON text unless
//! kinds are inferred, or the data set has the column with another kind. Without --value, the value
//! is the rest of each object, so that no field is lost. The name of a field may be a path:
//! `user.name` is the field `name` of the object in the field `user`.

use super::{
    COLUMNS_MAX, Format, Reader,
    bad_rows::Head,
    infer::Guess,
    key_bytes,
    selection::{Marker, Selection},
    sink::{Flaw, Sink},
    source::Meter,
    window::Window,
};
use crate::{columns, failure::Result, preview, units};
use hashfold_rows::{Form, JsonObject, KeyType, Kind, Schema, Value};
use memchr::{memchr, memchr_iter};
use serde_json::value::RawValue;
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

/// Reads one JSON Lines input.
pub(crate) struct JsonReader {
    window: Window,
    schema: Schema,
    markers: Vec<Marker>,
    /// Names of fields that only mark deletions.
    not_values: Vec<String>,
    /// Whether all fields but the key and markers must be columns, because the columns were
    /// inferred and not named.
    is_closed: bool,
    /// Whether the only column is read as that of the key is.
    values_are_keys: bool,
    /// The number of the next line, from 1 on.
    line: u64,
}

impl JsonReader {
    pub(crate) fn open(path: &str, selection: &Selection, meter: &Meter) -> Result<JsonReader> {
        let key = selection.key(path)?;
        let mut window = Window::open(path, meter)?;
        window.skip_byte_order_mark();
        let markers = selection.markers.clone();
        let names = markers.iter().map(|marker| marker.column.clone());
        let not_values = names.filter(|name| selection.is_marker_alone(name)).collect::<Vec<_>>();
        let is_closed = selection.infers && selection.values.is_empty();
        let schema = if selection.is_of_objects() {
            Schema::objects(key)
        } else {
            let mut wanted = selection.values.clone();
            if wanted.is_empty() && !selection.is_of_keys {
                let expected = selection.expected.iter().flat_map(|it| &it.schema.columns);
                wanted.extend(expected.map(|column| column.name.clone()));
                if is_closed {
                    add_fields(&window, &mut wanted);
                    wanted.retain(|name| name != key && !not_values.contains(name));
                }
            }
            let kinds = match selection.infers {
                true => infer(&window, &wanted),
                false => HashMap::new(),
            };
            let kind = |name: &str| Ok(kinds.get(name).copied().unwrap_or(Kind::Json));
            selection.target(path, &wanted, kind)?
        };
        let values_are_keys = selection.values_are_keys;
        Ok(JsonReader { window, schema, markers, not_values, is_closed, values_are_keys, line: 1 })
    }

    /// Returns whether the fields mark a deletion.
    fn deletes(&self, object: &JsonObject<'_>, line: &[u8]) -> Result<bool, Flaw> {
        let mut text = Vec::new();
        for Marker { column, mark } in &self.markers {
            let Some(json) = object.get(column) else { continue };
            let value = if json.get() == "null" { Value::Null } else { json.into() };
            text.clear();
            value.write_text(&mut text);
            if mark.is_in(&text).map_err(|flaw| flaw.at(offset(line, json) + 1))? {
                return Ok(true);
            }
        }
        Ok(false)
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
        let object = JsonObject::parse(line).map_err(|error| flaw(&error))?;
        if object.count > COLUMNS_MAX {
            return Err(Flaw::new(format!(
                "the object has {} fields, the most accepted is {}",
                units::count(object.count as u64),
                units::count(COLUMNS_MAX as u64)
            )));
        }
        let Some(json) = object.get(&self.schema.key) else {
            let key = preview::name(&self.schema.key);
            return Err(Flaw::new(format!("there is no key \"{key}\"")));
        };
        let key = key_bytes::of_json(json.get()).map_err(|reason| {
            key_bytes::flaw(&self.schema.key, reason).at(offset(line, json) + 1)
        })?;
        if self.deletes(&object, line)? {
            return sink.delete(&key);
        }
        match json.get().as_bytes() {
            [b'-' | b'0'..=b'9', ..] => sink.keys.add_key(&key),
            _ => sink.keys.add(KeyType::Text),
        }
        if self.schema.form == Form::Object {
            return sink.push(&key, |out| {
                put_object(&object, |name| self.is_value(name), out);
                Ok(())
            });
        }
        self.check_closed(&object)?;
        let columns = self.schema.columns.iter();
        let found: Vec<_> = columns.map(|column| object.get(&column.name)).collect();
        for i in (0..found.len()).filter(|&i| found[i].is_some()) {
            sink.fill(i);
        }
        if self.values_are_keys {
            let value = found[0].map_or(Value::Null, Value::from);
            let pushed = sink.push_key(&key, (&self.schema.columns[0].name, value));
            return pushed.map_err(|flaw| match found[0] {
                Some(json) => flaw.at(offset(line, json) + 1),
                None => flaw,
            });
        }
        sink.push(&key, |out| {
            let values = found.iter().map(|json| json.map_or(Value::Null, Value::from));
            self.schema.encode(values, out).map_err(|(i, mismatch)| {
                let flaw = Flaw::new(columns::mismatch(&self.schema, i, &mismatch));
                match found[i] {
                    Some(json) => flaw.at(offset(line, json) + 1),
                    None => flaw,
                }
            })
        })
    }

    fn is_value(&self, name: &str) -> bool {
        name != self.schema.key && !self.not_values.iter().any(|other| other == name)
    }

    /// Refuses a field that would be lost.
    fn check_closed(&self, object: &JsonObject<'_>) -> Result<(), Flaw> {
        if !self.is_closed {
            return Ok(());
        }
        let is_column = |name: &str| self.schema.columns.iter().any(|column| column.name == name);
        let mut names = object.fields.iter().map(|(name, _)| &name[..]);
        match names.find(|name| self.is_value(name) && !is_column(name)) {
            Some(name) => Err(Flaw::new(format!(
                "the field \"{}\" is new, --infer takes the columns of the first rows; name the \
                 columns with --value",
                preview::name(name)
            ))),
            None => Ok(()),
        }
    }
}

impl Reader for JsonReader {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn head(&self) -> Head {
        Head { format: Format::Jsonl, header: Vec::new() }
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

/// Returns the objects in the complete lines of the window.
fn objects(window: &Window) -> impl Iterator<Item = JsonObject<'_>> {
    let bytes = window.bytes();
    let end = if window.at_end { Some(bytes.len()) } else { None };
    let ends = memchr_iter(b'\n', bytes).chain(end);
    let lines = ends.scan(0, |start, end| {
        let line = &bytes[*start..end.max(*start)];
        *start = end + 1;
        Some(line)
    });
    lines.filter_map(|line| JsonObject::parse(line.trim_ascii()).ok())
}

/// Adds the names of fields of the objects in the window.
fn add_fields(window: &Window, names: &mut Vec<String>) {
    let mut known: HashSet<String> = names.iter().cloned().collect();
    for object in objects(window) {
        for (name, _) in object.fields {
            if names.len() < COLUMNS_MAX && known.insert(name.clone().into_owned()) {
                names.push(name.into_owned());
            }
        }
    }
}

/// Returns the kinds of fields by the objects in the window.
fn infer<'a>(window: &Window, names: &'a [String]) -> HashMap<&'a str, Kind> {
    let mut guesses: HashMap<&str, Guess> =
        names.iter().map(|name| (&name[..], Guess::of_json())).collect();
    for object in objects(window) {
        for (name, guess) in &mut guesses {
            object.get(name).into_iter().for_each(|json| guess.see(json.into()));
        }
    }
    guesses.into_iter().map(|(name, guess)| (name, guess.kind())).collect()
}

/// Writes the object with only the fields of the value.
fn put_object(object: &JsonObject<'_>, is_value: impl Fn(&str) -> bool, out: &mut Vec<u8>) {
    out.push(b'{');
    let start = out.len();
    for (name, json) in object.fields.iter().filter(|(name, _)| is_value(name)) {
        if out.len() > start {
            out.push(b',');
        }
        serde_json::to_writer(&mut *out, name).expect("a vector takes all bytes");
        out.push(b':');
        out.extend_from_slice(json.get().as_bytes());
    }
    out.push(b'}');
}

/// Returns the offset of a field's text in its line.
fn offset(line: &[u8], json: &RawValue) -> usize {
    json.get().as_ptr().addr() - line.as_ptr().addr()
}

fn flaw(error: &serde_json::Error) -> Flaw {
    let text = error.to_string();
    // The decoder counts lines from 1 in each line of the file, so its line number is dropped.
    let text = text.rsplit_once(" at line ").map_or(&text[..], |(text, _)| text);
    Flaw::new(format!("not a JSON object: {}", preview::reason(&plain(text))))
        .at(error.column().max(1))
}

/// Returns a message of the decoder in words that do not need its documentation.
fn plain(text: &str) -> Cow<'_, str> {
    let wrong_type = text.strip_prefix("invalid type: ");
    Cow::Borrowed(match wrong_type.and_then(|rest| rest.split([' ', ',']).next()) {
        Some("sequence") => "expected an object in braces, got a list",
        Some("string") => "expected an object in braces, got a string",
        Some("integer" | "floating") => "expected an object in braces, got a number",
        Some("boolean") => "expected an object in braces, got true or false",
        Some("null") => "expected an object in braces, got null",
        _ => match text {
            "EOF while parsing a string" => "the line ends inside a string",
            _ if text.starts_with("EOF while parsing") => "the line ends too early",
            "key must be a string" => "expected the name of a field, in double quotes",
            "expected ident" => "expected true, false or null",
            "expected value" => "expected a value: text is in double quotes",
            "invalid unicode code point" => "the text is not UTF-8",
            "trailing characters" => "there is more text after the object",
            "recursion limit exceeded" => "lists and objects are nested too deep",
            "lone leading surrogate in hex escape" | "unexpected end of hex escape" => {
                "half of a pair of \\u escapes is missing"
            }
            _ if text.starts_with("control character") => {
                "a string has a control character, which is written as an escape like \\n or \\t"
            }
            _ => return Cow::Borrowed(text),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_decoder_are_in_plain_words() {
        let check = |line: &str, expected: &str| {
            let flaw = flaw(&JsonObject::parse(line.as_bytes()).unwrap_err());
            assert_eq!(flaw.reason, format!("not a JSON object: {expected}"), "{line}");
        };
        check("[1]", "expected an object in braces, got a list");
        check("\"a\"", "expected an object in braces, got a string");
        check("-1", "expected an object in braces, got a number");
        check("1.5", "expected an object in braces, got a number");
        check("true", "expected an object in braces, got true or false");
        check("null", "expected an object in braces, got null");
        check("{\"a\":1", "the line ends too early");
        check("{\"a", "the line ends inside a string");
        check("{a:1}", "expected the name of a field, in double quotes");
        check("{\"a\":nul}", "expected true, false or null");
        check("{\"a\":x}", "expected a value: text is in double quotes");
        check("{\"a\":1}}", "there is more text after the object");
        check(
            "{\"a\":\"\t\"}",
            "a string has a control character, which is written as an escape like \\n or \\t",
        );
        check("{\"a\":1 \"b\":2}", "expected `,` or `}`");
    }

    #[test]
    fn an_object_keeps_its_other_fields_as_they_are() {
        let line = r#"{ "k" : 1, "a\"\u0062" : [ 1,  2 ], "x":null}"#;
        let object = JsonObject::parse(line.as_bytes()).unwrap();
        let mut out = Vec::new();
        put_object(&object, |name| name != "k", &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"a\"b":[ 1,  2 ],"x":null}"#);
    }
}
