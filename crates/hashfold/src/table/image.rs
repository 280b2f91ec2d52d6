//! An index as its file holds it: fields, and sections in one body.

use crate::{
    codec::Decoder,
    error::{Error, Result},
    io::{ALIGNMENT, Buffer},
};
use std::ops::Range;

/// Alignment of sections, in bytes: a cache line.
const SECTION_ALIGNMENT: usize = 64;

/// An index that is being assembled.
#[derive(Debug, Default)]
pub(crate) struct Image {
    fields: Vec<u8>,
    sections: Vec<Vec<u8>>,
}

impl Image {
    /// Appends a number to the fields.
    pub(crate) fn field(&mut self, value: u64) {
        self.fields.extend(value.to_le_bytes());
    }

    /// Appends a section.
    pub(crate) fn section(&mut self, bytes: Vec<u8>) {
        self.sections.push(bytes);
    }

    /// Returns the fields, which end with a table of the sections, and the body of the index file:
    /// the aligned sections, and zeros up to a multiple of [`ALIGNMENT`].
    pub(crate) fn into_parts(self) -> (Vec<u8>, Vec<Vec<u8>>) {
        let mut fields = self.fields;
        let mut start = 0;
        let mut parts = Vec::new();
        let count = self.sections.len();
        for section in self.sections {
            fields.extend((start as u64).to_le_bytes());
            fields.extend((section.len() as u64).to_le_bytes());
            let padding = section.len().next_multiple_of(SECTION_ALIGNMENT) - section.len();
            start += section.len() + padding;
            parts.push(section);
            parts.push(vec![0; padding]);
        }
        parts.push(vec![0; start.next_multiple_of(ALIGNMENT) - start]);
        fields.extend((count as u64).to_le_bytes());
        (fields, parts)
    }
}

/// The bytes of an index that has been read or mapped.
pub(crate) trait IndexBytes: Send + Sync + std::fmt::Debug {
    /// Returns all bytes.
    fn bytes(&self) -> &[u8];

    /// Whether bytes are known to be lost, as [`BlockFile::is_lost`](crate::io::BlockFile) says.
    #[inline]
    fn is_lost(&self) -> bool {
        false
    }

    /// Checks the bytes after they were used, as [`BlockFile::check_map`](crate::io::BlockFile) does.
    #[inline]
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl IndexBytes for Buffer {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// An iterator over the sections of an index.
#[derive(Debug)]
pub(crate) struct Sections<'a> {
    bytes: &'a [u8],
    rest: std::vec::IntoIter<Range<usize>>,
}

impl<'a> Sections<'a> {
    /// Splits the fields of an index into the fields of its parts and the table of sections.
    /// Sections must lie inside `bytes`.
    pub(crate) fn split<'f>(
        fields: &'f [u8],
        bytes: &'a [u8],
    ) -> Result<(Decoder<'f>, Sections<'a>)> {
        let (table, count) = fields.split_at(fields.len().saturating_sub(8));
        let count = Decoder::new(count).u64()?;
        let table_size = count.checked_mul(16).and_then(|size| usize::try_from(size).ok());
        let Some(start) = table_size.and_then(|size| table.len().checked_sub(size)) else {
            let expected = format!("at most {}", table.len() / 16);
            return Err(Error::field("number of sections", expected, count));
        };
        let (parts, table) = table.split_at(start);
        let mut table = Decoder::new(table);
        let mut ranges = Vec::new();
        while !table.rest().is_empty() {
            let (start, len) = (table.u64()?, table.u64()?);
            let end = start.checked_add(len).filter(|&end| end <= bytes.len() as u64);
            let Some(end) = end else {
                let expected = format!("inside {} bytes", bytes.len());
                return Err(Error::field("section", expected, format!("{len} bytes at {start}")));
            };
            ranges.push(start as usize..end as usize);
        }
        Ok((Decoder::new(parts), Sections { bytes, rest: ranges.into_iter() }))
    }

    /// Returns the whole body; sections are ranges of it.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the next section.
    pub(crate) fn next_section(&mut self) -> Result<Range<usize>> {
        self.rest.next().ok_or_else(|| Error::field("number of sections", "more", "too few"))
    }

    /// Returns the next section, which must have this size, in bytes.
    pub(crate) fn next_of_size(&mut self, what: &'static str, size: u64) -> Result<Range<usize>> {
        let section = self.next_section()?;
        if section.len() as u64 == size {
            return Ok(section);
        }
        Err(Error::field(what, format!("{size} bytes"), format!("{} bytes", section.len())))
    }
}
