//! The columnar formats, Parquet and Arrow IPC: the cargo feature `columnar`.

mod arrow;
mod parquet;
mod rows;

use self::{arrow::ArrowReader, parquet::ParquetReader};
use super::{Format, Reader, selection::Selection, source::Meter};
use crate::{failure::Result, preview};
use std::fmt;

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

/// Returns a decoder's message without the names of its error types.
fn reason(error: &impl fmt::Display) -> String {
    const TYPES: [&str; 9] = [
        "Parquet error: ",
        "Parquet argument error: ",
        "EOF: ",
        "Arrow: ",
        "Parser error: ",
        "Ipc error: ",
        "Schema error: ",
        "Invalid argument error: ",
        "External: ",
    ];
    let text = error.to_string();
    let mut rest = &text[..];
    while let Some(short) = TYPES.iter().find_map(|name| rest.strip_prefix(name)) {
        rest = short;
    }
    preview::reason(&rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_names_of_error_types() {
        assert_eq!(reason(&"Parquet argument error: EOF: eof decoding"), "eof decoding");
        assert_eq!(reason(&"a: Ipc error: b"), "a: Ipc error: b");
    }
}
