//! The raw format: records of key length and value length as little-endian `u32`, key, value.
//!
//! The output of a data set with columns starts with its schema, so that it can be read again with
//! all columns: a record without a key, whose key length is 2^32 - 1, which no key has, and whose
//! value is the schema as JSON.

use crate::failure::{Failure, Result};
use hashfold::{codec::Decoder, table::ATTRIBUTES_SIZE_MAX};
use hashfold_rows::Schema;

/// The lengths of a record, in bytes.
pub(crate) const HEAD_BYTES: usize = 8;

/// The key length of the record with the schema.
const SCHEMA_MARK: u32 = u32::MAX;

/// Maximum length of a schema, in bytes: that of the attributes of a data set.
const SCHEMA_BYTES_MAX: usize = ATTRIBUTES_SIZE_MAX as usize;

/// Appends a record.
pub(crate) fn put_record(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    put_head(len(key), len(value), out);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// Appends the record with the schema; nothing for data without column names.
pub(crate) fn put_schema(schema: &Schema, out: &mut Vec<u8>) {
    if *schema != Schema::unnamed() {
        let json = schema.to_json();
        put_head(SCHEMA_MARK, len(&json), out);
        out.extend_from_slice(&json);
    }
}

fn len(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("keys, values and schemas are shorter than 4 GiB")
}

fn put_head(key: u32, value: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&key.to_le_bytes());
    out.extend_from_slice(&value.to_le_bytes());
}

/// Takes the next record if it is complete.
pub(crate) fn take_record<'a>(decoder: &mut Decoder<'a>) -> Option<(&'a [u8], &'a [u8])> {
    let mut ahead = decoder.clone();
    let (key, value) = lengths(ahead.array().ok()?);
    let record = (ahead.bytes(key.into()).ok()?, ahead.bytes(value.into()).ok()?);
    *decoder = ahead;
    Some(record)
}

/// Returns the lengths of key and value.
pub(crate) fn lengths(head: [u8; HEAD_BYTES]) -> (u32, u32) {
    let (key, value) = head.split_at(HEAD_BYTES / 2);
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("half of the head"));
    (number(key), number(value))
}

/// Returns the length of the record with the schema; `None` if the bytes start with another record.
pub(crate) fn schema_size(file: &str, bytes: &[u8]) -> Result<Option<usize>> {
    let Ok(head) = Decoder::new(bytes).array() else { return Ok(None) };
    match lengths(head) {
        (SCHEMA_MARK, len) if len as usize > SCHEMA_BYTES_MAX => {
            let what = format!(
                "the schema is {len} bytes long, the longest accepted is {SCHEMA_BYTES_MAX}"
            );
            Err(Failure::input(format_args!("{file}:1"), what))
        }
        (SCHEMA_MARK, len) => Ok(Some(HEAD_BYTES + len as usize)),
        _ => Ok(None),
    }
}

/// Reads the schema in a complete record.
pub(crate) fn read_schema(file: &str, record: &[u8]) -> Result<Schema> {
    let schema = Schema::of_attribute(record.get(HEAD_BYTES..));
    let what = "the schema cannot be read: it is damaged, or of a later version";
    schema.map_err(|_| Failure::input(format_args!("{file}:1"), what))
}
