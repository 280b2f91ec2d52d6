//! `hashfold scan`: writes all entries in the order of their hashes, chunk after chunk.

use crate::{
    failure::{Exit, Result},
    options::AccessArgs,
    output::{EntryWriter, OutputFormat},
    source::SourceArgs,
    units,
};
use clap::Args;
use hashfold::{ReadOptions, io::Access};
use std::path::Path;

/// Write all entries, in the order of their hashes, chunk after chunk
///
/// `build` and `update` read the output in every format, with its columns. All but CSV keep null apart
/// from empty text; raw, Arrow and Parquet output also keeps the kinds of columns.
#[derive(Args, Debug)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    access: AccessArgs,
    /// Output format
    #[arg(long, default_value = "json")]
    format: OutputFormat,
    /// Maximum number of entries to write [default: all]
    #[arg(long, value_name = "N", value_parser = units::parse_number::<u64>)]
    limit: Option<u64>,
}

impl ScanArgs {
    /// Returns the folder of the data set.
    pub(crate) fn folder(&self) -> &Path {
        &self.source.folder
    }
}

pub(crate) fn run(args: &ScanArgs) -> Result<Exit> {
    let options = args.access.to_scan(ReadOptions::new().index(Access::Mapped));
    let source = args.source.open(options)?;
    let mut writer = EntryWriter::new(args.format, source.schema()?)?;
    let mut left = args.limit.unwrap_or(u64::MAX);
    for mut run in source.scans() {
        while left > 0 && run.advance()? {
            let entry = run.entry();
            writer.entry(entry.key, entry.value.unwrap_or_default())?;
            left -= 1;
        }
    }
    writer.finish()?;
    Ok(Exit::Done)
}
