//! Arrow IPC: streams, and files (Feather), which are a stream between two magic numbers.

use super::{reason, rows::Columnar};
use crate::{
    failure::{Failure, Result},
    input::{
        Reader,
        bad_rows::Head,
        selection::Selection,
        sink::Sink,
        source::{Bytes, Meter, open, read_failure},
    },
};
use arrow_ipc::reader::StreamReader;
use arrow_schema::ArrowError;
use hashfold_rows::Schema;
use std::io::{self, BufReader, Chain, Cursor, Read as _};

const MAGIC: &[u8] = b"ARROW1";

/// The start of a stream, except in the earliest versions of the format.
const STREAM_START: [u8; 4] = [0xff; 4];

const NOT_ARROW: &str =
    "is no Arrow IPC, which starts with the text ARROW1 or the bytes ff ff ff ff";

/// The magic number at the start of a file is padded with zeros to a multiple of this, in bytes.
const WORD_BYTES: usize = 8;

const BUFFER_BYTES: usize = 1 << 18;

type Stream = BufReader<Chain<Cursor<Vec<u8>>, Bytes>>;

/// Reads one Arrow IPC input.
pub(super) struct ArrowReader {
    file: String,
    columnar: Columnar,
    batches: StreamReader<Stream>,
    /// Whether the stream is inside of a file, which ends with a magic number.
    in_file: bool,
}

impl ArrowReader {
    pub(super) fn open(path: &str, selection: &Selection, meter: &Meter) -> Result<ArrowReader> {
        let unreadable = |error: &ArrowError| unreadable(path, error);
        let mut bytes = open(path, meter)?;
        let mut take = || take_word(&mut bytes).map_err(|error| read_failure(path, &error));
        let mut word = take()?;
        if word.is_empty() {
            return Err(Failure::input(path, "is empty, expected Arrow IPC"));
        }
        let in_file = word.starts_with(MAGIC);
        let is_arrow = in_file || word.starts_with(&STREAM_START);
        if in_file {
            word = take()?;
            while word == [0; WORD_BYTES] {
                word = take()?;
            }
        }
        let bytes = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(word).chain(bytes));
        let batches = StreamReader::try_new(bytes, None).map_err(|error| match is_arrow {
            true => unreadable(&error),
            false => Failure::input(path, NOT_ARROW),
        })?;
        let columnar = Columnar::new(path, &batches.schema(), selection)?;
        Ok(ArrowReader { file: path.into(), columnar, batches, in_file })
    }
}

impl Reader for ArrowReader {
    fn schema(&self) -> &Schema {
        &self.columnar.plan.schema
    }

    fn head(&self) -> Head {
        self.columnar.head()
    }

    fn read(mut self: Box<Self>, sink: &mut Sink) -> Result<()> {
        self.columnar.begin(sink);
        for batch in &mut self.batches {
            let batch = batch.and_then(|batch| batch.project(&self.columnar.plan.needed()));
            let batch = batch.map_err(|error| unreadable(&self.file, &error))?;
            self.columnar.take(&batch, sink)?;
        }
        // A stream may end between any two batches, a file only after its footer.
        if self.in_file && !ends_with_magic(self.batches.get_mut()).is_ok_and(|ends| ends) {
            return Err(Failure::input(
                &self.file,
                "is no whole Arrow IPC: the file was cut short",
            ));
        }
        Ok(())
    }
}

/// Makes a failure for the decoder: of a read, or of bytes that are not Arrow IPC.
fn unreadable(path: &str, error: &ArrowError) -> Failure {
    match error {
        ArrowError::IoError(_, source) => read_failure(path, source),
        _ => Failure::input(path, format_args!("is no whole Arrow IPC: {}", reason(error))),
    }
}

/// Reads the next bytes; fewer only at the end.
fn take_word(bytes: &mut Bytes) -> io::Result<Vec<u8>> {
    let mut word = Vec::with_capacity(WORD_BYTES);
    bytes.take(WORD_BYTES as u64).read_to_end(&mut word)?;
    Ok(word)
}

fn ends_with_magic(bytes: &mut Stream) -> io::Result<bool> {
    let mut tail = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let count = bytes.read(&mut chunk)?;
        if count == 0 {
            return Ok(tail == MAGIC);
        }
        tail.extend_from_slice(&chunk[..count]);
        tail.drain(..tail.len().saturating_sub(MAGIC.len()));
    }
}
