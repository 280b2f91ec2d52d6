//! Rows from values, which are converted to the kinds of the columns where nothing is lost.

use crate::{
    json::{read_json_bytes, write_json_bytes},
    kind::{Item, Kind, Unit},
    list::List,
    number::{to_f32, to_f64, to_integer},
    time,
    value::Value,
};
use hashfold::codec::put_varint;
use serde_json::value::RawValue;
use std::fmt;

/// Columns whose nulls share a byte.
pub(crate) const NULLS_A_BYTE: usize = 7;
/// A byte of nulls all of whose columns are null.
const ALL_NULL: u8 = !MORE;
/// The bit of a byte of nulls that says that another one follows.
pub(crate) const MORE: u8 = 0x80;

/// A value that cannot be converted to the kind of its column without loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The kind of the column.
    pub kind: Kind,
    /// The value as JSON, its first characters if it is long.
    pub got: String,
}

/// Appends a row to a buffer, column by column.
#[derive(Debug)]
pub struct RowEncoder<'a> {
    out: &'a mut Vec<u8>,
    /// Start of the row in `out`.
    start: usize,
    /// Number of the next column.
    column: usize,
}

impl<'a> RowEncoder<'a> {
    /// Starts a row of `count` columns, all of which must be appended.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, count: usize) -> RowEncoder<'a> {
        let start = out.len();
        out.resize(start + count.div_ceil(NULLS_A_BYTE), MORE);
        if count > 0
            && let Some(last) = out.last_mut()
        {
            // The columns that the last byte has room for, and that do not exist, are null.
            *last = (ALL_NULL << ((count - 1) % NULLS_A_BYTE + 1)) & ALL_NULL;
        }
        RowEncoder { out, start, column: 0 }
    }

    /// Appends a null.
    #[inline]
    pub fn null(&mut self) {
        self.out[self.start + self.column / NULLS_A_BYTE] |= 1 << (self.column % NULLS_A_BYTE);
        self.column += 1;
    }

    /// Appends the little-endian bytes of a column of fixed size.
    #[inline]
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.column += 1;
    }

    /// Appends the bytes of a text, binary or JSON column.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        put_varint(self.out, bytes.len() as u64);
        self.fixed(bytes);
    }

    /// Appends a list.
    #[inline]
    pub fn list(&mut self, list: List<'_>) {
        put_list(list, self.out);
        self.column += 1;
    }

    /// Appends a value as this kind. After an error the row is of no use.
    ///
    /// # Errors
    /// The value cannot be converted without loss.
    #[inline]
    pub fn value(&mut self, kind: Kind, value: Value<'_>) -> Result<(), Mismatch> {
        match (kind, value) {
            (Kind::Text, Value::Bytes(bytes)) => {
                self.bytes(bytes);
                Ok(())
            }
            _ => self.converted(kind, value),
        }
    }

    fn converted(&mut self, kind: Kind, value: Value<'_>) -> Result<(), Mismatch> {
        if is_null_of(kind, value) {
            self.null();
            return Ok(());
        }
        if kind.is_bytes() {
            let mut bytes = Vec::new();
            put(kind, value, &mut bytes).ok_or_else(|| Mismatch::new(kind, value))?;
            self.bytes(&bytes);
            return Ok(());
        }
        put(kind, value, self.out).ok_or_else(|| Mismatch::new(kind, value))?;
        self.column += 1;
        Ok(())
    }
}

/// Appends a value of the form `plain`: its bytes alone; a null of text or binary is empty.
///
/// # Errors
/// The value cannot be converted without loss.
pub(crate) fn put_plain(kind: Kind, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), Mismatch> {
    match kind {
        Kind::Json if value.is_null() => out.extend_from_slice(b"null"),
        _ if value.is_null() => {}
        _ => put(kind, value, out).ok_or_else(|| Mismatch::new(kind, value))?,
    }
    Ok(())
}

