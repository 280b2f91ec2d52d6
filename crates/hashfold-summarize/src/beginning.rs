//! The beginning of a file, which tells it from another file that has its name, such as after a rotation.
//!
//! Numbers of inodes are not enough: they are used again, and a file that is copied and cut keeps its own.

use hashfold::{checksum::crc32c, pipeline::Beginning};
use std::io::{self, Read};

/// Number of bytes of a file that are compared, at most.
pub(crate) const BYTES: usize = 4 << 10;

/// The first bytes of a file that were read.
#[derive(Debug, Default)]
pub(crate) struct FirstBytes {
    bytes: Vec<u8>,
    /// The last beginning that was summed.
    summed: Beginning,
}

impl FirstBytes {
    /// Reads the first bytes of a file up to an offset. Returns `None` if its beginning is another one.
    pub(crate) fn read(
        file: &mut dyn Read,
        offset: u64,
        expected: Beginning,
    ) -> io::Result<Option<FirstBytes>> {
        let mut first = FirstBytes::default();
        let wanted = offset.min(BYTES as u64);
        file.take(wanted).read_to_end(&mut first.bytes)?;
        let is_same = expected.bytes == 0
            || expected.bytes <= first.bytes.len() as u64
                && first.until(expected.bytes) == expected;
        Ok((is_same && first.bytes.len() as u64 == wanted).then_some(first))
    }

    /// Adds bytes that were read behind all before.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let missing = BYTES.saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..missing.min(bytes.len())]);
    }

    /// Returns the beginning of the file up to an offset to which it was read.
    pub(crate) fn until(&mut self, offset: u64) -> Beginning {
        let len = offset.min(self.bytes.len() as u64);
        if self.summed.bytes != len {
            let checksum = crc32c(&self.bytes[..len as usize]).into();
            self.summed = Beginning { bytes: len, checksum };
        }
        self.summed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_first_bytes() {
        let text: Vec<u8> = (0..10_000_u32).map(|i| ((i * i) >> 7) as u8).collect();
        for offset in [0, 1, 100, 4095, 4096, 4097, 9000] {
            let mut first = FirstBytes::default();
            text[..offset].chunks(7).for_each(|part| first.add(part));
            let (offset, beginning) = (offset as u64, first.until(offset as u64));
            assert_eq!(beginning.bytes, offset.min(4096));
            let read = |text: &[u8]| FirstBytes::read(&mut &text[..], offset, beginning).unwrap();
            assert_eq!(read(&text[..]).unwrap().until(offset), beginning);
            let mut other = text.clone();
            other[0] ^= 1;
            assert_eq!(read(&other[..]).is_some(), offset == 0);
            other.clone_from(&text);
            other[4096] ^= 1;
            assert!(read(&other[..]).is_some(), "only the beginning is compared");
            if offset > 0 {
                let shorter = offset.min(4096) as usize - 1;
                assert!(read(&text[..shorter]).is_none());
                // Of an older version, nothing is known.
                let unknown = Beginning::default();
                assert!(FirstBytes::read(&mut &text[..], offset, unknown).unwrap().is_some());
            }
        }
    }
}
