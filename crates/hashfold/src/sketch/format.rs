//! A sketch as bytes, for files and messages.
//!
//! `docs/formats/sketch.md` has the same tables.
//!
//! | offset | size | field     |                                                              |
//! |-------:|-----:|-----------|--------------------------------------------------------------|
//! |      0 |    4 | magic     | `HFHL`                                                       |
//! |      4 |    1 | version   | 1                                                            |
//! |      5 |    1 | family    | hash function: 1 XXH3-128 with the seed, 2 MurmurHash64A of Redis, 3 MurmurHash3 of postgresql-hll, 4 MurmurHash3 of DataSketches |
//! |      6 |    1 | precision | 4 to 18: there are 2^precision registers                     |
//! |      7 |    1 | form      | 1 sparse, 2 dense                                            |
//! |      8 |    8 | seed      | family 3: number of bits of a register, 1 to 7; 0 if the family has none |
//! |     16 |    … | registers |                                                              |
//! |        |    4 | checksum  | CRC-32C of all bytes before it                               |
//!
//! Dense registers have 6 bits each, the lowest bits of each byte first. Sparse ones are those that are
//! not 0, ascending:
//!
//! | field | size |                                                                        |
//! |-------|-----:|------------------------------------------------------------------------|
//! | count |    … | number of registers: a variable-length integer                         |
//! | each  |    … | 64 · (number of zeros before it) + value: a variable-length integer    |

use super::{
    Hll, PRECISION_MAX, PRECISION_MIN,
    entries::{self, VALUE_BITS},
    family::{Family, REGWIDTHS},
    packed,
};
use crate::{
    checksum::crc32c,
    codec::{Decoder, put_varint, within},
    error::{Error, Result, check_sum},
    key::Seed,
};

pub(super) const MAGIC: [u8; 4] = *b"HFHL";
const VERSION: u8 = 1;
const XXH3: u8 = 1;
const MURMUR_64A: u8 = 2;
const MURMUR_3_POSTGRES: u8 = 3;
const MURMUR_3_DATASKETCHES: u8 = 4;
const SPARSE: u8 = 1;
const DENSE: u8 = 2;
const CHECKSUM_SIZE: usize = 4;

impl Hll {
    /// Returns the sketch as bytes, packed: 3/4 of 2^precision bytes at most, and 20 more.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (family, seed) = match self.family() {
            Family::Hashfold(seed) => (XXH3, seed),
            Family::Redis => (MURMUR_64A, Seed(0)),
            Family::Postgres { regwidth } => (MURMUR_3_POSTGRES, Seed(regwidth.into())),
            Family::DataSketches => (MURMUR_3_DATASKETCHES, Seed(0)),
        };
        let form = if self.is_dense() { DENSE } else { SPARSE };
        let mut out = [&MAGIC[..], &[VERSION, family, self.precision(), form]].concat();
        out.extend(seed.0.to_le_bytes());
        match self.is_dense() {
            true => put_dense(self, &mut out),
            false => put_sparse(self, &mut out),
        }
        out.extend(crc32c(&out).to_le_bytes());
        out
    }

    /// Reads a sketch from its bytes.
    ///
    /// # Errors
    /// Damage, another version, or a family that this library does not know.
    pub fn from_bytes(bytes: &[u8]) -> Result<Hll> {
        let Some((body, checksum)) = bytes.split_last_chunk::<CHECKSUM_SIZE>() else {
            return Err(Error::field("size of a sketch in bytes", "20 or more", bytes.len()));
        };
        let mut fields = Decoder::new(body);
        let magic = fields.array::<4>()?;
        if magic != MAGIC {
            return Err(Error::field("first bytes of a sketch", "HFHL", magic.escape_ascii()));
        }
        check_sum(u32::from_le_bytes(*checksum), crc32c(body))?;
        within("version of a sketch", 1..=u64::from(VERSION), fields.u8()?.into())?;
        let (family, precision, form) = (fields.u8()?, fields.u8()?, fields.u8()?);
        let seed = Seed(fields.u64()?);
        let family = match family {
            XXH3 => Family::Hashfold(seed),
            MURMUR_64A => Family::Redis,
            MURMUR_3_POSTGRES => {
                let widths = u64::from(*REGWIDTHS.start())..=u64::from(*REGWIDTHS.end());
                let regwidth = within("bits of a register of a sketch", widths, seed.0)? as u8;
                Family::Postgres { regwidth }
            }
            MURMUR_3_DATASKETCHES => Family::DataSketches,
            other => return Err(Error::field("hash function of a sketch", "1 to 4", other)),
        };
        let precisions = u64::from(PRECISION_MIN)..=u64::from(PRECISION_MAX);
        within("precision of a sketch", precisions, precision.into())?;
        let mut sketch = Hll::of_family(family, precision)?;
        match form {
            SPARSE => sketch = take_sparse(&mut fields, &sketch)?,
            DENSE => take_dense(&mut fields, &mut sketch)?,
            other => return Err(Error::field("form of a sketch", "1 or 2", other)),
        }
        fields.end()?;
        Ok(sketch)
    }
}

fn put_dense(sketch: &Hll, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + packed::size(sketch.register_count()), 0);
    sketch.for_each(|index, value| packed::set(&mut out[start..], index, value));
}

fn put_sparse(sketch: &Hll, out: &mut Vec<u8>) {
    let mut all = Vec::new();
    sketch.for_each(|index, value| all.push((index as u32) << VALUE_BITS | u32::from(value)));
    put_varint(out, all.len() as u64);
    entries::put(all.into_iter(), out);
}

fn take_dense(fields: &mut Decoder<'_>, sketch: &mut Hll) -> Result<()> {
    let count = sketch.register_count();
    let bytes = fields.bytes(packed::size(count) as u64)?;
    let values = (0..count).map(|index| (index, packed::get(bytes, index)));
    values.filter(|(_, value)| *value > 0).try_for_each(|(index, value)| take(sketch, index, value))
}

/// Reads the registers of a sketch like an empty one.
fn take_sparse(fields: &mut Decoder<'_>, empty: &Hll) -> Result<Hll> {
    let registers = empty.register_count() as u64;
    let value_max = empty.q() as u64 + 1;
    let count = within("number of registers in a sketch", 0..=registers, fields.varint()?)?;
    // Each takes a byte or more.
    let mut all = Vec::with_capacity(count.min(fields.rest().len() as u64) as usize);
    let mut next = 0;
    for _ in 0..count {
        let entry = entries::take(fields, next, empty.precision(), 1..=value_max)?;
        all.push(entry);
        next = entries::after(entry);
    }
    Ok(Hll::of_registers(empty.family(), empty.precision(), all))
}

/// Sets a register of a sketch to a value that was read.
pub(super) fn take(sketch: &mut Hll, index: usize, value: u8) -> Result<()> {
    let max = sketch.q() as u64 + 1;
    within("value of a register", 1..=max, value.into())?;
    sketch.raise(index, value);
    Ok(())
}
