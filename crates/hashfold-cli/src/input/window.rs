//! A window on the bytes of an input, at least as long as the longest record.

use super::source::{Bytes, Meter, open, read_failure};
use crate::{
    failure::{Failure, Result},
    units,
};

/// Initial size of the window, in bytes.
const WINDOW_BYTES: usize = 1 << 20;

/// Maximum size of a record, in bytes: the largest value, with space for escapes.
const RECORD_BYTES_MAX: usize = 1 << 28;

/// The bytes of an input that are being parsed.
pub(super) struct Window {
    /// Name of the file, for messages.
    pub(super) file: String,
    source: Bytes,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the source has no more bytes than those in the window.
    pub(super) at_end: bool,
}

impl Window {
    /// Opens a window on the first bytes of an input.
    pub(super) fn open(path: &str, meter: &Meter) -> Result<Window> {
        let source = open(path, meter)?;
        let (file, buffer) = (path.to_string(), vec![0; WINDOW_BYTES]);
        let mut window = Window { file, source, buffer, start: 0, end: 0, at_end: false };
        window.fill(1)?;
        Ok(window)
    }

    /// Returns the bytes in the window.
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Moves the window past `count` bytes.
    #[inline]
    pub(super) fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start);
        self.start += count;
    }

    /// Drops the window's bytes and the rest of the input.
    pub(super) fn close(&mut self) {
        self.start = self.end;
        self.at_end = true;
    }

    /// Skips the byte order mark that some editors put before UTF-8 text.
    pub(super) fn skip_byte_order_mark(&mut self) {
        if self.bytes().starts_with(b"\xef\xbb\xbf") {
            self.consume(3);
        }
    }

    /// Fills the window, and enlarges it if it was full. Returns `false` if it is empty at the end
    /// of the input. The window starts with line or record number `row`.
    pub(super) fn fill(&mut self, row: u64) -> Result<bool> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == RECORD_BYTES_MAX {
            let most = units::count(RECORD_BYTES_MAX as u64);
            let what = format!("the row that starts here is longer than {most} bytes, the limit");
            return Err(Failure::input(format_args!("{}:{row}", self.file), what));
        }
        if self.end == self.buffer.len() {
            self.buffer.resize((self.end * 2).min(RECORD_BYTES_MAX), 0);
        }
        while self.end < self.buffer.len() && !self.at_end {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_end = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(read_failure(&self.file, &error)),
            }
        }
        Ok(self.end > 0)
    }
}
