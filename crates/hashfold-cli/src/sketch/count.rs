//! `hashfold sketch count`: how many distinct keys.

use super::{file, folders, intersect::parse_part, words};
use crate::{
    failure::{Exit, Result},
    output::write_line,
};
use clap::Args;
use hashfold::sketch::{Expression, Precision};
use std::path::PathBuf;

/// Estimate the number of distinct keys in one sketch, or in all of several together
///
/// Of folders of tables, stores, maps and exact filters, the first keys in the order of their hashes are read
/// until the interval at --confidence is within --error of the estimate, as by `sketch intersect`.
#[derive(Args, Debug)]
pub(crate) struct CountArgs {
    /// Files of sketches, or folders of tables, stores, maps or exact filters
    #[arg(value_name = "FILE", required = true)]
    sketches: Vec<PathBuf>,
    /// Largest relative error of an answer for folders: half of the interval
    #[arg(long, value_name = "FRACTION", default_value = "0.02", value_parser = parse_part)]
    error: f64,
    /// Probability that an interval has the true value
    #[arg(long, value_name = "FRACTION", default_value_t = words::CONFIDENCE, value_parser = parse_part)]
    confidence: f64,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CountArgs) -> Result<Exit> {
    if folders::are_folders(&args.sketches)? {
        return of_folders(args).map(|()| Exit::Done);
    }
    let estimate = file::read_union(&args.sketches)?.estimate_with_error();
    match args.json {
        true => write_line(words::to_json_at(&estimate, args.confidence))?,
        false => write_line(words::estimate_at(&estimate, args.confidence))?,
    }
    Ok(Exit::Done)
}

fn of_folders(args: &CountArgs) -> Result<()> {
    let any = Expression::any(args.sketches.len());
    let precision = Precision::new(args.error, args.confidence)?;
    let sample = folders::sample(&args.sketches, &any, precision)?;
    let estimate = sample.estimate(&any);
    if args.json {
        let mut json = words::sampled_to_json(&estimate);
        json["read"] = folders::read_to_json(&sample);
        return write_line(json);
    }
    write_line(words::sampled(&estimate))?;
    folders::write_read(&sample, 4)
}
