//! Encoding and decoding of fields: little-endian integers of fixed size, and variable-length
//! integers.
//!
//! A [`Decoder`] never panics, never reads past its end and never allocates by a number that it has
//! just read, whatever the bytes.

use crate::error::{Error, ErrorKind, Result, range_text};
use std::ops::RangeInclusive;

/// The longest encoding of a variable-length integer, in bytes.
pub const VARINT_BYTES_MAX: usize = 10;

/// Appends `value` as a variable-length integer: groups of seven bits, lowest first; the high bit
/// of a byte is set if another byte follows.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the size of `bytes` as a variable-length integer, then `bytes`.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend(bytes);
}

/// Appends the number of `attributes` as a variable-length integer, then the size and the bytes of
/// each name and value.
pub fn put_attributes(out: &mut Vec<u8>, attributes: &[(String, Vec<u8>)]) {
    put_varint(out, attributes.len() as u64);
    for (name, value) in attributes {
        put_bytes(out, name.as_bytes());
        put_bytes(out, value);
    }
}

/// Refuses a decoded number that is outside its range, and returns any other.
pub(crate) fn within(what: &'static str, range: RangeInclusive<u64>, got: u64) -> Result<u64> {
    if range.contains(&got) {
        return Ok(got);
    }
    Err(Error::field(what, range_text(&range), got))
}

/// Writes `value` to the start of `out` as [`put_varint`] does, and returns the number of bytes
/// written.
///
/// # Panics
/// If `out` is shorter than [`varint_len`] of `value`.
#[inline]
pub fn write_varint(out: &mut [u8], mut value: u64) -> usize {
    let mut len = 0;
    while value >= 0x80 {
        out[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    out[len] = value as u8;
    len + 1
}

/// Returns the size of `value` as a variable-length integer, in bytes: 1 to [`VARINT_BYTES_MAX`].
#[inline]
pub const fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// A reader that takes fields off the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    /// Makes a decoder of all of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder(bytes)
    }

    /// Returns the bytes that have not been taken.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Takes the next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((head, rest)) = self.0.split_first_chunk::<N>() else {
            return Err(truncated(N as u64, self.0.len()));
        };
        self.0 = rest;
        Ok(*head)
    }

    /// Takes the next `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: u64) -> Result<&'a [u8]> {
        match usize::try_from(len).ok().and_then(|len| self.0.split_at_checked(len)) {
            Some((head, rest)) => {
                self.0 = rest;
                Ok(head)
            }
            None => Err(truncated(len, self.0.len())),
        }
    }

    /// Takes bytes that [`put_bytes`] wrote.
    pub fn sized_bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.varint()?;
        self.bytes(len)
    }

    /// Takes UTF-8 text that [`put_bytes`] wrote.
    pub fn text(&mut self) -> Result<String> {
        let text = std::str::from_utf8(self.sized_bytes()?);
        text.map(str::to_owned).map_err(|error| Error::field("text", "UTF-8", error))
    }

    /// Takes the name of a file in a folder. Refuses a name that would lead out of the folder.
    pub fn file_name(&mut self) -> Result<String> {
        let name = self.text()?;
        if name.is_empty() || name.contains('/') || name == ".." {
            return Err(Error::field("file name", "a name without a folder", name));
        }
        Ok(name)
    }

    /// Takes the names and values that [`put_attributes`] wrote.
    pub fn attributes(&mut self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut attributes = Vec::new();
        for _ in 0..self.varint()? {
            attributes.push((self.text()?, self.sized_bytes()?.to_vec()));
        }
        Ok(attributes)
    }

    /// Takes a `u8`.
    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// Takes a little-endian `u16`.
    #[inline]
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Takes a little-endian `u32`.
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Takes a little-endian `u64`.
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Takes a variable-length integer. Refuses an encoding of more than 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        if let [first, rest @ ..] = self.0
            && *first < 0x80
        {
            self.0 = rest;
            return Ok(u64::from(*first));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for i in 0..VARINT_BYTES_MAX {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if i == VARINT_BYTES_MAX - 1 && bits > 1 {
                break;
            }
            value |= bits << (7 * i);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::field("integer", "at most 64 bits", "more"))
    }

    /// Succeeds if all bytes have been taken.
    pub fn end(&self) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(Error::field("rest of the record", "0 bytes", format!("{} bytes", self.0.len())))
    }
}

fn truncated(expected: u64, got: usize) -> Error {
    ErrorKind::Truncated { expected, got: got as u64 }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: u64) {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        assert_eq!(out.len(), varint_len(value));
        let mut array = [0; VARINT_BYTES_MAX];
        assert_eq!(write_varint(&mut array, value), out.len());
        assert_eq!(array[..out.len()], out);
        for cut in 0..out.len() {
            assert!(Decoder::new(&out[..cut]).varint().is_err());
        }
        let mut decoder = Decoder::new(&out);
        assert_eq!(decoder.varint().unwrap(), value);
        decoder.end().unwrap();
    }

    #[test]
    fn a_range_of_one_number_is_that_number_in_messages() {
        let says = |range| within("version", range, 9).unwrap_err().to_string();
        assert!(says(1..=1).starts_with("version is 9, expected 1; "), "{}", says(1..=1));
        assert!(says(1..=2).starts_with("version is 9, expected 1 to 2; "), "{}", says(1..=2));
    }

    #[test]
    fn integers_of_every_width_come_back() {
        for bit in 0..64 {
            check(1 << bit);
            check((1 << bit) - 1);
            check(u64::MAX >> bit);
        }
    }

    #[test]
    fn integers_of_more_than_64_bits_are_refused() {
        let mut bytes = [0xff; VARINT_BYTES_MAX];
        bytes[VARINT_BYTES_MAX - 1] = 0x02;
        assert!(Decoder::new(&bytes).varint().is_err());
        assert!(Decoder::new(&[0xff; 32]).varint().is_err());
    }
}
