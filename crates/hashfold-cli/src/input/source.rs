//! The bytes of an input: a file or standard input, decompressed and counted.

use crate::{
    failure::{Failure, Result},
    units,
};
use flate2::read::MultiGzDecoder;
use std::{
    fs::File,
    io::{self, Cursor, Read},
    ops::RangeInclusive,
    os::fd::AsFd as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Size of a read from a file, in bytes.
const CHUNK_BYTES: usize = 1 << 18;

/// Compression formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Gzip,
    Zstd,
}

/// First bytes of a compressed file: each byte is in the range at its position.
type Magic = [RangeInclusive<u8>];

const GZIP_MAGIC: &Magic = &[0x1f..=0x1f, 0x8b..=0x8b, 8..=8];
const ZSTD_MAGIC: &Magic = &[0x28..=0x28, 0xb5..=0xb5, 0x2f..=0x2f, 0xfd..=0xfd];
/// Start of a zstd frame without data, which decoders skip; `pzstd` starts its files with one.
const ZSTD_SKIPPABLE_MAGIC: &Magic = &[0x50..=0x5f, 0x2a..=0x2a, 0x4d..=0x4d, 0x18..=0x18];

const MAGICS: [(Packing, &Magic); 3] = [
    (Packing::Gzip, GZIP_MAGIC),
    (Packing::Zstd, ZSTD_MAGIC),
    (Packing::Zstd, ZSTD_SKIPPABLE_MAGIC),
];

/// Suffixes of names of compressed files.
const SUFFIXES: [(&str, Packing); 4] = [
    (".gz", Packing::Gzip),
    (".gzip", Packing::Gzip),
    (".zst", Packing::Zstd),
    (".zstd", Packing::Zstd),
];

/// The decompressed bytes of one input.
pub(crate) type Bytes = Box<dyn Read + Send>;

/// Counts the bytes that have been read, before decompression.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<AtomicU64>);

impl Meter {
    /// Bytes read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Counts bytes that were read without a [`Metered`].
    pub(super) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Relaxed);
    }
}

struct Metered<R> {
    inner: R,
    meter: Meter,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        self.meter.add(count as u64);
        Ok(count)
    }
}

/// Opens a file, or standard input for `-`, and decompresses it if it starts like gzip or zstd; no
/// input format starts like that. Refuses a file that is not compressed as its name says.
pub(crate) fn open(path: &str, meter: &Meter) -> Result<Bytes> {
    decompress(path, open_file(path)?, meter)
}

#[cfg(feature = "columnar")]
/// Opens a file for reading at any offset; a compressed file is unpacked into a temporary one.
pub(crate) fn open_seekable(path: &str, meter: &Meter) -> Result<File> {
    use std::io::{Seek as _, Write as _};

    if path != "-" {
        let mut file = open_file(path)?;
        let head = peek(&mut file).map_err(|error| read_failure(path, &error))?;
        if Packing::find(path, &head)?.is_none() {
            file.rewind().map_err(|error| Failure::io(path, "read", &error))?;
            return Ok(file);
        }
    }
    let mut bytes = open(path, meter)?;
    let place = std::env::temp_dir();
    let no_room = |error| Failure::io(place.display(), "write a temporary file", &error);
    let mut file = tempfile::tempfile_in(&place).map_err(no_room)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match bytes.read(&mut chunk).map_err(|error| read_failure(path, &error))? {
            0 => break,
            count => file.write_all(&chunk[..count]).map_err(no_room)?,
        }
    }
    file.rewind().map_err(no_room)?;
    Ok(file)
}

/// Opens a file, or standard input for `-` without the buffer of the standard library.
fn open_file(path: &str) -> Result<File> {
    let failure = |error| Failure::io(path, "open", &error);
    let file = match path {
        "-" => File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failure)?),
        _ => File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Failure::usage(format!("{path}: there is no file of this name"))
            }
            _ => failure(error),
        })?,
    };
    if file.metadata().map_err(failure)?.is_dir() {
        return Err(Failure::usage(format!("{path}: is a folder, expected a file")));
    }
    Ok(file)
}

