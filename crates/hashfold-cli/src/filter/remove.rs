//! `hashfold filter remove`: removes keys from a filter.

use super::{
    checkpoint::CheckpointArgs,
    open::{self, MachineArgs},
};
use crate::{
    applied::Applied,
    failure::{Exit, Result},
    folder,
    keys::KeyArgs,
    output::write_line,
    progress::Show,
    rows::FileArgs,
    stop::Stop,
    units,
};
use clap::Args;
use serde_json::json;
use std::{path::PathBuf, time::Instant};

/// Remove keys from a filter
///
/// Keys are given as to `add`. Each key is looked up first: removing a key that is not in the
/// filter has no effect, and it is not counted as removed. In a multiset, a key is removed once each
/// time that it is given. Unless the filter is exact, remove only keys that were inserted: different
/// keys may share a fingerprint, and removing one of them removes all.
#[derive(Args, Debug)]
pub(crate) struct RemoveArgs {
    /// Folder of the filter
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    checkpoint: CheckpointArgs,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print progress and summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &RemoveArgs) -> Result<Exit> {
    folder::require_filter(&args.filter)?;
    args.keys.refuse_files()?;
    let stop = Stop::on_signals()?;
    let inputs = args.keys.open(args.files.key_options()?, &stop)?;
    let start = Instant::now();
    let budget = args.machine.budget();
    let mut filter = args.machine.wait.retry(&stop, || open::open(&args.filter, &budget))?;
    args.keys.note_refused_io_uring();
    let show = if args.json { Show::Json } else { Show::Text };
    let mut keys = inputs.start(args.files.bad_row_policy(), budget.keys, show)?;
    let mut checkpoints = args.checkpoint.start(&filter);
    let (mut hashes, mut removed, mut counts) = (Vec::new(), Vec::new(), Removals::default());
    let mut take = || {
        while let Some(batch) = keys.next(&stop, &mut || checkpoints.take_if_due(&mut filter))? {
            batch.hash(filter.seed(), &mut hashes);
            removed.clear();
            removed.resize(batch.len(), false);
            filter.remove_present_batch(&hashes, &mut removed)?;
            counts.given += batch.len() as u64;
            counts.removed += removed.iter().filter(|removed| **removed).count() as u64;
            checkpoints.take_if_due(&mut filter)?;
        }
        Ok(())
    };
    let taken = take().and_then(|()| keys.finish());
    let count = units::counted(counts.removed, "key was", "keys were");
    let bad_rows = Applied { count, what: "removed" }.end(taken, filter.close())?;
    args.report(counts, bad_rows, start.elapsed().as_secs_f64())
}

/// Numbers of keys.
#[derive(Clone, Copy, Debug, Default)]
struct Removals {
    given: u64,
    /// The given keys that were in the filter.
    removed: u64,
}

impl RemoveArgs {
    fn report(&self, counts: Removals, bad_rows: u64, seconds: f64) -> Result<Exit> {
        let Removals { given, removed } = counts;
        let folder = self.filter.display();
        if self.json {
            write_line(json!({
                "event": "removed", "filter": folder.to_string(), "keys": given,
                "removed": removed, "bad_rows": bad_rows, "seconds": seconds,
            }))?;
        } else {
            let absent = match given - removed {
                0 => String::new(),
                absent => format!(
                    ", {} of the {} given {} not in the filter",
                    units::count(absent),
                    units::count(given),
                    if absent == 1 { "was" } else { "were" },
                ),
            };
            write_line(format_args!(
                "removed from {folder}: {}{absent}{}; {seconds:.1} s, {} keys/s",
                units::counted(removed, "key", "keys"),
                self.files.bad_rows_note(bad_rows),
                units::count(units::per_second(given, seconds)),
            ))?;
        }
        Ok(Exit::Done)
    }
}
