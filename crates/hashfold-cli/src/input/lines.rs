//! Lines of keys: each line, without its end, is a key.
//!
//! A line ends with a line feed, or a carriage return and a line feed; the last line may lack its end.
//! A byte order mark at the start of a file is skipped.

use super::{
    Format, Reader,
    bad_rows::Head,
    sink::{Flaw, Sink, too_long},
    source::{Bytes, Meter, open, read_failure},
};
use crate::failure::Result;
use hashfold::run::KEY_BYTES_MAX;
use hashfold_rows::{KeyType, Schema};
use memchr::memchr;
use std::io;

/// Size of a read, in bytes: several of the longest lines.
const BUFFER_BYTES: usize = 1 << 18;
const _: () = assert!(BUFFER_BYTES > 2 * KEY_BYTES_MAX);

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads one input of keys.
pub(crate) struct LineReader {
    file: String,
    source: Bytes,
    schema: Schema,
    /// The number of the next line, from 1 on.
    line: u64,
    /// Length so far of the line that is being skipped because it is too long.
    long: Option<usize>,
}

impl LineReader {
    pub(crate) fn open(path: &str, meter: &Meter) -> Result<LineReader> {
        let source = open(path, meter)?;
        Ok(LineReader { file: path.into(), source, schema: Schema::unnamed(), line: 1, long: None })
    }

    /// Reads more bytes; returns 0 at the end.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match self.source.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map_err(|error| read_failure(&self.file, &error)),
            }
        }
    }

    /// Takes the complete lines of `bytes`; returns their length.
    fn take_lines(&mut self, bytes: &[u8], sink: &mut Sink) -> Result<usize> {
        let mut start = 0;
        while let Some(len) = memchr(b'\n', &bytes[start..]) {
            self.take_line(&bytes[start..start + len], sink)?;
            start += len + 1;
        }
        Ok(start)
    }

    /// Takes a line, without its line feed.
    fn take_line(&mut self, line: &[u8], sink: &mut Sink) -> Result<()> {
        let outcome = match self.long.take() {
            None => {
                let key = line.strip_suffix(b"\r").unwrap_or(line);
                let key = if self.line == 1 { without_mark(key) } else { key };
                let outcome = sink.push(key, |_| Ok(()));
                sink.end_row(&self.file, self.line, outcome, b"")
            }
            Some(len) => {
                let flaw: Flaw = too_long("key", len + line.len(), KEY_BYTES_MAX);
                sink.end_row(&self.file, self.line, Err(flaw), b"")
            }
        };
        self.line += 1;
        outcome
    }

    /// Skips part of a line.
    fn leave_out(&mut self, part: &[u8]) {
        *self.long.get_or_insert(0) += part.len();
    }
}

impl Reader for LineReader {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn head(&self) -> Head {
        Head { format: Format::Lines, header: Vec::new() }
    }

    fn read(mut self: Box<Self>, sink: &mut Sink) -> Result<()> {
        sink.keys.add(KeyType::Text);
        let mut buffer = vec![0; BUFFER_BYTES];
        // The start of an incomplete line.
        let mut kept = 0;
        loop {
            let count = self.fill(&mut buffer[kept..])?;
            let bytes = &buffer[..kept + count];
            if count == 0 {
                if !bytes.is_empty() || self.long.is_some() {
                    self.take_line(bytes, sink)?;
                }
                return Ok(());
            }
            let mut used = self.take_lines(bytes, sink)?;
            // The writer of the line may wait for the answer.
            sink.pause()?;
            let rest = &bytes[used..];
            // Includes a byte order mark and a carriage return, which are not part of the key.
            if self.long.is_some() || rest.len() > KEY_BYTES_MAX + BYTE_ORDER_MARK.len() + 1 {
                self.leave_out(rest);
                used = bytes.len();
            }
            kept = bytes.len() - used;
            let end = used + kept;
            buffer.copy_within(used..end, 0);
        }
    }
}

fn without_mark(key: &[u8]) -> &[u8] {
    key.strip_prefix(BYTE_ORDER_MARK).unwrap_or(key)
}
