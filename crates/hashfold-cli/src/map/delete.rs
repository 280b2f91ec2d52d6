//! `hashfold map delete`: deletes keys.

use super::open::{self, ChangeArgs};
use crate::{
    applied::Applied,
    failure::{Exit, Result},
    folder,
    keys::{KeyArgs, KeyBatch},
    output::write_line,
    progress::Show,
    rows::FileArgs,
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::map::Map;
use serde_json::json;
use std::{collections::HashSet, path::PathBuf, time::Instant};

/// Memory for keys that wait, in bytes.
const KEYS_BYTES: usize = 16 << 20;

/// Delete keys from a map
///
/// Keys are given as arguments, with --keys FILE, or on standard input. Each key is looked up first, to
/// count the keys that were there. The deletions are durable when the command ends.
#[derive(Args, Debug)]
#[command(override_usage = "hashfold map delete [OPTIONS] <DIR> <KEY>...\n       \
                            hashfold map delete [OPTIONS] <DIR> --keys <FILE> [--key <COL>]")]
pub(crate) struct DeleteArgs {
    /// Folder of the map
    #[arg(value_name = "DIR")]
    map: PathBuf,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    change: ChangeArgs,
    /// Print progress and summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DeleteArgs) -> Result<Exit> {
    folder::require_map(&args.map)?;
    args.keys.require("map delete DIR")?;
    args.keys.refuse_files()?;
    let stop = Stop::on_signals()?;
    let inputs = args.keys.open(args.files.key_options()?, &stop)?;
    let start = Instant::now();
    let map = args.change.open(&args.map, &stop)?;
    let show = if args.json { Show::Json } else { Show::Text };
    let mut keys = inputs.start(args.files.bad_row_policy(), KEYS_BYTES, show)?;
    let (mut given, mut deleted) = (0, 0);
    let mut take = || {
        while let Some(batch) = keys.next(&stop, &mut || Ok(()))? {
            given += batch.len() as u64;
            delete(&map, batch, &mut deleted)?;
        }
        Ok(())
    };
    let taken = take().and_then(|()| keys.finish());
    let count = units::counted(deleted, "key was", "keys were");
    let bad_rows = Applied { count, what: "deleted" }.end(taken, open::close(map))?;
    let seconds = start.elapsed().as_secs_f64();
    let folder = args.map.display();
    if args.json {
        write_line(json!({
            "event": "deleted", "map": folder.to_string(), "keys": given, "deleted": deleted,
            "bad_rows": bad_rows, "seconds": seconds,
        }))?;
    } else {
        write_line(format_args!(
            "deleted from {folder}: {} of {} given{}; {seconds:.1} s",
            units::counted(deleted, "key", "keys"),
            units::count(given),
            args.files.bad_rows_note(bad_rows),
        ))?;
    }
    Ok(Exit::Done)
}

/// Deletes the keys of a batch that are in the map, and counts them: each once, also if it is given
/// twice.
fn delete(map: &Map, batch: &KeyBatch, deleted: &mut u64) -> Result<()> {
    let keys: Vec<&[u8]> = batch.keys().collect();
    let mut present = HashSet::new();
    for (key, found) in keys.iter().zip(map.get_many(&keys)?) {
        if found.is_some() && present.insert(*key) {
            map.delete(key)?;
            *deleted += 1;
        }
    }
    Ok(map.sync()?)
}
