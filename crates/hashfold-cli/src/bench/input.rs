//! Measures the throughput from rows to hashed entries.

use super::{
    TableBench, ensure,
    measure::{Report, process_seconds},
    rows::{COLUMNS, ROW_SIZE, row, write_csv},
};
use crate::{
    failure::Result,
    input::{BadRowPolicy, Inputs, ReadOptions, Selection},
    stop::Stop,
};
use hashfold::{KeyHash, Seed};
use std::path::Path;

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
    let inputs = Inputs::open(&[path.to_string_lossy().into_owned()], options, &stop)?;
    let mut feed = inputs.start(BadRowPolicy::STOP)?;
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
