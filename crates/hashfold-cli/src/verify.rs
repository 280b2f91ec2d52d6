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
    Error,
    io::Access,
    table::{OpenOptions, Table, TableFigures},
    verify::VerifyReport,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

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
        Err(error) => return args.conclude(&VerifyReport::of(error)?),
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

    fn conclude(&self, report: &VerifyReport<TableFigures>) -> Result<Exit> {
        let TableFigures { blocks, entries } = report.figures;
        let folder = &self.source.folder;
        conclude(
            folder,
            &report.damage,
            self.json.then(|| json!({ "table": folder.to_string_lossy(), "blocks": blocks, "entries": entries })),
            &format!(
                "{} in {}",
                units::counted(entries, "entry", "entries"),
                units::counted(blocks, "block", "blocks")
            ),
            "restore the table from a copy or build it again",
        )
    }

    pub(crate) fn print_damage(&self, damages: &[Error]) -> Result<()> {
        print_damage(damages, self.json)
    }
}

/// Prints the damage that was found in a data set and what was read of it: as an object if one is
/// given, else as text if there is no damage. Damage is a failure, which says what to do.
pub(crate) fn conclude(
    folder: &Path,
    damage: &[Error],
    object: Option<Value>,
    read: &str,
    remedy: &str,
) -> Result<Exit> {
    print_damage(damage, object.is_some())?;
    let (folder, problems) = (folder.display(), damage.len());
    if let Some(mut object) = object {
        object["event"] = json!("verified");
        object["problems"] = json!(problems);
        write_line(object)?;
    } else if damage.is_empty() {
        write_line(format_args!("verified {folder}: {read}, no damage"))?;
    }
    if damage.is_empty() {
        return Ok(Exit::Done);
    }
    let found = units::counted(problems as u64, "problem", "problems");
    Err(Failure { exit: Exit::No, message: format!("{folder}: {found} found; {remedy}") })
}

/// Prints one line per problem.
pub(crate) fn print_damage(damages: &[Error], json: bool) -> Result<()> {
    damages.iter().try_for_each(|damage| match json {
        true => write_line(damage_json(damage)),
        false => write_line(damage),
    })
}

fn damage_json(damage: &Error) -> Value {
    let place = damage.place();
    json!({
        "event": "problem",
        "file": place.map(|place| place.file.to_string_lossy()),
        "offset": place.and_then(|place| place.offset),
        "what": damage.kind().to_string(),
    })
}
