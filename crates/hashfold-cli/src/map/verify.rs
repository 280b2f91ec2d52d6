//! `hashfold map verify`: reads every block of a map and reports problems.

use crate::{
    failure::{Exit, Result},
    folder,
    progress::{Progress, Show, Unit},
    stop::Stop,
    units,
    verify::conclude,
    wait::WaitArgs,
};
use clap::Args;
use hashfold::{
    Env,
    map::{self, MapFigures},
    verify::VerifyReport,
};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Read every block of a map and check it
///
/// Prints each problem on its own line with file and offset; the exit code is then 1.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// Folder of the map
    #[arg(value_name = "DIR")]
    map: PathBuf,
    /// Print progress and results as JSON objects on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wait: WaitArgs,
}

pub(crate) fn run(args: &VerifyArgs) -> Result<Exit> {
    folder::require_map(&args.map)?;
    check(&args.map, args.json, args.wait)
}

/// Checks the map in a folder.
pub(crate) fn check(folder: &Path, json: bool, wait: WaitArgs) -> Result<Exit> {
    let stop = Stop::on_signals()?;
    let show = if json { Show::Json } else { Show::Text };
    let verify = || {
        let progress = Progress::start(show, "verifying", Unit::Bytes, None);
        let report = map::verify(&Env::system(), folder, &stop.watch(progress));
        // Damage that prevents opening the map is reported like any other.
        Ok(report.or_else(VerifyReport::of)?)
    };
    let VerifyReport { figures, damage } = wait.retry(&stop, verify)?;
    let MapFigures { blocks, entries, changes, logged, .. } = figures;
    let in_log = match logged {
        0 => String::new(),
        logged => format!(", and {} in the log", units::counted(logged, "change", "changes")),
    };
    conclude(
        folder,
        &damage,
        json.then(
            || json!({ "map": folder.to_string_lossy(), "blocks": blocks, "entries": entries, "changes": changes, "logged": logged }),
        ),
        &format!(
            "{} and {} in {}{in_log}",
            units::counted(entries, "entry", "entries"),
            units::counted(changes, "change", "changes"),
            units::counted(blocks, "block", "blocks")
        ),
        "restore the map from a copy, or write what is left to a new one with `hashfold map salvage`",
    )
}
