//! `hashfold map delete`: deletes keys.

use super::open::ChangeArgs;
use crate::{
    failure::{Exit, Result},
    folder,
    keys::KeyArgs,
    output::write_line,
    progress::Show,
    rows::FileArgs,
    stop::Stop,
    units,
};
use clap::Args;
use serde_json::json;
use std::{path::PathBuf, time::Instant};

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
    let (mut given, mut deleted) = (0_u64, 0_u64);
    while let Some(batch) = keys.next(&stop, &mut || Ok(()))? {
        let keys: Vec<&[u8]> = batch.keys().collect();
        given += keys.len() as u64;
        for (key, found) in keys.iter().zip(map.get_many(&keys)?) {
            if found.is_some() {
                deleted += 1;
                map.delete(key)?;
            }
        }
        map.sync()?;
    }
    let bad_rows = keys.finish()?;
    map.close()?;
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