/// Returns whether a value is stored as null: empty text is, in all columns but those of bytes.
fn is_null_of(kind: Kind, value: Value<'_>) -> bool {
    value.is_null() || (!kind.is_bytes() && value == Value::Bytes(b""))
}

/// Appends the bytes of a value as this kind, without the size in front of text, binary and JSON.
pub(crate) fn put(kind: Kind, value: Value<'_>, out: &mut Vec<u8>) -> Option<()> {
    match kind {
        Kind::Bool => out.push(to_bool(value)?.into()),
        Kind::Int8 => out.extend(i8::try_from(to_integer(value)?).ok()?.to_le_bytes()),
        Kind::Int16 => out.extend(i16::try_from(to_integer(value)?).ok()?.to_le_bytes()),
        Kind::Int32 => out.extend(i32::try_from(to_integer(value)?).ok()?.to_le_bytes()),
        Kind::Int64 => out.extend(i64::try_from(to_integer(value)?).ok()?.to_le_bytes()),
        Kind::Uint8 => out.extend(u8::try_from(to_integer(value)?).ok()?.to_le_bytes()),
        Kind::Uint16 => out.extend(u16::try_from(to_integer(value)?).ok()?.to_le_bytes()),
        Kind::Uint32 => out.extend(u32::try_from(to_integer(value)?).ok()?.to_le_bytes()),
        Kind::Uint64 => out.extend(u64::try_from(to_integer(value)?).ok()?.to_le_bytes()),
        Kind::Float32 => out.extend(to_f32(value)?.to_le_bytes()),
        Kind::Float64 => out.extend(to_f64(value)?.to_le_bytes()),
        Kind::Date => out.extend(to_date(value)?.to_le_bytes()),
        Kind::Timestamp { unit, utc } => out.extend(to_timestamp(value, unit, utc)?.to_le_bytes()),
        Kind::Text => put_text(value, out)?,
        Kind::Binary => put_binary(value, out)?,
        Kind::Json => value.write_json(out),
        Kind::List { item } => put_numbers(value, item, out)?,
    }
    Some(())
}

