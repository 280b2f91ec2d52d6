//! `hashfold reindex`: builds another index over the data of a table.

use crate::{
    failure::{Exit, Result},
    folder,
    options::IndexArgs,
    output::write_line,
    progress::{Progress, Show, Unit},
    stat,
    stop::Stop,
    units,
    wait::WaitArgs,
};
use clap::Args;
use hashfold::{Env, table};
use std::{path::PathBuf, time::Instant};

/// Build another index over the data of a table
///
/// The data file is read once and does not change. Readers that have the table open keep the old
/// index.
#[derive(Args, Debug)]
pub(crate) struct ReindexArgs {
    /// Folder of the table
    #[arg(value_name = "DIR")]
    table: PathBuf,
    #[command(flatten)]
    index: IndexArgs,
    #[command(flatten)]
    wait: WaitArgs,
    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ReindexArgs) -> Result<Exit> {
    let start = Instant::now();
    folder::refuse_store(&args.table, "it keeps the index that it was made with")?;
    let show = if args.json { Show::Nothing } else { Show::Text };
    let watch = Stop::never().watch(Progress::start(show, "indexing", Unit::Entries, None));
    let reindex =
        || Ok(table::reindex(&Env::system(), &args.table, &args.index.options(), &watch)?);
    let stats = args.wait.retry(&Stop::never(), reindex)?;
    drop(watch);
    if args.json {
        write_line(stat::to_json(&stats))?;
    } else {
        write_line(format_args!(
            "reindexed {}: {}, index {}; {:.1} s",
            args.table.display(),
            units::counted(stats.entries, "entry", "entries"),
            units::index_size(stats.index_bytes, stats.index_bits_per_key(), stats.entries),
            start.elapsed().as_secs_f64(),
        ))?;
    }
    Ok(Exit::Done)
}
