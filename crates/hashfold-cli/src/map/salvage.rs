//! `hashfold map salvage`: what a damaged map still holds, as a new map.

use super::open::{self, ChangeArgs};
use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
    progress::{Progress, Show, Unit},
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::map::Loss;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Name of the file in which entries are sorted that exceed the memory budget.
const SPILL: &str = "hashfold-salvage.spill";

/// Write all that a damaged map still holds to a new map in another folder
///
/// Prints each damaged part on its own line, with file and offset, and says which entries are lost or
/// may be older; the exit code is then 1. The damaged map is not changed. If the entries exceed the
/// memory budget, they are sorted in a file in the folder above the new map. After a crash or an
/// error, the new folder is not a map: run the command again.
#[derive(Args, Debug)]
pub(crate) struct SalvageArgs {
    /// Folder of the damaged map
    #[arg(value_name = "DIR")]
    map: PathBuf,
    /// Folder of the new map
    #[arg(value_name = "TO")]
    to: PathBuf,
    /// Print progress and results as JSON objects on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) fn run(args: &SalvageArgs) -> Result<Exit> {
    folder::require_map(&args.map)?;
    open::check_free(&args.to)?;
    let stop = Stop::on_signals()?;
    let show = if args.json { Show::Json } else { Show::Text };
    let progress = Progress::start(show, "reading", Unit::Bytes, None);
    let spill = existing_above(&args.to)?.join(SPILL);
    let mut left =
        args.change.salvage((args.map.as_path(), spill.as_path()), &stop, &stop.watch(progress))?;
    let progress = Progress::start(show, "writing", Unit::Entries, None);
    let entries = left.write_map(&args.to, &stop.watch(progress))?;
    left.losses().iter().try_for_each(|loss| match args.json {
        true => write_line(to_json(loss)),
        false => write_line(loss),
    })?;
    args.conclude(entries, left.losses().len() as u64)
}

impl SalvageArgs {
    fn conclude(&self, entries: u64, problems: u64) -> Result<Exit> {
        let (from, to) = (self.map.display(), self.to.display());
        let count = units::counted(entries, "entry", "entries");
        if self.json {
            write_line(json!({
                "event": "salvaged", "map": from.to_string(), "to": to.to_string(),
                "entries": entries, "problems": problems,
            }))?;
        } else {
            write_line(format_args!("salvaged {from} to {to}: {count}"))?;
        }
        if problems == 0 {
            return Ok(Exit::Done);
        }
        let found = units::counted(problems, "problem", "problems");
        let message = format!("{from}: {found} found; {to} has all that could be read");
        Err(Failure { exit: Exit::No, message })
    }
}

/// Returns the folder itself or the first one above it that exists.
fn existing_above(folder: &Path) -> Result<&Path> {
    for above in folder.ancestors() {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        if device::disk().exists(above)? {
            return Ok(above);
        }
    }
    Ok(Path::new("."))
}

fn to_json(loss: &Loss) -> Value {
    let place = loss.error.place();
    json!({
        "event": "problem",
        "file": place.map(|place| place.file.to_string_lossy()),
        "offset": place.and_then(|place| place.offset),
        "what": loss.error.kind().to_string(),
        "lost": loss.lost.to_string(),
    })
}
