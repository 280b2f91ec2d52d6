//! Rows as a Parquet file.

use super::rows::{COLUMNS, row};
use crate::failure::{Failure, Result};
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use parquet::{arrow::ArrowWriter, basic::Compression, file::properties::WriterProperties};
use std::{fs::File, path::Path, sync::Arc};

/// Number of rows that are written together.
const BATCH_ROWS: u64 = 64 << 10;

/// Writes a file of `rows` rows.
pub(super) fn write_rows(path: &Path, rows: u64) -> Result<()> {
    let written = || -> parquet::errors::Result<()> {
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let mut writer = None;
        for start in (0..rows).step_by(BATCH_ROWS as usize) {
            let rows: Vec<[String; 4]> = (start..rows.min(start + BATCH_ROWS)).map(row).collect();
            let column = |c: usize| -> ArrayRef {
                Arc::new(rows.iter().map(|row| Some(row[c].as_str())).collect::<StringArray>())
            };
            let columns = COLUMNS.iter().enumerate().map(|(c, name)| (*name, column(c)));
            let batch = RecordBatch::try_from_iter(columns)?;
            if writer.is_none() {
                let file = File::create(path)?;
                let properties = Some(properties.clone());
                writer = Some(ArrowWriter::try_new(file, batch.schema(), properties)?);
            }
            writer.as_mut().expect("made above").write(&batch)?;
        }
        writer.map_or(Ok(()), |writer| writer.close().map(drop))
    };
    let io = |error| Failure::io(path.display(), "write", &std::io::Error::other(error));
    written().map_err(io)
}
