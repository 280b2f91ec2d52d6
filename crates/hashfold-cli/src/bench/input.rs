//! Measures how fast rows become hashed entries.

use super::{
    TableBench, ensure,
    measure::{Report, process_seconds},
};
use crate::{
    failure::{Failure, Result},
    input::{BadRowPolicy, Inputs, ReadOptions, Selection},
    stop::Stop,
};
use hashfold::{KeyHash, Seed};
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

/// Approximate size of a row in CSV, in bytes.
const ROW_SIZE: u64 = 100;

pub(super) const COLUMNS: [&str; 4] = ["id", "name", "place", "note"];

/// Writes the fields of a row: 16, 24, 19 and 36 bytes.
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

pub(super) fn run(bench: &TableBench, report: &Report) -> Result<()> {
    let rows = bench.data as u64 / 4 / ROW_SIZE;
    for &(name, write) in FORMATS {
        let path = bench.dir.join(format!("rows.{name}"));
        let written = write(&path, rows).and_then(|()| measure(&path, rows));
        let _ = std::fs::remove_file(&path);
        let (row_bytes, seconds) = written?;
        let name = format!("table.input.{name}.mb_per_core_s");
        report.add(
            &name,
            row_bytes as f64 / 1e6 / seconds,
            "MB of rows a CPU second",
            rows,
            row_bytes,
        );
    }
    Ok(())
}

/// Writes a file of `rows` rows.
type WriteRows = fn(&Path, u64) -> Result<()>;

const FORMATS: &[(&str, WriteRows)] = &[
    ("csv", write_csv),
    #[cfg(feature = "columnar")]
    ("parquet", super::parquet::write_rows),
];

fn write_csv(path: &Path, rows: u64) -> Result<()> {
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

/// Reads and hashes all rows; returns their bytes and the CPU time of all threads.
fn measure(path: &Path, rows: u64) -> Result<(u64, f64)> {
    let options = ReadOptions {
        format: None,
        delimiter: None,
        header: true,
        quotes: true,
        selection: Selection { key: Some(COLUMNS[0].into()), ..Selection::default() },
    };
    let stop = Stop::on_signals()?;
    let start = process_seconds();
    let inputs = Inputs::open(&[path.to_string_lossy().into_owned()], options)?;
    let mut feed = inputs.start(BadRowPolicy::Stop)?;
    let (mut hashes, mut count) = (0, 0);
    while let Some(batch) = feed.next(&stop)? {
        for (key, _) in batch.entries() {
            hashes ^= KeyHash::of(key, Seed(2)).low();
            count += 1;
        }
        feed.give_back(batch);
    }
    feed.finish()?;
    let seconds = process_seconds() - start;
    let right = (0..rows).fold(0, |all, i| all ^ KeyHash::of(row(i)[0].as_bytes(), Seed(2)).low());
    ensure(count == rows && hashes == right, || format!("{count} of {rows} rows were read"))?;
    Ok((rows * ROW_SIZE, seconds))
}
