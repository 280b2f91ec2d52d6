//! `hashfold scan`: all entries out, in the order of their hashes.

use crate::{
    device,
    failure::{Exit, Result},
    output::{EntryWriter, OutputFormat},
    schema::Schema,
};
use clap::Args;
use hashfold::{
    io::Access,
    run::Run as _,
    table::{OpenOptions, Table},
};
use std::path::PathBuf;

/// Write all entries, in the order of their hashes
///
/// Raw output is what `build --format raw` reads. JSON Lines and CSV have the names of the
/// columns and can be built from as well.
#[derive(Args, Debug)]
pub(crate) struct ScanArgs {
    /// The folder of the table
    #[arg(value_name = "DIR")]
    table: PathBuf,
    /// What to write
    #[arg(long, default_value = "json")]
    format: OutputFormat,
    /// Stop after so many entries
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

pub(crate) fn run(args: &ScanArgs) -> Result<Exit> {
    let options = OpenOptions { data: Access::Cached, index: Access::Mapped };
    let table = Table::open(&device::disk(), &args.table, options)?;
    let mut writer = EntryWriter::new(args.format, Schema::of(&table)?)?;
    let mut run = table.scan();
    let mut left = args.limit.unwrap_or(u64::MAX);
    while left > 0 && run.advance()? {
        let entry = run.entry();
        writer.entry(entry.key, entry.value.unwrap_or_default())?;
        left -= 1;
    }
    writer.finish()?;
    Ok(Exit::Done)
}
