//! Changes as records of the write-ahead log.
//!
//! The `count` of a record of the log is its number of changes. All changes of a
//! record are applied, in their order, or none is. The payload is one change after the other
//! (`docs/formats/map.md` has the same table):
//!
//! | field  | size |                                                 |
//! |--------|-----:|-------------------------------------------------|
//! | change |    1 | 1 put, 2 delete, 3 put a large value, 4 put a value that expires, 5 put a large value that expires, 6 delete all keys, 7 a run was loaded in bulk: nothing to do, 8 a part of the changes is in blocks of its own, 9 a list of such parts is in blocks of its own |
//! | key    |    … | size (a variable-length integer), bytes; none of changes 6 to 9 |
//! | expiry |    8 | of changes 4 and 5: the time at which the entry expires, in milliseconds since 1970-01-01 UTC |
//! | value  |    … | of a put: size (a variable-length integer), bytes; of a large value: the pointer, 20 bytes |
//! | part   |    … | of changes 8 and 9: the number of changes of the part, or of all parts in the list (a variable-length integer), and the pointer to a large value that has the part or the list, 20 bytes |
//!
//! If the changes of a record exceed the largest payload, they are in parts, but for a rest of up to 1 KiB at the end. A
//! part has changes of single keys, 1 to 5, and counts as that number of changes. A list has changes 8.

use super::{
    block::KEY_BYTES_MAX,
    item::{Change, Content, EXPIRY_SIZE, Value},
    pointer::{INLINE_BYTES_MAX, POINTER_SIZE, Pointer, VALUE_BYTES_MAX},
};
use crate::{
    codec::{Decoder, VARINT_BYTES_MAX, put_bytes, put_varint, within},
    error::{Error, ErrorKind, Result, check_same},
    key::{KeyHash, Seed},
    wal::PAYLOAD_SIZE_MAX,
};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const PUT_LARGE: u8 = 3;
const PUT_EXPIRING: u8 = 4;
const PUT_LARGE_EXPIRING: u8 = 5;
const CLEAR: u8 = 6;
const LOADED: u8 = 7;
const PART: u8 = 8;
const LIST: u8 = 9;
/// The payload of a record that deletes all keys.
pub(super) const CLEAR_PAYLOAD: &[u8] = &[CLEAR];
/// The payload of a record that gives a bulk load a sequence number.
pub(super) const LOADED_PAYLOAD: &[u8] = &[LOADED];
/// Maximum size of an encoded change without its key and value, in bytes.
const FIELDS_SIZE_MAX: usize = 1 + 2 * VARINT_BYTES_MAX + EXPIRY_SIZE;
/// Maximum size of an encoded change, in bytes.
pub(super) const CHANGE_SIZE_MAX: usize = FIELDS_SIZE_MAX + KEY_BYTES_MAX + INLINE_BYTES_MAX;

/// Maximum size of the encoded changes that a record of the log has itself, in bytes. More changes are in parts of at
/// most this size, in blocks of their own.
pub(super) const RECORD_SIZE_MAX: usize = if cfg!(test) { 4 << 10 } else { PAYLOAD_SIZE_MAX };
const _: () = assert!(CHANGE_SIZE_MAX <= RECORD_SIZE_MAX);
const _: () = assert!(RECORD_SIZE_MAX <= VALUE_BYTES_MAX);
/// Maximum size of a list of parts, in bytes.
pub(super) const LIST_SIZE_MAX: usize = RECORD_SIZE_MAX / 2;
const _: () = assert!(LIST_SIZE_MAX - PART_SIZE_MAX > INLINE_BYTES_MAX);
const _: () = assert!(RECORD_SIZE_MAX - CHANGE_SIZE_MAX > INLINE_BYTES_MAX);
/// Maximum number of changes in a list of parts. Sums of such numbers do not overflow.
const LIST_CHANGES_MAX: u64 = 1 << 40;
/// Maximum size of the place of a part or of a list, in bytes.
pub(super) const PART_SIZE_MAX: usize = 1 + VARINT_BYTES_MAX + POINTER_SIZE;

/// A change in the log.
#[derive(Clone, Copy, Debug)]
pub(super) enum Logged<'a> {
    /// A change of one key.
    Key(Change<'a>),
    /// All keys are deleted.
    Clear,
    /// A run was to be loaded in bulk. The catalog has its entries, or nothing has.
    Loaded,
    /// Changes that are in blocks of their own.
    Part(Part),
    /// A list of such parts, which is in blocks of its own.
    List(Part),
}

/// A part of the changes of a record, for [`decode_part`]; or a list of parts, for [`decode_list`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Number of changes.
    pub(super) count: u64,
    /// The place of the encoded changes.
    pub(super) pointer: Pointer,
}

