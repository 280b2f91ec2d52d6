//! The frame of every file: a header block in front, a footer at the end.
//!
//! `docs/formats/frame.md` has the same tables. The size of a framed file is a multiple of
//! [`ALIGNMENT`]. Its first [`ALIGNMENT`] bytes are the header, with zeros after the first 64.
//!
//! Header:
//!
//! | offset | size | field    |                                                                |
//! |-------:|-----:|----------|----------------------------------------------------------------|
//! |      0 |    8 | magic    | `HASHFOLD`                                                     |
//! |      8 |    2 | kind     | 1 manifest, 2 table data, 3 table index, 4 store version,      |
//! |        |      |          | 5 current version, 6 block tree, 7 delta, 8 quotient filter,   |
//! |        |      |          | 9 filter run, 11 write-ahead log, 12 map data, 13 map catalog, |
//! |        |      |          | 14 map device                                                  |
//! |     10 |    2 | version  | format version of that kind                                    |
//! |     12 |    4 | zero     |                                                                |
//! |     16 |    8 | seed     | that the keys of the data set are hashed with                  |
//! |     24 |    8 | id       | of the data that the file holds or describes                   |
//! |     32 |   28 | zeros    |                                                                |
//! |     60 |    4 | checksum | CRC-32C of bytes 0 to 59                                       |
//!
//! The footer is zeros, the fields of the file's kind, and this tail at the very end. The zeros pad
//! the footer to a multiple of [`ALIGNMENT`]:
//!
//! | offset | size | field       |                                                             |
//! |-------:|-----:|-------------|-------------------------------------------------------------|
//! |      0 |    4 | fields_size | of the fields just before the tail, in bytes                |
//! |      4 |    4 | body_sum    | CRC-32C of the bytes between header and footer, or 0        |
//! |      8 |    8 | file_size   | in bytes                                                    |
//! |     16 |    4 | checksum    | CRC-32C of the fields and of bytes 0 to 15                  |
//! |     20 |    4 | magic       | `DONE`                                                      |

use super::{ALIGNMENT, BlockFile, Buffer};
use crate::{
    checksum::{crc32c, crc32c_append},
    codec::Decoder,
    error::{Error, ErrorKind, Result, check_same, check_sum},
    key::Seed,
};
use std::ops::RangeInclusive;

/// The first bytes of every file.
pub const MAGIC: [u8; 8] = *b"HASHFOLD";
const DONE: [u8; 4] = *b"DONE";
const HEADER_SIZE: usize = 64;
const HEADER_SUM_OFFSET: usize = 60;
const TAIL_SIZE: usize = 24;
const TAIL_SUM_OFFSET: usize = 16;
const _: () = assert!(HEADER_SUM_OFFSET + size_of::<u32>() == HEADER_SIZE);
const _: () = assert!(TAIL_SUM_OFFSET + size_of::<u32>() + DONE.len() == TAIL_SIZE);

/// Maximum size of a footer's fields, in bytes.
pub const FIELDS_SIZE_MAX: usize = 1 << 24;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// The manifest of a data set, which names the current files.
    Manifest = 1,
    /// The entries of a table.
    TableData = 2,
    /// The index of a table.
    TableIndex = 3,
    /// The description of a version of a store.
    Version = 4,
    /// The pointer of a store, which names the current version.
    Pointer = 5,
    /// The hashes of the pieces of a table's files.
    Tree = 6,
    /// The changes between two versions of a store.
    Delta = 7,
    /// A quotient filter.
    Quotient = 8,
    /// A run of a cascade filter: fingerprints.
    FilterRun = 9,
    /// A segment of a write-ahead log.
    Wal = 11,
    /// The blocks of a map.
    MapData = 12,
    /// The groups of a map, and where their blocks are.
    MapCatalog = 13,
    /// The place of a device among those of a map.
    MapDevice = 14,
}

impl FileKind {
    const ALL: [FileKind; 13] = [
        FileKind::Manifest,
        FileKind::TableData,
        FileKind::TableIndex,
        FileKind::Version,
        FileKind::Pointer,
        FileKind::Tree,
        FileKind::Delta,
        FileKind::Quotient,
        FileKind::FilterRun,
        FileKind::Wal,
        FileKind::MapData,
        FileKind::MapCatalog,
        FileKind::MapDevice,
    ];

    fn number(self) -> u16 {
        self as u16
    }

