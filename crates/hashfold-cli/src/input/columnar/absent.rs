//! Refuses the columnar formats in a command that was compiled without them.

use super::{Format, Reader, selection::Selection, source::Meter};
use crate::failure::{Failure, Result};

/// Refuses a Parquet or Arrow file.
pub(super) fn open(_: Format, path: &str, _: &Selection, _: &Meter) -> Result<Box<dyn Reader>> {
    Err(Failure::usage(format!(
        "{path}: this hashfold was compiled without Parquet and Arrow; compile it with the cargo \
         feature `columnar`, which is on by default, or convert the file to CSV or JSON Lines"
    )))
}