impl Logged<'_> {
    /// Returns the number of changes.
    pub(super) fn count(&self) -> u64 {
        match self {
            Logged::Key(_) | Logged::Clear | Logged::Loaded => 1,
            Logged::Part(part) | Logged::List(part) => part.count,
        }
    }
}

/// Returns the size of an encoded change in bytes, or a little more.
pub(super) fn size_max(key: &[u8], value: Option<&[u8]>) -> usize {
    let value_size = match value.map_or(0, <[u8]>::len) {
        size if size > INLINE_BYTES_MAX => return size_of_large(key),
        size => size,
    };
    FIELDS_SIZE_MAX + key.len() + value_size
}

/// Returns what [`size_max`] returns for a large value.
pub(super) fn size_of_large(key: &[u8]) -> usize {
    FIELDS_SIZE_MAX + key.len() + POINTER_SIZE
}

/// Appends a change to the payload of a record.
pub(super) fn encode(out: &mut Vec<u8>, key: &[u8], content: Content<'_>) {
    let Content { value, expires_at } = content;
    out.push(match (value, expires_at) {
        (Value::Tombstone, _) => DELETE,
        (Value::Inline(_), None) => PUT,
        (Value::Inline(_), Some(_)) => PUT_EXPIRING,
        (Value::Large(_), None) => PUT_LARGE,
        (Value::Large(_), Some(_)) => PUT_LARGE_EXPIRING,
    });
    put_bytes(out, key);
    out.extend(expires_at.iter().flat_map(|time| time.to_le_bytes()));
    match value {
        Value::Tombstone => {}
        Value::Inline(value) => put_bytes(out, value),
        Value::Large(pointer) => out.extend(pointer.encode()),
    }
}

/// Appends a part of the changes to the payload of a record.
pub(super) fn encode_part(out: &mut Vec<u8>, Part { count, pointer }: Part) {
    out.push(PART);
    put_varint(out, count);
    out.extend(pointer.encode());
}

/// Appends a list of parts to the payload of a record.
pub(super) fn encode_list(out: &mut Vec<u8>, Part { count, pointer }: Part) {
    out.push(LIST);
    put_varint(out, count);
    out.extend(pointer.encode());
}

/// Calls `take` with each change of a record, if all of them are valid. Those of its parts are not looked at.
pub(super) fn decode(
    payload: &[u8],
    count: u64,
    seed: Seed,
    mut take: impl FnMut(Logged<'_>) -> Result<()>,
) -> Result<()> {
    let mut fields = Decoder::new(payload);
    if count == 1 {
        // Most records have one change, and need no list.
        let logged = decode_logged(&mut fields, seed)?;
        fields.end()?;
        check_count(count, logged.count())?;
        return take(logged);
    }
    let mut changes = Vec::new();
    while !fields.rest().is_empty() {
        changes.push(decode_logged(&mut fields, seed)?);
    }
    check_count(count, changes.iter().map(Logged::count).sum())?;
    changes.into_iter().try_for_each(take)
}

/// Calls `take` with each change of a part of a record, if all of them are valid.
pub(super) fn decode_part<'a>(
    bytes: &'a [u8],
    count: u64,
    seed: Seed,
    take: impl FnMut(Change<'a>) -> Result<()>,
) -> Result<()> {
    let mut fields = Decoder::new(bytes);
    let mut changes = Vec::new();
    while !fields.rest().is_empty() {
        let change = fields.u8()?;
        changes.push(decode_change(&mut fields, (change, "1 to 5"), seed)?);
    }
    check_count(count, changes.len() as u64)?;
    changes.into_iter().try_for_each(take)
}

/// Calls `take` with each part of a list, if all of them are valid.
pub(super) fn decode_list(
    bytes: &[u8],
    count: u64,
    take: impl FnMut(Part) -> Result<()>,
) -> Result<()> {
    let mut fields = Decoder::new(bytes);
    let mut parts = Vec::new();
    while !fields.rest().is_empty() {
        match fields.u8()? {
            PART => parts.push(decode_part_place(&mut fields)?),
            change => return Err(Error::field("change in a list of parts", "8", change)),
        }
    }
    check_count(count, parts.iter().map(|part| part.count).sum())?;
    parts.into_iter().try_for_each(take)
}

/// Returns the value that some encoded changes of a part give a key, if they change it.
pub(super) fn find_in_part<'a>(
    bytes: &'a [u8],
    seed: Seed,
    key: &[u8],
) -> Result<Option<Content<'a>>> {
    let mut fields = Decoder::new(bytes);
    while !fields.rest().is_empty() {
        let change = fields.u8()?;
        let change = decode_change(&mut fields, (change, "1 to 5"), seed)?;
        if change.key == key {
            return Ok(Some(change.content));
        }
    }
    Ok(None)
}

