//! `hashfold filter verify`: reads every byte of a filter and reports problems.

use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    output::write_line,
    progress::{Progress, Show, Unit},
    stop::Stop,
    units,
    verify::print_damage,
};
use clap::Args;
use hashfold::{
    ErrorClass,
    filter::cascade::{CascadeReport, verify_cascade},
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
    let report = verify_cascade(disk.as_ref(), &args.filter, &stop.watch(progress));
    match report {
        Ok(report) => args.conclude(&report),
        // Damage that prevents opening the filter is reported like any other.
        Err(error) if error.class() == ErrorClass::Damage => {
            args.conclude(&CascadeReport { damage: vec![error], ..CascadeReport::default() })
        }
        Err(error) => Err(error.into()),
    }
}

impl VerifyArgs {
    fn conclude(&self, report: &CascadeReport) -> Result<Exit> {
        let folder = self.filter.display();
        print_damage(&report.damage, self.json)?;
        if self.json {
            write_line(json!({
                "event": "verified", "filter": folder.to_string(), "runs": report.runs,
                "items": report.items, "problems": report.damage.len(),
            }))?;
        } else if report.is_sound() {
            write_line(format_args!(
                "verified {folder}: {} in {}, no damage",
                units::counted(report.items, "key", "keys"),
                units::counted(report.runs, "run", "runs")
            ))?;
        }
        match report.damage.len() as u64 {
            0 => Ok(Exit::Done),
            count => Err(Failure {
                exit: Exit::No,
                message: format!(
                    "{folder}: {} found; restore the filter from a copy or make it again",
                    units::counted(count, "problem", "problems")
                ),
            }),
        }
    }
}
