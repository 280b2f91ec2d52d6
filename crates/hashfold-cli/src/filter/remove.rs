//! `hashfold filter remove`: removes keys from a filter.

use super::{
    keys::{self, KeyArgs},
    open::{self, MachineArgs},
};
use crate::{
    failure::{Exit, Result},
    folder,
    output::write_line,
    progress::Show,
    stop::Stop,
    units,
};
use clap::Args;
use serde_json::json;
use std::{path::PathBuf, time::Instant};

/// Remove keys from a filter
///
/// Keys are read as `add` reads them. Remove only keys that were inserted. Unless the filter is
/// exact, different keys may share a fingerprint, and removing one of them removes all. In a multiset,
/// removing a key that was never inserted cancels the next insertion of its fingerprint.
#[derive(Args, Debug)]
pub(crate) struct RemoveArgs {
    /// Folder of the filter
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print progress and summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &RemoveArgs) -> Result<Exit> {
    folder::require_filter(&args.filter)?;
    let inputs = args.keys.open()?;
    let start = Instant::now();
    let stop = Stop::on_signals()?;
    let budget = args.machine.budget();
    let mut filter = open::open(&args.filter, &budget)?;
    let show = if args.json { Show::Json } else { Show::Text };
    let mut keys = args.keys.start(inputs, &budget, show)?;
    let (mut hashes, mut count) = (Vec::new(), 0);
    let mut take = || {
        while let Some(batch) = keys.next(&stop)? {
            batch.hash(filter.seed(), &mut hashes);
            filter.remove_batch(&hashes)?;
            count += batch.len() as u64;
        }
        Ok(())
    };
    let taken = take().and_then(|()| keys.finish());
    let bad_rows = keys::end(count, "removed", taken, filter.close())?;
    args.report(count, bad_rows, start.elapsed().as_secs_f64())
}

impl RemoveArgs {
    fn report(&self, count: u64, bad_rows: u64, seconds: f64) -> Result<Exit> {
        let folder = self.filter.display();
        if self.json {
            write_line(json!({
                "event": "removed", "filter": folder.to_string(), "keys": count,
                "bad_rows": bad_rows, "seconds": seconds,
            }))?;
        } else {
            write_line(format_args!(
                "removed from {folder}: {}{}; {seconds:.1} s, {} keys/s",
                units::counted(count, "key", "keys"),
                self.keys.files.bad_rows_note(bad_rows),
                units::count(units::per_second(count, seconds)),
            ))?;
        }
        Ok(Exit::Done)
    }
}
