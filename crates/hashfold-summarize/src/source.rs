//! Sources: bytes to frames, and frames to batches.

use crate::{
    config::Stream,
    error::SummarizeError,
    framing::{Ending, Framer, Piece},
};
use hashfold::{
    pipeline::{Batch, Input},
    work::{Clock as _, SystemClock},
};
use std::{
    fs::File,
    io::{self, ErrorKind, Read, Seek as _, SeekFrom},
    mem,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Events and bytes in a batch.
const BATCH_EVENTS: usize = 256;
const BATCH_BYTES: usize = 64 << 10;
/// Bytes beyond the longest event that a frame can need: its length in digits, and its end.
const FRAME_OVERHEAD: usize = 16;

/// How reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All was read, and taken but for these bytes of an event that has no end yet.
    Whole { unread_bytes: u64 },
    /// The run is to stop.
    Stopped,
}

/// What came of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Bytes,
    /// Nothing has come yet.
    Waits,
    /// There will be nothing more.
    Ended,
}

/// A reader of one source.
pub(crate) struct Source<'a> {
    input: &'a Input,
    stop: &'a AtomicBool,
    framer: Framer,
    /// Bytes that are read; those before `start` are consumed.
    buffer: Vec<u8>,
    start: usize,
    batch: Option<Batch>,
    /// Number of the source, and its position behind the last whole frame, if it has positions.
    position: Option<(usize, u64)>,
    /// Position of `start`.
    consumed: u64,
    /// Whether the next frame is a header.
    skips_header: bool,
    /// The beginning of an event that is too long, and the reason, until its end: the position is before it, so that it is
    /// read again if the run stops.
    held: Option<(Vec<u8>, &'static str)>,
    /// Bytes of events that are too long which are not counted yet.
    skipped: u64,
}