/// Reads the parts of records, and takes the changes of single keys.
pub(super) trait Expand {
    /// Reads a part of a record, or a list of parts.
    fn read(&mut self, part: Part) -> Result<Vec<u8>>;

    /// Takes a change.
    fn take(&mut self, change: Change<'_>) -> Result<()>;
}

/// Gives all changes of single keys in a logged change, in order.
pub(super) fn expand(logged: Logged<'_>, seed: Seed, to: &mut dyn Expand) -> Result<()> {
    match logged {
        Logged::Key(change) => to.take(change),
        Logged::Clear | Logged::Loaded => Ok(()),
        Logged::Part(part) => expand_part(part, seed, to),
        Logged::List(list) => {
            let bytes = to.read(list)?;
            decode_list(&bytes, list.count, |part| expand_part(part, seed, to))
        }
    }
}

fn expand_part(part: Part, seed: Seed, to: &mut dyn Expand) -> Result<()> {
    let bytes = to.read(part)?;
    decode_part(&bytes, part.count, seed, |change| to.take(change))
}

fn check_count(expected: u64, got: u64) -> Result<()> {
    check_same("changes in a record", expected, got)
}

fn decode_logged<'a>(fields: &mut Decoder<'a>, seed: Seed) -> Result<Logged<'a>> {
    match fields.u8()? {
        CLEAR => Ok(Logged::Clear),
        LOADED => Ok(Logged::Loaded),
        PART => decode_part_place(fields).map(Logged::Part),
        LIST => decode_place(fields, LIST_CHANGES_MAX, LIST_SIZE_MAX).map(Logged::List),
        change => decode_change(fields, (change, "1 to 9"), seed).map(Logged::Key),
    }
}

/// Decodes the place of a part.
fn decode_part_place(fields: &mut Decoder<'_>) -> Result<Part> {
    // A change takes more than a byte.
    decode_place(fields, RECORD_SIZE_MAX as u64, RECORD_SIZE_MAX)
}

/// Decodes the place of a part or of a list that has at most `count_max` changes in at most `size_max` bytes.
fn decode_place(fields: &mut Decoder<'_>, count_max: u64, size_max: usize) -> Result<Part> {
    let count = within("changes in a part of a record", 1..=count_max, fields.varint()?)?;
    let pointer = Pointer::decode(fields.bytes(POINTER_SIZE as u64)?)?;
    let size = u64::from(pointer.size);
    within("size of a part of a record in bytes", 0..=size_max as u64, size)?;
    Ok(Part { count, pointer })
}

/// Decodes the fields of a change of one key. `expected` is for the error if it is another change.
fn decode_change<'a>(
    fields: &mut Decoder<'a>,
    (change, expected): (u8, &'static str),
    seed: Seed,
) -> Result<Change<'a>> {
    let key = fields.sized_bytes()?;
    let expires_at = match change {
        PUT_EXPIRING | PUT_LARGE_EXPIRING => Some(fields.u64()?),
        _ => None,
    };
    let value = match change {
        PUT | PUT_EXPIRING => Value::Inline(fields.sized_bytes()?),
        DELETE => Value::Tombstone,
        PUT_LARGE | PUT_LARGE_EXPIRING => {
            Value::Large(Pointer::decode(fields.bytes(POINTER_SIZE as u64)?)?)
        }
        change => return Err(Error::field("change in the log", expected, change)),
    };
    let value_size = if let Value::Inline(value) = value { value.len() } else { 0 };
    within("key size in the log", 0..=KEY_BYTES_MAX as u64, key.len() as u64)?;
    within("value size in the log", 0..=INLINE_BYTES_MAX as u64, value_size as u64)?;
    Ok(Change { hash: KeyHash::of(key, seed), key, content: Content { value, expires_at } })
}

