//! Generated rows, and files of them.

use crate::failure::{Failure, Result};
use hashfold::{KeyHash, Seed};
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

/// Approximate size of a row in CSV, in bytes.
pub(super) const ROW_SIZE: u64 = 100;

/// Names of the columns.
pub(super) const COLUMNS: [&str; 4] = ["id", "name", "place", "note"];

/// Returns the fields of a row: 16, 24, 19 and 36 bytes.
pub(super) fn row(i: u64) -> [String; 4] {
    let hash = KeyHash::of(&i.to_le_bytes(), Seed(1)).bits();
    let (high, low) = ((hash >> 64) as u64, hash as u64);
    [
        format!("{high:016x}"),
        format!("name {:019}", low / 10),
        format!("place {:013}", high / 10_000_000),
        format!("a note on {:<8} and {:013}", i % 1_000_000, low / 10_000_000),
    ]
}

/// Writes a CSV file of `rows` rows.
pub(super) fn write_csv(path: &Path, rows: u64) -> Result<()> {
    let written = || -> std::io::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        writeln!(out, "{}", COLUMNS.join(","))?;
        for i in 0..rows {
            writeln!(out, "{}", row(i).join(","))?;
        }
        out.flush()
    };
    written().map_err(|error| Failure::io(path.display(), "write", &error))
}