fn to_bool(value: Value<'_>) -> Option<bool> {
    if let Value::Bool(value) = value {
        return Some(value);
    }
    match value.text()? {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

fn to_date(value: Value<'_>) -> Option<i32> {
    match value {
        Value::Date(days) => Some(days),
        _ => time::parse_date(value.text()?),
    }
}

fn to_timestamp(value: Value<'_>, unit: Unit, utc: bool) -> Option<i64> {
    let (count, from, is_utc) = match value {
        Value::Timestamp { count, unit, utc } => (count, unit, utc),
        _ => {
            let (count, is_utc) = time::parse_timestamp(value.text()?, unit)?;
            (count, unit, is_utc)
        }
    };
    let (to, from) = (unit.per_second(), from.per_second());
    let count = match to >= from {
        true => count.checked_mul(to / from),
        false => (count % (from / to) == 0).then_some(count / (from / to)),
    };
    count.filter(|_| is_utc == utc)
}

fn put_text(value: Value<'_>, out: &mut Vec<u8>) -> Option<()> {
    match value {
        Value::Json([b'[' | b'{', ..]) | Value::List(_) => return None,
        Value::Json([b'"', ..]) => out.extend_from_slice(value.as_str()?.as_bytes()),
        _ => value.write_text(out),
    }
    Some(())
}

fn put_binary(value: Value<'_>, out: &mut Vec<u8>) -> Option<()> {
    match value {
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Json(json @ [b'{', ..]) => {
            out.extend(read_json_bytes(std::str::from_utf8(json).ok()?)?);
        }
        Value::Json([b'"', ..]) => out.extend_from_slice(value.as_str()?.as_bytes()),
        _ => return None,
    }
    Some(())
}

fn put_numbers(value: Value<'_>, item: Item, out: &mut Vec<u8>) -> Option<()> {
    let mut numbers = Numbers::default();
    match value {
        Value::List(list) if list.item() == item => {
            put_list(list, out);
            return Some(());
        }
        Value::List(list) => list.iter().try_for_each(|value| numbers.push(item, value))?,
        Value::Json(json @ [b'[', ..]) | Value::Bytes(json @ [b'[', ..]) => {
            let items: Vec<&RawValue> = serde_json::from_slice(json).ok()?;
            // A string is no number, even if it has the text of one.
            let is_number = |json: &RawValue| !json.get().starts_with('"');
            items
                .into_iter()
                .try_for_each(|json| is_number(json).then(|| numbers.push(item, json.into()))?)?;
        }
        _ => return None,
    }
    put_list(List::new(item, &numbers.nulls, &numbers.bytes), out);
    Some(())
}

/// The numbers of a list that is being made.
#[derive(Default)]
struct Numbers {
    count: usize,
    nulls: Vec<u8>,
    bytes: Vec<u8>,
}

impl Numbers {
    fn push(&mut self, item: Item, value: Value<'_>) -> Option<()> {
        if value.is_null() {
            self.bytes.resize(self.bytes.len() + item.width(), 0);
            self.nulls.resize(self.count / 8 + 1, 0);
            self.nulls[self.count / 8] |= 1 << (self.count % 8);
        } else {
            put(item.kind(), value, &mut self.bytes)?;
        }
        self.count += 1;
        if !self.nulls.is_empty() {
            self.nulls.resize(self.count.div_ceil(8), 0);
        }
        Some(())
    }
}

fn put_list(list: List<'_>, out: &mut Vec<u8>) {
    let has_nulls = u64::from(!list.nulls().is_empty());
    put_varint(out, list.len() as u64 * 2 + has_nulls);
    out.extend_from_slice(list.nulls());
    out.extend_from_slice(list.bytes());
}

impl Mismatch {
    fn new(kind: Kind, value: Value<'_>) -> Mismatch {
        const SHOWN_CHARS_MAX: usize = 80;
        let mut json = Vec::new();
        match value {
            // The whole of a long value is not needed.
            Value::Bytes(bytes) => {
                let start = &bytes[..bytes.len().min(4 * SHOWN_CHARS_MAX)];
                write_json_bytes(String::from_utf8_lossy(start).as_bytes(), &mut json);
            }
            _ => value.write_json(&mut json),
        }
        let json = String::from_utf8_lossy(&json);
        let got = match json.char_indices().nth(SHOWN_CHARS_MAX) {
            Some((end, _)) => format!("{}...", &json[..end]),
            None => json.into_owned(),
        };
        Mismatch { kind, got }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {} ({}), got {}", self.kind, range(self.kind), self.got)
    }
}

/// Describes the values that a column of this kind takes.
fn range(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "true or false",
        Kind::Int8 => "a whole number from -128 to 127",
        Kind::Int16 => "a whole number from -32768 to 32767",
        Kind::Int32 => "a whole number from -2^31 to 2^31 - 1",
        Kind::Int64 => "a whole number from -2^63 to 2^63 - 1",
        Kind::Uint8 => "a whole number from 0 to 255",
        Kind::Uint16 => "a whole number from 0 to 65535",
        Kind::Uint32 => "a whole number from 0 to 2^32 - 1",
        Kind::Uint64 => "a whole number from 0 to 2^64 - 1",
        Kind::Float32 => "a number that 32 bits hold without loss",
        Kind::Float64 => "a number of at most 17 digits",
        Kind::Date => "like 2026-01-31",
        Kind::Timestamp { utc: true, .. } => "like 2026-01-31T12:00:00Z",
        Kind::Timestamp { utc: false, .. } => "like 2026-01-31T12:00:00, without a time zone",
        Kind::Text => "text, a number, true or false",
        Kind::Binary => "text, or base64 in {\"base64\":\"...\"}",
        Kind::Json => "a JSON value",
        Kind::List { .. } => "like [1,2,null]",
    }
}

impl std::error::Error for Mismatch {}
