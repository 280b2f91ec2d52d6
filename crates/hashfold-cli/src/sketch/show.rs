//! `hashfold sketch show`: what a sketch is.

use super::{any, file, groups, words};
use crate::{
    failure::{Exit, Result},
    output::write_line,
    units,
};
use clap::Args;
use hashfold::sketch::AnySketch;
use serde_json::{Value, json};
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
    let (sketch, format) = (image.to_sketch()?, image.format());
    let (family, estimate) = (sketch.family(), any::estimate(&sketch, words::CONFIDENCE)?);
    let bytes = image.to_bytes().len() as u64;
    if args.json {
        let mut json = json!({
            "hash": family.to_string(), "bytes": bytes, "distinct": estimate.to_json(),
            "standard_error": sketch.standard_error(), "format": format.to_string(),
        });
        let more = match &sketch {
            AnySketch::Hll(sketch) => {
                json!({ "precision": sketch.precision(), "registers": sketch.register_count() })
            }
            AnySketch::Ghll(sketch) => json!({
                "precision": sketch.precision(), "registers": sketch.register_count(),
                "register_bits": sketch.register_bits(),
            }),
            AnySketch::BottomK(sketch) => {
                json!({ "capacity": sketch.capacity(), "hashes": sketch.hashes().len() })
            }
        };
        if let (Value::Object(json), Value::Object(more)) = (&mut json, more) {
            json.extend(more);
        }
        write_line(json)?;
        return Ok(Exit::Done);
    }
    for (name, value) in [
        ("distinct keys", estimate.words()),
        size(&sketch),
        ("error", format!("{} standard error", units::percent(sketch.standard_error()))),
        ("hash", family.to_string()),
        ("format", format.to_string()),
        ("size", units::bytes(bytes).to_string()),
    ] {
        write_line(format_args!("{name:<14} {value}"))?;
    }
    Ok(Exit::Done)
}

/// Returns the parameters of a sketch in words.
fn size(sketch: &AnySketch) -> (&'static str, String) {
    let registers = |count: usize| units::count(count as u64).to_string();
    match sketch {
        AnySketch::Hll(sketch) => {
            let count = registers(sketch.register_count());
            ("precision", format!("{}, {count} registers", sketch.precision()))
        }
        AnySketch::Ghll(sketch) => {
            let (count, bits) = (registers(sketch.register_count()), sketch.register_bits());
            ("precision", format!("{}, {count} registers of {bits} bits", sketch.precision()))
        }
        AnySketch::BottomK(sketch) => {
            let (some, all) = (registers(sketch.hashes().len()), registers(sketch.capacity()));
            ("hashes", format!("{some} of {all}"))
        }
    }
}
