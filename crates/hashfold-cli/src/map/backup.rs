//! `hashfold map backup`: copies a map as it is at one moment.

use super::open::{self, ChangeArgs};
use crate::{
    failure::{Exit, Result},
    output::write_line,
    progress::{Progress, Show, Unit},
    stop::Stop,
};
use clap::Args;
use std::path::PathBuf;

/// Copy all entries of a map to a new map in another folder
///
/// The copy has the same seed and columns, and takes no more space than its entries need. After a crash
/// or an error, the folder is not a map: run the command again.
#[derive(Args, Debug)]
pub(crate) struct BackupArgs {
    /// Folder of the map
    #[arg(value_name = "DIR")]
    map: PathBuf,
    /// Folder of the new map
    #[arg(value_name = "TO")]
    to: PathBuf,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) fn run(args: &BackupArgs) -> Result<Exit> {
    open::check_free(&args.to)?;
    let stop = Stop::on_signals()?;
    let map = args.change.open(&args.map, &stop)?;
    let progress = Progress::start(Show::Text, "copying", Unit::Entries, None);
    map.backup(&args.to, &stop.watch(progress))?;
    write_line(format_args!("backed up {} to {}", args.map.display(), args.to.display()))?;
    Ok(Exit::Done)
}
