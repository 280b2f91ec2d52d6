//! `hashfold sketch union`: one sketch of the keys of several.

use super::{
    any,
    file::{self, Target},
    groups, words,
};
use crate::{
    failure::{Exit, Result},
    output::write_line,
    progress::Show,
    stop::Stop,
    wait::WaitArgs,
};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Write the sketch of all keys of several sketches
///
/// Loses nothing: the result is that of all keys inserted into one sketch. If precisions differ, it has
/// the lowest one. The union of tables of groups is a table, written in one pass
/// over all of them.
#[derive(Args, Debug)]
pub(crate) struct UnionArgs {
    /// File or folder to write; may be one of the others
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Files of sketches, or folders of tables of groups
    #[arg(value_name = "FILE", required = true)]
    sketches: Vec<PathBuf>,
    /// Replace OUT if it is there and is none of the others
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    wait: WaitArgs,
    /// Print a JSON object; for tables of groups, progress and summary as JSON objects
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &UnionArgs) -> Result<Exit> {
    if args.sketches.iter().any(|path| path.is_dir()) {
        let show = if args.json { Show::Json } else { Show::Text };
        groups::union((&args.out, args.replace), &args.sketches, (args.wait, show))?;
        return Ok(Exit::Done);
    }
    let target = Target::lock(&args.out, &Stop::on_signals()?)?;
    file::refuse_existing(&args.out, &args.sketches, args.replace)?;
    let union = file::read_union(&args.sketches)?;
    let bytes = union.to_bytes();
    target.write(&bytes)?;
    let (out, estimate) = (args.out.display(), any::estimate(&union, words::CONFIDENCE)?);
    match args.json {
        true => write_line(json!({
            "sketch": out.to_string(), "bytes": bytes.len(), "distinct": estimate.to_json(),
        }))?,
        false => write_line(format_args!("wrote {out}; distinct keys: {}", estimate.words()))?,
    }
    Ok(Exit::Done)
}
