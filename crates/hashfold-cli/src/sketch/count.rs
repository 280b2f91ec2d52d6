//! `hashfold sketch count`: how many distinct keys.

use super::{
    file,
    groups::{self, Which},
    words,
};
use crate::{
    failure::{Exit, Failure, Result},
    output::write_line,
    units,
};
use clap::Args;
use std::path::PathBuf;

/// Estimate the number of distinct keys in one sketch, or in all of several together
///
/// `sketch count DIR GROUP...` prints those of groups, as CSV: the estimate, and the ends of its interval of
/// 95 %. If a group is absent, the exit code is 1.
#[derive(Args, Debug)]
pub(crate) struct CountArgs {
    /// Files of sketches; or the folder of a table of groups, and names of groups
    #[arg(value_name = "FILE", required = true)]
    sketches: Vec<PathBuf>,
    /// Count all groups, in the order of the table
    #[arg(long, conflicts_with = "top")]
    all: bool,
    /// Count the N groups with the most distinct keys, the largest first
    #[arg(long, value_name = "N", value_parser = units::parse_number::<usize>)]
    top: Option<usize>,
    /// Print a JSON object, or one for each group
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CountArgs) -> Result<Exit> {
    let [first, others @ ..] = &args.sketches[..] else { unreachable!("a file is required") };
    if first.is_dir() {
        return groups::count(first, &args.which(others)?, args.json);
    }
    if args.all || args.top.is_some() {
        file::read(first)?;
        return Err(Failure::usage(format!(
            "{}: is one sketch; --all and --top are for tables of groups",
            first.display()
        )));
    }
    let estimate = file::read_union(&args.sketches)?.estimate_with_error();
    match args.json {
        true => write_line(words::to_json(&estimate))?,
        false => write_line(words::estimate(&estimate))?,
    }
    Ok(Exit::Done)
}

impl CountArgs {
    /// Returns the groups that are counted.
    fn which<'a>(&self, names: &'a [PathBuf]) -> Result<Which<'a>> {
        match (self.all, self.top) {
            (false, None) => Ok(Which::Named(names)),
            _ if !names.is_empty() => Err(Failure::usage(format!(
                "{}: is the name of a group, and --all and --top choose the groups; leave it out",
                names[0].display()
            ))),
            (true, _) => Ok(Which::All),
            (false, Some(count)) => Ok(Which::Top(count)),
        }
    }
}
