//! How fast rows become hashed entries.

use super::{
    TableBench, ensure,
    measure::{Report, process_seconds},
};
use crate::{
    failure::{Failure, Result},
    input::{BadRowPolicy, Inputs, ReadOptions, Selection},
    stop::Stop,
};
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use hashfold::{KeyHash, Seed};
use parquet::{arrow::ArrowWriter, basic::Compression, file::properties::WriterProperties};
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    sync::Arc,
};

/// A row is about this long in CSV, in bytes.
const ROW_SIZE: u64 = 100;

/// Rows that are written together.
const BATCH_ROWS: u64 = 64 << 10;

const COLUMNS: [&str; 4] = ["id", "name", "place", "note"];

/// A row's fields: 16, 24, 19 and 36 bytes.
fn row(i: u64) -> [String; 4] {
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
    for (name, write) in [("csv", write_csv as WriteRows), ("parquet", write_parquet)] {
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

type WriteRows = fn(&Path, u64) -> Result<()>;

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

fn write_parquet(path: &Path, rows: u64) -> Result<()> {
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
