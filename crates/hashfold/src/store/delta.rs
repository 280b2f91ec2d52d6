//! Deltas: tables with deletions, and delta files.
//!
//! A delta layer is a table whose stored values begin with a byte: 1 and the value, or 0 alone for a
//! deletion. A delta file holds the same entries for another copy of the store, to be read once from
//! front to back. It is a frame; its header has the store's seed and the id of the version that the
//! delta leads to. The body is a sequence of sections, padded with zeros; the fields of the footer
//! name the version that the delta leads from (`docs/formats/store.md` has the same tables):
//!
//! | section       | size |                                                                  |
//! |---------------|-----:|------------------------------------------------------------------|
//! | size          |    4 | of its entries, in bytes; 0 after the last section               |
//! | checksum      |    4 | CRC-32C of its entries                                           |
//! | entries       |    … | in the order of ranges of slots, then hashes                     |
//!
//! | entry         | size |                                                                  |
//! |---------------|-----:|------------------------------------------------------------------|
//! | key_size      |    … | in bytes                                                         |
//! | value_tag     |    … | 0 for a deletion, else the value's size plus 1                   |
//! | key, value    |    … |                                                                  |
//!
//! | field         | size |                                                                  |
//! |---------------|-----:|------------------------------------------------------------------|
//! | store         |    8 | the store's id                                                   |
//! | parent        |    8 | the id of the version that the delta leads from                  |
//! | entries       |    8 | deletions included                                               |
//! | deletions     |    8 |                                                                  |
//! | attributes    |    … | of the version that it leads to: count, then each name and value |

use super::version::Attributes;
use crate::{
    checksum::crc32c,
    codec::{Decoder, put_attributes, put_varint},
    env::Env,
    error::{Error, ErrorKind, Result, check_sum},
    io::{
        ALIGNMENT, Access, BlockFile, Disk, Writer,
        frame::{FileKind, Footer, Header, check_zeros},
    },
    key::Seed,
    run::{Entry, KEY_BYTES_MAX, Run, Summary, VALUE_BYTES_MAX},
    work::Executor,
};
use std::{path::Path, sync::Arc};

const DELETED: u8 = 0;
const PUT: u8 = 1;

/// Returns the value in a delta's stored value; `None` if the key is deleted.
pub(super) fn untag(tagged: &[u8]) -> Result<Option<&[u8]>> {
    match tagged {
        [DELETED] => Ok(None),
        [PUT, value @ ..] => Ok(Some(value)),
        _ => {
            let got = format!("{:02x?} of {}", tagged.first(), tagged.len());
            Err(Error::field("first byte of a delta's value", "0 alone, or 1", got))
        }
    }
}

/// A run that turns the entries of a delta into the entries of its table.
pub(super) struct Tagged<R> {
    run: R,
    value: Vec<u8>,
}

impl<R: Run> Tagged<R> {
    pub(super) fn new(run: R) -> Tagged<R> {
        Tagged { run, value: Vec::new() }
    }
}

impl<R: Run> Run for Tagged<R> {
    fn seed(&self) -> Seed {
        self.run.seed()
    }

    /// Gives no bounds on the sizes of values, because there may be deletions.
    fn summary(&self) -> Summary {
        let mut summary = self.run.summary();
        summary.values.min = 1;
        summary.values.max = summary.values.max.saturating_add(1);
        summary.bytes_max += summary.entries_max;
        summary
    }

    fn advance(&mut self) -> Result<bool> {
        if !self.run.advance()? {
            return Ok(false);
        }
        self.value.clear();
        match self.run.entry().value {
            None => self.value.push(DELETED),
            Some(value) => {
                if value.len() == VALUE_BYTES_MAX {
                    let (limit, got) = (VALUE_BYTES_MAX as u64 - 1, value.len() as u64);
                    return Err(
                        ErrorKind::Limit { what: "value size in a delta", limit, got }.into()
                    );
                }
                self.value.push(PUT);
                self.value.extend_from_slice(value);
            }
        }
        Ok(true)
    }

    fn entry(&self) -> Entry<'_> {
        Entry { value: Some(&self.value), ..self.run.entry() }
    }
}

/// Converts the entries of a delta's table to the entries of the delta. The run has the delta's
/// summary.
pub(super) struct Untagged<R>(pub(super) R);

impl<R: Run> Run for Untagged<R> {
    fn seed(&self) -> Seed {
        self.0.seed()
    }

