//! Several columns as the bytes of one value. The same tables stand in `docs/formats/row.md`.
//!
//! | size         | field       |                                                              |
//! |-------------:|-------------|--------------------------------------------------------------|
//! | ceil(n / 8)  | nulls       | bit i (low bits first): column i of n is null; the rest is 0 |
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

use crate::{
    cell::Cell,
    schema::{Column, Kind},
};
use hashfold::{
    Error, Result,
    codec::{Decoder, put_varint},
};

/// Appends a row to a buffer, column by column.
pub(crate) struct RowEncoder<'a> {
    out: &'a mut Vec<u8>,
    /// Start of the row in `out`.
    start: usize,
    /// Number of the next column.
    column: usize,
}

impl<'a> RowEncoder<'a> {
    /// Starts a row of `count` columns.
    #[inline]
    pub(crate) fn new(out: &'a mut Vec<u8>, count: usize) -> RowEncoder<'a> {
        let start = out.len();
        out.resize(start + count.div_ceil(8), 0);
        RowEncoder { out, start, column: 0 }
    }

    /// Appends a null.
    #[inline]
    pub(crate) fn null(&mut self) {
        self.out[self.start + self.column / 8] |= 1 << (self.column % 8);
        self.column += 1;
    }

    /// Appends the little-endian bytes of a column of fixed size.
    #[inline]
    pub(crate) fn fixed(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.column += 1;
    }

    /// Appends the bytes of a column of variable size.
    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        put_varint(self.out, bytes.len() as u64);
        self.fixed(bytes);
    }
}

/// Decodes the columns of a row. Never panics on damaged bytes.
pub(crate) fn decode<'a>(columns: &[Column], row: &'a [u8]) -> Result<Vec<Cell<'a>>> {
    let mut decoder = Decoder::new(row);
    let nulls = decoder.bytes(columns.len().div_ceil(8) as u64)?;
    if !columns.len().is_multiple_of(8)
        && nulls.last().is_some_and(|last| last >> (columns.len() % 8) != 0)
    {
        return Err(Error::field("null bits past the last column", "0", "1"));
    }
    let mut cells = Vec::with_capacity(columns.len());
    for (i, column) in columns.iter().enumerate() {
        let is_null = nulls[i / 8] >> (i % 8) & 1 == 1;
        cells.push(if is_null { Cell::Null } else { decode_cell(column.kind, &mut decoder)? });
    }
    decoder.end()?;
    Ok(cells)
}

fn decode_cell<'a>(kind: Kind, decoder: &mut Decoder<'a>) -> Result<Cell<'a>> {
    Ok(match kind {
        Kind::Bool => match decoder.u8()? {
            0 => Cell::Bool(false),
            1 => Cell::Bool(true),
            got => return Err(Error::field("bool", "0 or 1", got)),
        },
        Kind::Int8 => Cell::Int(i8::from_le_bytes(decoder.array()?).into()),
        Kind::Int16 => Cell::Int(i16::from_le_bytes(decoder.array()?).into()),
        Kind::Int32 => Cell::Int(i32::from_le_bytes(decoder.array()?).into()),
        Kind::Int64 => Cell::Int(i64::from_le_bytes(decoder.array()?)),
        Kind::Uint8 => Cell::Uint(decoder.u8()?.into()),
        Kind::Uint16 => Cell::Uint(decoder.u16()?.into()),
        Kind::Uint32 => Cell::Uint(decoder.u32()?.into()),
        Kind::Uint64 => Cell::Uint(decoder.u64()?),
        Kind::Float32 => Cell::Float32(f32::from_le_bytes(decoder.array()?)),
        Kind::Float64 => Cell::Float64(f64::from_le_bytes(decoder.array()?)),
        Kind::Date => Cell::Date(i32::from_le_bytes(decoder.array()?)),
        Kind::Timestamp { unit, utc } => {
            Cell::Timestamp { count: i64::from_le_bytes(decoder.array()?), unit, utc }
        }
        Kind::Text | Kind::Binary => {
            let len = decoder.varint()?;
            Cell::Bytes(decoder.bytes(len)?)
        }
        Kind::Json => {
            let len = decoder.varint()?;
            Cell::Json(decoder.bytes(len)?)
        }
    })
}

#[cfg(feature = "columnar")]
/// Decodes a value of fixed size from its little-endian bytes.
pub(crate) fn fixed_cell(kind: Kind, bytes: &[u8]) -> Cell<'_> {
    assert_eq!(kind.width(), Some(bytes.len()));
    decode_cell(kind, &mut Decoder::new(bytes)).expect("the bytes are those of the kind")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Unit;

    const KINDS: [Kind; 16] = [
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
    ];

    fn columns(kinds: &[Kind]) -> Vec<Column> {
        kinds.iter().map(|&kind| Column { name: "c".into(), kind }).collect()
    }

    /// Returns endless pseudorandom numbers.
    fn numbers(mut state: u64) -> impl Iterator<Item = u64> {
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(0xd129_0a2d_1f5b_7a35).wrapping_add(0x9e37_79b9);
            (state ^ (state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
        })
    }

    #[test]
    fn the_same_tables_stand_in_the_documentation() {
        let page = include_str!("../../../docs/formats/row.md");
        let lines = include_str!("row.rs").lines().filter_map(|line| line.strip_prefix("//! |"));
        let missing: Vec<_> = lines.filter(|line| !page.contains(line)).collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn a_row_has_the_bytes_of_its_format() {
        let mut out = vec![9];
        let mut row = RowEncoder::new(&mut out, 3);
        row.bytes(b"ab");
        row.null();
        row.fixed(&(-2i16).to_le_bytes());
        assert_eq!(out, [9, 0b010, 2, b'a', b'b', 0xfe, 0xff]);
        let cells = decode(&columns(&[Kind::Text, Kind::Json, Kind::Int16]), &out[1..]).unwrap();
        assert_eq!(cells, [Cell::Bytes(b"ab"), Cell::Null, Cell::Int(-2)]);
    }

    #[test]
    fn every_kind_comes_back_and_every_cut_is_noticed() {
        for kind in KINDS {
            let mut out = Vec::new();
            let mut row = RowEncoder::new(&mut out, 2);
            row.null();
            match kind.width() {
                Some(width) => row.fixed(&[1; 8][..width]),
                None => row.bytes(b"[1]"),
            }
            let columns = columns(&[Kind::Bool, kind]);
            let cells = decode(&columns, &out).unwrap();
            assert_eq!(cells[0], Cell::Null);
            assert_ne!(cells[1], Cell::Null);
            for cut in 0..out.len() {
                assert!(decode(&columns, &out[..cut]).is_err(), "{kind:?} cut at {cut}");
            }
            out.push(0);
            assert!(decode(&columns, &out).is_err(), "{kind:?} with a byte too many");
        }
    }

    #[test]
    fn no_bytes_make_the_decoder_panic() {
        let mut numbers = numbers(1);
        for _ in 0..20_000 {
            let mut next = || numbers.next().unwrap() as usize;
            let kinds: Vec<_> = (0..next() % 12).map(|_| KINDS[next() % KINDS.len()]).collect();
            let bytes: Vec<_> = (0..next() % 40).map(|_| (next() % 256) as u8 & 0x0f).collect();
            if let Ok(cells) = decode(&columns(&kinds), &bytes) {
                assert_eq!(cells.len(), kinds.len());
                let mut text = Vec::new();
                cells.iter().for_each(|cell| cell.write_text(&mut text));
            }
        }
    }
}
