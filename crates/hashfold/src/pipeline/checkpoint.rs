//! The state of a pipeline as bytes. `docs/formats/checkpoint.md` has the same table.
//!
//! | field      | size |                                                                             |
//! |------------|-----:|-----------------------------------------------------------------------------|
//! | magic      |    4 | `HFPC`                                                                      |
//! | version    |    1 | 1                                                                           |
//! | definition |    8 | XXH3-64 of the fields and summaries that the state is of, encoded as below  |
//! | positions  |    … | of the sources: their number, then each; variable-length integers           |
//! | head       |    … | its size, then the clock of the stream and the counts of all events         |
//! | summaries  |    … | their number; of each its size, then its counts, windows, groups and states |
//! | checksum   |    4 | CRC-32C of all bytes before it                                              |

use crate::{
    checksum::crc32c,
    codec::{Decoder, put_bytes, put_varint, within},
    error::{Error, Result, check_sum},
};

const MAGIC: [u8; 4] = *b"HFPC";
const VERSION: u8 = 1;

/// The state of one worker.
#[derive(Debug)]
pub(super) struct Part {
    /// Clock and totals, from the first worker.
    pub(super) head: Option<Vec<u8>>,
    /// Numbers and states of summaries.
    pub(super) summaries: Vec<(usize, Vec<u8>)>,
}

/// The state of a pipeline behind the batches that were pushed until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub(super) definition: u64,
    positions: Vec<u64>,
    pub(super) head: Vec<u8>,
    pub(super) summaries: Vec<Vec<u8>>,
}

impl Checkpoint {
    /// Puts the parts of all workers together; `None` if a part is missing.
    pub(super) fn of_parts(
        definition: u64,
        positions: Vec<u64>,
        parts: Vec<Part>,
    ) -> Option<Checkpoint> {
        let mut head = None;
        let mut summaries = Vec::new();
        for part in parts {
            head = head.or(part.head);
            summaries.extend(part.summaries);
        }
        summaries.sort_unstable();
        let is_whole = summaries.iter().enumerate().all(|(i, (number, _))| i == *number);
        let summaries = summaries.into_iter().map(|(_, state)| state).collect();
        is_whole.then_some(Checkpoint { definition, positions, head: head?, summaries })
    }

    /// Returns the positions of the sources, in the order of their numbers.
    pub fn positions(&self) -> &[u64] {
        &self.positions
    }

    /// Returns the checkpoint as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = [&MAGIC[..], &[VERSION], &self.definition.to_le_bytes()].concat();
        put_varint(&mut out, self.positions.len() as u64);
        self.positions.iter().for_each(|position| put_varint(&mut out, *position));
        put_bytes(&mut out, &self.head);
        put_varint(&mut out, self.summaries.len() as u64);
        self.summaries.iter().for_each(|state| put_bytes(&mut out, state));
        out.extend(crc32c(&out).to_le_bytes());
        out
    }

    /// Reads a checkpoint from its bytes. The states of summaries are read when a pipeline starts with it.
    ///
    /// # Errors
    /// Damage, or another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Checkpoint> {
        let Some((body, checksum)) = bytes.split_last_chunk::<4>() else {
            return Err(Error::field("size of a checkpoint in bytes", "20 or more", bytes.len()));
        };
        let mut fields = Decoder::new(body);
        let magic = fields.array::<4>()?;
        if magic != MAGIC {
            return Err(Error::field("first bytes of a checkpoint", "HFPC", magic.escape_ascii()));
        }
        check_sum(u32::from_le_bytes(*checksum), crc32c(body))?;
        within("version of a checkpoint", 1..=u64::from(VERSION), fields.u8()?.into())?;
        let definition = fields.u64()?;
        let (mut positions, mut summaries) = (Vec::new(), Vec::new());
        for _ in 0..fields.varint()? {
            positions.push(fields.varint()?);
        }
        let head = fields.sized_bytes()?.to_vec();
        for _ in 0..fields.varint()? {
            summaries.push(fields.sized_bytes()?.to_vec());
        }
        fields.end()?;
        Ok(Checkpoint { definition, positions, head, summaries })
    }
}