    /// Returns the kind as text, for messages.
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Manifest => "manifest",
            FileKind::TableData => "table data",
            FileKind::TableIndex => "table index",
            FileKind::Version => "store version",
            FileKind::Pointer => "current version",
            FileKind::Tree => "block tree",
            FileKind::Delta => "delta",
            FileKind::FilterRun => "filter run",
            FileKind::Quotient => "quotient filter",
            FileKind::Wal => "write-ahead log",
            FileKind::MapData => "map data",
            FileKind::MapCatalog => "map catalog",
            FileKind::MapDevice => "map device",
        }
    }

    /// Returns the format versions that this library reads. It writes the last one; of manifests, the first
    /// that has all fields.
    pub fn versions(self) -> RangeInclusive<u16> {
        match self {
            FileKind::Manifest | FileKind::TableData | FileKind::MapCatalog => 1..=2,
            _ => 1..=1,
        }
    }
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the file.
    pub kind: FileKind,
    /// Format version of that kind.
    pub version: u16,
    /// Seed that the keys of the data set are hashed with.
    pub seed: Seed,
    /// Id of the data. Files with the same id describe the same data.
    pub id: u64,
}

impl Header {
    /// Makes a header of the newest format version.
    pub fn new(kind: FileKind, seed: Seed, id: u64) -> Header {
        Header { kind, version: *kind.versions().end(), seed, id }
    }

    /// Encodes the header block.
    pub fn encode(&self) -> [u8; ALIGNMENT] {
        let mut out = Vec::with_capacity(ALIGNMENT);
        out.extend(MAGIC);
        out.extend(self.kind.number().to_le_bytes());
        out.extend(self.version.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.seed.0.to_le_bytes());
        out.extend(self.id.to_le_bytes());
        out.resize(HEADER_SUM_OFFSET, 0);
        out.extend(crc32c(&out).to_le_bytes());
        out.resize(ALIGNMENT, 0);
        out.try_into().expect("resized to ALIGNMENT")
    }

    /// Decodes the header block of a file that must be of this kind.
    pub fn decode(bytes: &[u8], kind: FileKind) -> Result<Header> {
        let mut fields = Decoder::new(bytes);
        let magic = fields.array::<8>()?;
        if magic != MAGIC {
            return Err(ErrorKind::Magic { expected: MAGIC, got: magic }.into());
        }
        let number = fields.u16()?;
        let version = fields.u16()?;
        fields.u32()?;
        let (seed, id) = (Seed(fields.u64()?), fields.u64()?);
        fields.array::<28>()?;
        check_sum(fields.u32()?, crc32c(&bytes[..HEADER_SUM_OFFSET]))?;
        if number != kind.number() {
            let known = FileKind::ALL.iter().find(|known| known.number() == number);
            let got = known.map_or(format!("kind {number}"), |known| known.name().to_owned());
            return Err(ErrorKind::FileKind { expected: kind.name(), got }.into());
        }
        if !kind.versions().contains(&version) {
            return Err(ErrorKind::Version { expected: kind.versions(), got: version }.into());
        }
        Ok(Header { kind, version, seed, id })
    }

    /// Reads and checks the header of `file`, which must be of this kind.
    pub fn read(file: &dyn BlockFile, kind: FileKind) -> Result<Header> {
        let place = file.place();
        let size = file.size()?;
        if size < ALIGNMENT as u64 {
            let kind = ErrorKind::Truncated { expected: ALIGNMENT as u64, got: size };
            return Err(Error::new(kind).at(place));
        }
        let mut block = Buffer::zeroed(ALIGNMENT);
        file.read_at(0, &mut block)?;
        let header = Header::decode(&block, kind).map_err(|error| error.at(&place.offset(0)))?;
        check_zeros(&block[HEADER_SIZE..])
            .map_err(|error| error.at(&place.offset(HEADER_SIZE as u64)))?;
        Ok(header)
    }

    /// Reads and checks the header of `file`, which must be of this kind and have this seed and id.
    pub fn read_of(file: &dyn BlockFile, kind: FileKind, seed: Seed, id: u64) -> Result<Header> {
        let header = Header::read(file, kind)?;
        check_same("seed", seed.0, header.seed.0)
            .and_then(|()| check_same("file id", id, header.id))
            .map_err(|error| error.at(file.place()))?;
        Ok(header)
    }
}

/// The footer of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The encoded fields of the file's kind.
    pub fields: Vec<u8>,
    /// CRC-32C of the bytes between header and footer; 0 if each block there has its own checksum.
    pub body_sum: u32,
}

impl Footer {
    /// Encodes the footer, with its padding, of a file whose header and body take `size_before`
    /// bytes.
    ///
    /// # Panics
    /// If `size_before` is not aligned or the fields are too long.
    pub fn encode(&self, size_before: u64) -> Vec<u8> {
        assert!(size_before.is_multiple_of(ALIGNMENT as u64));
        assert!(self.fields.len() <= FIELDS_SIZE_MAX);
        let size = (self.fields.len() + TAIL_SIZE).next_multiple_of(ALIGNMENT);
        let fields_start = size - TAIL_SIZE - self.fields.len();
        let mut out = vec![0; fields_start];
        out.extend(&self.fields);
        out.extend((self.fields.len() as u32).to_le_bytes());
        out.extend(self.body_sum.to_le_bytes());
        out.extend((size_before + size as u64).to_le_bytes());
        out.extend(crc32c(&out[fields_start..]).to_le_bytes());
        out.extend(DONE);
        out
    }

