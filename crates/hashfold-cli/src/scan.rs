//! `hashfold scan`: writes all entries in the order of their hashes.

use crate::{
    failure::{Exit, Result},
    options::AccessArgs,
    output::{EntryWriter, OutputFormat},
    source::SourceArgs,
    stop::Stop,
    units,
    wait::{MapWaitArgs, WaitArgs},
};
use clap::Args;
use hashfold::{ReadOptions, io::Access};
use std::path::Path;

/// Write all entries, in the order of their hashes
///
/// The chunks of a store come one after the other, each in this order.
///
/// `build` and `update` read the output in every format, with its columns. All but CSV keep null apart
/// from empty text; raw, Arrow and Parquet output also keeps the kinds of columns.
#[derive(Args, Debug)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    entries: EntriesArgs,
    #[command(flatten)]
    wait: MapWaitArgs,
}

/// Options that say which entries are written, and how.
#[derive(Args, Debug)]
pub(crate) struct EntriesArgs {
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
        self.entries.folder()
    }
}

pub(crate) fn run(args: &ScanArgs) -> Result<Exit> {
    args.entries.write(args.wait.into())
}

impl EntriesArgs {
    /// Returns the folder of the data set.
    pub(crate) fn folder(&self) -> &Path {
        &self.source.folder
    }

    /// Writes the entries to standard output.
    pub(crate) fn write(&self, wait: WaitArgs) -> Result<Exit> {
        let options = self.access.to_scan(ReadOptions::new().index(Access::Mapped));
        let source = wait.retry(&Stop::never(), || self.source.open(options.clone()))?;
        let mut writer = EntryWriter::new(self.format, source.schema()?)?;
        let mut left = self.limit.unwrap_or(u64::MAX);
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
}
