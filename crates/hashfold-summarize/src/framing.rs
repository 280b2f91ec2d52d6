//! From bytes to frames: lines, and the counted octets of RFC 6587.

use crate::config::Framing;
use memchr::memchr;

/// The reason why the beginning of an event is rejected that is longer than the limit.
pub const TOO_LONG: &str = "longer than event-max";
/// The reason why an event is rejected that broke off.
pub const CUT_SHORT: &str = "its end is missing";
/// Digits of the longest length.
const DIGITS_MAX: usize = 10;
/// Size of the beginning that is kept of an event that is too long, in bytes.
const BEGINNING_BYTES: usize = 1 << 10;

/// A splitter of a stream of bytes into frames. The caller shows bytes that are not consumed again, with more.
#[derive(Clone, Debug)]
pub struct Framer {
    framing: Framing,
    bytes_max: usize,
    ending: Ending,
    /// The rest of an event that is too long.
    skip: Skip,
    /// Number of bytes at the front that were searched for an LF, so that none is searched twice.
    searched: usize,
    /// Number of all bytes that were searched.
    searched_total: u64,
}

/// What an event without its end is, when there will be no more bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// A line is an event, since many files have no LF at their end; an event that is shorter than its length is rejected.
    #[default]
    Event,
    /// A rejected one: its sender broke off.
    CutShort,
    /// Nothing yet: its file may grow, and is then read from there on.
    Left,
}

/// The part of an event that is too long that has not been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skip {
    Nothing,
    /// This number of bytes, more than 0.
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
    /// More bytes of a frame that is too long.
    Skipped,
    /// Bytes without meaning.
    Nothing,
}

impl Framer {
    /// Makes a splitter. Events of more than `bytes_max` bytes are rejected.
    pub fn new(framing: Framing, bytes_max: usize) -> Framer {
        let (ending, skip) = (Ending::default(), Skip::Nothing);
        Framer { framing, bytes_max, ending, skip, searched: 0, searched_total: 0 }
    }

    /// Sets what an event without its end is.
    #[must_use]
    pub fn ending(self, ending: Ending) -> Framer {
        Framer { ending, ..self }
    }

    /// Returns the size of the longest event, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the number of bytes that were searched for the end of a line: never more than were shown, however small the
    /// pieces are in which they come.
    pub fn searched_bytes(&self) -> u64 {
        self.searched_total
    }

    /// Whether the last bytes were of an event that goes on and is skipped. A reader cannot begin there.
    pub fn is_skipping(&self) -> bool {
        self.skip != Skip::Nothing
    }

    /// Returns what is at the front of `bytes`, and the number of bytes consumed; `None` if more bytes are needed.
    /// `is_end` says that there will be none. An event that is too long is rejected when that is known, which may be long
    /// before its end.
    ///
    /// With at least `bytes_max` + 13 bytes, the result is never `None`.
    pub fn next<'a>(&mut self, bytes: &'a [u8], is_end: bool) -> Option<(usize, Piece<'a>)> {
        let next = match (self.framing, bytes.first()) {
            _ if self.is_skipping() => self.skip(bytes, is_end),
            (_, None) => None,
            (Framing::Octets, Some(b'0'..=b'9')) => self.counted(bytes, is_end),
            (Framing::Octets | Framing::Lines, Some(_)) => self.line(bytes, is_end),
        };
        let consumed = next.as_ref().map_or(0, |(consumed, _)| *consumed);
        self.searched = self.searched.saturating_sub(consumed);
        next
    }

    /// Returns the place of the first LF. Bytes that were shown before are not searched again.
    fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let new = bytes.get(self.searched..).unwrap_or_default();
        let found = memchr(b'\n', new);
        let searched = found.map_or(new.len(), |end| end + 1);
        self.searched_total += searched as u64;
        let end = found.map(|end| self.searched + end);
        self.searched += searched;
        end
    }

    /// Skips the rest of an event that is too long.
    fn skip(&mut self, bytes: &[u8], is_end: bool) -> Option<(usize, Piece<'static>)> {
        let consumed = match self.skip {
            Skip::Nothing => 0,
            Skip::Line => match self.find_end(bytes) {
                Some(end) => {
                    self.skip = Skip::Nothing;
                    end + 1
                }
                None => bytes.len(),
            },
            Skip::Bytes(left) => {
                let consumed = left.min(bytes.len() as u64);
                self.skip = Skip::bytes(left - consumed);
                consumed as usize
            }
        };
        if is_end && self.ending != Ending::Left {
            self.skip = Skip::Nothing;
        }
        (consumed > 0).then_some((consumed, Piece::Skipped))
    }

    fn line<'a>(&mut self, bytes: &'a [u8], is_end: bool) -> Option<(usize, Piece<'a>)> {
        let (line, consumed) = match self.find_end(bytes) {
            Some(end) => (&bytes[..end], end + 1),
            None if bytes.len() > self.bytes_max + 1 => {
                let beginning = beginning(bytes);
                self.skip = Skip::Line;
                return Some((beginning.len(), Piece::Bad(beginning, TOO_LONG)));
            }
            None if is_end && self.ending != Ending::Left => (bytes, bytes.len()),
            None => return None,
        };
        let is_cut = consumed == line.len() && self.ending == Ending::CutShort;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let piece = match line.len() {
            0 => Piece::Nothing,
            len if len > self.bytes_max => Piece::Bad(beginning(line), TOO_LONG),
            _ if is_cut => Piece::Bad(line, CUT_SHORT),
            _ => Piece::Frame(line),
        };
        Some((consumed, piece))
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
            // With the length, which may be what is wrong.
            let end = start as u64 + length;
            let shown = beginning(&bytes[..end.min(bytes.len() as u64) as usize]);
            self.skip = Skip::bytes(end - shown.len() as u64);
            return Some((shown.len(), Piece::Bad(shown, TOO_LONG)));
        }
        let end = start + length as usize;
        match bytes.get(start..end) {
            // Some senders end a counted event with LF too.
            Some(b"") => Some((end, Piece::Nothing)),
            Some(frame) => {
                let frame = frame.strip_suffix(b"\n").unwrap_or(frame);
                Some((end, Piece::Frame(frame)))
            }
            None if is_end && self.ending != Ending::Left => {
                Some((bytes.len(), Piece::Bad(bytes.get(start..).unwrap_or(b""), CUT_SHORT)))
            }
            None => None,
        }
    }
}

impl Skip {
    fn bytes(left: u64) -> Skip {
        if left == 0 { Skip::Nothing } else { Skip::Bytes(left) }
    }
}

/// Returns what is kept of an event that is too long.
fn beginning(event: &[u8]) -> &[u8] {
    &event[..event.len().min(BEGINNING_BYTES)]
}

fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'))
}
