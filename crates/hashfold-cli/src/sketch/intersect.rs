//! `hashfold sketch intersect`: how many keys are in both.

use super::{file, words};
use crate::{
    failure::{Exit, Failure, Result},
    output::write_line,
    units,
};
use clap::Args;
use hashfold::sketch::{self, Joint, Usable};
use serde_json::json;
use std::path::PathBuf;

/// Estimate how many keys two sketches share, with an interval
///
/// The estimate is that of maximum likelihood. Where its standard error is above --error, it would be
/// noise: the command says so, and which precision would be enough, and the exit code is 1.
#[derive(Args, Debug)]
pub(crate) struct IntersectArgs {
    /// File of the first sketch
    #[arg(value_name = "A")]
    a: PathBuf,
    /// File of the second sketch
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Largest relative standard error of an answer
    #[arg(long, value_name = "FRACTION", default_value = "0.5", value_parser = units::parse_fraction)]
    error: f64,
    /// Print the estimate, however large its error is
    #[arg(long)]
    force: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &IntersectArgs) -> Result<Exit> {
    let paths = [args.a.clone(), args.b.clone()];
    let sketches = file::read_alike(&paths)?;
    let joint = sketch::joint(&sketches[0], &sketches[1])?;
    if !args.force {
        check(args, &joint)?;
    }
    if args.json {
        write_line(json!({
            "intersection": words::to_json(&joint.intersection),
            "only_a": words::to_json(&joint.only_a), "only_b": words::to_json(&joint.only_b),
            "union": words::to_json(&joint.union), "jaccard": words::to_json(&joint.jaccard),
        }))?;
        return Ok(Exit::Done);
    }
    for (name, estimate) in [
        ("in both", joint.intersection),
        ("only in A", joint.only_a),
        ("only in B", joint.only_b),
        ("in either", joint.union),
    ] {
        write_line(format_args!("{name:<10} {}", words::estimate(&estimate)))?;
    }
    write_line(format_args!("{:<10} {}", "Jaccard", units::percent(joint.jaccard.value)))?;
    Ok(Exit::Done)
}

/// Refuses an answer that is noise.
fn check(args: &IntersectArgs, joint: &Joint) -> Result<()> {
    let Usable::No { precision } = joint.usable(args.error) else { return Ok(()) };
    let help = match precision {
        Some(precision) => format!("sketches of precision {precision} would be enough"),
        None => "no sketch is large enough".into(),
    };
    let estimate = words::estimate(&joint.intersection);
    let message = format!(
        "too few keys are in both for an answer: {estimate}; {help}, --force accepts the estimate"
    );
    Err(Failure { exit: Exit::No, message })
}
