//! The bytes of a key, from a value of any kind: in the column of the keys, and in a column whose distinct values are
//! counted.

use super::sink::Flaw;
use crate::preview;
use hashfold_rows::{Value, read_json_bytes};
use memchr::memchr;
use std::borrow::Cow;

const LIST: &str = "is a list, expected a string or a number";

/// Returns the bytes of a key in JSON: those of a string, of the text of a number or boolean, or of decoded
/// base64.
pub(super) fn of_json(json: &str) -> Result<Cow<'_, [u8]>, &'static str> {
    match json.as_bytes() {
        [b'"', text @ .., b'"'] if memchr(b'\\', text).is_none() => Ok(Cow::Borrowed(text)),
        [b'"', ..] => match serde_json::from_str::<String>(json) {
            Ok(text) => Ok(Cow::Owned(text.into_bytes())),
            Err(_) => Err("is not Unicode text"),
        },
        b"null" => Err("is null"),
        [b'[', ..] => Err(LIST),
        [b'{', ..] => read_json_bytes(json)
            .map(Cow::Owned)
            .ok_or("is an object, expected a string or a number"),
        number => Ok(Cow::Borrowed(number)),
    }
}

/// Appends the bytes of a key that is a value of a column: those of its text, or those of its JSON. Null is no key.
pub(super) fn put(value: Value<'_>, out: &mut Vec<u8>) -> Result<(), &'static str> {
    match value {
        Value::Null => return Err("is null"),
        Value::Json(json) => {
            let json = std::str::from_utf8(json).map_err(|_| "is not Unicode text")?;
            out.extend_from_slice(&of_json(json)?);
        }
        Value::List(_) => return Err(LIST),
        _ => value.write_text(out),
    }
    Ok(())
}

/// Returns the flaw of a row whose key, in the column `name`, cannot be used.
pub(super) fn flaw(name: &str, reason: &str) -> Flaw {
    Flaw::new(format!("the key \"{}\" {reason}", preview::name(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the key in a text of JSON, and that it is the same one in a column of values.
    #[track_caller]
    fn check(json: &str, key: Result<&[u8], &str>) {
        assert_eq!(of_json(json).as_deref(), key.as_deref());
        let mut out = Vec::new();
        let put = put(Value::Json(json.as_bytes()), &mut out);
        assert_eq!(put.map(|()| &out[..]), key);
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
    fn keys_of_typed_columns_are_their_texts() {
        let check = |value: Value<'_>, text: &str| {
            let mut out = Vec::new();
            put(value, &mut out).unwrap();
            assert_eq!(out, text.as_bytes());
        };
        check(Value::Int(-7), "-7");
        check(Value::Bool(true), "true");
        check(Value::Bytes(b"[1]"), "[1]");
        check(Value::Date(0), "1970-01-01");
        assert_eq!(put(Value::Null, &mut Vec::new()), Err("is null"));
    }
}
