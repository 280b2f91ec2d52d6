//! A bottom-k sketch as bytes, for files and messages.
//!
//! `docs/formats/sketch.md` has the same tables.
//!
//! | offset | size | field     |                                                              |
//! |-------:|-----:|-----------|--------------------------------------------------------------|
//! |      0 |    4 | magic     | `HFBK`                                                       |
//! |      4 |    1 | version   | 1                                                            |
//! |      5 |    1 | family    | hash function: 1 XXH3-128 with the seed                      |
//! |      6 |    1 | state     | 1 the hashes of all keys, 2 the smallest ones                |
//! |      7 |    1 | remainder | number of bits of the remainders, r: 0 to 40                 |
//! |      8 |    8 | seed      |                                                              |
//! |     16 |    4 | capacity  | 16 to 2^24                                                   |
//! |     20 |    4 | count     | number of hashes: the capacity if the state is 2             |
//! |     24 |    … | hashes    |                                                              |
//! |        |    4 | checksum  | CRC-32C of all bytes before it                               |
//!
//! A hash is the first 40 bits of a key's hash as a number. Hashes ascend; each is stored as its gap: the
//! number of hashes that were left out before it. With the remainder r, a gap g takes ⌊g/2^r⌋ bits that are
//! 1, a bit that is 0, and the last r bits of g, lowest first. Bytes are filled from their lowest bits on; the
//! bits after the last gap are 0.

use super::{BottomK, CAPACITY_MAX, CAPACITY_MIN, HASH_BITS, rice};
use crate::{
    checksum::crc32c,
    codec::{Decoder, within},
    error::{Error, Result, check_sum},
    key::Seed,
};

pub(in crate::sketch) const MAGIC: [u8; 4] = *b"HFBK";
const VERSION: u8 = 1;
const XXH3: u8 = 1;
const COMPLETE: u8 = 1;
const SMALLEST: u8 = 2;
const CHECKSUM_SIZE: usize = 4;
/// Offset of the capacity.
const CAPACITY_AT: usize = 16;

impl BottomK {
    /// Returns the sketch as bytes: 28, and about 42 − log2 n bits for each hash if there are n keys.
    pub fn to_bytes(&self) -> Vec<u8> {
        let BottomK { seed, capacity, smallest, is_complete, .. } = self.settled();
        let sum = smallest.last().map_or(0, |last| last + 1 - smallest.len() as u64);
        let remainder = rice::remainder_bits(sum, smallest.len());
        let state = if is_complete { COMPLETE } else { SMALLEST };
        let mut out = [&MAGIC[..], &[VERSION, XXH3, state, remainder as u8]].concat();
        out.extend(seed.0.to_le_bytes());
        out.extend((capacity as u32).to_le_bytes());
        out.extend((smallest.len() as u32).to_le_bytes());
        rice::put(&mut out, &smallest, remainder);
        out.extend(crc32c(&out).to_le_bytes());
        out
    }

    /// Returns the capacity in the bytes of a sketch, without reading its hashes: as many are in memory at most when it is
    /// read, also if few bytes say so. `None` if the bytes begin as those of no sketch.
    pub fn capacity_in(bytes: &[u8]) -> Option<usize> {
        let capacity = bytes.get(CAPACITY_AT..)?.first_chunk()?;
        bytes.starts_with(&MAGIC).then(|| u32::from_le_bytes(*capacity) as usize)
    }

    /// Reads a sketch from its bytes.
    ///
    /// # Errors
    /// Damage, another version, or a hash function that this library does not know.
    pub fn from_bytes(bytes: &[u8]) -> Result<BottomK> {
        let Some((body, checksum)) = bytes.split_last_chunk::<CHECKSUM_SIZE>() else {
            return Err(Error::field("size of a sketch in bytes", "28 or more", bytes.len()));
        };
        let mut fields = Decoder::new(body);
        let magic = fields.array::<4>()?;
        if magic != MAGIC {
            return Err(Error::field("first bytes of a sketch", "HFBK", magic.escape_ascii()));
        }
        check_sum(u32::from_le_bytes(*checksum), crc32c(body))?;
        within("version of a sketch", 1..=u64::from(VERSION), fields.u8()?.into())?;
        within("hash function of a sketch", 1..=u64::from(XXH3), fields.u8()?.into())?;
        let state =
            within("state of a sketch", COMPLETE.into()..=SMALLEST.into(), fields.u8()?.into())?;
        let bits = within("bits of remainders", 0..=HASH_BITS.into(), fields.u8()?.into())?;
        let seed = Seed(fields.u64()?);
        let capacities = CAPACITY_MIN as u64..=CAPACITY_MAX as u64;
        let capacity = within("capacity of a sketch", capacities, fields.u32()?.into())?;
        let is_complete = state == u64::from(COMPLETE);
        let counts = if is_complete { 0..=capacity } else { capacity..=capacity };
        let count = within("number of hashes in a sketch", counts, fields.u32()?.into())?;
        let smallest = rice::take(&mut fields, count, bits as u32, (1 << HASH_BITS) - 1)?;
        fields.end()?;
        let (capacity, waiting) = (capacity as usize, Vec::new());
        Ok(BottomK { seed, capacity, smallest, waiting, is_complete })
    }
}
