//! Batches: the records of one write.
//!
//! After the header block of a segment come batches. They start at multiples of 4096 bytes and are
//! padded with zeros. The same tables stand in `docs/formats/wal.md`:
//!
//! | offset | size | field    |                                                                      |
//! |-------:|-----:|----------|----------------------------------------------------------------------|
//! |      0 |    4 | checksum | seal (frame.md) of the batch without its padding: its offset divided by 4096, the file's id, and the segment's number as the epoch |
//! |      4 |    4 | size     | size of the records, in bytes; 0 in a mark                           |
//! |      8 |    8 | seq      | sequence number of the first change in the batch                     |
//! |     16 |    8 | durable  | changes before this sequence number were durable before this batch was written |
//! |     24 |    … | records  |                                                                      |
//!
//! A record:
//!
//! | field   |                                                                       |
//! |---------|-----------------------------------------------------------------------|
//! | count   | number of changes in the record, at least 1: a variable-length integer |
//! | size    | size of the payload, in bytes: a variable-length integer              |
//! | payload | the caller's bytes                                                    |

use crate::{
    codec::{Decoder, VARINT_BYTES_MAX, write_varint},
    error::{Error, Result},
    io::{ALIGNMENT, Buffer, SEAL_SIZE, Seal},
};

/// Size of the fields before the records, in bytes.
pub(super) const HEAD_SIZE: usize = 24;
/// Size of the largest batch, in bytes; smaller in tests, so that logs have more batches.
pub(super) const BATCH_SIZE_MAX: usize = if cfg!(test) { 12 << 10 } else { 512 << 10 };
/// Size of the largest payload of a record, in bytes.
pub const PAYLOAD_SIZE_MAX: usize = BATCH_SIZE_MAX - HEAD_SIZE - 2 * VARINT_BYTES_MAX;

const _: () = assert!(BATCH_SIZE_MAX.is_multiple_of(ALIGNMENT));

/// A record of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Sequence number of the first change in the record.
    pub seq: u64,
    /// Number of changes in the record, at least 1.
    pub count: u64,
    /// The bytes that were appended.
    pub payload: &'a [u8],
}

impl Record<'_> {
    /// Returns the sequence number after the last change in the record.
    pub fn end(&self) -> u64 {
        self.seq.saturating_add(self.count)
    }
}

/// A batch that is being filled.
#[derive(Debug)]
pub(super) struct RecordBatch {
    bytes: Buffer,
    /// Size in bytes, with the head.
    len: usize,
    /// Sequence number of the first change.
    pub(super) seq: u64,
    /// Sequence number after the last change.
    pub(super) end: u64,
    /// The records that fill whole blocks: the length of the batch with them, in bytes, and the
    /// sequence number after them.
    whole: (usize, u64),
}

/// The last records of a batch, which are moved to the next batch.
#[derive(Debug)]
pub(super) struct Tail {
    records: Vec<u8>,
    end: u64,
}

impl RecordBatch {
    /// Returns an empty batch in a buffer of [`BATCH_SIZE_MAX`] bytes.
    pub(super) fn new(bytes: Buffer, seq: u64) -> RecordBatch {
        assert_eq!(bytes.len(), BATCH_SIZE_MAX);
        RecordBatch { bytes, len: HEAD_SIZE, seq, end: seq, whole: (HEAD_SIZE, seq) }
    }

    /// Returns the bytes of a mark: a batch without records, which says that all changes before it
    /// are durable.
    pub(super) fn mark(seq: u64, seal: Seal) -> Buffer {
        let bytes = Buffer::zeroed(ALIGNMENT);
        RecordBatch { bytes, len: HEAD_SIZE, seq, end: seq, whole: (0, seq) }.seal(seal, seq)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == HEAD_SIZE
    }

    /// Whether a record with this payload fits.
    pub(super) fn has_room(&self, payload: &[u8]) -> bool {
        self.padded_size_with(payload) <= BATCH_SIZE_MAX
    }

