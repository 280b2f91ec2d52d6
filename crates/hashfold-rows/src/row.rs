//! The columns of a row in the bytes of one value. The same tables stand in `docs/formats/row.md`.
//!
//! | size         | field       |                                                              |
//! |-------------:|-------------|--------------------------------------------------------------|
//! | ceil(n / 7)  | nulls       | seven of n columns a byte, low bits first: 1 if the column is null, or there is none; bit 7: another byte follows |
//! | of each kind | columns     | those that are not null, in the order of the schema          |
//!
//! | kind                              | size         | bytes                              |
//! |-----------------------------------|-------------:|------------------------------------|
//! | bool                              |            1 | 0 or 1                             |
//! | int8, int16, int32, int64         |   1, 2, 4, 8 | two's complement, little-endian    |
//! | uint8, uint16, uint32, uint64     |   1, 2, 4, 8 | little-endian                      |
//! | float32, float64                  |         4, 8 | IEEE 754, little-endian            |
//! | date                              |            4 | days since 1970-01-01, as int32    |
//! | timestamp                         |            8 | units since 1970-01-01, as int64   |
//! | text, binary, json                | varint + len | the length, then the bytes         |
//! | list                              | varint + ... | 2 × count, plus 1 if there are nulls; then, if so, ceil(count / 8) bytes, low bits first: 1 if the number is null; then the numbers, 0 for null |

use crate::{
    encode::{MORE, NULLS_A_BYTE},
    kind::{Item, Kind},
    list::List,
    value::Value,
};
use hashfold::{Error, Result, codec::Decoder};

/// Decodes the columns of a row. A row may have been written when the schema had fewer columns;
/// those that it lacks are null.
pub(crate) fn decode<'a>(
    kinds: impl ExactSizeIterator<Item = Kind>,
    row: &'a [u8],
) -> Result<Vec<Value<'a>>> {
    let mut values = Vec::with_capacity(kinds.len());
    let mut decoder = Decoder::new(row);
    let nulls = take_nulls(&mut decoder, kinds.len())?;
    for (i, kind) in kinds.enumerate() {
        let byte = nulls.get(i / NULLS_A_BYTE).copied().unwrap_or(u8::MAX);
        let is_null = byte >> (i % NULLS_A_BYTE) & 1 == 1;
        values.push(if is_null { Value::Null } else { decode_value(kind, &mut decoder)? });
    }
    decoder.end()?;
    Ok(values)
}

/// Takes the bytes with the nulls of at most `count` columns.
fn take_nulls<'a>(decoder: &mut Decoder<'a>, count: usize) -> Result<&'a [u8]> {
    let rest = decoder.rest();
    let bytes_max = count.div_ceil(NULLS_A_BYTE);
    let last = rest.iter().take(bytes_max).position(|byte| byte & MORE == 0);
    let len = match last {
        Some(last) => last + 1,
        None if rest.is_empty() => 0,
        None if rest.len() < bytes_max => {
            return Err(Error::field("row", "the nulls of its columns", "its end"));
        }
        None => return Err(too_wide(count)),
    };
    let nulls = decoder.bytes(len as u64)?;
    // Bits without a column are 1; in a full byte there are none.
    let used = count.saturating_sub((len.max(1) - 1) * NULLS_A_BYTE).min(NULLS_A_BYTE);
    match nulls.last() {
        Some(last) if (last | MORE) >> used != u8::MAX >> used => Err(too_wide(count)),
        _ => Ok(nulls),
    }
}

fn too_wide(count: usize) -> Error {
    Error::field("row", format!("at most {count} columns, those of the schema"), "more columns")
}

fn decode_value<'a>(kind: Kind, decoder: &mut Decoder<'a>) -> Result<Value<'a>> {
    Ok(match kind {
        Kind::Bool => match decoder.u8()? {
            0 => Value::Bool(false),
            1 => Value::Bool(true),
            got => return Err(Error::field("bool", "0 or 1", got)),
        },
        Kind::Int8 => Value::Int(i8::from_le_bytes(decoder.array()?).into()),
        Kind::Int16 => Value::Int(i16::from_le_bytes(decoder.array()?).into()),
        Kind::Int32 => Value::Int(i32::from_le_bytes(decoder.array()?).into()),
        Kind::Int64 => Value::Int(i64::from_le_bytes(decoder.array()?)),
        Kind::Uint8 => Value::Uint(decoder.u8()?.into()),
        Kind::Uint16 => Value::Uint(decoder.u16()?.into()),
        Kind::Uint32 => Value::Uint(decoder.u32()?.into()),
        Kind::Uint64 => Value::Uint(decoder.u64()?),
        Kind::Float32 => Value::Float32(f32::from_le_bytes(decoder.array()?)),
        Kind::Float64 => Value::Float64(f64::from_le_bytes(decoder.array()?)),
        Kind::Date => Value::Date(i32::from_le_bytes(decoder.array()?)),
        Kind::Timestamp { unit, utc } => {
            Value::Timestamp { count: i64::from_le_bytes(decoder.array()?), unit, utc }
        }
        Kind::Text | Kind::Binary => Value::Bytes(decoder.sized_bytes()?),
        Kind::Json => Value::Json(decoder.sized_bytes()?),
        Kind::List { item } => Value::List(decode_list(item, decoder)?),
    })
}

