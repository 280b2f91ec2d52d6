//! `hashfold map create`: makes an empty map.

use super::open;
use crate::{
    failure::{Exit, Result},
    options::parse_seed,
    output::write_line,
};
use clap::Args;
use hashfold::{
    Seed,
    map::{Map, MapOptions},
};
use std::path::PathBuf;

/// Make an empty map of keys and values without columns
///
/// `hashfold map import` makes a map with the columns of its input.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// Folder to make the map in
    #[arg(value_name = "DIR")]
    map: PathBuf,
    /// Seed of the hash [default: random]
    #[arg(long, value_name = "N", value_parser = parse_seed)]
    seed: Option<Seed>,
}

pub(crate) fn run(args: &CreateArgs) -> Result<Exit> {
    open::check_free(&args.map)?;
    let options = MapOptions::new();
    let options = args.seed.map_or(options.clone(), |seed| options.seed(seed));
    Map::create(&args.map, options)?.close()?;
    write_line(format_args!("created {}: empty map", args.map.display()))?;
    Ok(Exit::Done)
}
