//! `hashfold filter advance`: starts a new epoch and drops old ones.

use super::open::{self, Budget};
use crate::{
    failure::{Exit, Failure, Result},
    output::write_line,
    stop::Stop,
    units,
    wait::WaitArgs,
};
use clap::Args;
use hashfold::filter::cascade::CascadeFilter;
use serde_json::json;
use std::path::PathBuf;

/// Start a new epoch, and drop old ones
///
/// A key belongs to the epoch in which it was inserted. Dropping an epoch removes its files without
/// reading them. `hashfold filter advance DIR --keep 7` begins an epoch each time that it is run. To
/// keep keys for a time, create the filter with --window: then `add` advances by the clock, and this
/// command only drops what has become too old. A key that comes again with `add --unique` stays in its
/// old epoch.
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
    let dropped = args.advance(&mut filter)?;
    let (epoch, kept) = (filter.epoch(), filter.stats().epochs.len());
    filter.close()?;
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

impl AdvanceArgs {
    /// Returns the number of dropped epochs.
    fn advance(&self, filter: &mut CascadeFilter) -> Result<u64> {
        if filter.stats().window.is_none() {
            let epoch = filter.advance_epoch()?;
            let before = filter.stats().epochs.len();
            if let Some(keep) = self.keep {
                filter.expire_before((epoch + 1).saturating_sub(keep))?;
            }
            return Ok((before - filter.stats().epochs.len()) as u64);
        }
        if self.keep.is_some() {
            return Err(Failure::usage(format!(
                "{}: forgets by the clock, because it was made with --window; leave --keep out",
                self.filter.display()
            )));
        }
        Ok(filter.advance_window()?)
    }
}
