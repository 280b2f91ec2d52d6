//! `hashfold filter merge`: filters into one, and all of it into its last level.

use super::{
    open::{self, Budget, MachineArgs},
    stat::is_merged,
};
use crate::{
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
    progress::{Progress, Show, Unit},
    units,
};
use clap::Args;
use hashfold::filter::cascade::{CascadeFilter, CascadeStats, Snapshot};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// Put all of other filters into a filter, and merge what it has
///
/// A filter keeps what comes in many sorted runs, and merges them as it goes. Afterwards each key
/// takes one read for each epoch, and if there is one epoch, `hashfold filter stat` tells their exact
/// number. Other filters must have been made with the same --seed, and the same --capacity and
/// --error or --exact; they stay as they are. What they have counts as added now, to the newest
/// epoch; in a --multiset counts add up.
#[derive(Args, Debug)]
pub(crate) struct MergeArgs {
    /// The folder of the filter
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    /// Folders of other filters
    #[arg(value_name = "OTHER")]
    others: Vec<PathBuf>,
    #[command(flatten)]
    machine: MachineArgs,
    /// Progress and the summary as JSON objects
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &MergeArgs) -> Result<Exit> {
    let start = Instant::now();
    let budget = args.machine.budget();
    let mut filter = open::open(&args.filter, &budget)?;
    let stats = filter.stats();
    let open = |other: &PathBuf| open_other(&args.filter, &stats, other, &budget);
    // All are looked at before any of them is put in. They are open one at a time: each takes memory.
    for other in &args.others {
        open(other)?;
    }
    let io = budget.executor();
    for other in &args.others {
        let other = open(other)?;
        filter.insert_run(&mut other.scan(&io)?, other.stats().items)?;
    }
    let show = if args.json { Show::Json } else { Show::Text };
    let mut progress = Progress::start(show, "merging", Unit::Entries, None);
    filter.merge_with(&mut |done| progress.set(done))?;
    drop(progress);
    args.report(&filter, start)
}

impl MergeArgs {
    fn report(&self, filter: &CascadeFilter, start: Instant) -> Result<Exit> {
        let (stats, seconds) = (filter.stats(), start.elapsed().as_secs_f64());
        let folder = self.filter.display();
        if self.json {
            write_line(json!({
                "event": "merged", "filter": folder.to_string(), "others": self.others.len(),
                "items": stats.items, "file_bytes": stats.file_bytes, "seconds": seconds,
            }))?;
        } else {
            let others = match self.others.len() as u64 {
                0 => String::new(),
                count => format!(", {} put in", units::counted(count, "other filter", "others")),
            };
            let at_most = if is_merged(&stats) { "" } else { " at most" };
            write_line(format_args!(
                "merged {folder}: {}{at_most}{others}; {}, {:.1} bits a key; {seconds:.1} s",
                units::counted(stats.items, "key", "keys"),
                units::bytes(stats.file_bytes),
                stats.bits_per_item(),
            ))?;
        }
        Ok(Exit::Done)
    }
}

/// Opens another filter, whose fingerprints must be those of this one.
fn open_other(
    folder: &Path,
    filter: &CascadeStats,
    other: &Path,
    budget: &Budget,
) -> Result<Snapshot> {
    folder::require_filter(other)?;
    let is_same =
        matches!((fs::canonicalize(folder), fs::canonicalize(other)), (Ok(a), Ok(b)) if a == b);
    if is_same {
        let other = other.display();
        return Err(Failure::usage(format!("{other}: is the filter itself; name others")));
    }
    let snapshot = budget.open_other(other)?;
    let differs = match () {
        () if snapshot.seed() != filter.seed => "another seed; make both with the same --seed",
        () if snapshot.universe() != filter.universe => {
            "fingerprints of another size; make both with the same --capacity and --error, or \
             --exact"
        }
        () if snapshot.mode() != filter.mode => {
            "another mode; make both with --multiset or without"
        }
        () => return Ok(snapshot),
    };
    Err(Failure::usage(format!(
        "{}: cannot be put into {}: it has {differs}",
        other.display(),
        folder.display()
    )))
}
