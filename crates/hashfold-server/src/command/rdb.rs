//! `DUMP` and `RESTORE`: a value in the form in which Redis stores it, with the version of that form and a checksum.
//!
//! | size | field    |                                                        |
//! |-----:|----------|--------------------------------------------------------|
//! |    1 | type     | 0: a string                                            |
//! |      | string   | its length and bytes, or an integer, or compressed     |
//! |    2 | version  | little-endian                                          |
//! |    8 | checksum | CRC-64 of all bytes before, little-endian              |

use super::{
    NOT_AN_INTEGER, SYNTAX_ERROR,
    entry::{Arguments, Command, Group, Run, StringCall},
};
use crc_fast::CrcAlgorithm;
use hashfold::map::VALUE_BYTES_MAX;

pub(super) const COMMANDS: &[Command] = &[Command::new(
    "restore",
    -4,
    Group::Generic,
    "Sets a value that DUMP has returned.",
    Run::Change(restore),
)
.writes()
.keys(1, 1, 1)];

const STRING: u8 = 0;
const VERSION: u16 = 10;
const FOOTER_BYTES: usize = 10;

/// The longest integer that is stored as one, in digits with its sign.
const INTEGER_DIGITS_MAX: usize = 11;

/// First bytes of strings that are not stored as they are.
const INT8: u8 = 0xc0;
const INT16: u8 = 0xc1;
const INT32: u8 = 0xc2;
const COMPRESSED: u8 = 0xc3;

/// Returns a value as `DUMP` does.
pub(super) fn dump(value: &[u8]) -> Vec<u8> {
    let mut out = vec![STRING];
    let integer = (value.len() <= INTEGER_DIGITS_MAX).then(|| crate::protocol::number(value));
    match integer.flatten() {
        Some(number) if i8::try_from(number).is_ok() => {
            out.extend([INT8, (number as i8).cast_unsigned()]);
        }
        Some(number) if i16::try_from(number).is_ok() => {
            out.push(INT16);
            out.extend((number as i16).to_le_bytes());
        }
        Some(number) if i32::try_from(number).is_ok() => {
            out.push(INT32);
            out.extend((number as i32).to_le_bytes());
        }
        _ => {
            write_length(value.len(), &mut out);
            out.extend_from_slice(value);
        }
    }
    out.extend(VERSION.to_le_bytes());
    let sum = crc64(&out);
    out.extend(sum.to_le_bytes());
    out
}

/// Writes a length: in 6 bits, 14 bits or 32 bits, after 2 bits or a byte that say which.
fn write_length(len: usize, out: &mut Vec<u8>) {
    match len {
        0..64 => out.push(len as u8),
        64..16_384 => out.extend([0x40 | (len >> 8) as u8, len as u8]),
        _ => {
            out.push(0x80);
            out.extend((len as u32).to_be_bytes());
        }
    }
}

/// Returns the value in what `DUMP` has returned; `None` if it is something else than a string.
///
/// # Errors
/// The reply: the checksum is wrong.
fn load(dump: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let wrong = "ERR DUMP payload version or checksum are wrong";
    let (payload, sum) = dump.split_last_chunk().ok_or(wrong)?;
    let end = dump.len().checked_sub(FOOTER_BYTES).ok_or(wrong)?;
    if crc64(payload) != u64::from_le_bytes(*sum) {
        return Err(wrong.into());
    }
    Ok(match &payload[..end] {
        [STRING, string @ ..] => load_string(string),
        _ => None,
    })
}

fn load_string(bytes: &[u8]) -> Option<Vec<u8>> {
    let integer = |number: i32| Some(number.to_string().into_bytes());
    match *bytes {
        [INT8, number] => integer(number.cast_signed().into()),
        [INT16, a, b] => integer(i16::from_le_bytes([a, b]).into()),
        [INT32, a, b, c, d] => integer(i32::from_le_bytes([a, b, c, d])),
        [COMPRESSED, ref rest @ ..] => {
            let (compressed, rest) = length(rest)?;
            let (len, rest) = length(rest)?;
            let is_whole = rest.len() == compressed && len <= VALUE_BYTES_MAX;
            if is_whole { decompress(rest, len) } else { None }
        }
        _ => {
            let (len, rest) = length(bytes)?;
            (rest.len() == len).then(|| rest.to_vec())
        }
    }
}

/// Takes a length off the front.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match *bytes {
        [first @ 0..=0x3f, ref rest @ ..] => Some((first.into(), rest)),
        [first @ 0x40..=0x7f, second, ref rest @ ..] => {
            Some((usize::from(first & 0x3f) << 8 | usize::from(second), rest))
        }
        [0x80, a, b, c, d, ref rest @ ..] => {
            Some((u32::from_be_bytes([a, b, c, d]) as usize, rest))
        }
        [0x81, ref rest @ ..] => {
            let (len, rest) = rest.split_first_chunk()?;
            Some((usize::try_from(u64::from_be_bytes(*len)).ok()?, rest))
        }
        _ => None,
    }
}