    fn summary(&self) -> Summary {
        self.0.summary()
    }

    fn advance(&mut self) -> Result<bool> {
        Ok(match self.0.advance()? {
            true => {
                untag(self.0.entry().value.unwrap_or_default())?;
                true
            }
            false => false,
        })
    }

    fn entry(&self) -> Entry<'_> {
        let entry = self.0.entry();
        let value = untag(entry.value.unwrap_or_default()).expect("it was untagged before");
        Entry { value, ..entry }
    }
}

/// The description of a delta file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeltaInfo {
    /// Seed that all keys of the store are hashed with.
    pub seed: Seed,
    /// Id of the store.
    pub store: u64,
    /// Id of the version that the delta leads from.
    pub parent: u64,
    /// Id of the version that the delta leads to.
    pub target: u64,
    /// Number of entries, deletions included.
    pub entries: u64,
    /// Number of deletions: keys that the new version does not have.
    pub deletions: u64,
    /// Attributes of the version that the delta leads to, such as the schema.
    pub attributes: Attributes,
}

/// Size of the head of a section, its size and checksum, in bytes.
const SECTION_HEAD: usize = 8;
/// Size of a section, in bytes, unless a single entry is larger.
const SECTION_SIZE: usize = 1 << 16;
/// The largest section, in bytes: one entry of the maximum size.
const SECTION_SIZE_MAX: usize = SECTION_SIZE + KEY_BYTES_MAX + VALUE_BYTES_MAX + 16;

/// The writer of a delta file.
pub(super) struct DeltaWriter {
    file: Arc<dyn BlockFile>,
    writer: Writer,
    section: Vec<u8>,
    info: DeltaInfo,
}

impl DeltaWriter {
    /// Creates a delta file. The counts of `info` are 0.
    pub(super) fn create(
        disk: &dyn Disk,
        path: &Path,
        info: DeltaInfo,
        executor: Arc<dyn Executor>,
    ) -> Result<DeltaWriter> {
        let file = disk.create(path, Access::Cached)?;
        let mut writer = Writer::new(file.clone(), executor);
        writer.append(&Header::new(FileKind::Delta, info.seed, info.target).encode())?;
        Ok(DeltaWriter { file, writer, section: Vec::new(), info })
    }

    /// Appends a put, or the deletion of a key.
    pub(super) fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        put_varint(&mut self.section, key.len() as u64);
        put_varint(&mut self.section, value.map_or(0, |value| value.len() as u64 + 1));
        self.section.extend_from_slice(key);
        self.section.extend_from_slice(value.unwrap_or_default());
        self.info.entries += 1;
        self.info.deletions += u64::from(value.is_none());
        if self.section.len() >= SECTION_SIZE { self.end_section() } else { Ok(()) }
    }

    fn end_section(&mut self) -> Result<()> {
        self.writer.append(&(self.section.len() as u32).to_le_bytes())?;
        self.writer.append(&crc32c(&self.section).to_le_bytes())?;
        self.writer.append(&self.section)?;
        self.section.clear();
        Ok(())
    }

    /// Completes and syncs the file.
    pub(super) fn finish(mut self) -> Result<DeltaInfo> {
        if !self.section.is_empty() {
            self.end_section()?;
        }
        self.end_section()?;
        let end = self.writer.position();
        let padding = end.next_multiple_of(ALIGNMENT as u64) - end;
        self.writer.append(&vec![0; padding as usize])?;
        let DeltaInfo { store, parent, entries, deletions, .. } = self.info;
        let mut fields = [store, parent, entries, deletions].map(u64::to_le_bytes).concat();
        put_attributes(&mut fields, &self.info.attributes);
        let footer = Footer { fields, body_sum: 0 }.encode(self.writer.position());
        self.writer.append(&footer)?;
        self.writer.finish()?;
        self.file.sync()?;
        Ok(self.info)
    }
}

fn decode_info(header: &Header, fields: &[u8]) -> Result<DeltaInfo> {
    let mut fields = Decoder::new(fields);
    let info = DeltaInfo {
        seed: header.seed,
        store: fields.u64()?,
        parent: fields.u64()?,
        target: header.id,
        entries: fields.u64()?,
        deletions: fields.u64()?,
        attributes: fields.attributes()?,
    };
    fields.end()?;
    Ok(info)
}

/// A callback that takes a key, and its value or `None` if the key is deleted.
pub type VisitChange<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<()> + 'a;