fn decode_list<'a>(item: Item, decoder: &mut Decoder<'a>) -> Result<List<'a>> {
    let head = decoder.varint()?;
    let (count, has_nulls) = (head / 2, head % 2 == 1);
    let nulls = decoder.bytes(if has_nulls { count.div_ceil(8) } else { 0 })?;
    if has_nulls && count == 0 {
        return Err(Error::field("list", "no nulls, because it is empty", "nulls"));
    }
    let size = count.checked_mul(item.width() as u64);
    let size = size.ok_or_else(|| Error::field("list", "a shorter one", count))?;
    Ok(List::new(item, nulls, decoder.bytes(size)?))
}

/// Decodes a value of fixed size from its little-endian bytes.
///
/// # Panics
/// If the bytes are not those of the kind.
pub fn fixed_value(kind: Kind, bytes: &[u8]) -> Value<'_> {
    assert_eq!(kind.width(), Some(bytes.len()));
    decode_value(kind, &mut Decoder::new(bytes)).expect("the bytes are those of the kind")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{encode::RowEncoder, kind::Unit};

    const KINDS: [Kind; 18] = [
        Kind::Bool,
        Kind::Int8,
        Kind::Int16,
        Kind::Int32,
        Kind::Int64,
        Kind::Uint8,
        Kind::Uint16,
        Kind::Uint32,
        Kind::Uint64,
        Kind::Float32,
        Kind::Float64,
        Kind::Date,
        Kind::Timestamp { unit: Unit::Millisecond, utc: true },
        Kind::Text,
        Kind::Binary,
        Kind::Json,
        Kind::List { item: Item::Int32 },
        Kind::List { item: Item::Float64 },
    ];

    fn decode_all<'a>(kinds: &[Kind], row: &'a [u8]) -> Result<Vec<Value<'a>>> {
        decode(kinds.iter().copied(), row)
    }

    /// Returns endless pseudorandom numbers.
    fn numbers(mut state: u64) -> impl Iterator<Item = u64> {
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(0xd129_0a2d_1f5b_7a35).wrapping_add(0x9e37_79b9);
            (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
        })
    }

    #[test]
    fn a_row_has_the_bytes_of_its_format() {
        let mut out = vec![9];
        let mut row = RowEncoder::new(&mut out, 3);
        row.bytes(b"ab");
        row.null();
        row.fixed(&(-2i16).to_le_bytes());
        assert_eq!(out, [9, 0b0111_1010, 2, b'a', b'b', 0xfe, 0xff]);
        let values = decode_all(&[Kind::Text, Kind::Json, Kind::Int16], &out[1..]).unwrap();
        assert_eq!(values, [Value::Bytes(b"ab"), Value::Null, Value::Int(-2)]);
    }

    #[test]
    fn every_kind_comes_back_and_every_cut_is_noticed() {
        for kind in KINDS {
            let mut out = Vec::new();
            let mut row = RowEncoder::new(&mut out, 2);
            row.null();
            match kind {
                Kind::List { item } => {
                    row.list(List::new(item, &[2], &[1; 16][..2 * item.width()]));
                }
                _ if kind.is_bytes() => row.bytes(b"[1]"),
                _ => row.fixed(&[1; 8][..kind.width().unwrap()]),
            }
            let kinds = [Kind::Bool, kind];
            let values = decode_all(&kinds, &out).unwrap();
            assert_eq!(values[0], Value::Null);
            assert_ne!(values[1], Value::Null);
            for cut in 1..out.len() {
                assert!(decode_all(&kinds, &out[..cut]).is_err(), "{kind} cut at {cut}");
            }
            out.push(0);
            assert!(decode_all(&kinds, &out).is_err(), "{kind} with a byte too many");
        }
    }

    /// Rows of every number of columns, read with every number of columns.
    #[test]
    fn a_row_is_read_by_every_schema_with_more_columns() {
        let kinds = [Kind::Uint8; 24];
        for written in 0..=20 {
            for null in 0..=written {
                let mut out = Vec::new();
                let mut row = RowEncoder::new(&mut out, written);
                (0..written).for_each(|i| if i == null { row.null() } else { row.fixed(&[1]) });
                let filled = (0..written).rev().find(|i| *i != null).map_or(0, |last| last + 1);
                for read in 0..24 {
                    let values = decode_all(&kinds[..read], &out);
                    if read >= written {
                        let number =
                            |i| if i < written && i != null { Value::Uint(1) } else { Value::Null };
                        assert_eq!(values.unwrap(), (0..read).map(number).collect::<Vec<_>>());
                    } else if read < filled {
                        assert!(values.is_err(), "{written} columns read as {read}");
                    }
                }
            }
        }
    }

    #[test]
    fn no_bytes_make_the_decoder_panic() {
        let mut numbers = numbers(1);
        for _ in 0..20_000 {
            let mut next = || numbers.next().unwrap() as usize;
            let kinds: Vec<_> = (0..next() % 12).map(|_| KINDS[next() % KINDS.len()]).collect();
            let bytes: Vec<_> = (0..next() % 40).map(|_| (next() % 256) as u8 & 0x0f).collect();
            if let Ok(values) = decode_all(&kinds, &bytes) {
                assert_eq!(values.len(), kinds.len());
                let mut text = Vec::new();
                values.iter().for_each(|value| value.write_text(&mut text));
            }
        }
    }
}
