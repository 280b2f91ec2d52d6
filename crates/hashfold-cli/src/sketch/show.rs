//! `hashfold sketch show`: what a sketch is.

use super::{file, groups, words};
use crate::{
    failure::{Exit, Result},
    output::write_line,
    units,
};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Describe a sketch: its precision, hash function, size, estimate; or a table of groups
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// File of the sketch, or folder of a table of groups
    #[arg(value_name = "FILE")]
    sketch: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ShowArgs) -> Result<Exit> {
    if args.sketch.is_dir() {
        groups::show(&args.sketch, args.json)?;
        return Ok(Exit::Done);
    }
    let image = file::read_image(&args.sketch, None)?;
    let (sketch, format) = (image.to_hll()?, image.format());
    let (family, estimate) = (sketch.family(), sketch.estimate_with_error());
    let bytes = image.to_bytes().len() as u64;
    if args.json {
        write_line(json!({
            "precision": sketch.precision(), "registers": sketch.register_count(),
            "hash": family.to_string(), "bytes": bytes, "distinct": words::to_json(&estimate),
            "standard_error": sketch.standard_error(), "format": format.to_string(),
        }))?;
        return Ok(Exit::Done);
    }
    let registers = units::count(sketch.register_count() as u64);
    for (name, value) in [
        ("distinct keys", words::estimate(&estimate)),
        ("precision", format!("{}, {registers} registers", sketch.precision())),
        ("error", format!("{} standard error", units::percent(sketch.standard_error()))),
        ("hash", family.to_string()),
        ("format", format.to_string()),
        ("size", units::bytes(bytes).to_string()),
    ] {
        write_line(format_args!("{name:<14} {value}"))?;
    }
    Ok(Exit::Done)
}
