//! `hashfold verify` of a table.

use super::{args::VerifyArgs, report::conclude};
use crate::{
    failure::{Exit, Result},
    progress::{Progress, Unit},
    stop::Stop,
    units,
};
use hashfold::{
    ReadOptions,
    io::Access,
    table::{Table, TableFigures},
    verify::VerifyReport,
};
use serde_json::json;

pub(super) fn run(args: &VerifyArgs) -> Result<Exit> {
    let options = args.access.to_verify(ReadOptions::new().index(Access::Cached));
    let table = match Table::open_with(&args.source.folder, &options) {
        Ok(table) => table,
        // Damage that prevents opening the table is reported like any other.
        Err(error) => return conclude_table(args, &VerifyReport::of(error)?),
    };
    let blocks = Some(table.stats().blocks);
    let progress = Progress::start(args.show(), "verifying", Unit::Blocks, blocks);
    let report = table.verify(&Stop::never().watch(progress))?;
    conclude_table(args, &report)
}

fn conclude_table(args: &VerifyArgs, report: &VerifyReport<TableFigures>) -> Result<Exit> {
    let TableFigures { blocks, entries } = report.figures;
    let folder = &args.source.folder;
    conclude(
        folder,
        &report.damage,
        args.json.then(
            || json!({ "table": folder.to_string_lossy(), "blocks": blocks, "entries": entries }),
        ),
        &format!(
            "{} in {}",
            units::counted(entries, "entry", "entries"),
            units::counted(blocks, "block", "blocks")
        ),
        "restore the table from a copy or build it again",
    )
}
