//! The value of one column: its accessors, and its text in CSV and JSON.

use crate::{
    json::{is_json, write_json_bytes},
    kind::Unit,
    list::List,
    time,
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt, io::Write as _};

/// The value of one column, borrowed from the bytes of its row.
///
/// The accessors return `None` if the value is of another kind or null. They also look into JSON:
/// the text of a JSON number is a number. `Display` writes what `hashfold get --format csv` prints.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// A signed integer of any size.
    Int(i64),
    /// An unsigned integer of any size.
    Uint(u64),
    /// A number of IEEE 754, of 32 bits.
    Float32(f32),
    /// A number of IEEE 754, of 64 bits.
    Float64(f64),
    /// Days since 1970-01-01.
    Date(i32),
    /// A time.
    Timestamp {
        /// Units since 1970-01-01 00:00:00.
        count: i64,
        /// The unit.
        unit: Unit,
        /// Whether the time is in UTC; otherwise its time zone has no name.
        utc: bool,
    },
    /// Text or binary.
    Bytes(&'a [u8]),
    /// The text of a JSON value.
    Json(&'a [u8]),
    /// A list of numbers.
    List(List<'a>),
}

impl<'a> Value<'a> {
    /// Returns whether there is no value: null, or the JSON value `null`.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null | Value::Json(b"null"))
    }

    /// Returns the text of a text column, or of a JSON string.
    pub fn as_str(&self) -> Option<Cow<'a, str>> {
        match *self {
            Value::Bytes(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Value::Json(json) => match json {
                [b'"', text @ .., b'"'] if !text.contains(&b'\\') => {
                    std::str::from_utf8(text).ok().map(Cow::Borrowed)
                }
                _ => serde_json::from_slice(json).ok().map(Cow::Owned),
            },
            _ => None,
        }
    }

    /// Returns the bytes of a text or binary column, or the text of a JSON value.
    pub fn as_bytes(&self) -> Option<&'a [u8]> {
        match *self {
            Value::Bytes(bytes) | Value::Json(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the text of text, or of a JSON value that is not a string with escapes.
    pub(crate) fn text(&self) -> Option<&'a [u8]> {
        match *self {
            Value::Json([b'"', text @ .., b'"']) if !text.contains(&b'\\') => Some(text),
            Value::Bytes(text) | Value::Json(text) => Some(text),
            _ => None,
        }
    }

    /// Returns an integer from -2^63 to 2^63 - 1.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Value::Int(value) => Some(value),
            Value::Uint(value) => i64::try_from(value).ok(),
            Value::Json(json) => serde_json::from_slice(json).ok(),
            _ => None,
        }
    }

    /// Returns an integer from 0 to 2^64 - 1.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Value::Int(value) => u64::try_from(value).ok(),
            Value::Uint(value) => Some(value),
            Value::Json(json) => serde_json::from_slice(json).ok(),
            _ => None,
        }
    }

    /// Returns a number, rounded if it is an integer beyond 2^53.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Value::Float32(value) => Some(value.into()),
            Value::Float64(value) => Some(value),
            Value::Int(value) => Some(value as f64),
            Value::Uint(value) => Some(value as f64),
            Value::Json(json) => serde_json::from_slice(json).ok(),
            _ => None,
        }
    }

    /// Returns a truth value.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Value::Bool(value) => Some(value),
            Value::Json(json) => serde_json::from_slice(json).ok(),
            _ => None,
        }
    }

    /// Returns a list of numbers. A JSON array is not one: its text is in [`Value::Json`].
    pub fn as_list(&self) -> Option<List<'a>> {
        if let Value::List(list) = *self { Some(list) } else { None }
    }

    /// Appends the value as text: numbers in decimal, dates and times as ISO 8601, text as it is,
    /// JSON strings without their quotes, lists as JSON arrays, null as nothing.
    pub fn write_text(&self, out: &mut Vec<u8>) {
        match *self {
            Value::Null => {}
            Value::Bytes(bytes) => out.extend_from_slice(bytes),
            Value::Json(json) => match self.as_str() {
                Some(text) => out.extend_from_slice(text.as_bytes()),
                None => out.extend_from_slice(json),
            },
            Value::Bool(value) => put(out, format_args!("{value}")),
            Value::Int(value) => put(out, format_args!("{value}")),
            Value::Uint(value) => put(out, format_args!("{value}")),
            Value::Float32(value) => put(out, format_args!("{value}")),
            Value::Float64(value) => put(out, format_args!("{value}")),
            Value::Date(days) => time::put_date(days.into(), out),
            Value::Timestamp { count, unit, utc } => {
                time::put_timestamp(count, unit, out);
                if utc {
                    out.push(b'Z');
                }
            }
            Value::List(_) => self.write_json(out),
        }
    }

    /// Appends the value as JSON, without loss: bytes that are not UTF-8 become
    /// `{"base64":"..."}`, floats that are not numbers become strings.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match *self {
            Value::Null => out.extend_from_slice(b"null"),
            Value::Bytes(bytes) => write_json_bytes(bytes, out),
            Value::Json(json) if is_json(json) => out.extend_from_slice(json),
            Value::Json(damaged) => write_json_bytes(damaged, out),
            Value::Bool(_) | Value::Int(_) | Value::Uint(_) => self.write_text(out),
            Value::Float32(value) if value.is_finite() => self.write_text(out),
            Value::Float64(value) if value.is_finite() => self.write_text(out),
            Value::Float32(_) | Value::Float64(_) | Value::Date(_) | Value::Timestamp { .. } => {
                out.push(b'"');
                self.write_text(out);
                out.push(b'"');
            }
            Value::List(list) => {
                out.push(b'[');
                for (i, number) in list.iter().enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    number.write_json(out);
                }
                out.push(b']');
            }
        }
    }
}

