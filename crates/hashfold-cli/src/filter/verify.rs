//! `hashfold filter verify`: reads every byte of a filter and reports problems.

use super::words;
use crate::{
    device,
    failure::{Exit, Result},
    folder,
    progress::{Progress, Show, Unit},
    stop::Stop,
    units,
    verify::conclude,
};
use clap::Args;
use hashfold::{
    Env,
    filter::cascade::{self, CascadeFigures},
    verify::VerifyReport,
};
use serde_json::json;
use std::path::PathBuf;

/// Read every byte of a filter and check it
///
/// Locks the filter, so no process can change it meanwhile. Prints each problem on its own line with
/// file and offset; the exit code is then 1.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// Folder of the filter
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    /// Print progress and results as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &VerifyArgs) -> Result<Exit> {
    folder::require_filter(&args.filter)?;
    let disk = device::disk();
    let _lock = disk.lock(&args.filter)?;
    let stop = Stop::on_signals()?;
    let show = if args.json { Show::Json } else { Show::Text };
    let progress = Progress::start(show, "verifying", Unit::Entries, None);
    let report = cascade::verify(&Env::system(), &args.filter, &stop.watch(progress));
    // Damage that prevents opening the filter is reported like any other.
    let VerifyReport { figures, damage } = report.or_else(VerifyReport::of)?;
    let CascadeFigures { runs, fingerprints, tombstones, .. } = figures;
    conclude(
        &args.filter,
        &damage,
        args.json.then(
            || json!({ "filter": args.filter.to_string_lossy(), "runs": runs, "fingerprints": fingerprints, "tombstones": tombstones }),
        ),
        &format!(
            "{} with {}",
            units::counted(runs, "run", "runs"),
            words::fingerprints(fingerprints, tombstones)
        ),
        "restore the filter from a copy or make it again",
    )
}
