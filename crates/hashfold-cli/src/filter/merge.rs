//! `hashfold filter merge`: merges other filters into a filter, and its runs into its last level.

use super::{
    fill::FillWarnings,
    open::{self, Budget, MachineArgs},
    words,
};
use crate::{
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
    progress::{Progress, Show, Unit},
    stop::Stop,
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

/// Merge all runs of a filter, and other filters into it
///
/// Inserted keys lie in several sorted runs, which are merged in the background as they grow. After
/// this command a query takes one device read per epoch, and with one epoch `hashfold filter stat`
/// prints the exact number of keys. Rewrites the filter once.
///
/// Other filters must have the same --seed, and the same --capacity and --fp-rate or --exact. They do
/// not change. Their keys join the newest epoch; counts of a --multiset add up.
#[derive(Args, Debug)]
pub(crate) struct MergeArgs {
    /// Folder of the filter
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    /// Folders of other filters to merge in
    #[arg(value_name = "OTHER")]
    others: Vec<PathBuf>,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print progress and the summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &MergeArgs) -> Result<Exit> {
    let start = Instant::now();
    let budget = args.machine.budget();
    let mut filter =
        args.machine.wait.retry(&Stop::never(), || open::open(&args.filter, &budget))?;
    let stats = filter.stats();
    let open = |other: &PathBuf| open_other(&args.filter, &stats, other, &budget);
    // All filters are checked before the first one is merged. One is open at a time, to save
    // memory.
    for other in &args.others {
        open(other)?;
    }
    for other in &args.others {
        let other = open(other)?;
        filter.insert_run(&mut other.scan()?, other.stats().fingerprints)?;
    }
    let show = if args.json { Show::Json } else { Show::Text };
    let progress = Progress::start(show, "merging", Unit::Entries, None);
    filter.merge_with(&Stop::never().watch(progress))?;
    args.report(&filter, start)
}

impl MergeArgs {
    fn report(&self, filter: &CascadeFilter, start: Instant) -> Result<Exit> {
        let (stats, seconds) = (filter.stats(), start.elapsed().as_secs_f64());
        FillWarnings::new().check(&self.filter, &stats);
        let folder = self.filter.display();
        if self.json {
            write_line(json!({
                "event": "merged", "filter": folder.to_string(), "others": self.others.len(),
                "keys_max": stats.keys_max(), "keys_are_exact": stats.is_merged(),
                "fingerprints": stats.fingerprints, "tombstones": stats.tombstones,
                "file_bytes": stats.file_bytes, "seconds": seconds,
            }))?;
        } else {
            let others = match self.others.len() as u64 {
                0 => String::new(),
                count => format!(
                    ", {} merged in",
                    units::counted(count, "other filter", "other filters")
                ),
            };
            write_line(format_args!(
                "merged {folder}: {}{others}; {}; {seconds:.1} s",
                words::keys(&stats),
                words::size(&stats),
            ))?;
        }
        Ok(Exit::Done)
    }
}

/// Opens another filter, which must have fingerprints of the same kind.
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
        return Err(Failure::usage(format!("{other}: is the filter itself; name other filters")));
    }
    let snapshot = budget.open_other(other)?;
    let differs = match () {
        () if snapshot.seed() != filter.seed => "another seed; make both with the same --seed",
        () if snapshot.universe() != filter.universe => {
            "fingerprints of another size; make both with the same --capacity and --fp-rate, \
             or --exact"
        }
        () if snapshot.mode() != filter.mode => {
            "another mode; make both with --multiset or without"
        }
        () => return Ok(snapshot),
    };
    Err(Failure::usage(format!(
        "{}: cannot be merged into {}: it has {differs}",
        other.display(),
        folder.display()
    )))
}