impl<'a> From<&'a RawValue> for Value<'a> {
    fn from(json: &'a RawValue) -> Value<'a> {
        Value::Json(json.get().as_bytes())
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        self.write_text(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

fn put(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a vector takes all bytes");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Item;

    #[track_caller]
    fn check(value: Value<'_>, text: &str, json: &str) {
        let mut out = Vec::new();
        value.write_text(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), text);
        out.clear();
        value.write_json(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), json);
    }

    fn time(count: i64, unit: Unit) -> Value<'static> {
        Value::Timestamp { count, unit, utc: true }
    }

    #[test]
    fn values_read_well() {
        check(Value::Null, "", "null");
        check(Value::Bool(true), "true", "true");
        check(Value::Int(-7), "-7", "-7");
        check(Value::Uint(u64::MAX), "18446744073709551615", "18446744073709551615");
        check(Value::Float64(0.1), "0.1", "0.1");
        check(Value::Float32(f32::NAN), "NaN", "\"NaN\"");
        check(Value::Bytes(b"a\"b"), "a\"b", r#""a\"b""#);
        check(Value::Json(br#""a""#), "a", r#""a""#);
        check(Value::Json(b"[1, 2]"), "[1, 2]", "[1, 2]");
        check(Value::Json(b"[1, "), "[1, ", r#""[1, ""#);
        let numbers = [1i32, 0, -2].map(i32::to_le_bytes).concat();
        let list = |nulls| Value::List(List::new(Item::Int32, nulls, &numbers));
        check(list(&[]), "[1,0,-2]", "[1,0,-2]");
        check(list(&[0b010]), "[1,null,-2]", "[1,null,-2]");
    }

    #[test]
    fn dates_and_times_are_iso_8601() {
        check(Value::Date(0), "1970-01-01", "\"1970-01-01\"");
        check(Value::Date(-1), "1969-12-31", "\"1969-12-31\"");
        check(Value::Date(11_016), "2000-02-29", "\"2000-02-29\"");
        check(
            time(-1, Unit::Millisecond),
            "1969-12-31T23:59:59.999Z",
            "\"1969-12-31T23:59:59.999Z\"",
        );
        check(time(951_782_400, Unit::Second), "2000-02-29T00:00:00Z", "\"2000-02-29T00:00:00Z\"");
        for unit in [Unit::Second, Unit::Millisecond, Unit::Microsecond, Unit::Nanosecond] {
            for count in [i64::MIN, i64::MAX] {
                time(count, unit).write_text(&mut Vec::new());
            }
        }
        Value::Date(i32::MIN).write_text(&mut Vec::new());
    }

    #[test]
    fn accessors_look_into_json() {
        assert_eq!(Value::Json(b"-5").as_i64(), Some(-5));
        assert_eq!(Value::Json(b"1.5").as_f64(), Some(1.5));
        assert_eq!(Value::Json(b"1.5").as_i64(), None);
        assert_eq!(Value::Json(b"true").as_bool(), Some(true));
        assert_eq!(Value::Json(br#""a\nb""#).as_str().unwrap(), "a\nb");
        assert_eq!(Value::Bytes(b"5").as_i64(), None);
        assert!(Value::Json(b"null").is_null() && Value::Json(b"null").as_str().is_none());
    }
}
