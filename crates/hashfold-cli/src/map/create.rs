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
    /// Folder to make on another device; may be repeated. The data are spread over DIR and all of them:
    /// the loss of one loses its share
    #[arg(long = "device", value_name = "DIR")]
    devices: Vec<PathBuf>,
}

pub(crate) fn run(args: &CreateArgs) -> Result<Exit> {
    open::check_free(&args.map)?;
    let options = MapOptions::new().devices(args.devices.clone());
    let options = args.seed.map_or(options.clone(), |seed| options.seed(seed));
    Map::create(&args.map, options)?.close()?;
    let on = match args.devices.len() {
        0 => String::new(),
        others => format!(" on {} devices", others + 1),
    };
    write_line(format_args!("created {}: empty map{on}", args.map.display()))?;
    Ok(Exit::Done)
}