/// Returns the size of a file on disk; `None` for standard input, pipes and the like.
pub(crate) fn size(path: &str) -> Option<u64> {
    let metadata = Path::new(path).metadata().ok()?;
    (path != "-" && metadata.is_file()).then_some(metadata.len())
}

/// Returns a file name in lower case, without the suffix of a compressed file.
pub(super) fn unpacked_name(path: &str) -> String {
    let mut name = path.to_lowercase();
    let end = SUFFIXES.iter().find(|(end, _)| name.ends_with(end));
    name.truncate(name.len() - end.map_or(0, |(end, _)| end.len()));
    name
}

impl Packing {
    /// Returns the compression of an input with these first bytes (from [`peek`]); `None` if
    /// neither the bytes nor the name show a compression.
    fn find(path: &str, head: &[u8]) -> Result<Option<Packing>> {
        if let Some((packing, _)) = MAGICS.iter().find(|(_, magic)| is_whole(magic, head)) {
            return Ok(Some(*packing));
        }
        let promised = Packing::promised_by(path);
        // Text may start with the first byte of a magic number, which is ASCII, but not with two
        // bytes.
        let is_text = promised.is_none() && (head.len() < 2 || head.is_ascii());
        if !is_text && MAGICS.iter().any(|(_, magic)| is_start(magic, head)) {
            let bytes = units::counted(head.len() as u64, "byte", "bytes");
            let what = format!(
                "has {bytes}, expected compressed data; the file was cut short, copy it again"
            );
            return Err(Failure::input(path, what));
        }
        match promised {
            Some(packing) => Err(Failure::input(
                path,
                format_args!(
                    "starts with \"{}\", expected {} data as the name says; \
                     rename the file if it is not compressed",
                    head.escape_ascii(),
                    packing.name(),
                ),
            )),
            None => Ok(None),
        }
    }

    /// Returns the compression by the file's name.
    fn promised_by(path: &str) -> Option<Packing> {
        let lower = path.to_lowercase();
        SUFFIXES.iter().find(|(end, _)| lower.ends_with(end)).map(|(_, packing)| *packing)
    }

    fn name(self) -> &'static str {
        match self {
            Packing::Gzip => "gzip",
            Packing::Zstd => "zstd",
        }
    }
}

/// Returns whether `head` is a complete magic number.
fn is_whole(magic: &Magic, head: &[u8]) -> bool {
    head.len() >= magic.len() && magic.iter().zip(head).all(|(range, byte)| range.contains(byte))
}

/// Returns whether `head` is the start of a magic number, but not all of it.
fn is_start(magic: &Magic, head: &[u8]) -> bool {
    head.len() < magic.len() && magic.iter().zip(head).all(|(range, byte)| range.contains(byte))
}

/// Reads the first bytes of an input, until they are a magic number or cannot be one.
fn peek(bytes: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    // If a process writes a few bytes to a pipe and waits for an answer, this must not wait for
    // more.
    while MAGICS.iter().any(|(_, magic)| is_start(magic, &head)) {
        let mut byte = [0];
        match bytes.read(&mut byte) {
            Ok(0) => break,
            Ok(_) => head.extend(byte),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(head)
}

fn decompress(path: &str, file: File, meter: &Meter) -> Result<Bytes> {
    let failure = |error: io::Error| read_failure(path, &error);
    let mut raw = Metered { inner: file, meter: meter.clone() };
    let head = peek(&mut raw).map_err(failure)?;
    let packing = Packing::find(path, &head)?;
    let bytes = io::BufReader::with_capacity(CHUNK_BYTES, Cursor::new(head).chain(raw));
    Ok(match packing {
        Some(Packing::Gzip) => Box::new(MultiGzDecoder::new(bytes)),
        Some(Packing::Zstd) => Box::new(zstd::Decoder::with_buffer(bytes).map_err(failure)?),
        None => Box::new(bytes),
    })
}

/// Makes a failure for a read: of the device, or of bytes that can't be decompressed.
pub(crate) fn read_failure(path: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            Failure::input(path, "the data end too early; the file was cut short, copy it again")
        }
        // Errors of decoders have no error number of the operating system.
        _ if error.raw_os_error().is_none() => {
            Failure::input(path, format_args!("cannot be decompressed: {error}"))
        }
        _ => Failure::io(path, "read", error),
    }
}
