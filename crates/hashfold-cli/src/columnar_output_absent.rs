//! Refuses columnar output in a command that was compiled without the feature `columnar`.

use crate::failure::{Failure, Result};
use hashfold_rows::Schema;
use std::convert::Infallible;

/// A writer that is never made.
pub(crate) struct ColumnarWriter(Infallible);

impl ColumnarWriter {
    /// Refuses Arrow IPC.
    pub(crate) fn arrow(_: &Schema) -> Result<ColumnarWriter> {
        Err(absent())
    }

    /// Refuses Parquet.
    pub(crate) fn parquet(_: &Schema) -> Result<ColumnarWriter> {
        Err(absent())
    }

    pub(crate) fn entry(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn finish(self) -> Result<()> {
        match self.0 {}
    }
}

fn absent() -> Failure {
    Failure::usage(
        "this hashfold was compiled without Parquet and Arrow; compile it with the cargo feature \
         `columnar`, which is on by default, or use --format json, csv or raw",
    )
}
