//! `hashfold sketch count`: how many distinct keys.

use super::{file, words};
use crate::{
    failure::{Exit, Result},
    output::write_line,
};
use clap::Args;
use std::path::PathBuf;

/// Estimate the number of distinct keys in one sketch, or in all of several together
#[derive(Args, Debug)]
pub(crate) struct CountArgs {
    /// Files of sketches
    #[arg(value_name = "FILE", required = true)]
    sketches: Vec<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CountArgs) -> Result<Exit> {
    let estimate = file::read_union(&args.sketches)?.estimate_with_error();
    match args.json {
        true => write_line(words::to_json(&estimate))?,
        false => write_line(words::estimate(&estimate))?,
    }
    Ok(Exit::Done)
}
