//! `hashfold filter verify`: reads every byte of a filter and says what is damaged.

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
    Error, ErrorClass, ErrorKind,
    filter::cascade::{CascadeReport, verify_cascade},
};
use serde_json::json;
use std::path::PathBuf;

/// Read all of a filter, and check it
///
/// Nobody can change the filter meanwhile. Each damage is told on its own line, and the command then
/// ends with exit code 1.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// The folder of the filter
    #[arg(value_name = "DIR")]
    filter: PathBuf,
    /// Progress and results as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &VerifyArgs) -> Result<Exit> {
    folder::require_filter(&args.filter)?;
    let disk = device::disk();
    let _lock = disk.lock(&args.filter)?;
    let stop = Stop::on_signals()?;
    let show = if args.json { Show::Json } else { Show::Text };
    let mut progress = Progress::start(show, "verifying", Unit::Entries, None);
    let report = verify_cascade(disk.as_ref(), &args.filter, &mut |done| {
        progress.set(done);
        if stop.is_asked() { Err(Error::new(ErrorKind::Stopped)) } else { Ok(()) }
    });
    drop(progress);
    match report {
        Ok(report) => args.conclude(&report),
        // What is damaged so that nothing can be looked up is a find like any other.
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
                "items": report.items, "damages": report.damage.len(),
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
                    "{folder}: {} found; restore the filter from a copy or make it anew",
                    units::counted(count, "damage", "damages")
                ),
            }),
        }
    }
}
