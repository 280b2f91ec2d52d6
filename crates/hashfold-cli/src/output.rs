//! Writing entries: JSON Lines, CSV, raw, Arrow IPC or Parquet.
//!
//! A JSON line is an object with the key's column first. Bytes that are not UTF-8 are written as
//! `{"base64":"..."}`; CSV and raw output have them unchanged.

use crate::{
    columnar_output::ColumnarWriter,
    failure::{Exit, Failure, Result},
    raw,
};
use clap::ValueEnum;
use hashfold_rows::{Form, Schema, Value};
use std::{
    fmt,
    io::{self, BufWriter, StdoutLock, Write as _},
};

/// Formats of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// One JSON object per line
    #[value(alias = "jsonl")]
    Json,
    /// Comma-separated values, with a header
    Csv,
    /// Key length and value length as little-endian u32, key, value; the first record has the
    /// columns (see `hashfold build --help`)
    Raw,
    /// Apache Arrow IPC, as a stream
    Arrow,
    /// Apache Parquet
    Parquet,
}

/// Writes entries to standard output.
pub(crate) struct EntryWriter {
    schema: Schema,
    out: Out,
    /// The record that is being written.
    record: Vec<u8>,
}

enum Out {
    Json(BufWriter<StdoutLock<'static>>),
    Csv(Box<csv::Writer<StdoutLock<'static>>>),
    Raw(BufWriter<StdoutLock<'static>>),
    Columnar(Box<ColumnarWriter>),
}

impl EntryWriter {
    /// Starts the output; writes the header of CSV, and the schema of raw output.
    pub(crate) fn new(format: OutputFormat, schema: Schema) -> Result<EntryWriter> {
        let stdout = || io::stdout().lock();
        let out = match format {
            OutputFormat::Json => Out::Json(BufWriter::new(stdout())),
            OutputFormat::Raw => Out::Raw(raw_writer(stdout(), &schema)?),
            OutputFormat::Csv => Out::Csv(Box::new(csv_writer(stdout(), &schema)?)),
            OutputFormat::Arrow => Out::Columnar(Box::new(ColumnarWriter::arrow(&schema)?)),
            OutputFormat::Parquet => Out::Columnar(Box::new(ColumnarWriter::parquet(&schema)?)),
        };
        Ok(EntryWriter { schema, out, record: Vec::new() })
    }

    /// Sets the columns of the entries that follow. CSV and raw output begin with their columns, which
    /// can't change.
    pub(crate) fn set_schema(&mut self, schema: Schema) -> Result<()> {
        if !matches!(self.out, Out::Json(_)) && schema != self.schema {
            return Err(Failure::usage(
                "the columns of the store have changed; run the command again, or use --format json",
            ));
        }
        self.schema = schema;
        Ok(())
    }

    /// Writes an entry.
    pub(crate) fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let record = &mut self.record;
        record.clear();
        match &mut self.out {
            Out::Json(out) => {
                let written = self.schema.write_json(key, value, record);
                written.map_err(|error| damaged(key, &error))?;
                record.push(b'\n');
                out.write_all(record).map_err(|error| Failure::output(&error))
            }
            Out::Raw(out) => {
                raw::put_record(key, value, record);
                out.write_all(record).map_err(|error| Failure::output(&error))
            }
            Out::Columnar(out) => out.entry(key, value),
            Out::Csv(out) => write_csv(&self.schema, key, value, record, out),
        }
    }

    /// Reports an absent key, if the format can express it.
    pub(crate) fn absent(&mut self, key: &[u8]) -> Result<()> {
        let Out::Json(out) = &mut self.out else { return Ok(()) };
        self.record.clear();
        self.record.push(b'{');
        self.schema.write_key(key, &mut self.record);
        self.record.extend_from_slice(b",\"found\":false}\n");
        out.write_all(&self.record).map_err(|error| Failure::output(&error))
    }

    /// Writes buffered output; of columnar formats, only whole batches.
    pub(crate) fn flush(&mut self) -> Result<()> {
        match &mut self.out {
            Out::Json(out) | Out::Raw(out) => out.flush(),
            Out::Csv(out) => out.flush(),
            Out::Columnar(_) => Ok(()),
        }
        .map_err(|error| Failure::output(&error))
    }

    /// Ends the output.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush()?;
        match self.out {
            Out::Columnar(out) => out.finish(),
            _ => Ok(()),
        }
    }
}

/// Writes a line.
pub(crate) fn write_line(line: impl fmt::Display) -> Result<()> {
    writeln!(io::stdout(), "{line}").map_err(|error| Failure::output(&error))
}

/// Writes a line to standard error. A failure is ignored: it does not end the work.
pub(crate) fn write_note(line: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Writes bytes to standard output.
pub(crate) fn write_bytes(bytes: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| Failure::output(&error))
}

fn raw_writer<W: io::Write>(out: W, schema: &Schema) -> Result<BufWriter<W>> {
    let (mut writer, mut record) = (BufWriter::new(out), Vec::new());
    raw::put_schema(schema, &mut record);
    writer.write_all(&record).map_err(|error| Failure::output(&error))?;
    Ok(writer)
}

fn csv_writer<W: io::Write>(out: W, schema: &Schema) -> Result<csv::Writer<W>> {
    let mut writer = csv::Writer::from_writer(out);
    let names = [&schema.key[..]].into_iter().chain(value_names(schema));
    writer.write_record(names).map_err(csv_failure)?;
    Ok(writer)
}

/// Returns the names of the columns of a value in CSV. An object is one column.
pub(crate) fn value_names(schema: &Schema) -> impl Iterator<Item = &str> {
    let object = (schema.form == Form::Object).then_some("value");
    let columns = schema.columns.iter().filter(move |_| object.is_none());
    columns.map(|column| &column.name[..]).chain(object)
}

fn write_csv<W: io::Write>(
    schema: &Schema,
    key: &[u8],
    value: &[u8],
    text: &mut Vec<u8>,
    out: &mut csv::Writer<W>,
) -> Result<()> {
    out.write_field(key).map_err(csv_failure)?;
    put_cells(schema, key, value, text, out)?;
    out.write_record(None::<&[u8]>).map_err(csv_failure)
}

/// Writes the columns of a value as fields of CSV.
pub(crate) fn put_cells<W: io::Write>(
    schema: &Schema,
    key: &[u8],
    value: &[u8],
    text: &mut Vec<u8>,
    out: &mut csv::Writer<W>,
) -> Result<()> {
    let mut put = |value: Value<'_>| {
        text.clear();
        value.write_text(text);
        out.write_field(&text).map_err(csv_failure)
    };
    match schema.form {
        // An object counts as one column.
        Form::Object => put(Value::Json(value)),
        _ => {
            let row = schema.row(value).map_err(|error| damaged(key, &error))?;
            row.iter().try_for_each(|(_, value)| put(value))
        }
    }
}

/// Makes a failure for a value that its schema cannot decode.
pub(crate) fn damaged(key: &[u8], why: &dyn fmt::Display) -> Failure {
    let key = key.escape_ascii();
    let message = format!("the value of key \"{key}\" does not fit the table's schema: {why}");
    Failure { exit: Exit::Damage, message }
}

/// Makes a failure for a write of CSV.
pub(crate) fn csv_failure(error: csv::Error) -> Failure {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => Failure::output(&error),
        other => unreachable!("records of any length can be written: {other:?}"),
    }
}
