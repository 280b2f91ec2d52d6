//! Inputs: files of rows are read, parsed and converted to entries.
//!
//! ```text
//!            source         csv, json_lines, raw, lines      sink             batch
//!  file ─ bytes, counted ─┬─ window ─ records ────────┬─ good rows ─ batches ─ queue ─→ sorter
//!   or '-'  decompressed  └─ columnar: Arrow batches ─┘  bad rows ─→ --bad-rows
//!                              parquet, arrow
//! ```
//!
//! A thread of its own does all of this, so that reading and sorting overlap and rows stay in
//! order. `filter` takes its keys from the same queue. Each format has a [`Reader`], which knows
//! its schema when it is opened and its rows when it is read.

mod bad_rows;
mod batch;
#[cfg_attr(not(feature = "columnar"), path = "columnar/absent.rs")]
mod columnar;
mod csv;
mod feed;
mod guard;
mod infer;
mod json_lines;
mod key_bytes;
mod lines;
mod raw;
mod selection;
mod sink;
mod source;
mod window;

pub(crate) use self::{
    bad_rows::{BadRowAction, BadRowLimit, BadRowPolicy},
    batch::{BATCH_BYTES, Batch},
    feed::{Feed, InputThread, Inputs, Taken},
    selection::{Mark, Marker, SchemaPolicy, Selection},
    source::{Meter, size},
};

use self::{
    bad_rows::Head,
    csv::{CsvReader, Dialect},
    json_lines::JsonReader,
    lines::LineReader,
    raw::RawReader,
    sink::Sink,
};
use crate::failure::{Failure, Result};
use clap::ValueEnum;
use hashfold_rows::Schema;
use std::path::Path;

/// Maximum number of columns of an input, or fields of a JSON object. A schema with this many columns
/// of 38-byte names fits into the attributes of a table.
const COLUMNS_MAX: usize = 1 << 14;

/// Formats of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Comma-separated values
    Csv,
    /// Tab-separated values
    Tsv,
    /// One JSON object per line
    Jsonl,
    /// Apache Parquet
    Parquet,
    /// Apache Arrow IPC, as a stream or a file (Feather)
    Arrow,
    /// Key length and value length as little-endian u32, key, value; perhaps with columns (see
    /// `hashfold build --help`)
    Raw,
    /// One key per line, without values.
    #[value(skip)]
    Lines,
}

/// An open input.
trait Reader: Send {
    /// Returns the schema of the rows, without the type of their keys.
    fn schema(&self) -> &Schema;

    /// Returns the format of bad rows, and the line that comes before them.
    fn head(&self) -> Head;

    /// Reads all rows into the sink.
    fn read(self: Box<Self>, sink: &mut Sink) -> Result<()>;
}

/// Options for reading inputs.
#[derive(Clone, Debug)]
pub(crate) struct ReadOptions {
    /// Format; `None` takes it from the file's name.
    pub(crate) format: Option<Format>,
    /// Delimiter; `None` takes that of the format.
    pub(crate) delimiter: Option<u8>,
    pub(crate) header: bool,
    pub(crate) quotes: bool,
    pub(crate) selection: Selection,
}

impl ReadOptions {
    /// Opens a file, or standard input for `-`.
    fn open(&self, path: &str, meter: &Meter) -> Result<Box<dyn Reader>> {
        let selection = &self.selection;
        let dialect = |delimiter| Dialect {
            delimiter: self.delimiter.unwrap_or(delimiter),
            header: self.header,
            quotes: self.quotes,
        };
        let reader: Box<dyn Reader> = match self.format.map_or_else(|| format_of(path), Ok)? {
            Format::Csv => Box::new(CsvReader::open(path, dialect(b','), selection, meter)?),
            Format::Tsv => Box::new(CsvReader::open(path, dialect(b'\t'), selection, meter)?),
            Format::Jsonl => Box::new(JsonReader::open(path, selection, meter)?),
            format @ (Format::Parquet | Format::Arrow) => {
                columnar::open(format, path, selection, meter)?
            }
            Format::Raw => Box::new(RawReader::open(path, selection, meter)?),
            Format::Lines => Box::new(LineReader::open(path, meter)?),
        };
        Ok(reader)
    }
}

/// Whether a file has rows with columns, by its name.
pub(crate) fn has_columns(path: &str) -> bool {
    path != "-" && format_of(path).is_ok_and(|format| format != Format::Raw)
}

/// Returns the format by the file's name.
fn format_of(path: &str) -> Result<Format> {
    if path == "-" {
        return Err(Failure::usage(
            "the format of standard input is not known, because it has no file name; name it with \
             --format (`hashfold get`: --keys-format)",
        ));
    }
    if Path::new(path).is_dir() {
        return Err(Failure::usage(format!("{path}: is a folder, expected a file")));
    }
    match source::unpacked_name(path).rsplit_once('.').map(|(_, extension)| extension) {
        Some("csv") => Ok(Format::Csv),
        Some("tsv" | "tab") => Ok(Format::Tsv),
        Some("jsonl" | "ndjson") => Ok(Format::Jsonl),
        Some("parquet" | "pq") => Ok(Format::Parquet),
        Some("arrow" | "arrows" | "feather" | "ipc") => Ok(Format::Arrow),
        Some("raw") => Ok(Format::Raw),
        _ => Err(Failure::usage(format!(
            "{path}: the format is not known from the name, expected --format csv, tsv, jsonl, parquet, \
             arrow or raw"
        ))),
    }
}