/// A reader of the entries of a delta file, in the order of the file.
#[derive(Debug)]
pub struct DeltaReader {
    file: Arc<dyn BlockFile>,
    info: DeltaInfo,
    /// Offset of the next section in the file.
    next: u64,
    footer_start: u64,
    section: Vec<u8>,
    /// Offset of the next entry in the section.
    taken: usize,
    entries: u64,
    deletions: u64,
}

impl DeltaReader {
    /// Opens a delta file. Checks the header and the footer.
    pub fn open(env: &Env, path: &Path) -> Result<DeltaReader> {
        let disk = env.disk.as_ref();
        let file = disk.open(path, Access::Cached)?;
        let header = Header::read(file.as_ref(), FileKind::Delta)?;
        let (footer, footer_start) = Footer::read(file.as_ref())?;
        let info = decode_info(&header, &footer.fields).map_err(|error| error.at(file.place()))?;
        Ok(DeltaReader {
            next: ALIGNMENT as u64,
            footer_start,
            info,
            section: Vec::new(),
            taken: 0,
            entries: 0,
            deletions: 0,
            file,
        })
    }

    /// Returns the description of the delta file.
    pub fn info(&self) -> &DeltaInfo {
        &self.info
    }

    /// Calls `visit` with the next key, and its value or `None` if the key is deleted. Returns
    /// `false` at the end.
    pub fn next(&mut self, visit: &mut VisitChange<'_>) -> Result<bool> {
        while self.taken == self.section.len() {
            if !self.read_section()? {
                return Ok(false);
            }
        }
        // The last section that was read ends where the next one starts.
        let place = self.file.place().offset(self.next - self.section.len() as u64);
        let mut fields = Decoder::new(&self.section[self.taken..]);
        let mut take = || {
            let (key_size, value_tag) = (fields.varint()?, fields.varint()?);
            let key = fields.bytes(key_size)?;
            let value = match value_tag {
                0 => None,
                size => Some(fields.bytes(size - 1)?),
            };
            Ok((key, value))
        };
        let (key, value) = take().map_err(|error: Error| error.at(&place))?;
        visit(key, value)?;
        self.deletions += u64::from(value.is_none());
        self.taken = self.section.len() - fields.rest().len();
        self.entries += 1;
        Ok(true)
    }

    /// Checks the end of the file: the last section has this checksum, nothing follows it, and all
    /// entries were read.
    fn check_end(&self, expected: u32) -> Result<()> {
        check_sum(expected, crc32c(&[]))?;
        for (what, expected, got) in [
            ("number of entries", self.info.entries, self.entries),
            ("deletions", self.info.deletions, self.deletions),
        ] {
            if expected != got {
                return Err(Error::field(what, expected.to_string(), got));
            }
        }
        let start = self.next + SECTION_HEAD as u64;
        let room = self.footer_start - start;
        if room >= ALIGNMENT as u64 {
            return Err(Error::field("bytes after the last section", "less than a block", room));
        }
        let mut padding = vec![0; room as usize];
        self.file.read_at(start, &mut padding)?;
        check_zeros(&padding)
    }

    /// Steps to the next section; returns `false` after the last one.
    fn read_section(&mut self) -> Result<bool> {
        let place = self.file.place().offset(self.next);
        let mut head = [0; SECTION_HEAD];
        if self.next + head.len() as u64 > self.footer_start {
            let (expected, got) = (head.len() as u64, self.footer_start - self.next);
            return Err(Error::new(ErrorKind::Truncated { expected, got }).at(&place));
        }
        self.file.read_at(self.next, &mut head)?;
        let (size, sum) = head.split_at(4);
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        let (size, expected) = (number(size) as usize, number(sum));
        if size == 0 {
            self.check_end(expected).map_err(|error| error.at(&place))?;
            return Ok(false);
        }
        let room = self.footer_start - self.next - head.len() as u64;
        if size > SECTION_SIZE_MAX || size as u64 > room {
            let expected = format!("at most {}", room.min(SECTION_SIZE_MAX as u64));
            return Err(Error::field("size of a section", expected, size).at(&place));
        }
        self.section.resize(size, 0);
        self.taken = 0;
        self.file.read_at(self.next + head.len() as u64, &mut self.section)?;
        check_sum(expected, crc32c(&self.section)).map_err(|error| error.at(&place))?;
        self.next += (head.len() + size) as u64;
        Ok(true)
    }
}