    /// Appends a record, which must fit.
    pub(super) fn push(&mut self, count: u64, payload: &[u8]) {
        let before = (self.len, self.end);
        let mut room = &mut self.bytes[self.len..];
        for field in [count, payload.len() as u64] {
            let len = write_varint(room, field);
            room = &mut room[len..];
            self.len += len;
        }
        room[..payload.len()].copy_from_slice(payload);
        self.len += payload.len();
        self.end += count;
        if self.len / ALIGNMENT > before.0 / ALIGNMENT {
            self.whole = before;
        }
    }

    /// Removes the records after the last full block if they fill less than half of another block
    /// and have no change before `seq`. The next batch begins with them.
    pub(super) fn cut_tail(&mut self, seq: u64) -> Option<Tail> {
        let (len, end) = self.whole;
        if len == HEAD_SIZE || end < seq || self.len - len >= ALIGNMENT / 2 {
            return None;
        }
        let tail = Tail { records: self.bytes[len..self.len].to_vec(), end: self.end };
        (self.len, self.end) = (len, end);
        Some(tail)
    }

    /// Appends the records that were cut off the previous batch. This batch is empty.
    pub(super) fn append(&mut self, tail: &Tail) {
        self.bytes[self.len..][..tail.records.len()].copy_from_slice(&tail.records);
        self.len += tail.records.len();
        self.end = tail.end;
    }

    /// Returns the size of the batch in its file, in bytes.
    pub(super) fn padded_size(&self) -> usize {
        self.len.next_multiple_of(ALIGNMENT)
    }

    /// Returns the largest size in its file, in bytes, of the batch with one more record.
    pub(super) fn padded_size_with(&self, payload: &[u8]) -> usize {
        (self.len + 2 * VARINT_BYTES_MAX + payload.len()).next_multiple_of(ALIGNMENT)
    }

    /// Writes the head and the padding. Returns the bytes, of which the first
    /// [`RecordBatch::padded_size`] must be written to the file.
    pub(super) fn seal(mut self, seal: Seal, durable: u64) -> Buffer {
        let padded = self.padded_size();
        self.bytes[self.len..padded].fill(0);
        let size = (self.len - HEAD_SIZE) as u32;
        self.bytes[4..8].copy_from_slice(&size.to_le_bytes());
        self.bytes[8..16].copy_from_slice(&self.seq.to_le_bytes());
        self.bytes[16..24].copy_from_slice(&durable.to_le_bytes());
        seal.put(&mut self.bytes[..self.len]);
        self.bytes
    }
}

/// The fields before the records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Size of the records, in bytes.
    pub(super) size: usize,
    /// Sequence number of the first change.
    pub(super) seq: u64,
    /// Changes before this sequence number were durable before the batch was written.
    pub(super) durable: u64,
}

impl Head {
    /// Decodes the first [`HEAD_SIZE`] bytes of a batch. The caller checks the checksum.
    pub(super) fn decode(bytes: &[u8]) -> Result<Head> {
        let mut fields = Decoder::new(bytes.get(SEAL_SIZE..).unwrap_or_default());
        Ok(Head { size: fields.u32()? as usize, seq: fields.u64()?, durable: fields.u64()? })
    }

    /// Returns the size of the batch in its file, in bytes.
    pub(super) fn padded_size(&self) -> u64 {
        (HEAD_SIZE as u64 + self.size as u64).next_multiple_of(ALIGNMENT as u64)
    }
}

/// Calls `take` with the records of a batch whose seal was checked.
pub(super) fn decode_records(
    mut seq: u64,
    bytes: &[u8],
    mut take: impl FnMut(Record<'_>) -> Result<()>,
) -> Result<()> {
    let mut fields = Decoder::new(bytes);
    while !fields.rest().is_empty() {
        let count = fields.varint()?;
        if count == 0 || seq.checked_add(count).is_none() {
            return Err(Error::field("changes in a record of the log", "at least 1", count));
        }
        let payload = fields.sized_bytes()?;
        take(Record { seq, count, payload })?;
        seq += count;
    }
    Ok(())
}
