//! `hashfold verify`: reads every byte of a table or store and says what is damaged.

use crate::{
    device,
    failure::{Exit, Failure, Result},
    output::write_line,
    progress::{Progress, Show, Unit},
    source::SourceArgs,
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

/// Read all of a table, or of a version of a store, and check it
///
/// Each damage is told on its own line, and the command then ends with exit code 1, unless it was
/// mended.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Check all versions of a store
    #[arg(long, conflicts_with = "version")]
    pub(crate) all: bool,
    /// Mend CURRENT from the version files if it is lost or damaged. The version of --version is
    /// current then, or else the last one that is known to have been
    #[arg(long)]
    pub(crate) repair: bool,
    /// Mend what is lost or damaged from another copy of the store: CURRENT and all version files,
    /// and the tables of the versions that are checked
    #[arg(long, value_name = "DIR", conflicts_with = "repair")]
    pub(crate) repair_from: Option<PathBuf>,
    /// Progress and results as JSON objects on standard output
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
            "{folder}: is no store; --all, --repair and --repair-from are for stores"
        )));
    }
    let options = OpenOptions { data: Access::Direct, index: Access::Cached };
    let table = match Table::open(&device::disk(), &args.source.folder, options) {
        Ok(table) => table,
        // What is damaged so that nothing can be looked up is a find like any other.
        Err(error) if error.class() == ErrorClass::Damage => {
            let report = VerifyReport { damage: vec![error], ..VerifyReport::default() };
            return args.conclude(&report);
        }
        Err(error) => return Err(error.into()),
    };
    let mut progress = None;
    let report = table.verify(&mut |done, total| {
        progress
            .get_or_insert_with(|| {
                Progress::start(args.show(), "verifying", Unit::Blocks, Some(total))
            })
            .set(done);
        Ok(())
    })?;
    drop(progress);
    args.conclude(&report)
}

impl VerifyArgs {
    /// Whether damage is to be mended.
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
                    "{}: {} found; restore the table from a copy or build it anew",
                    self.source.folder.display(),
                    units::counted(count, "damage", "damages")
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
                "damages": report.damage.len(),
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

/// Prints a line for each damage.
pub(crate) fn print_damage(damages: &[Error], json: bool) -> Result<()> {
    damages.iter().try_for_each(|damage| match json {
        true => write_line(damage_json(damage)),
        false => write_line(damage),
    })
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
