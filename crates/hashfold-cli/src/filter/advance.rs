//! `hashfold filter advance`: a new epoch, and forgetting old ones.

use super::open::{self, Budget};
use crate::{
    failure::{Exit, Result},
    output::write_line,
    units,
};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Begin a new epoch, and forget old ones
///
/// What is put in belongs to the epoch of its time, and an epoch is forgotten at once, without
/// reading any of it. So `hashfold filter advance DIR --keep 7`, once a day, keeps the keys of a week.
/// A key that is in an older epoch and comes again with `add --unique` stays in the older one.
#[derive(Args, Debug)]
pub(crate) struct AdvanceArgs {
    /// The folder of the filter
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    /// Keep so many epochs, with the new one, and forget those before [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keep: Option<u64>,
    /// The summary as a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &AdvanceArgs) -> Result<Exit> {
    let mut filter = open::open(&args.filter, &Budget::least())?;
    let epoch = filter.advance_epoch()?;
    let before = filter.stats().epochs.len();
    if let Some(keep) = args.keep {
        filter.expire_before((epoch + 1).saturating_sub(keep))?;
    }
    let kept = filter.stats().epochs.len();
    filter.close()?;
    let forgotten = (before - kept) as u64;
    let folder = args.filter.display();
    if args.json {
        write_line(json!({
            "event": "advanced", "filter": folder.to_string(), "epoch": epoch, "epochs": kept,
            "forgotten": forgotten,
        }))?;
    } else {
        write_line(format_args!(
            "advanced {folder}: epoch {epoch}; {} forgotten, {} there",
            units::counted(forgotten, "epoch is", "epochs are"),
            units::counted(kept as u64, "is", "are"),
        ))?;
    }
    Ok(Exit::Done)
}
