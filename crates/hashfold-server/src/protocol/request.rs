//! Requests: arrays of bulk strings, or a line of words.
//!
//! ```text
//! *2\r\n  $3\r\nGET\r\n  $4\r\n4711\r\n        an array, as clients send it
//! GET 4711\r\n                                  a line, as a person types it
//! ```

use super::inline;
use hashfold::map::VALUE_BYTES_MAX;
use memchr::memchr;
use std::{fmt, ops::Range};

/// The most that a request may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of arguments, the command included.
    pub arguments: usize,
    /// Maximum size of an argument, in bytes.
    pub argument_bytes: usize,
    /// Maximum size of a request, in bytes.
    pub request_bytes: usize,
    /// Maximum size of a request that is a line, in bytes.
    pub line_bytes: usize,
}

impl Limits {
    /// The limits before a client has given its password.
    pub const STRANGER: Limits = Limits {
        arguments: 10,
        argument_bytes: 16 << 10,
        request_bytes: 256 << 10,
        line_bytes: 64 << 10,
    };
    /// The limits for clients that may read data.
    pub const CLIENT: Limits = Limits {
        arguments: 20_002,
        argument_bytes: 1 << 20,
        request_bytes: 16 << 20,
        line_bytes: 64 << 10,
    };
    /// The limits for clients that may change a map: an argument may be its largest value.
    pub const MAP: Limits =
        Limits { argument_bytes: VALUE_BYTES_MAX, request_bytes: 80 << 20, ..Limits::CLIENT };
}

/// Maximum size of a line with a number, in bytes: the number has at most 20 digits.
const NUMBER_LINE_BYTES: usize = 32;

/// What the first bytes of the input are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A whole request, of this size in bytes. It may have no arguments: then nothing is replied.
    Request(usize),
    /// The beginning of a request; it needs at least this many bytes.
    Needs(usize),
    /// A line of this size in bytes, whose words are these.
    Line(usize, Vec<Vec<u8>>),
}

/// A violation of the protocol, after which the connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError(pub(super) String);

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ERR Protocol error: {}", self.0)
    }
}

impl std::error::Error for ProtocolError {}

fn violation<T>(what: impl Into<String>) -> Result<T, ProtocolError> {
    Err(ProtocolError(what.into()))
}

/// Finds the first request in `input`, and sets `arguments` to the places of its arguments in
/// `input`.
///
/// # Errors
/// A violation of the protocol or of the limits, in the words of Redis.
pub fn parse(
    input: &[u8],
    limits: &Limits,
    arguments: &mut Vec<Range<usize>>,
) -> Result<Parsed, ProtocolError> {
    arguments.clear();
    match input.first() {
        None => Ok(Parsed::Needs(1)),
        Some(b'*') => parse_array(input, limits, arguments),
        Some(_) => parse_line(input, limits),
    }
}

fn parse_array(
    input: &[u8],
    limits: &Limits,
    arguments: &mut Vec<Range<usize>>,
) -> Result<Parsed, ProtocolError> {
    let Some((count, mut at)) = number_line(input, 1, "too big mbulk count string")? else {
        return Ok(Parsed::Needs(input.len() + 1));
    };
    let is_stranger = limits.arguments == Limits::STRANGER.arguments;
    let count = match count {
        Some(count) if count > limits.arguments as i64 && is_stranger => {
            return violation("unauthenticated multibulk length");
        }
        Some(count) if count <= limits.arguments as i64 => count.max(0) as usize,
        _ => return violation("invalid multibulk length"),
    };
    for left in (0..count).rev() {
        match input.get(at) {
            None => return Ok(Parsed::Needs(input.len() + 1)),
            Some(b'$') => {}
            Some(other) => {
                return violation(format!("expected '$', got '{}'", other.escape_ascii()));
            }
        }
        let Some((size, start)) = number_line(input, at + 1, "too big bulk count string")? else {
            return Ok(Parsed::Needs(input.len() + 1));
        };
        let size = match size {
            Some(size) if size > limits.argument_bytes as i64 && is_stranger => {
                return violation("unauthenticated bulk length");
            }
            Some(size) if (0..=limits.argument_bytes as i64).contains(&size) => size as usize,
            _ => return violation("invalid bulk length"),
        };
        let end = start + size;
        // Each argument that is left takes at least the bytes `$0\r\n\r\n`.
        let needed = end + 2 + left * 6;
        if needed > limits.request_bytes {
            return violation(format!("a request has at most {} bytes", limits.request_bytes));
        }
        if input.len() < needed {
            return Ok(Parsed::Needs(needed));
        }
        arguments.push(start..end);
        at = end + 2;
    }
    Ok(Parsed::Request(at))
}

/// Reads the line with a number that starts at `start`. Returns the number, or `None` if it is none, and
/// the place after the line.
fn number_line(
    input: &[u8],
    start: usize,
    too_long: &str,
) -> Result<Option<(Option<i64>, usize)>, ProtocolError> {
    let rest = &input[start..];
    match memchr(b'\r', &rest[..rest.len().min(NUMBER_LINE_BYTES)]) {
        // The byte after it is the line feed, as Redis assumes, too.
        Some(end) if end + 2 <= rest.len() => Ok(Some((number(&rest[..end]), start + end + 2))),
        None if rest.len() >= NUMBER_LINE_BYTES => violation(too_long),
        _ => Ok(None),
    }
}

/// Returns the number that the digits are.
#[inline]
pub(crate) fn number(digits: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match digits {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let is_canonical = matches!(digits, [b'0']) || matches!(digits, [b'1'..=b'9', ..]);
    if !is_canonical || (is_negative && digits == b"0") {
        return None;
    }
    let mut number: i64 = 0;
    for digit in digits {
        let digit = i64::from(digit.wrapping_sub(b'0'));
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?;
        number = if is_negative { number.checked_sub(digit) } else { number.checked_add(digit) }?;
    }
    Some(number)
}

/// Whether a word begins a line of HTTP that no client of Redis sends.
fn is_of_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
}

fn parse_line(input: &[u8], limits: &Limits) -> Result<Parsed, ProtocolError> {
    let Some(end) = memchr(b'\n', input) else {
        return match input.len() > limits.line_bytes {
            true => violation("too big inline request"),
            false => Ok(Parsed::Needs(input.len() + 1)),
        };
    };
    if end > limits.line_bytes {
        return violation("too big inline request");
    }
    let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
    match inline::words(line) {
        None => violation("unbalanced quotes in request"),
        // A page in a browser can make it send both, with commands of the page's choice in the lines after.
        Some(words) if words.first().is_some_and(|word| is_of_http(word)) => {
            violation("a request of HTTP, expected one of Redis")
        }
        Some(words) if words.len() > limits.arguments => violation("invalid multibulk length"),
        Some(words) => Ok(Parsed::Line(end + 1, words)),
    }
}
