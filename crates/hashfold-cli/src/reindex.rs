//! `hashfold reindex`: another index over the same data.

use crate::{
    device,
    failure::{Exit, Result},
    folder,
    options::IndexArgs,
    output::write_line,
    stat, units,
};
use clap::Args;
use hashfold::table;
use std::{path::PathBuf, time::Instant};

/// Make another index for a table; its data stay as they are
#[derive(Args, Debug)]
pub(crate) struct ReindexArgs {
    /// The folder of the table
    #[arg(value_name = "DIR")]
    table: PathBuf,
    #[command(flatten)]
    index: IndexArgs,
    /// The summary as a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ReindexArgs) -> Result<Exit> {
    let start = Instant::now();
    folder::refuse_store(&args.table, "its tables never change; `hashfold update` makes others")?;
    let stats = table::reindex(&device::disk(), &args.table, &args.index.options())?;
    if args.json {
        write_line(stat::to_json(&stats))?;
    } else {
        write_line(format_args!(
            "reindexed {}: {}, index {:.2} bits a key; {:.1} s",
            args.table.display(),
            units::counted(stats.entries, "entry", "entries"),
            stats.index_bits_per_key(),
            start.elapsed().as_secs_f64(),
        ))?;
    }
    Ok(Exit::Done)
}
