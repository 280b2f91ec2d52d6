//! A generalized HyperLogLog sketch as bytes, for files and messages.
//!
//! `docs/formats/sketch.md` has the same tables.
//!
//! | offset | size | field     |                                                              |
//! |-------:|-----:|-----------|--------------------------------------------------------------|
//! |      0 |    4 | magic     | `HFGH`                                                       |
//! |      4 |    1 | version   | 1                                                            |
//! |      5 |    1 | family    | hash function: 1 XXH3-128 with the seed                      |
//! |      6 |    1 | precision | 4 to 18: there are 2^precision registers                     |
//! |      7 |    1 | form      | 1 sparse, 2 dense                                            |
//! |      8 |    8 | seed      |                                                              |
//! |     16 |    1 | width     | number of bits of a register, w: 7 to 16                     |
//! |     17 |    … | registers |                                                              |
//! |        |    4 | checksum  | CRC-32C of all bytes before it                               |
//!
//! Dense registers have w bits each, the lowest bits of each byte first. Sparse ones are those that are not 0, ascending:
//!
//! | field | size |                                                                        |
//! |-------|-----:|------------------------------------------------------------------------|
//! | count |    … | number of registers: a variable-length integer                         |
//! | each  |    … | 2^w · (number of zeros before it) + value: a variable-length integer   |
//!
//! A sketch is dense if more than an eighth of its registers are not 0.

use super::{
    super::hll::{PRECISION_MAX, PRECISION_MIN},
    sketch::{Ghll, REGISTER_BITS},
};
use crate::{
    checksum::crc32c,
    codec::{Decoder, put_varint, within},
    error::{Error, Result, check_sum},
    key::Seed,
};

pub(in crate::sketch) const MAGIC: [u8; 4] = *b"HFGH";
const VERSION: u8 = 1;
const XXH3: u8 = 1;
const SPARSE: u8 = 1;
const DENSE: u8 = 2;
const CHECKSUM_SIZE: usize = 4;
/// The part of registers that a sparse form has at most.
const SPARSE_FRACTION: usize = 8;

impl Ghll {
    /// Returns the sketch as bytes: 21, and w/8 · 2^precision at most with registers of w bits.
    pub fn to_bytes(&self) -> Vec<u8> {
        let set = self.registers.iter().filter(|value| **value > 0).count();
        let form = if set > self.register_count() / SPARSE_FRACTION { DENSE } else { SPARSE };
        let mut out = [&MAGIC[..], &[VERSION, XXH3, self.precision(), form]].concat();
        out.extend(self.seed().0.to_le_bytes());
        out.push(self.register_bits());
        match form {
            DENSE => put_dense(self, &mut out),
            _ => put_sparse(self, set, &mut out),
        }
        out.extend(crc32c(&out).to_le_bytes());
        out
    }

    /// Reads a sketch from its bytes.
    ///
    /// # Errors
    /// Damage, another version, or a hash function that this library does not know.
    pub fn from_bytes(bytes: &[u8]) -> Result<Ghll> {
        let Some((body, checksum)) = bytes.split_last_chunk::<CHECKSUM_SIZE>() else {
            return Err(Error::field("size of a sketch in bytes", "22 or more", bytes.len()));
        };
        let mut fields = Decoder::new(body);
        let magic = fields.array::<4>()?;
        if magic != MAGIC {
            return Err(Error::field("first bytes of a sketch", "HFGH", magic.escape_ascii()));
        }
        check_sum(u32::from_le_bytes(*checksum), crc32c(body))?;
        within("version of a sketch", 1..=u64::from(VERSION), fields.u8()?.into())?;
        within("hash function of a sketch", 1..=u64::from(XXH3), fields.u8()?.into())?;
        let precisions = u64::from(PRECISION_MIN)..=u64::from(PRECISION_MAX);
        let precision = within("precision of a sketch", precisions, fields.u8()?.into())? as u8;
        let form = fields.u8()?;
        let seed = Seed(fields.u64()?);
        let widths = u64::from(*REGISTER_BITS.start())..=u64::from(*REGISTER_BITS.end());
        let width = within("bits of a register of a sketch", widths, fields.u8()?.into())? as u8;
        let mut sketch = Ghll::with_seed(seed, precision, width)?;
        match form {
            SPARSE => take_sparse(&mut fields, &mut sketch)?,
            DENSE => take_dense(&mut fields, &mut sketch)?,
            other => return Err(Error::field("form of a sketch", "1 or 2", other)),
        }
        fields.end()?;
        Ok(sketch)
    }
}

fn put_dense(sketch: &Ghll, out: &mut Vec<u8>) {
    let (mut word, mut len) = (0_u32, 0);
    for value in &sketch.registers {
        word |= u32::from(*value) << len;
        len += u32::from(sketch.register_bits());
        while len >= 8 {
            out.push(word as u8);
            (word, len) = (word >> 8, len - 8);
        }
    }
    assert!(len == 0, "the number of registers is a multiple of 8");
}

fn put_sparse(sketch: &Ghll, count: usize, out: &mut Vec<u8>) {
    put_varint(out, count as u64);
    let mut zeros = 0_u64;
    for value in &sketch.registers {
        match value {
            0 => zeros += 1,
            _ => {
                put_varint(out, zeros << sketch.register_bits() | u64::from(*value));
                zeros = 0;
            }
        }
    }
}

fn take_dense(fields: &mut Decoder<'_>, sketch: &mut Ghll) -> Result<()> {
    let (width, value_max) = (u32::from(sketch.register_bits()), sketch.levels.value_max());
    let size = sketch.register_count() as u64 * u64::from(width) / 8;
    let mut bytes = fields.bytes(size)?.iter();
    let (mut word, mut len) = (0_u32, 0);
    for register in &mut sketch.registers {
        while len < width {
            word |= u32::from(*bytes.next().expect("the bytes are those of the registers")) << len;
            len += 8;
        }
        let value = u64::from(word & ((1 << width) - 1));
        *register = within("value of a register", 0..=value_max.into(), value)? as u16;
        (word, len) = (word >> width, len - width);
    }
    Ok(())
}

fn take_sparse(fields: &mut Decoder<'_>, sketch: &mut Ghll) -> Result<()> {
    let (width, value_max) = (sketch.register_bits(), sketch.levels.value_max());
    let registers = sketch.register_count() as u64;
    let count = within("number of registers in a sketch", 0..=registers, fields.varint()?)?;
    let mut next = 0;
    for _ in 0..count {
        let packed = fields.varint()?;
        let zeros = within("register of a sketch", 0..=registers - 1, packed >> width)?;
        let index = within("register of a sketch", 0..=registers - 1, next + zeros)?;
        let value = packed & ((1 << width) - 1);
        sketch.registers[index as usize] =
            within("value of a register", 1..=value_max.into(), value)? as u16;
        next = index + 1;
    }
    Ok(())
}
