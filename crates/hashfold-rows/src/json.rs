//! JSON texts: bytes in JSON, and the fields of an object.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt, io::Write as _};

/// Appends bytes as a JSON string, or as `{"base64":"..."}` if they are not UTF-8.
pub fn write_json_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => serde_json::to_writer(out, text).expect("a vector takes all bytes"),
        Err(_) => write!(out, r#"{{"base64":"{}"}}"#, BASE64_STANDARD.encode(bytes))
            .expect("a vector takes all bytes"),
    }
}

/// Returns the bytes of an object like `{"base64":"..."}`; `None` for any other text.
pub fn read_json_bytes(json: &str) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Binary {
        base64: String,
    }
    let binary = serde_json::from_str::<Binary>(json).ok()?;
    BASE64_STANDARD.decode(binary.base64).ok()
}

/// Returns whether the bytes are the text of one JSON value.
pub(crate) fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(bytes).is_ok()
}

/// The fields of a JSON object in the order of its text. Of equal names, the last one counts.
#[derive(Debug)]
pub struct JsonObject<'a> {
    /// The names, without their escapes, and the texts of the values; the first fields, at most the
    /// limit that the reader was given.
    pub fields: Vec<(Cow<'a, str>, &'a RawValue)>,
    /// Number of all fields.
    pub count: usize,
}

/// Maximum number of fields that are kept of an object; one object has seldom more than a few.
const FIELDS_MAX: usize = 1 << 14;

impl<'a> JsonObject<'a> {
    /// Reads an object. At most 16,384 fields are kept; all are counted.
    ///
    /// # Errors
    /// The text is not one JSON object.
    pub fn parse(json: &'a [u8]) -> serde_json::Result<JsonObject<'a>> {
        serde_json::from_slice(json)
    }

    /// Returns the text of a field: the one with this name, or the one at this path (`user.name`:
    /// the field `name` of the object in the field `user`).
    #[inline]
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        let found = self.fields.iter().rev().find(|(field, _)| field == name);
        match found {
            Some((_, json)) => Some(json),
            None if name.contains('.') => self.get_path(name),
            None => None,
        }
    }

    /// Looks for the shortest first part of the path that is a field. Every step takes a part of
    /// the path off, and looks into an object that is shorter, so it ends.
    fn get_path(&self, path: &str) -> Option<&'a RawValue> {
        let (first, rest) = path
            .match_indices('.')
            .map(|(i, _)| (&path[..i], &path[i + 1..]))
            .find(|(first, _)| self.fields.iter().any(|(field, _)| field == first))?;
        let inner = JsonObject::parse(self.get(first)?.get().as_bytes()).ok()?;
        inner.get(rest)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = JsonObject<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<JsonObject<'de>, M::Error> {
                let (mut fields, mut count) = (Vec::with_capacity(8), 0);
                while let Some((Name(name), json)) = map.next_entry()? {
                    if count < FIELDS_MAX {
                        fields.push((name, json));
                    }
                    count += 1;
                }
                Ok(JsonObject { fields, count })
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// The name of a field, borrowed if it has no escapes.
struct Name<'a>(Cow<'a, str>);

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
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, path: &str, expected: Option<&str>) {
        let object = JsonObject::parse(json.as_bytes()).unwrap();
        assert_eq!(object.get(path).map(RawValue::get), expected, "{path} of {json}");
    }

    #[test]
    fn fields_are_found_by_name_and_by_path() {
        check(r#"{"a":1,"a":2}"#, "a", Some("2"));
        check(r#"{"a":{"b":{"c":[1]}}}"#, "a.b.c", Some("[1]"));
        check(r#"{"a.b":1,"a":{"b":2}}"#, "a.b", Some("1"));
        check(r#"{"a.b":{"c":3}}"#, "a.b.c", Some("3"));
        check(r#"{"a":1}"#, "a.b", None);
        check(r#"{"a":{"b":1}}"#, "a.c", None);
        check(r#"{"a":{"b":1}}"#, "a.", None);
        check(r#"{"":{"":1}}"#, ".", Some("1"));
    }

    #[test]
    fn bytes_come_back_from_json() {
        let mut out = Vec::new();
        write_json_bytes(&[0xff, 0], &mut out);
        assert_eq!(out, br#"{"base64":"/wA="}"#);
        assert_eq!(read_json_bytes(r#"{"base64":"/wA="}"#), Some(vec![0xff, 0]));
        assert_eq!(read_json_bytes(r#"{"base64":"/wA=","a":1}"#), None);
    }
}
