//! Parquet files; reads only the columns that are needed.

use super::{reason, rows::Columnar};
use crate::{
    failure::{Failure, Result},
    input::{
        Reader,
        bad_rows::Head,
        selection::Selection,
        sink::Sink,
        source::{Meter, open_seekable},
    },
};
use hashfold_rows::Schema;
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder},
    },
    errors::ParquetError,
};

/// Maximum number of rows read at once.
const BATCH_ROWS: usize = 4096;

/// Maximum number of values read at once; files with many columns are read in fewer rows.
const BATCH_VALUES: usize = 1 << 20;

/// Reads one Parquet input.
pub(super) struct ParquetReader {
    file: String,
    columnar: Columnar,
    batches: ParquetRecordBatchReader,
    rows: u64,
    /// Size of the file, for the meter, which does not see reads at random offsets.
    bytes: u64,
    meter: Meter,
}

impl ParquetReader {
    pub(super) fn open(path: &str, selection: &Selection, meter: &Meter) -> Result<ParquetReader> {
        let before = meter.bytes();
        let file = open_seekable(path, meter)?;
        let size = file.metadata().map_err(|error| Failure::io(path, "read", &error))?.len();
        // The bytes of a file that was unpacked into a temporary file are counted already.
        let bytes = if meter.bytes() > before { 0 } else { size };
        let unreadable = |error: ParquetError| {
            let what = format!("is no whole Parquet file: {}", reason(&error));
            Failure::input(path, if size == 0 { "is empty, expected Parquet".into() } else { what })
        };
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(unreadable)?;
        let columnar = Columnar::new(path, builder.schema(), selection)?;
        let plan = &columnar.plan;
        let mask = ProjectionMask::roots(builder.parquet_schema(), plan.needed());
        let rows = builder.metadata().file_metadata().num_rows().max(0) as u64;
        let columns = plan.sources.len() + plan.markers.len() + 1;
        let rows_at_once = (BATCH_VALUES / columns).clamp(1, BATCH_ROWS);
        let builder = builder.with_projection(mask).with_batch_size(rows_at_once);
        let batches = builder.build().map_err(unreadable)?;
        Ok(ParquetReader {
            file: path.into(),
            columnar,
            batches,
            rows,
            bytes,
            meter: meter.clone(),
        })
    }
}

impl Reader for ParquetReader {
    fn schema(&self) -> &Schema {
        &self.columnar.plan.schema
    }

    fn head(&self) -> Head {
        self.columnar.head()
    }

    fn read(mut self: Box<Self>, sink: &mut Sink) -> Result<()> {
        self.columnar.begin(sink);
        let (mut rows, mut counted) = (0, 0);
        for batch in self.batches {
            let unreadable = |error| {
                let what = format!("cannot be decoded: {}; the file is damaged", reason(&error));
                Failure::input(&self.file, what)
            };
            let batch = batch.map_err(unreadable)?;
            self.columnar.take(&batch, sink)?;
            rows += batch.num_rows() as u64;
            let share = rows.min(self.rows) as f64 / self.rows.max(1) as f64;
            let now = (self.bytes as f64 * share) as u64;
            self.meter.add(now - counted);
            counted = now;
        }
        Ok(())
    }
}
