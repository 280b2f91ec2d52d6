//! Reading what is left of a damaged log: all intact batches, also behind damaged ones.
//!
//! A crash may leave intact batches behind its cut, too. They are not part of the log if no batch
//! says that changes between were durable, or if a later segment goes on from the cut.

use super::{
    batch::{Head, Record, decode_records},
    reader::SegmentReader,
    segment::WalFiles,
};
use crate::{
    error::{Error, ErrorClass, Result},
    io::ALIGNMENT,
};
use std::ops::Range;

/// The parts of a log that [`salvage`] could not read.
#[derive(Clone, Debug, Default)]
pub struct LostRecords {
    /// Sequence numbers of the changes that are missing, ascending.
    pub seqs: Vec<Range<u64>>,
    /// Damage of batches and of the headers of segments.
    pub damage: Vec<Error>,
}

/// The intact batches of a segment, and the marks, with their offsets in the file.
struct Segment {
    number: u64,
    batches: Vec<(u64, Head)>,
}

impl Segment {
    /// Returns the sequence number of the first change; `None` if there is none.
    fn first_seq(&self) -> Option<u64> {
        self.batches.iter().find(|(_, head)| head.size > 0).map(|(_, head)| head.seq)
    }
}

/// Reads a log that may be damaged, and calls `take` with the records that end after `needed.start`,
/// in order, each once. `needed` is as that of [`replay`](super::replay). The log is not written at
/// the same time.
///
/// # Errors
/// The device failed, or `take` did.
pub fn salvage(
    files: WalFiles<'_>,
    needed: Range<u64>,
    take: &mut dyn FnMut(Record<'_>) -> Result<()>,
) -> Result<LostRecords> {
    let mut lost = LostRecords::default();
    let mut segments = Vec::new();
    for number in files.list()? {
        let mut reader = SegmentReader::new(files, number)?;
        match reader.check_header(files) {
            Err(error) if error.class() == ErrorClass::Damage => lost.damage.push(error),
            checked => checked.map(drop)?,
        }
        segments.push(Segment { number, batches: reader.batches()? });
    }
    let heads = segments.iter().flat_map(|segment| &segment.batches);
    let durable = heads.map(|(_, head)| head.durable).max().unwrap_or(0).max(needed.end);
    let mut end = needed.start;
    for (i, segment) in segments.iter().enumerate() {
        // Batches from there on were cut off by a crash, after which the later segments went on.
        let limit = segments[i + 1..].iter().filter_map(Segment::first_seq).min();
        let mut reader = SegmentReader::new(files, segment.number)?;
        for (offset, head) in segment.batches.iter().filter(|(_, head)| head.size > 0) {
            if limit.is_some_and(|limit| head.seq >= limit) || head.seq > end && durable <= end {
                break;
            }
            if head.seq > end {
                lost.seqs.push(end..head.seq);
                end = head.seq;
            }
            take_batch(&mut reader, (*offset, *head), &mut end, take, &mut lost.damage)?;
        }
    }
    if end < durable {
        lost.seqs.push(end..durable);
    }
    Ok(lost)
}

/// Passes the records of a batch that end after `end` to `take`.
fn take_batch(
    reader: &mut SegmentReader,
    (offset, head): (u64, Head),
    end: &mut u64,
    take: &mut dyn FnMut(Record<'_>) -> Result<()>,
    damage: &mut Vec<Error>,
) -> Result<()> {
    let place = reader.place().offset(offset);
    let mut taken = Ok(());
    let decoded = decode_records(head.seq, reader.records(offset, head)?, |record| {
        if record.end() > *end {
            *end = record.end();
            taken = take(record);
        }
        taken.clone()
    });
    taken?;
    damage.extend(decoded.err().map(|error| error.at(&place)));
    Ok(())
}

impl SegmentReader {
    /// Returns all intact batches and marks, with their offsets.
    fn batches(&mut self) -> Result<Vec<(u64, Head)>> {
        let mut batches = Vec::new();
        let mut next = ALIGNMENT as u64;
        while next < self.size() {
            let head = self.whole(next)?;
            batches.extend(head.map(|head| (next, head)));
            next += head.map_or(ALIGNMENT as u64, |head| head.padded_size());
        }
        Ok(batches)
    }
}
