//! `hashfold sketch convert`: a sketch in the format of another program.

use super::{
    any,
    file::{self, Target},
    image::{Format, Image, Source},
    words,
};
use crate::{
    failure::{Exit, Failure, Result},
    output::write_line,
    stop::Stop,
};
use clap::Args;
use hashfold::{
    error::Place,
    sketch::{PRECISION_MAX, PRECISION_MIN},
};
use serde_json::json;
use std::path::PathBuf;

/// Write a sketch in the format of Redis, PostgreSQL or Apache DataSketches, or read one of theirs
///
/// Other programs hash keys in other ways, and a sketch knows no keys: it can only become one of a program
/// whose hashes it has. `hashfold sketch add --hash NAME` makes it with them.
#[derive(Args, Debug)]
pub(crate) struct ConvertArgs {
    /// File of the sketch
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// File to write; may be the same
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Format to write
    #[arg(long, value_name = "FORMAT", default_value = "hashfold")]
    to: Format,
    /// Format of IN [default: as its first bytes say]
    #[arg(long, value_name = "FORMAT")]
    from: Option<Source>,
    /// Lower the precision to P first, 4 to 18, which loses nothing else; Redis has 14, hll of PostgreSQL 11
    /// by default
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u8).range(
        i64::from(PRECISION_MIN)..=i64::from(PRECISION_MAX)
    ))]
    precision: Option<u8>,
    /// Replace OUT if it is there and is another file than IN
    #[arg(long)]
    replace: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ConvertArgs) -> Result<Exit> {
    let mut image = file::read_image(&args.input, args.from)?;
    if let Some(precision) = args.precision
        && image.precision()?.is_some_and(|old| old != precision)
    {
        let sketch = image.to_sketch()?.downsize(precision);
        let at = |error: hashfold::Error| error.at(&Place::file(&args.input));
        image = Image::Hashfold(sketch.map_err(at)?);
    }
    let image = image.convert(args.to).map_err(|failure| Failure {
        message: format!("{}: {}", args.input.display(), failure.message),
        ..failure
    })?;
    let target = Target::lock(&args.out, &Stop::on_signals()?)?;
    file::refuse_existing(&args.out, std::slice::from_ref(&args.input), args.replace)?;
    target.write(&image.to_bytes())?;
    let estimate = any::estimate(&image.to_sketch()?, words::CONFIDENCE)?;
    let out = args.out.display();
    match args.json {
        true => write_line(json!({
            "sketch": out.to_string(), "format": args.to.to_string(),
            "bytes": image.to_bytes().len(), "distinct": estimate.to_json(),
        }))?,
        false => write_line(format_args!(
            "wrote {out} as {}; distinct keys: {}",
            args.to,
            estimate.words()
        ))?,
    }
    Ok(Exit::Done)
}
