//! Writing entries as Arrow IPC or Parquet: the cargo feature `columnar`.

use crate::{
    failure::{Failure, Result},
    output::damaged,
};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;
use hashfold_rows::{Schema, arrow::BatchBuilder};
use parquet::{arrow::ArrowWriter, errors::ParquetError};
use std::io::{self, BufWriter, Stdout, Write as _};

/// Maximum number of rows in a batch.
const BATCH_ROWS: usize = 8192;

/// Size of keys and values at which a batch ends, in bytes.
const BATCH_BYTES: usize = 8 << 20;

/// Size of a row group of Parquet that is kept in memory until it is written, in bytes.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// Writes entries to standard output, batch after batch.
pub(crate) struct ColumnarWriter {
    builder: BatchBuilder,
    /// Size of keys and values in the batch.
    bytes: usize,
    out: Out,
}

enum Out {
    Arrow(StreamWriter<BufWriter<Stdout>>),
    Parquet(ArrowWriter<BufWriter<Stdout>>),
}

impl ColumnarWriter {
    /// Starts a stream of Arrow IPC.
    pub(crate) fn arrow(schema: &Schema) -> Result<ColumnarWriter> {
        let (builder, out) = (BatchBuilder::new(schema), BufWriter::new(io::stdout()));
        let out = StreamWriter::try_new(out, builder.arrow_schema()).map_err(of_arrow)?;
        Ok(ColumnarWriter { builder, bytes: 0, out: Out::Arrow(out) })
    }

    /// Starts a Parquet file.
    pub(crate) fn parquet(schema: &Schema) -> Result<ColumnarWriter> {
        let (builder, out) = (BatchBuilder::new(schema), BufWriter::new(io::stdout()));
        let arrow = builder.arrow_schema().clone();
        let out = ArrowWriter::try_new(out, arrow, None).map_err(of_parquet)?;
        Ok(ColumnarWriter { builder, bytes: 0, out: Out::Parquet(out) })
    }

    /// Writes an entry.
    pub(crate) fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.builder.push(key, value).map_err(|error| damaged(key, &error))?;
        self.bytes += key.len() + value.len();
        match self.builder.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES {
            true => self.write_batch(),
            false => Ok(()),
        }
    }

    fn write_batch(&mut self) -> Result<()> {
        let batch = self.builder.finish().map_err(|_| {
            Failure::usage(
                "a key or a text is not UTF-8, which Arrow and Parquet need; use --format json, csv \
                 or raw",
            )
        })?;
        self.bytes = 0;
        match &mut self.out {
            Out::Arrow(out) => out.write(&batch).map_err(of_arrow),
            Out::Parquet(out) => {
                out.write(&batch).map_err(of_parquet)?;
                match out.in_progress_size() >= ROW_GROUP_BYTES {
                    true => out.flush().map_err(of_parquet),
                    false => Ok(()),
                }
            }
        }
    }

    /// Ends the output.
    pub(crate) fn finish(mut self) -> Result<()> {
        if !self.builder.is_empty() {
            self.write_batch()?;
        }
        let mut out = match self.out {
            Out::Arrow(out) => out.into_inner().map_err(of_arrow)?,
            Out::Parquet(out) => out.into_inner().map_err(of_parquet)?,
        };
        out.flush().map_err(|error| Failure::output(&error))
    }
}

fn of_arrow(error: ArrowError) -> Failure {
    match error {
        ArrowError::IoError(_, source) => Failure::output(&source),
        other => Failure::output(&io::Error::other(other)),
    }
}

fn of_parquet(error: ParquetError) -> Failure {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(source) => Failure::output(&source),
            Err(other) => Failure::output(&io::Error::other(other)),
        },
        other => Failure::output(&io::Error::other(other)),
    }
}