/// Returns what was compressed with LZF: pieces of up to 32 bytes as they are, and references to bytes before.
fn decompress(mut bytes: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    while let [control, rest @ ..] = bytes {
        let control = usize::from(*control);
        if control < 32 {
            let (piece, rest) = rest.split_at_checked(control + 1)?;
            out.extend_from_slice(piece);
            bytes = rest;
        } else {
            let (size, rest) = match (control >> 5, rest) {
                (7, [more, rest @ ..]) => (7 + usize::from(*more), rest),
                (size, rest) => (size, rest),
            };
            let [low, rest @ ..] = rest else { return None };
            let back = (control & 31) << 8 | usize::from(*low);
            let start = out.len().checked_sub(back + 1)?;
            // A reference may reach into the bytes that it makes.
            (0..size + 2).for_each(|i| out.push(out[start + i]));
            bytes = rest;
        }
        if out.len() > len {
            return None;
        }
    }
    (out.len() == len).then_some(out)
}

fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Redis, bytes)
}

/// The options of `RESTORE`.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    replaces: bool,
    is_absolute: bool,
}

impl Options {
    fn parse(arguments: &Arguments<'_>) -> Result<Options, String> {
        let mut options = Options::default();
        let mut i = 4;
        while i < arguments.len() {
            let number = |range: std::ops::RangeInclusive<i64>, error: &str| {
                let number = crate::protocol::number(arguments.at(i + 1)).ok_or(NOT_AN_INTEGER)?;
                if range.contains(&number) { Ok(()) } else { Err(error.to_owned()) }
            };
            let has_next = i + 1 < arguments.len();
            if arguments.is(i, "replace") {
                options.replaces = true;
            } else if arguments.is(i, "absttl") {
                options.is_absolute = true;
            } else if arguments.is(i, "idletime") && has_next {
                number(0..=i64::MAX, "ERR Invalid IDLETIME value, must be >= 0")?;
                i += 1;
            } else if arguments.is(i, "freq") && has_next {
                number(0..=255, "ERR Invalid FREQ value, must be >= 0 and <= 255")?;
                i += 1;
            } else {
                return Err(SYNTAX_ERROR.into());
            }
            i += 1;
        }
        Ok(options)
    }
}

fn restore(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let key = call.arguments.at(1);
    let options = Options::parse(&call.arguments)?;
    if call.strings.has(key)? && !options.replaces {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let start = if options.is_absolute { 0 } else { call.strings.now_ms() };
    let expires_at = expiry(call.arguments.integer(2)?, start)?;
    let value = load(call.arguments.at(3))?.ok_or("ERR Bad data format")?;
    call.strings.put(key, value, expires_at)?;
    call.ok()
}

/// Returns when a value expires that has a time to live from `start` on, in milliseconds: never if that is 0.
///
/// # Errors
/// The reply: the time is negative, or too far.
fn expiry(ttl: i64, start: u64) -> Result<Option<u64>, String> {
    let wrong = "ERR Invalid TTL value, must be >= 0";
    let ttl = u64::try_from(ttl).map_err(|_| wrong)?;
    let at = ttl.checked_add(start).filter(|at| i64::try_from(*at).is_ok()).ok_or(wrong)?;
    Ok((ttl > 0).then_some(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(value: &[u8], size: usize) {
        let dumped = dump(value);
        assert_eq!(dumped.len(), 1 + size + FOOTER_BYTES);
        assert_eq!(load(&dumped).unwrap().as_deref(), Some(value));
        for bit in 0..dumped.len() * 8 {
            let mut bad = dumped.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(load(&bad).is_err(), "bit {bit}");
        }
        (0..dumped.len()).for_each(|cut| assert!(load(&dumped[..cut]).is_err()));
    }

    #[test]
    fn values_come_back_and_damaged_ones_do_not() {
        for (value, size) in [("", 1), ("a", 2), ("-7", 2), ("300", 3), ("70000", 5), ("007", 4)] {
            check(value.as_bytes(), size);
        }
        check(b"3000000000", 11);
        check(&[b'x'; 64], 66);
        assert_eq!(load(&dump(&[7; 20_000])).unwrap(), Some(vec![7; 20_000]));
    }

    #[test]
    fn times_to_live_are_in_the_range_of_integers() {
        assert_eq!(expiry(0, 5), Ok(None));
        assert_eq!(expiry(7, 5), Ok(Some(12)));
        assert!(expiry(-1, 5).is_err() && expiry(i64::MAX, 1).is_err());
        assert_eq!(expiry(i64::MAX, 0), Ok(Some(i64::MAX as u64)));
    }

    /// The check value of this checksum, for the digits from 1 to 9.
    #[test]
    fn the_checksum_is_that_of_redis() {
        assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn compressed_values_are_read() {
        let repeated = [0, b'a', 0xe0, 10, 0];
        assert_eq!(decompress(&repeated, 20), Some(vec![b'a'; 20]));
        for wrong in [&[0_u8][..], &[0xe0], &[0x20, 0], &[0, b'a', 0x20, 1], &[0, b'a', 0xe0, 10]] {
            assert_eq!(decompress(wrong, 20), None, "{wrong:?}");
        }
        let string = [&[COMPRESSED, 5, 20][..], &repeated].concat();
        assert_eq!(load_string(&string), Some(vec![b'a'; 20]));
        assert_eq!(load_string(&[COMPRESSED, 5, 21, 0, b'a', 0xe0, 10, 0]), None);
    }
}
