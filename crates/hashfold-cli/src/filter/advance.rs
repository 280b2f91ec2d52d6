//! `hashfold filter advance`: starts a new epoch and drops old ones.

use super::open::{self, Budget};
use crate::{
    failure::{Exit, Result},
    output::write_line,
    stop::Stop,
    units,
    wait::WaitArgs,
};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Start a new epoch, and drop old ones
///
/// A key belongs to the epoch in which it was inserted. Dropping an epoch removes its files without
/// reading them. `hashfold filter advance DIR --keep 7`, run once a day, keeps the keys of a week. A
/// key that comes again with `add --unique` stays in its old epoch.
#[derive(Args, Debug)]
pub(crate) struct AdvanceArgs {
    /// Folder of the filter
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    /// Number of epochs to keep, the new one included [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keep: Option<u64>,
    #[command(flatten)]
    wait: WaitArgs,
    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &AdvanceArgs) -> Result<Exit> {
    let mut filter =
        args.wait.retry(&Stop::never(), || open::open(&args.filter, &Budget::least()))?;
    let epoch = filter.advance_epoch()?;
    let before = filter.stats().epochs.len();
    if let Some(keep) = args.keep {
        filter.expire_before((epoch + 1).saturating_sub(keep))?;
    }
    let kept = filter.stats().epochs.len();
    filter.close()?;
    let dropped = (before - kept) as u64;
    let folder = args.filter.display();
    if args.json {
        write_line(json!({
            "event": "advanced", "filter": folder.to_string(), "epoch": epoch, "epochs": kept,
            "dropped": dropped,
        }))?;
    } else {
        write_line(format_args!(
            "advanced {folder}: epoch {epoch}; {} dropped, {} kept",
            units::counted(dropped, "epoch", "epochs"),
            units::count(kept as u64),
        ))?;
    }
    Ok(Exit::Done)
}
