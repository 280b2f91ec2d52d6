//! `hashfold sketch count`: how many distinct keys.

use super::{
    any, file, folders,
    groups::{self, Which},
    intersect::parse_part,
    words,
};
use crate::{
    failure::{Exit, Failure, Result},
    output::write_line,
    units,
};
use clap::Args;
use hashfold::sketch::{Expression, Precision};
use std::path::PathBuf;

/// Relative error of an answer for folders, unless the user asks for another one.
const ERROR: f64 = 0.02;

/// Estimate the number of distinct keys in one sketch, or in all of several together
///
/// `sketch count DIR GROUP...` prints those of groups, as CSV: the estimate, and the ends of its interval of
/// 95 %. If a group is absent, the exit code is 1.
///
/// Folders of tables, stores, maps and exact filters are sampled: the first keys in the order of their hashes are
/// read until the interval at --confidence is within --error of the estimate, as by `sketch intersect`.
#[derive(Args, Debug)]
pub(crate) struct CountArgs {
    /// Files of sketches; or the folder of a table of groups, and names of groups; or folders of tables,
    /// stores, maps or exact filters
    #[arg(value_name = "FILE", required = true)]
    sketches: Vec<PathBuf>,
    /// Count all groups, in the order of the table
    #[arg(long, conflicts_with = "top")]
    all: bool,
    /// Count the N groups with the most distinct keys, the largest first
    #[arg(long, value_name = "N", value_parser = units::parse_number::<usize>)]
    top: Option<usize>,
    /// Largest relative error of an answer for folders: half of the interval [default: 0.02]
    #[arg(long, value_name = "FRACTION", value_parser = parse_part)]
    error: Option<f64>,
    /// Probability that an interval has the true value
    #[arg(long, value_name = "FRACTION", default_value_t = words::CONFIDENCE, value_parser = parse_part)]
    confidence: f64,
    /// Print a JSON object, or one for each group
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CountArgs) -> Result<Exit> {
    let [first, others @ ..] = &args.sketches[..] else { unreachable!("a file is required") };
    if groups::is_table(first)? {
        args.refuse_error()?;
        return groups::count(first, &args.which(others)?, (args.confidence, args.json));
    }
    if args.all || args.top.is_some() {
        return Err(Failure::usage(format!(
            "{}: is no table of groups; --all and --top are for them",
            first.display()
        )));
    }
    if folders::are_folders(&args.sketches)? {
        return of_folders(args).map(|()| Exit::Done);
    }
    args.refuse_error()?;
    let estimate = any::estimate(&file::read_union(&args.sketches)?, args.confidence)?;
    match args.json {
        true => write_line(estimate.to_json())?,
        false => write_line(estimate.words())?,
    }
    Ok(Exit::Done)
}

impl CountArgs {
    /// Refuses an error for sketches, whose error does not depend on what is read.
    fn refuse_error(&self) -> Result<()> {
        match self.error {
            None => Ok(()),
            Some(_) => Err(Failure::usage(
                "--error is for folders of tables, stores, maps and exact filters; the error of a sketch \
                 follows from its precision",
            )),
        }
    }

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

fn of_folders(args: &CountArgs) -> Result<()> {
    let any = Expression::any(args.sketches.len());
    let precision = Precision::new(args.error.unwrap_or(ERROR), args.confidence)?;
    let sample = folders::sample(&args.sketches, &any, precision)?;
    let estimate = sample.estimate(&any);
    if args.json {
        let mut json = words::sampled_to_json(&estimate);
        folders::add_read(&sample, &mut json);
        return write_line(json);
    }
    write_line(words::sampled(&estimate))?;
    folders::write_read(&sample, 4)
}
