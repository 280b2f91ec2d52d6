//! The bytes of an input: a file or standard input, decompressed, counted.

use crate::failure::{Failure, Result};
use flate2::read::MultiGzDecoder;
use std::{
    fs::File,
    io::{self, Cursor, Read, Seek as _, Write as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Read from a compressed or plain file at once, in bytes.
const CHUNK_BYTES: usize = 1 << 18;

const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The decompressed bytes of one input.
pub(crate) type Bytes = Box<dyn Read + Send>;

/// Counts the bytes that have been read, compressed as they come.
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

/// Opens a file, or standard input for `-`. What the first bytes show to be gzip or zstd is
/// decompressed: no format that is read here starts like that.
pub(crate) fn open(path: &str, meter: &Meter) -> Result<Bytes> {
    let raw: Bytes = if path == "-" {
        Box::new(Metered { inner: io::stdin(), meter: meter.clone() })
    } else {
        Box::new(Metered { inner: open_file(path)?, meter: meter.clone() })
    };
    decompress(raw).map_err(|error| read_failure(path, &error))
}

/// Opens a file that must be read in any order: as it is, or unpacked into a temporary one.
pub(crate) fn open_seekable(path: &str, meter: &Meter) -> Result<File> {
    if path != "-" {
        let mut file = open_file(path)?;
        let head = peek(&mut file).map_err(|error| read_failure(path, &error))?;
        if !is_compressed(&head) {
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

fn open_file(path: &str) -> Result<File> {
    let failure = |error| Failure::io(path, "open", &error);
    let file = File::open(path).map_err(failure)?;
    if file.metadata().map_err(failure)?.is_dir() {
        return Err(Failure::input(path, "is a folder, expected a file"));
    }
    Ok(file)
}

/// The size of a file as it lies on the disk; `None` for standard input, pipes and the like.
pub(crate) fn size(path: &str) -> Option<u64> {
    let metadata = Path::new(path).metadata().ok()?;
    (path != "-" && metadata.is_file()).then_some(metadata.len())
}

fn is_compressed(head: &[u8]) -> bool {
    head.starts_with(&GZIP_MAGIC) || head.starts_with(&ZSTD_MAGIC)
}

/// The first bytes: as many as it takes to tell whether a magic is there, if there are so many.
fn peek(bytes: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(ZSTD_MAGIC.len());
    // Who writes a few bytes to a pipe and waits for an answer must not wait for ever.
    while [&GZIP_MAGIC[..], &ZSTD_MAGIC]
        .iter()
        .any(|it| it.len() > head.len() && it.starts_with(&head))
    {
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

fn decompress(mut raw: Bytes) -> io::Result<Bytes> {
    let head = peek(&mut raw)?;
    let is_gzip = head.starts_with(&GZIP_MAGIC);
    let is_zstd = head.starts_with(&ZSTD_MAGIC);
    let bytes = io::BufReader::with_capacity(CHUNK_BYTES, Cursor::new(head).chain(raw));
    Ok(if is_gzip {
        Box::new(MultiGzDecoder::new(bytes))
    } else if is_zstd {
        Box::new(zstd::Decoder::with_buffer(bytes)?)
    } else {
        Box::new(bytes)
    })
}

/// The failure of a read: of the device, or of bytes that cannot be decompressed.
pub(crate) fn read_failure(path: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            Failure::input(path, "the compressed data end too early; the file was cut short")
        }
        // Decoders give no number of the operating system.
        _ if error.raw_os_error().is_none() => {
            Failure::input(path, format_args!("cannot be decompressed: {error}"))
        }
        _ => Failure::io(path, "read", error),
    }
}
