//! `hashfold scan`: all entries out, in the order of their hashes, chunk after chunk.

use crate::{
    failure::{Exit, Result},
    output::{EntryWriter, OutputFormat},
    source::SourceArgs,
};
use clap::Args;
use hashfold::{io::Access, table::OpenOptions};

/// Write all entries, in the order of their hashes, chunk after chunk
///
/// Raw output is what `build --format raw` reads. JSON Lines and CSV have the names of the
/// columns and can be built from as well.
#[derive(Args, Debug)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// What to write
    #[arg(long, default_value = "json")]
    format: OutputFormat,
    /// Stop after so many entries
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

pub(crate) fn run(args: &ScanArgs) -> Result<Exit> {
    let options = OpenOptions { data: Access::Cached, index: Access::Mapped };
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
