//! The state of a pipeline as bytes. `docs/formats/checkpoint.md` has the same table.
//!
//! | field      | size |                                                                             |
//! |------------|-----:|-----------------------------------------------------------------------------|
//! | magic      |    4 | `HFPC`                                                                      |
//! | version    |    1 | 5                                                                           |
//! | definition |    8 | XXH3-64 of the fields, summaries and chains, encoded as below               |
//! | id         |    8 | of the pipeline and those that continue it                                  |
//! | positions  |    … | of the sources: their number, then each                                     |
//! | head       |    … | its size, then the clock, the counts of all events, and those that are held |
//! | summaries  |    … | their number; of each its size, then its counts, windows, groups and states |
//! | chains     |    … | their number; of each its size, then its counts, users and summaries        |
//! | checksum   |    4 | CRC-32C of all bytes before it                                              |

use crate::{
    checksum::crc32c,
    codec::{Decoder, put_bytes, put_varint, within},
    error::{Error, Result, check_sum},
};

const MAGIC: [u8; 4] = *b"HFPC";
const VERSION: u8 = 5;
/// The first version that has chains.
const VERSION_CHAINS: u8 = 2;
/// The first version that has the clocks of sources, events that are held, and the beginnings of files.
pub(super) const VERSION_SOURCES: u8 = 3;
/// The first version that counts sums that overflow.
pub(super) const VERSION_OVERFLOWS: u8 = 3;
/// The first version that has an id.
const VERSION_ID: u8 = 4;
/// The first version that has windows which have ended.
pub(super) const VERSION_ENDED: u8 = 5;
/// The first version that has the date of the machine at the last event.
pub(super) const VERSION_DATE: u8 = 5;

/// The definitions and the pipeline that a checkpoint belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The number of all definitions.
    pub(super) definition: u64,
    /// The id of the pipeline, and of those that continue it.
    pub(super) id: u64,
}

/// The position of a source, such as a file: all events before it are in the state of a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Number of bytes, or of what the source counts.
    pub offset: u64,
    /// The beginning of the source, which tells it from another one in its place, if that is known.
    pub beginning: Beginning,
}

/// The beginning of a file, which tells it from another file of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beginning {
    /// Number of bytes, at most the offset; with 0, nothing is known.
    pub bytes: u64,
    /// A checksum of these bytes.
    pub checksum: u64,
}

impl From<u64> for Position {
    fn from(offset: u64) -> Position {
        Position { offset, beginning: Beginning::default() }
    }
}

impl Position {
    fn put(&self, out: &mut Vec<u8>, version: u8) {
        put_varint(out, self.offset);
        if version >= VERSION_SOURCES {
            put_varint(out, self.beginning.bytes);
            out.extend(self.beginning.checksum.to_le_bytes());
        }
    }

    fn take(fields: &mut Decoder<'_>, version: u8) -> Result<Position> {
        let mut position = Position::from(fields.varint()?);
        if version >= VERSION_SOURCES {
            let (bytes, checksum) = (fields.varint()?, fields.u64()?);
            if bytes > position.offset {
                let expected = format!("at most {}", position.offset);
                return Err(Error::field("bytes of the beginning of a file", expected, bytes));
            }
            position.beginning = Beginning { bytes, checksum };
        }
        Ok(position)
    }
}

/// The state of one worker.
#[derive(Debug)]
pub(super) struct Part {
    /// Clock and totals, from the first worker.
    pub(super) head: Option<Vec<u8>>,
    /// Numbers and states of summaries.
    pub(super) summaries: Vec<(usize, Vec<u8>)>,
    /// Numbers and states of chains.
    pub(super) chains: Vec<(usize, Vec<u8>)>,
}

/// The state of a pipeline behind the batches that were pushed until then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The version that the states are encoded in.
    pub(super) version: u8,
    pub(super) origin: Origin,
    positions: Vec<Position>,
    pub(super) head: Vec<u8>,
    pub(super) summaries: Vec<Vec<u8>>,
    pub(super) chains: Vec<Vec<u8>>,
}

/// Puts states in the order of their numbers; `None` if one is missing.
fn in_order(mut states: Vec<(usize, Vec<u8>)>) -> Option<Vec<Vec<u8>>> {
    states.sort_unstable();
    let is_whole = states.iter().enumerate().all(|(i, (number, _))| i == *number);
    is_whole.then(|| states.into_iter().map(|(_, state)| state).collect())
}

impl Checkpoint {
    /// Puts the parts of all workers together; `None` if a part is missing.
    pub(super) fn of_parts(
        origin: Origin,
        positions: Vec<Position>,
        parts: Vec<Part>,
    ) -> Option<Checkpoint> {
        let mut head = None;
        let (mut summaries, mut chains) = (Vec::new(), Vec::new());
        for part in parts {
            head = head.or(part.head);
            summaries.extend(part.summaries);
            chains.extend(part.chains);
        }
        let (summaries, chains) = (in_order(summaries)?, in_order(chains)?);
        let (version, head) = (VERSION, head?);
        Some(Checkpoint { version, origin, positions, head, summaries, chains })
    }

    /// Returns the id of the pipeline that made it, [`PipelineOptions::id`](super::PipelineOptions::id); `None` for versions before 4,
    /// which had none.
    pub fn id(&self) -> Option<u64> {
        (self.version >= VERSION_ID).then_some(self.origin.id)
    }

    /// Returns the positions of the sources, in the order of their numbers.
    pub fn positions(&self) -> &[Position] {
        &self.positions
    }

    /// Returns the checkpoint as bytes, in the version that it was read in.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = [&MAGIC[..], &[self.version], &self.origin.definition.to_le_bytes()].concat();
        if let Some(id) = self.id() {
            out.extend(id.to_le_bytes());
        }
        put_varint(&mut out, self.positions.len() as u64);
        self.positions.iter().for_each(|position| position.put(&mut out, self.version));
        put_bytes(&mut out, &self.head);
        put_varint(&mut out, self.summaries.len() as u64);
        self.summaries.iter().for_each(|state| put_bytes(&mut out, state));
        if self.version >= VERSION_CHAINS {
            put_varint(&mut out, self.chains.len() as u64);
            self.chains.iter().for_each(|state| put_bytes(&mut out, state));
        }
        out.extend(crc32c(&out).to_le_bytes());
        out
    }

    /// Reads a checkpoint from its bytes. The states of summaries and chains are read when a pipeline starts with it.
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
        let version = fields.u8()?;
        within("version of a checkpoint", 1..=u64::from(VERSION), version.into())?;
        let definition = fields.u64()?;
        let id = if version >= VERSION_ID { fields.u64()? } else { 0 };
        let origin = Origin { definition, id };
        let (mut positions, mut summaries, mut chains) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..fields.varint()? {
            positions.push(Position::take(&mut fields, version)?);
        }
        let head = fields.sized_bytes()?.to_vec();
        for _ in 0..fields.varint()? {
            summaries.push(fields.sized_bytes()?.to_vec());
        }
        let chains_len = if version >= VERSION_CHAINS { fields.varint()? } else { 0 };
        for _ in 0..chains_len {
            chains.push(fields.sized_bytes()?.to_vec());
        }
        fields.end()?;
        Ok(Checkpoint { version, origin, positions, head, summaries, chains })
    }
}
