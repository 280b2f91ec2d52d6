//! Sources: bytes to frames, and frames to batches.

use crate::{
    beginning::FirstBytes,
    config::Stream,
    error::SummarizeError,
    framing::{Ending, Framer, Piece},
    pipe::Pipe,
};
use hashfold::{
    pipeline::{Batch, Input, Position, SourceId},
    work::{Clock as _, SystemClock},
};
use rustix::fs::OFlags;
use std::{
    fs::File,
    io::{self, ErrorKind, Read, Seek as _, SeekFrom},
    mem,
    os::{fd::AsFd as _, unix::fs::OpenOptionsExt as _},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// A buffer that is larger by this factor than what is needed, after a long event, is made smaller.
const BUFFER_FACTOR_MAX: usize = 16;
/// Events and bytes in a batch.
const BATCH_EVENTS: usize = 256;
const BATCH_BYTES: usize = 64 << 10;
/// Bytes beyond the longest event that a frame can need: its length in digits, and its end.
const FRAME_OVERHEAD: usize = 16;

/// Time in which what has come before the run is to stop is read.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(5);

/// How reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All was read, and taken but for these bytes of an event that has no end yet.
    Whole { unread_bytes: u64 },
    /// The run is to stop.
    Stopped,
}

/// A file that is opened where it is to be read, or standard input.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    place: String,
    offset: u64,
    first: FirstBytes,
    /// Whether another process writes the bytes, and what is read is gone: a pipe, or a terminal.
    is_pipe: bool,
    /// Whether this is another file than that of the checkpoint.
    pub(crate) is_replaced: bool,
}

impl OpenFile {
    /// Opens a file behind a position, or at its beginning if it is another file than that of the position.
    pub(crate) fn open(path: &Path, from: Position) -> Result<OpenFile, SummarizeError> {
        let place = path.display().to_string();
        let failed = |action| {
            let place = place.clone();
            move |source| SummarizeError::Io { place, action, source }
        };
        // Without the flag, a named pipe that nobody writes to could not be opened.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut file =
            File::options().read(true).custom_flags(flags).open(path).map_err(failed("open"))?;
        let is_pipe = is_pipe(&file).map_err(failed("read"))?;
        let mut open = || -> io::Result<(u64, Option<FirstBytes>)> {
            if from.offset == 0 || is_pipe {
                return Ok((0, Some(FirstBytes::default())));
            }
            let is_long_enough = file.metadata()?.len() >= from.offset;
            let first = FirstBytes::read(&mut file, from.offset, from.beginning)?;
            let first = first.filter(|_| is_long_enough);
            let offset = if first.is_some() { from.offset } else { 0 };
            file.seek(SeekFrom::Start(offset))?;
            Ok((offset, first))
        };
        let (offset, first) = open().map_err(failed("read"))?;
        let is_replaced = first.is_none();
        let first = first.unwrap_or_default();
        Ok(OpenFile { file, place, offset, first, is_pipe, is_replaced })
    }

    /// Opens standard input, from which nothing else may read.
    pub(crate) fn standard_input() -> Result<OpenFile, SummarizeError> {
        let place = "standard input".to_owned();
        let open = || {
            let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
            let is_pipe = is_pipe(&file)?;
            Ok((file, is_pipe))
        };
        let (file, is_pipe) = open().map_err(|source| {
            let (place, action) = (place.clone(), "open");
            SummarizeError::Io { place, action, source }
        })?;
        let first = FirstBytes::default();
        Ok(OpenFile { file, place, offset: 0, first, is_pipe, is_replaced: false })
    }
}

fn is_pipe(file: &File) -> io::Result<bool> {
    Ok(!file.metadata()?.is_file())
}

/// Whether what is read from a path is gone then: a named pipe, or a terminal.
pub(crate) fn is_pipe_at(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
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
    /// Room for bytes; those from `start` to `end` are read and not consumed.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    batch: Option<Batch>,
    /// The connection, if it is one.
    connection: Option<SourceId>,
    /// Number of the file, and the position behind its last whole frame, if it is one.
    position: Option<(usize, u64)>,
    /// The beginning of the file.
    first: FirstBytes,
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
            buffer: Vec::new(),
            start: 0,
            end: 0,
            batch: None,
            connection: None,
            position: None,
            first: FirstBytes::default(),
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

    /// Sets the source of a connection. The first frame is an event: connections have no header.
    pub(crate) fn connection(self, source: SourceId) -> Source<'a> {
        Source { connection: Some(source), skips_header: false, ..self }
    }

    /// Reads a file. `number` is its place among the files of the stream; `None` stands for standard input, of which there is
    /// no position.
    pub(crate) fn file(
        mut self,
        file: OpenFile,
        number: Option<usize>,
    ) -> Result<End, SummarizeError> {
        let OpenFile { mut file, place, offset, first, is_pipe, .. } = file;
        if is_pipe {
            return self.pipe(Pipe::new(file), &place);
        }
        self.skips_header &= offset == 0;
        self.position = number.map(|number| (number, offset));
        self.consumed = offset;
        self.first = first;
        self.read(&mut file, &place)
    }

    /// Reads what another process writes, until its end, or until the run is to stop: then also what has come already.
    fn pipe(self, mut pipe: Pipe, place: &str) -> Result<End, SummarizeError> {
        let mut source = self.ending(Ending::Event);
        let mut read = || {
            let end = source.read(&mut pipe, place)?;
            if end == End::Stopped {
                pipe.wait_no_more();
                source.drain(&mut pipe, place, SystemClock.now() + DRAIN_MAX)?;
            }
            Ok(end)
        };
        let end = read();
        // After an error, too: the event that it broke off is counted.
        source.ending(Ending::CutShort).finish()?;
        end
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

    /// Returns the size of the buffer.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer.len()
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
        let read = self.consumed + (self.end - self.start) as u64;
        self.position.map_or(0, |(_, position)| read - position)
    }

    /// Reads more bytes. Returns their number.
    fn fill(&mut self, from: &mut dyn Read) -> io::Result<usize> {
        // The rest of a frame is moved once, when those before it are consumed.
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let needed = self.end + READ_BYTES;
        if self.buffer.len() < needed {
            self.buffer.resize(needed.next_power_of_two(), 0);
        } else if self.buffer.len() / BUFFER_FACTOR_MAX >= needed {
            self.buffer.truncate(needed.next_power_of_two());
            self.buffer.shrink_to_fit();
        }
        let read = from.read(&mut self.buffer[self.end..needed])?;
        if self.position.is_some() {
            self.first.add(&self.buffer[self.end..self.end + read]);
        }
        self.end += read;
        Ok(read)
    }

    /// Takes all whole frames.
    fn take(&mut self, is_end: bool) -> Result<(), SummarizeError> {
        loop {
            let next = self.framer.next(&self.buffer[self.start..self.end], is_end);
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
        let kept = self.end - self.start;
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
        let Some(batch) = self.batch.take() else { return Ok(()) };
        let position = self.position.map(|(number, offset)| {
            (number, Position { offset, beginning: self.first.until(offset) })
        });
        match self.connection {
            Some(source) => self.input.push_from(source, batch)?,
            None => self.input.push(batch, position)?,
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
