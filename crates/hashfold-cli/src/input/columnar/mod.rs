//! The columnar formats, Parquet and Arrow IPC: the cargo feature `columnar`.

mod arrow;
mod parquet;
mod rows;

use self::{arrow::ArrowReader, parquet::ParquetReader};
use super::{Format, Reader, selection::Selection, source::Meter};
use crate::failure::Result;

/// Opens a Parquet file, or an Arrow IPC file or stream.
pub(super) fn open(
    format: Format,
    path: &str,
    selection: &Selection,
    meter: &Meter,
) -> Result<Box<dyn Reader>> {
    Ok(match format {
        Format::Parquet => Box::new(ParquetReader::open(path, selection, meter)?),
        _ => Box::new(ArrowReader::open(path, selection, meter)?),
    })
}
