//! `hashfold verify`: reads every byte of a table and says what is damaged.

use crate::{
    device,
    failure::{Exit, Failure, Result},
    output::write_line,
    progress::{Progress, Show, Unit},
    units,
};
use clap::Args;
use hashfold::{
    Error, ErrorClass,
    io::Access,
    table::{OpenOptions, Table, VerifyReport},
};
use serde_json::json;
use std::path::PathBuf;

/// Read all of a table and check it
///
/// Each damage is told on its own line, and the command then ends with exit code 1.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// The folder of the table
    #[arg(value_name = "DIR")]
    table: PathBuf,
    /// Progress and results as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &VerifyArgs) -> Result<Exit> {
    let options = OpenOptions { data: Access::Direct, index: Access::Cached };
    let table = match Table::open(&device::disk(), &args.table, options) {
        Ok(table) => table,
        // What is damaged so that nothing can be looked up is a find like any other.
        Err(error) if error.class() == ErrorClass::Damage => {
            let report = VerifyReport { damage: vec![error], ..VerifyReport::default() };
            return args.conclude(&report);
        }
        Err(error) => return Err(error.into()),
    };
    let show = if args.json { Show::Json } else { Show::Text };
    let mut progress = None;
    let report = table.verify(&mut |done, total| {
        progress
            .get_or_insert_with(|| Progress::start(show, "verifying", Unit::Blocks, Some(total)))
            .set(done);
        Ok(())
    })?;
    drop(progress);
    args.conclude(&report)
}

impl VerifyArgs {
    fn conclude(&self, report: &VerifyReport) -> Result<Exit> {
        self.print(report)?;
        match report.damage.len() as u64 {
            0 => Ok(Exit::Done),
            count => Err(Failure {
                exit: Exit::No,
                message: format!(
                    "{}: {} found; restore the table from a copy or build it anew",
                    self.table.display(),
                    units::counted(count, "damage", "damages")
                ),
            }),
        }
    }

    fn print(&self, report: &VerifyReport) -> Result<()> {
        for damage in &report.damage {
            if self.json {
                write_line(damage_json(damage))?;
            } else {
                write_line(damage)?;
            }
        }
        if self.json {
            let object = json!({
                "event": "verified", "table": self.table.to_string_lossy(),
                "blocks": report.blocks, "entries": report.entries,
                "damages": report.damage.len(),
            });
            write_line(object)?;
        } else if report.damage.is_empty() {
            write_line(format_args!(
                "verified {}: {} in {}, no damage",
                self.table.display(),
                units::counted(report.entries, "entry", "entries"),
                units::counted(report.blocks, "block", "blocks")
            ))?;
        }
        Ok(())
    }
}

fn damage_json(damage: &Error) -> serde_json::Value {
    let place = damage.place();
    json!({
        "event": "damage",
        "file": place.map(|place| place.file.to_string_lossy()),
        "offset": place.and_then(|place| place.offset),
        "what": damage.kind().to_string(),
    })
}
