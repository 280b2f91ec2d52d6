//! `hashfold verify`: reads every byte of a table or store and reports problems.

use crate::{
    device,
    failure::{Exit, Failure, Result},
    output::write_line,
    progress::{Progress, Show, Unit},
    source::SourceArgs,
    stop::Stop,
    units, verify_store,
};
use clap::Args;
use hashfold::{
    Error, ErrorClass,
    io::Access,
    table::{OpenOptions, Table, VerifyReport},
};
use serde_json::json;
use std::path::PathBuf;

/// Read every byte of a table, or of a version of a store, and check it
///
/// Prints each problem on its own line with file and offset. The exit code is 1 if a problem is left,
/// and 0 if all were repaired.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Check all versions of a store instead of the current one
    #[arg(long, conflicts_with = "version")]
    pub(crate) all: bool,
    /// Rebuild a lost or damaged CURRENT from the version files. Then --version N is current, or the
    /// last version that is known to have been current, and all versions are pinned
    #[arg(long)]
    pub(crate) repair: bool,
    /// Repair from a copy of the store: restores a lost or damaged CURRENT, version files, and the
    /// damaged pieces of the checked versions' tables
    #[arg(long, value_name = "DIR", conflicts_with = "repair")]
    pub(crate) repair_from: Option<PathBuf>,
    /// Print progress and results as JSON objects on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &VerifyArgs) -> Result<Exit> {
    if args.source.is_store()? {
        return verify_store::run(args);
    }
    if args.all || args.repairs() {
        let folder = args.source.folder.display();
        return Err(Failure::usage(format!(
            "{folder}: is a table, expected a store for --all, --repair and --repair-from"
        )));
    }
    let options = OpenOptions { data: Access::Direct, index: Access::Cached };
    let table = match Table::open(&device::disk(), &args.source.folder, options) {
        Ok(table) => table,
        // Damage that prevents opening the table is reported like any other.
        Err(error) if error.class() == ErrorClass::Damage => {
            let report = VerifyReport { damage: vec![error], ..VerifyReport::default() };
            return args.conclude(&report);
        }
        Err(error) => return Err(error.into()),
    };
    let blocks = Some(table.stats().blocks);
    let progress = Progress::start(args.show(), "verifying", Unit::Blocks, blocks);
    let report = table.verify(&Stop::never().watch(progress))?;
    args.conclude(&report)
}

impl VerifyArgs {
    /// Returns whether a repair is asked for.
    pub(crate) fn repairs(&self) -> bool {
        self.repair || self.repair_from.is_some()
    }

    pub(crate) fn show(&self) -> Show {
        if self.json { Show::Json } else { Show::Text }
    }

    fn conclude(&self, report: &VerifyReport) -> Result<Exit> {
        self.print(report)?;
        match report.damage.len() as u64 {
            0 => Ok(Exit::Done),
            count => Err(Failure {
                exit: Exit::No,
                message: format!(
                    "{}: {} found; restore the table from a copy or build it again",
                    self.source.folder.display(),
                    units::counted(count, "problem", "problems")
                ),
            }),
        }
    }

    pub(crate) fn print_damage(&self, damages: &[Error]) -> Result<()> {
        print_damage(damages, self.json)
    }

    fn print(&self, report: &VerifyReport) -> Result<()> {
        self.print_damage(&report.damage)?;
        if self.json {
            let object = json!({
                "event": "verified", "table": self.source.folder.to_string_lossy(),
                "blocks": report.blocks, "entries": report.entries,
                "problems": report.damage.len(),
            });
            write_line(object)?;
        } else if report.damage.is_empty() {
            write_line(format_args!(
                "verified {}: {} in {}, no damage",
                self.source.folder.display(),
                units::counted(report.entries, "entry", "entries"),
                units::counted(report.blocks, "block", "blocks")
            ))?;
        }
        Ok(())
    }
}

/// Prints one line per problem.
pub(crate) fn print_damage(damages: &[Error], json: bool) -> Result<()> {
    damages.iter().try_for_each(|damage| match json {
        true => write_line(damage_json(damage)),
        false => write_line(damage),
    })
}

fn damage_json(damage: &Error) -> serde_json::Value {
    let place = damage.place();
    json!({
        "event": "problem",
        "file": place.map(|place| place.file.to_string_lossy()),
        "offset": place.and_then(|place| place.offset),
        "what": damage.kind().to_string(),
    })
}
