//! `hashfold map compact`: gives space back.

use super::open::ChangeArgs;
use crate::{
    failure::{Exit, Result},
    output::write_line,
    stop::Stop,
    units,
};
use clap::Args;
use std::path::PathBuf;

/// Merge all changes of a map, and give free space back to the file system
///
/// Reads and writes all entries whose groups have changes. A map without changes is not read: damage in
/// it is found by `hashfold map verify`. The file keeps its length; large free parts
/// take no space on the device.
#[derive(Args, Debug)]
pub(crate) struct CompactArgs {
    /// Folder of the map
    #[arg(value_name = "DIR")]
    map: PathBuf,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) fn run(args: &CompactArgs) -> Result<Exit> {
    let map = args.change.open(&args.map, &Stop::never())?;
    map.compact()?;
    let stats = map.stat();
    map.close()?;
    write_line(format_args!(
        "compacted {}: {} in {}",
        args.map.display(),
        units::counted(stats.entries_max, "entry", "entries"),
        units::bytes(stats.file_bytes - stats.free_bytes)
    ))?;
    Ok(Exit::Done)
}