    /// Reads and checks the footer of `file`. Returns the footer and its offset.
    pub fn read(file: &dyn BlockFile) -> Result<(Footer, u64)> {
        let size = file.size()?;
        let header_and_tail = 2 * ALIGNMENT as u64;
        if size < header_and_tail || !size.is_multiple_of(ALIGNMENT as u64) {
            let expected = size.next_multiple_of(ALIGNMENT as u64).max(header_and_tail);
            let kind = ErrorKind::Truncated { expected, got: size };
            return Err(Error::new(kind).at(file.place()));
        }
        let mut block = Buffer::zeroed(ALIGNMENT);
        file.read_at(size - ALIGNMENT as u64, &mut block)?;
        let tail_place = file.place().offset(size - TAIL_SIZE as u64);
        let tail = FooterTail::decode(&block[ALIGNMENT - TAIL_SIZE..], size)
            .map_err(|error| error.at(&tail_place))?;
        let footer_size = (tail.fields_size + TAIL_SIZE).next_multiple_of(ALIGNMENT);
        let Some(start) = size.checked_sub((ALIGNMENT + footer_size) as u64) else {
            let error = Error::field("footer size", format!("at most {size}"), footer_size);
            return Err(error.at(&tail_place));
        };
        let start = start + ALIGNMENT as u64;
        if footer_size > ALIGNMENT {
            block = Buffer::zeroed(footer_size);
            file.read_at(start, &mut block)?;
        }
        let fields_end = footer_size - TAIL_SIZE;
        let fields = &block[fields_end - tail.fields_size..fields_end];
        let got = crc32c_append(crc32c(fields), &block[fields_end..][..TAIL_SUM_OFFSET]);
        check_sum(tail.checksum, got).map_err(|error| error.at(&tail_place))?;
        check_zeros(&block[..fields_end - tail.fields_size])
            .map_err(|error| error.at(&file.place().offset(start)))?;
        Ok((Footer { fields: fields.to_vec(), body_sum: tail.body_sum }, start))
    }
}

/// Returns the bytes of a file without a body: its header and the fields of its footer.
pub(crate) fn encode_fields(header: &Header, fields: Vec<u8>) -> Result<Vec<u8>> {
    let (limit, got) = (FIELDS_SIZE_MAX as u64, fields.len() as u64);
    if got > limit {
        return Err(ErrorKind::Limit { what: "size of a footer's fields", limit, got }.into());
    }
    let header = header.encode();
    let footer = Footer { fields, body_sum: 0 }.encode(header.len() as u64);
    Ok([header.as_slice(), &footer].concat())
}

/// Reads a file without a body, and decodes the fields of its footer.
pub(crate) fn read_fields<T>(
    file: &dyn BlockFile,
    kind: FileKind,
    decode: impl FnOnce(&Header, &[u8]) -> Result<T>,
) -> Result<T> {
    let header = Header::read(file, kind)?;
    let (footer, start) = Footer::read(file)?;
    decode(&header, &footer.fields).map_err(|error| error.at(&file.place().offset(start)))
}

/// Refuses padding that is not zeros, because no checksum covers it.
pub(crate) fn check_zeros(padding: &[u8]) -> Result<()> {
    match padding.iter().find(|&&byte| byte != 0) {
        None => Ok(()),
        Some(byte) => Err(Error::field("padding", "zeros", byte)),
    }
}

struct FooterTail {
    fields_size: usize,
    body_sum: u32,
    checksum: u32,
}

impl FooterTail {
    fn decode(bytes: &[u8], size: u64) -> Result<FooterTail> {
        let mut fields = Decoder::new(bytes);
        let fields_size = fields.u32()? as usize;
        let body_sum = fields.u32()?;
        let file_size = fields.u64()?;
        let checksum = fields.u32()?;
        let done = fields.array::<4>()?;
        if done != DONE {
            let got = format!("\"{}\"", done.escape_ascii());
            return Err(Error::field("end of the file", "\"DONE\"", got));
        }
        if file_size != size {
            return Err(ErrorKind::Truncated { expected: file_size, got: size }.into());
        }
        if fields_size > FIELDS_SIZE_MAX {
            let expected = format!("at most {FIELDS_SIZE_MAX}");
            return Err(Error::field("footer size", expected, fields_size));
        }
        Ok(FooterTail { fields_size, body_sum, checksum })
    }
}
