//! Sources: bytes to frames, and frames to batches.

use crate::{
    config::Stream,
    error::SummarizeError,
    framing::{Framer, Piece},
};
use hashfold::pipeline::{Batch, Input};
use std::{
    fs::File,
    io::{self, ErrorKind, Read, Seek as _, SeekFrom},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
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
    /// All was read.
    Whole,
    /// The run is to stop.
    Stopped,
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
        }
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
    pub(crate) fn read(mut self, from: &mut dyn Read, place: &str) -> Result<End, SummarizeError> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                self.flush()?;
                return Ok(End::Stopped);
            }
            let read = match self.fill(from) {
                Ok(read) => read,
                Err(error) if is_timeout(&error) => continue,
                Err(source) => {
                    self.flush()?;
                    let place = place.to_owned();
                    return Err(SummarizeError::Io { place, action: "read", source });
                }
            };
            self.take(read == 0)?;
            if read == 0 {
                self.flush()?;
                return Ok(End::Whole);
            }
            // The next read may wait for long.
            self.flush()?;
        }
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
            let bytes = &self.buffer[self.start..];
            let Some((consumed, piece)) = self.framer.next(bytes, is_end) else { break };
            if let Piece::Frame(_) | Piece::Bad(..) = piece {
                // Only now, so that a source that waits for bytes holds no batch.
                let batch = match self.batch.take() {
                    Some(batch) => batch,
                    None => self.input.batch()?,
                };
                let batch = self.batch.insert(batch);
                if !std::mem::take(&mut self.skips_header) {
                    put(batch, piece);
                }
            }
            let is_full = self.batch.as_ref().is_some_and(is_full);
            self.start += consumed;
            self.consumed += consumed as u64;
            if let Some((_, position)) = &mut self.position
                && !self.framer.is_skipping()
            {
                *position = self.consumed;
            }
            if is_full {
                self.flush()?;
            }
        }
        let kept = self.buffer.len() - self.start;
        debug_assert!(kept <= self.framer.bytes_max() + FRAME_OVERHEAD, "frames have a bound");
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

fn put(batch: &mut Batch, piece: Piece<'_>) {
    match piece {
        Piece::Frame(frame) => batch.push(frame),
        Piece::Bad(frame, reason) => batch.reject(frame, reason),
        Piece::Nothing => {}
    }
}

fn is_full(batch: &Batch) -> bool {
    batch.len() >= BATCH_EVENTS || batch.byte_len() >= BATCH_BYTES
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
