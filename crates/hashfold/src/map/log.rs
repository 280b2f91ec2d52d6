//! Changes as records of the write-ahead log.
//!
//! The `count` of a record of the log is its number of changes. All changes of a
//! record are applied, or none is. The payload is one change after the other
//! (`docs/formats/map.md` has the same table):
//!
//! | field  | size |                                                 |
//! |--------|-----:|-------------------------------------------------|
//! | change |    1 | 1 put, 2 delete                                 |
//! | key    |    … | size (a variable-length integer), bytes         |
//! | value  |    … | of a put: size (a variable-length integer), bytes |

use super::block::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::{
    codec::{Decoder, VARINT_BYTES_MAX, put_bytes},
    error::{Error, ErrorKind, Result},
    key::{KeyHash, Seed},
    run::Entry,
};

const PUT: u8 = 1;
const DELETE: u8 = 2;
/// Maximum size of an encoded change, in bytes.
pub(super) const CHANGE_SIZE_MAX: usize =
    1 + 2 * VARINT_BYTES_MAX + KEY_BYTES_MAX + VALUE_BYTES_MAX;

/// Appends a change to the payload of a record.
pub(super) fn encode(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    out.push(if value.is_some() { PUT } else { DELETE });
    put_bytes(out, key);
    value.iter().for_each(|value| put_bytes(out, value));
}

/// Calls `take` with each change of a record, if all of them are valid.
pub(super) fn decode(
    payload: &[u8],
    count: u64,
    seed: Seed,
    mut take: impl FnMut(Entry<'_>),
) -> Result<()> {
    let mut changes = Vec::new();
    let mut fields = Decoder::new(payload);
    while !fields.rest().is_empty() {
        let change = fields.u8()?;
        let key = fields.sized_bytes()?;
        let value = match change {
            PUT => Some(fields.sized_bytes()?),
            DELETE => None,
            change => return Err(Error::field("change in the log", "1 or 2", change)),
        };
        check_sizes(key, value)
            .map_err(|error| Error::field("size in the log", "within the limit", error))?;
        changes.push(Entry { hash: KeyHash::of(key, seed), key, value });
    }
    if changes.len() as u64 != count {
        return Err(Error::field("changes in a record", count.to_string(), changes.len()));
    }
    changes.into_iter().for_each(&mut take);
    Ok(())
}

/// Refuses a key or a value that is too long for a block.
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

    type Change = (Vec<u8>, Option<Vec<u8>>);

    fn decoded(payload: &[u8], count: u64) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        decode(payload, count, SEED, |change| {
            assert_eq!(change.hash, KeyHash::of(change.key, SEED));
            changes.push((change.key.to_vec(), change.value.map(<[u8]>::to_vec)));
        })?;
        Ok(changes)
    }

    #[test]
    fn changes_come_back_and_no_part_of_a_damaged_record_does() {
        let mut payload = Vec::new();
        encode(&mut payload, b"key", Some(b"value"));
        encode(&mut payload, b"gone", None);
        encode(&mut payload, b"", Some(b""));
        let [a, b, c] = &decoded(&payload, 3).unwrap()[..] else { panic!("three changes") };
        assert_eq!(a, &(b"key".to_vec(), Some(b"value".to_vec())));
        assert_eq!((b, c), (&(b"gone".to_vec(), None), &(Vec::new(), Some(Vec::new()))));
        assert!(decoded(&payload, 2).is_err());
        for cut in 0..payload.len() {
            assert!(decoded(&payload[..cut], 3).is_err(), "{cut}");
        }
        payload[0] = 3;
        assert!(decoded(&payload, 3).is_err());
        let mut long = Vec::new();
        encode(&mut long, &[0; KEY_BYTES_MAX + 1], None);
        assert!(decoded(&long, 1).is_err());
    }
}