/// Refuses a key or a value that is too long.
pub(super) fn check_sizes(key: &[u8], value: Option<&[u8]>) -> Result<()> {
    let sizes = [
        ("key size in bytes", KEY_BYTES_MAX, key.len()),
        ("value size in bytes", VALUE_BYTES_MAX, value.map_or(0, <[u8]>::len)),
    ];
    match sizes.into_iter().find(|(_, limit, got)| got > limit) {
        None => Ok(()),
        Some((what, limit, got)) => {
            Err(ErrorKind::Limit { what, limit: limit as u64, got: got as u64 }.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Seed = Seed(1);

    /// Returns the changes of a record as text.
    fn decoded(payload: &[u8], count: u64) -> Result<Vec<String>> {
        let mut changes = Vec::new();
        decode(payload, count, SEED, |change| {
            changes.push(match change {
                Logged::Clear => "clear".to_owned(),
                Logged::Loaded => "loaded".to_owned(),
                Logged::Part(part) => format!("{part:?}"),
                Logged::List(list) => format!("list {list:?}"),
                Logged::Key(Change { hash, key, content }) => {
                    assert_eq!(hash, KeyHash::of(key, SEED));
                    format!("{} {content:?}", key.escape_ascii())
                }
            });
            Ok(())
        })?;
        Ok(changes)
    }

    #[test]
    fn changes_come_back_and_no_part_of_a_damaged_record_does() {
        let pointer = Pointer { first: 7, write: 8, size: 5000 };
        let changes: [(&[u8], Content<'_>); 6] = [
            (b"key", Content::lasting(Value::Inline(b"value"))),
            (b"gone", Content::TOMBSTONE),
            (b"", Content::lasting(Value::Inline(b""))),
            (b"large", Content::lasting(Value::Large(pointer))),
            (b"a", Content { value: Value::Inline(b"1"), expires_at: Some(u64::MAX) }),
            (b"b", Content { value: Value::Large(pointer), expires_at: Some(3) }),
        ];
        let mut payload = Vec::new();
        let mut expected = Vec::new();
        for (key, content) in changes {
            let before = payload.len();
            encode(&mut payload, key, content);
            let value = if let Value::Inline(value) = content.value { value } else { &[0; 5000] };
            assert!(payload.len() - before <= size_max(key, Some(value)));
            expected.push(format!("{} {content:?}", key.escape_ascii()));
        }
        payload.extend(CLEAR_PAYLOAD);
        expected.push("clear".into());
        payload.extend(LOADED_PAYLOAD);
        expected.push("loaded".into());
        let of_parts = |size: usize| Pointer { size: size as u32, ..pointer };
        let part = Part { count: 300, pointer: of_parts(RECORD_SIZE_MAX) };
        encode_part(&mut payload, part);
        expected.push(format!("{part:?}"));
        let list_place = Part { count: LIST_CHANGES_MAX, pointer: of_parts(LIST_SIZE_MAX) };
        encode_list(&mut payload, list_place);
        expected.push(format!("list {list_place:?}"));
        let count = LIST_CHANGES_MAX + 308;
        assert_eq!(decoded(&payload, count).unwrap(), expected);
        assert!(decoded(&payload, count - 1).is_err() && decoded(&payload, 10).is_err());
        for cut in 0..payload.len() {
            assert!(decoded(&payload[..cut], count).is_err(), "{cut}");
        }
        for change in [0, 10, 255] {
            payload[0] = change;
            assert!(decoded(&payload, count).is_err());
        }
        // A part has changes of single keys only.
        let of_part = |bytes: &[u8], count| decode_part(bytes, count, SEED, |_| Ok(()));
        let mut keys = Vec::new();
        encode(&mut keys, b"key", Content::TOMBSTONE);
        assert!(of_part(&keys, 1).is_ok() && of_part(&keys, 2).is_err());
        for other in [CLEAR_PAYLOAD, LOADED_PAYLOAD, &payload] {
            assert!(of_part(&[&keys, other].concat(), 2).is_err());
        }
        let bounds = [
            (PART, RECORD_SIZE_MAX as u64, RECORD_SIZE_MAX),
            (LIST, LIST_CHANGES_MAX, LIST_SIZE_MAX),
        ];
        for (kind, count_max, size_max) in bounds {
            let place = |count, size| {
                let mut place = Vec::new();
                encode_part(&mut place, Part { count, pointer: of_parts(size) });
                place[0] = kind;
                place
            };
            assert!(decoded(&place(count_max, size_max), count_max).is_ok());
            assert!(decoded(&place(9, size_max + 1), 9).is_err());
            for count in [0, count_max + 1, u64::MAX] {
                let one = place(count, size_max);
                assert!(decoded(&one, count).is_err(), "{count}");
                assert!(decoded(&[&one[..], &one].concat(), u64::MAX).is_err(), "{count}");
            }
        }
        // A list has parts only.
        let of_list = |bytes: &[u8], count| decode_list(bytes, count, |_| Ok(()));
        let mut list = Vec::new();
        encode_part(&mut list, part);
        encode_part(&mut list, part);
        assert!(of_list(&list, 600).is_ok() && of_list(&list, 599).is_err());
        let mut other = Vec::new();
        encode_list(&mut other, list_place);
        let mut long_part = Vec::new();
        encode_part(&mut long_part, Part { count: 1, pointer: of_parts(RECORD_SIZE_MAX + 1) });
        for other in [CLEAR_PAYLOAD, LOADED_PAYLOAD, &keys, &other, &long_part] {
            assert!(of_list(&[&list, other].concat(), 601).is_err());
            assert!(of_list(&[&list, other].concat(), 900).is_err());
        }
        let mut long = Vec::new();
        encode(&mut long, &[0; KEY_BYTES_MAX + 1], Content::TOMBSTONE);
        assert!(decoded(&long, 1).is_err());
    }
}
