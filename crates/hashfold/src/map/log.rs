//! Changes as records of the write-ahead log.
//!
//! The `count` of a record of the log is its number of changes. All changes of a
//! record are applied, or none is. The payload is one change after the other
//! (`docs/formats/map.md` has the same table):
//!
//! | field  | size |                                                 |
//! |--------|-----:|-------------------------------------------------|
//! | change |    1 | 1 put, 2 delete, 3 put a large value            |
//! | key    |    … | size (a variable-length integer), bytes         |
//! | value  |    … | of a put: size (a variable-length integer), bytes; of a large value: the pointer, 20 bytes |

use super::{
    block::KEY_BYTES_MAX,
    item::{Change, Value},
    pointer::{INLINE_BYTES_MAX, POINTER_SIZE, Pointer, VALUE_BYTES_MAX},
};
use crate::{
    codec::{Decoder, VARINT_BYTES_MAX, put_bytes, within},
    error::{Error, ErrorKind, Result},
    key::{KeyHash, Seed},
};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const PUT_LARGE: u8 = 3;
/// Maximum size of an encoded change, in bytes.
pub(super) const CHANGE_SIZE_MAX: usize =
    1 + 2 * VARINT_BYTES_MAX + KEY_BYTES_MAX + INLINE_BYTES_MAX;

/// Appends a change to the payload of a record.
pub(super) fn encode(out: &mut Vec<u8>, key: &[u8], value: Value<'_>) {
    out.push(match value {
        Value::Tombstone => DELETE,
        Value::Inline(_) => PUT,
        Value::Large(_) => PUT_LARGE,
    });
    put_bytes(out, key);
    match value {
        Value::Tombstone => {}
        Value::Inline(value) => put_bytes(out, value),
        Value::Large(pointer) => out.extend(pointer.encode()),
    }
}

/// Calls `take` with each change of a record, if all of them are valid.
pub(super) fn decode(
    payload: &[u8],
    count: u64,
    seed: Seed,
    take: impl FnMut(Change<'_>) -> Result<()>,
) -> Result<()> {
    let mut changes = Vec::new();
    let mut fields = Decoder::new(payload);
    while !fields.rest().is_empty() {
        let change = fields.u8()?;
        let key = fields.sized_bytes()?;
        let value = match change {
            PUT => Value::Inline(fields.sized_bytes()?),
            DELETE => Value::Tombstone,
            PUT_LARGE => Value::Large(Pointer::decode(fields.bytes(POINTER_SIZE as u64)?)?),
            change => return Err(Error::field("change in the log", "1, 2 or 3", change)),
        };
        let value_size = if let Value::Inline(value) = value { value.len() } else { 0 };
        within("key size in the log", 0..=KEY_BYTES_MAX as u64, key.len() as u64)?;
        within("value size in the log", 0..=INLINE_BYTES_MAX as u64, value_size as u64)?;
        changes.push(Change { hash: KeyHash::of(key, seed), key, value });
    }
    if changes.len() as u64 != count {
        return Err(Error::field("changes in a record", count.to_string(), changes.len()));
    }
    changes.into_iter().try_for_each(take)
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

    type Pair = (Vec<u8>, Option<Vec<u8>>);

    fn decoded(payload: &[u8], count: u64) -> Result<Vec<Pair>> {
        let mut changes = Vec::new();
        decode(payload, count, SEED, |change| {
            assert_eq!(change.hash, KeyHash::of(change.key, SEED));
            changes.push(match change.value {
                Value::Tombstone => (change.key.to_vec(), None),
                Value::Inline(value) => (change.key.to_vec(), Some(value.to_vec())),
                Value::Large(pointer) => (change.key.to_vec(), Some(pointer.encode().to_vec())),
            });
            Ok(())
        })?;
        Ok(changes)
    }

    #[test]
    fn changes_come_back_and_no_part_of_a_damaged_record_does() {
        let mut payload = Vec::new();
        encode(&mut payload, b"key", Value::Inline(b"value"));
        encode(&mut payload, b"gone", Value::Tombstone);
        encode(&mut payload, b"", Value::Inline(b""));
        let [a, b, c] = &decoded(&payload, 3).unwrap()[..] else { panic!("three changes") };
        assert_eq!(a, &(b"key".to_vec(), Some(b"value".to_vec())));
        assert_eq!((b, c), (&(b"gone".to_vec(), None), &(Vec::new(), Some(Vec::new()))));
        assert!(decoded(&payload, 2).is_err());
        for cut in 0..payload.len() {
            assert!(decoded(&payload[..cut], 3).is_err(), "{cut}");
        }
        payload[0] = 4;
        assert!(decoded(&payload, 3).is_err());
        let mut long = Vec::new();
        encode(&mut long, &[0; KEY_BYTES_MAX + 1], Value::Tombstone);
        assert!(decoded(&long, 1).is_err());
    }
}
