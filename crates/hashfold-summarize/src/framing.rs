//! From bytes to frames: lines, and the counted octets of RFC 6587.

use crate::config::Framing;
use memchr::memchr;

/// The reason why the beginning of an event is rejected that is longer than the limit.
pub const TOO_LONG: &str = "longer than event-max";
/// The reason why an event is rejected whose end is missing.
pub const CUT_SHORT: &str = "shorter than its length says";
/// Digits of the longest length.
const DIGITS_MAX: usize = 10;
/// Size of the beginning that is kept of an event that is too long, in bytes.
const BEGINNING_BYTES: usize = 1 << 10;

/// A splitter of a stream of bytes into frames. The caller shows bytes that are not consumed again, with more.
#[derive(Clone, Debug)]
pub struct Framer {
    framing: Framing,
    bytes_max: usize,
    /// The rest of an event that is too long.
    skip: Skip,
    /// The beginning of that event.
    beginning: Vec<u8>,
}

/// The part of an event that is too long that has not been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skip {
    Nothing,
    /// This number of bytes.
    Bytes(u64),
    /// All up to the next LF.
    Line,
}

/// The piece at the front of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A whole frame.
    Frame(&'a [u8]),
    /// The first bytes of a frame that is no event, and why.
    Bad(&'a [u8], &'static str),
    /// Bytes without meaning.
    Nothing,
}

impl Framer {
    /// Makes a splitter. Events of more than `bytes_max` bytes are rejected.
    pub fn new(framing: Framing, bytes_max: usize) -> Framer {
        Framer { framing, bytes_max, skip: Skip::Nothing, beginning: Vec::new() }
    }

    /// Returns the size of the longest event, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Whether the last bytes were of an event that goes on and is skipped. A reader cannot begin there.
    pub fn is_skipping(&self) -> bool {
        self.skip != Skip::Nothing
    }

    /// Returns what is at the front of `bytes`, and the number of bytes consumed; `None` if more bytes are needed.
    /// `is_end` says that there will be none.
    ///
    /// With at least `bytes_max` + 13 bytes, the result is never `None`.
    pub fn next<'a>(&'a mut self, bytes: &'a [u8], is_end: bool) -> Option<(usize, Piece<'a>)> {
        if self.is_skipping() {
            return self.skip(bytes, is_end);
        }
        match (self.framing, bytes.first()?) {
            (Framing::Octets, b'0'..=b'9') => self.counted(bytes, is_end),
            (Framing::Octets | Framing::Lines, _) => self.line(bytes, is_end),
        }
    }

    /// Skips the rest of an event that is too long, and rejects the event at its end.
    fn skip<'a>(&'a mut self, bytes: &'a [u8], is_end: bool) -> Option<(usize, Piece<'a>)> {
        let (consumed, is_whole) = match self.skip {
            Skip::Bytes(left) if left <= bytes.len() as u64 => (left as usize, true),
            Skip::Line => match memchr(b'\n', bytes) {
                Some(end) => (end + 1, true),
                None => (bytes.len(), false),
            },
            Skip::Bytes(left) => {
                self.skip = Skip::Bytes(left - bytes.len() as u64);
                (bytes.len(), false)
            }
            Skip::Nothing => (0, false),
        };
        if is_whole || is_end {
            self.skip = Skip::Nothing;
            return Some((consumed, Piece::Bad(&self.beginning, TOO_LONG)));
        }
        (consumed > 0).then_some((consumed, Piece::Nothing))
    }

    fn begin_skip(&mut self, skip: Skip, event: &[u8]) {
        self.skip = skip;
        self.beginning.clear();
        self.beginning.extend_from_slice(&event[..event.len().min(BEGINNING_BYTES)]);
    }

    fn line<'a>(&mut self, bytes: &'a [u8], is_end: bool) -> Option<(usize, Piece<'a>)> {
        let (line, consumed) = match memchr(b'\n', bytes) {
            Some(end) => (&bytes[..end], end + 1),
            None if bytes.len() > self.bytes_max + 1 => {
                self.begin_skip(Skip::Line, bytes);
                return Some((bytes.len(), Piece::Nothing));
            }
            None if is_end => (bytes, bytes.len()),
            None => return None,
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.len() {
            0 => Some((consumed, Piece::Nothing)),
            len if len > self.bytes_max => {
                Some((consumed, Piece::Bad(&line[..line.len().min(BEGINNING_BYTES)], TOO_LONG)))
            }
            _ => Some((consumed, Piece::Frame(line))),
        }
    }

    fn counted<'a>(&mut self, bytes: &'a [u8], is_end: bool) -> Option<(usize, Piece<'a>)> {
        let digits =
            bytes.iter().take(DIGITS_MAX + 1).take_while(|byte| byte.is_ascii_digit()).count();
        let length = match bytes.get(digits) {
            Some(b' ') if digits <= DIGITS_MAX => number(&bytes[..digits]),
            None if digits <= DIGITS_MAX && !is_end => return None,
            // No length: a line that begins with a digit.
            _ => return self.line(bytes, is_end),
        };
        let start = digits + 1;
        if length > self.bytes_max as u64 {
            self.begin_skip(Skip::Bytes(length), &bytes[start..]);
            return Some((start, Piece::Nothing));
        }
        let end = start + length as usize;
        match bytes.get(start..end) {
            // Some senders end a counted event with LF too.
            Some(b"") => Some((end, Piece::Nothing)),
            Some(frame) => {
                let frame = frame.strip_suffix(b"\n").unwrap_or(frame);
                Some((end, Piece::Frame(frame)))
            }
            None if is_end => {
                Some((bytes.len(), Piece::Bad(bytes.get(start..).unwrap_or(b""), CUT_SHORT)))
            }
            None => None,
        }
    }
}

fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'))
}