impl<'a> Source<'a> {
    pub(crate) fn new(stream: &Stream, input: &'a Input, stop: &'a AtomicBool) -> Source<'a> {
        Source {
            input,
            stop,
            framer: Framer::new(stream.framing, stream.event_bytes_max),
            buffer: Vec::with_capacity(READ_BYTES),
            start: 0,
            batch: None,
            position: None,
            consumed: 0,
            skips_header: stream.has_header,
            held: None,
            skipped: 0,
        }
    }

    /// Sets what an event without its end is.
    pub(crate) fn ending(self, ending: Ending) -> Source<'a> {
        Source { framer: self.framer.ending(ending), ..self }
    }

    /// Reads the first frame as an event: connections have no header.
    pub(crate) fn without_header(self) -> Source<'a> {
        Source { skips_header: false, ..self }
    }

    /// Reads a file from a position on.
    pub(crate) fn file(
        mut self,
        path: &Path,
        number: usize,
        from: u64,
    ) -> Result<End, SummarizeError> {
        let failed = |action| {
            let place = path.display().to_string();
            move |source| SummarizeError::Io { place, action, source }
        };
        let mut file = File::open(path).map_err(failed("open"))?;
        if from > 0 {
            let size = file.metadata().map_err(failed("read"))?.len();
            if size < from {
                let message = format!(
                    "has {size} bytes, and the checkpoint is behind byte {from}; it is another file"
                );
                return Err(SummarizeError::Input { file: path.to_owned(), message });
            }
            file.seek(SeekFrom::Start(from)).map_err(failed("read"))?;
            self.skips_header = false;
        }
        self.position = Some((number, from));
        self.consumed = from;
        self.read(&mut file, &path.display().to_string())
    }

    /// Reads all bytes. A reader whose reads time out is asked again, unless the run is to stop.
    pub(crate) fn read(&mut self, from: &mut dyn Read, place: &str) -> Result<End, SummarizeError> {
        while !self.stop.load(Ordering::Relaxed) {
            if self.read_once(from, place)? == Progress::Ended {
                return Ok(End::Whole { unread_bytes: self.unread_bytes() });
            }
        }
        Ok(End::Stopped)
    }

    /// Reads what has come already. A sender that does not pause is read until a time of the system's clock.
    pub(crate) fn drain(
        &mut self,
        from: &mut dyn Read,
        place: &str,
        until: Duration,
    ) -> Result<(), SummarizeError> {
        while self.read_once(from, place)? == Progress::Bytes && SystemClock.now() < until {}
        Ok(())
    }

    /// Takes what is left when nothing more is read.
    pub(crate) fn finish(mut self) -> Result<(), SummarizeError> {
        self.take(true)?;
        self.flush()
    }

    fn read_once(&mut self, from: &mut dyn Read, place: &str) -> Result<Progress, SummarizeError> {
        let read = match self.fill(from) {
            Ok(read) => read,
            Err(error) if is_timeout(&error) => return Ok(Progress::Waits),
            Err(source) => {
                let place = place.to_owned();
                return Err(SummarizeError::Io { place, action: "read", source });
            }
        };
        self.take(read == 0)?;
        // The next read may wait for long.
        self.flush()?;
        Ok(if read == 0 { Progress::Ended } else { Progress::Bytes })
    }

    /// Returns the number of bytes behind the position, which are read again the next time.
    fn unread_bytes(&self) -> u64 {
        let read = self.consumed + (self.buffer.len() - self.start) as u64;
        self.position.map_or(0, |(_, position)| read - position)
    }

    /// Reads more bytes. Returns their number.
    fn fill(&mut self, from: &mut dyn Read) -> io::Result<usize> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let len = self.buffer.len();
        self.buffer.resize(len + READ_BYTES, 0);
        let read = from.read(&mut self.buffer[len..]);
        self.buffer.truncate(len + read.as_ref().map_or(0, |read| *read));
        read
    }

    /// Takes all whole frames.
    fn take(&mut self, is_end: bool) -> Result<(), SummarizeError> {
        loop {
            let next = self.framer.next(&self.buffer[self.start..], is_end);
            let Some((consumed, piece)) = next else { break };
            match piece {
                Piece::Frame(_) | Piece::Bad(..) if mem::take(&mut self.skips_header) => {}
                Piece::Frame(frame) => batch(&mut self.batch, self.input)?.push(frame),
                Piece::Bad(frame, reason) => {
                    self.skipped += (consumed - frame.len()) as u64;
                    self.held = Some((frame.to_vec(), reason));
                }
                Piece::Skipped => self.skipped += consumed as u64,
                Piece::Nothing => {}
            }
            self.start += consumed;
            self.consumed += consumed as u64;
            self.settle()?;
            if self.batch.as_ref().is_some_and(is_full) {
                self.flush()?;
            }
        }
        let kept = self.buffer.len() - self.start;
        debug_assert!(kept <= self.framer.bytes_max() + FRAME_OVERHEAD, "frames have a bound");
        self.settle()
    }

    /// Moves the position behind what is consumed, and counts a frame that is no event with what was skipped of it. Where
    /// there is a position, this waits for the end of the frame.
    fn settle(&mut self) -> Result<(), SummarizeError> {
        if let Some((_, position)) = &mut self.position {
            if self.framer.is_skipping() {
                return Ok(());
            }
            *position = self.consumed;
        }
        if self.held.is_none() && self.skipped == 0 {
            return Ok(());
        }
        let batch = batch(&mut self.batch, self.input)?;
        if let Some((frame, reason)) = self.held.take() {
            batch.reject(&frame, reason);
        }
        batch.skip(mem::take(&mut self.skipped));
        Ok(())
    }

    /// Pushes the batch that is being filled.
    fn flush(&mut self) -> Result<(), SummarizeError> {
        if let Some(batch) = self.batch.take() {
            self.input.push(batch, self.position)?;
        }
        Ok(())
    }
}

/// Returns the batch that is being filled. Only now, so that a source that waits for bytes holds none.
fn batch<'a>(current: &'a mut Option<Batch>, input: &Input) -> hashfold::Result<&'a mut Batch> {
    let batch = match current.take() {
        Some(batch) => batch,
        None => input.batch()?,
    };
    Ok(current.insert(batch))
}

fn is_full(batch: &Batch) -> bool {
    batch.len() >= BATCH_EVENTS || batch.byte_len() >= BATCH_BYTES
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
