//! Reading a log, and telling a torn tail from damage.
//!
//! A log is cut off where a batch is not intact, or where a segment begins with a later sequence
//! number than the reader has reached. Records after the cut are not returned, although some may be
//! intact: unsynced writes reach the device in any order. Each batch says up to which sequence
//! number changes were durable before it was written. If any batch, also after the cut, has a
//! larger number than the reader has reached, durable changes are missing, and the log is damaged.
//! A mark behind the last batch has the number of all changes.

use super::{
    batch::{BATCH_SIZE_MAX, HEAD_SIZE, Head, Record, decode_records},
    segment::{WalFiles, seal},
};
use crate::{
    error::{Error, ErrorClass, Place, Result},
    io::{
        ALIGNMENT, Access, BlockFile, Buffer,
        frame::{FileKind, Header},
    },
};
use std::{ops::Range, sync::Arc};

/// The result of reading a log.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Sequence number after the last change.
    pub end: u64,
    /// Numbers of the valid segments, ascending, each with the sequence number after its last
    /// change.
    pub segments: Vec<(u64, u64)>,
    /// Numbers of the segments after the cut, whose records are not returned.
    pub cut_off: Vec<u64>,
}

/// Reads a log, and calls `take` with the records that end after `needed.start`, in order. The
/// first record may begin earlier. `needed.start` is the first change that the caller needs.
/// `needed.end` is a change that the caller knows to be durable, or `needed.start` if it knows none:
/// a log that ends before is damaged. Without it, the loss of the last segment is not detected. The
/// log may be written at the same time, unless segments are truncated.
///
/// # Errors
/// Damage, if durable changes from `needed.start` on, or changes in `needed`, are missing or
/// damaged.
pub fn replay(
    files: WalFiles<'_>,
    needed: Range<u64>,
    take: &mut dyn FnMut(Record<'_>) -> Result<()>,
) -> Result<Replayed> {
    let mut found = Replayed { end: needed.start, segments: Vec::new(), cut_off: Vec::new() };
    let mut cut_before = None;
    loop {
        let (durable, cut) = pass(files, &mut found, take)?;
        let durable = durable.max(needed.end);
        if durable <= found.end {
            return Ok(found);
        }
        // The log may have been written meanwhile, or a read may have failed, so the first failure
        // is retried.
        if cut_before == Some(found.end) {
            let expected = format!("at least {durable}, up to which changes were durable");
            let error = Error::field("end of the log", expected, found.end);
            return Err(error.at(&cut.unwrap_or_else(|| Place::file(files.folder))));
        }
        cut_before = Some(found.end);
    }
}

/// Goes through the log once, and passes new records to `take`. Returns the sequence number before
/// which changes are durable according to the batches, and the place at which the log is cut off.
fn pass(
    files: WalFiles<'_>,
    found: &mut Replayed,
    take: &mut dyn FnMut(Record<'_>) -> Result<()>,
) -> Result<(u64, Option<Place>)> {
    let (mut durable, mut cut) = (0, None);
    (found.segments, found.cut_off) = (Vec::new(), Vec::new());
    for number in files.list()? {
        let Some(mut segment) = SegmentReader::open(files, number)? else {
            found.cut_off.push(number);
            continue;
        };
        let is_valid = segment.replay(&mut found.end, take)?;
        segment.look_behind()?;
        if is_valid {
            // An empty segment that was created ahead is not the place of missing changes.
            if segment.offset > ALIGNMENT as u64 || segment.durable > 0 || cut.is_none() {
                cut = Some(segment.file.place().offset(segment.offset));
            }
            found.segments.push((number, found.end));
        } else {
            found.cut_off.push(number);
        }
        durable = durable.max(segment.durable);
    }
    Ok((durable, cut))
}

/// A reader of one segment.
pub(super) struct SegmentReader {
    file: Arc<dyn BlockFile>,
    number: u64,
    id: u64,
    size: u64,
    /// Offset of the next batch, in bytes.
    offset: u64,
    /// Changes before this sequence number were durable, according to the batches.
    durable: u64,
    /// Bytes of the file from `window_start` on.
    window: Buffer,
    window_start: u64,
    window_len: usize,
}

impl SegmentReader {
    /// Opens a segment; `None` if a crash came before its header was written.
    fn open(files: WalFiles<'_>, number: u64) -> Result<Option<SegmentReader>> {
        let mut segment = SegmentReader::new(files, number)?;
        let is_made = segment.check_header(files)?;
        Ok(is_made.then_some(segment))
    }

    /// Opens a segment, whose header is not checked yet.
    pub(super) fn new(files: WalFiles<'_>, number: u64) -> Result<SegmentReader> {
        let file = files.disk.open(&files.path(number), Access::Cached)?;
        Ok(SegmentReader {
            size: file.size()?,
            file,
            number,
            id: files.id,
            offset: ALIGNMENT as u64,
            durable: 0,
            window: Buffer::zeroed(BATCH_SIZE_MAX),
            window_start: 0,
            window_len: 0,
        })
    }

    /// Checks the header. Returns `false` if a crash came before it was written.
    pub(super) fn check_header(&mut self, files: WalFiles<'_>) -> Result<bool> {
        match Header::read_of(&*self.file, FileKind::Wal, files.seed, files.id) {
            Ok(_) => Ok(true),
            Err(error) if error.class() == ErrorClass::Damage && self.is_new()? => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn place(&self) -> &Place {
        self.file.place()
    }

    /// Returns the size of the file, in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the records of the batch at an offset, which was found intact.
    pub(super) fn records(&mut self, offset: u64, head: Head) -> Result<&[u8]> {
        self.bytes(offset + HEAD_SIZE as u64, head.size)
    }

    /// Whether the segment has neither a header nor an intact batch.
    fn is_new(&mut self) -> Result<bool> {
        if self.size >= ALIGNMENT as u64 && self.bytes(0, ALIGNMENT)?.iter().any(|byte| *byte != 0)
        {
            return Ok(false);
        }
        self.look_behind()?;
        Ok(self.durable == 0)
    }

    /// Calls `take` with the records that end after `end`, up to the cut of the segment. Returns
    /// `false` if the segment begins with a later sequence number.
    fn replay(
        &mut self,
        end: &mut u64,
        take: &mut dyn FnMut(Record<'_>) -> Result<()>,
    ) -> Result<bool> {
        // Batches after a mark are not part of the log.
        while let Some(head) = self.whole(self.offset)?.filter(|head| head.size > 0) {
            if head.seq > *end {
                return Ok(false);
            }
            self.durable = self.durable.max(head.durable);
            let place = self.file.place().offset(self.offset);
            let bytes = self.records(self.offset, head)?;
            let records = decode_records(head.seq, bytes, |record| {
                // Records that end earlier have been taken already.
                if record.end() > *end {
                    take(record)?;
                    *end = record.end();
                }
                Ok(())
            });
            records.map_err(|error| error.at(&place))?;
            self.offset += head.padded_size();
        }
        Ok(true)
    }

    /// Reads all intact batches and marks from the current offset on, for what they say about
    /// durable changes.
    fn look_behind(&mut self) -> Result<()> {
        let mut next = self.offset;
        while next < self.size {
            let head = self.whole(next)?;
            self.durable = head.map_or(self.durable, |head| self.durable.max(head.durable));
            next += head.map_or(ALIGNMENT as u64, |head| head.padded_size());
        }
        Ok(())
    }

    /// Returns the head of the batch or mark at an offset, if it is intact.
    pub(super) fn whole(&mut self, offset: u64) -> Result<Option<Head>> {
        if offset + ALIGNMENT as u64 > self.size {
            return Ok(None);
        }
        let head = Head::decode(self.bytes(offset, HEAD_SIZE)?)?;
        let len = HEAD_SIZE + head.size;
        if len > BATCH_SIZE_MAX || offset + len as u64 > self.size {
            return Ok(None);
        }
        let seal = seal(offset, self.id, self.number);
        let is_whole = seal.check(self.bytes(offset, len)?).is_ok();
        Ok(is_whole.then_some(head))
    }

    /// Returns bytes of the file: at most the size of the window, and within the file.
    fn bytes(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        let has_all = |start: u64, window_len: usize| {
            offset >= start && offset + len as u64 <= start + window_len as u64
        };
        if !has_all(self.window_start, self.window_len) {
            // Each part of the file is read once, except for blocks of a batch that crosses the end
            // of a window.
            let start = offset / ALIGNMENT as u64 * ALIGNMENT as u64;
            let window_len = (self.size - start).min(self.window.len() as u64) as usize;
            self.window_len = 0;
            self.file.read_at(start, &mut self.window[..window_len])?;
            (self.window_start, self.window_len) = (start, window_len);
        }
        let at = (offset - self.window_start) as usize;
        Ok(&self.window[at..][..len])
    }
}
