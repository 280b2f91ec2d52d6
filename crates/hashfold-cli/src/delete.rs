//! `hashfold delete`: deletes keys from a store.

use crate::{
    failure::{Exit, Failure, Result},
    folder,
    keys::{self, KeyArgs},
    new_version::{Made, NewVersionArgs},
    progress::{Progress, Unit},
    rows::FileArgs,
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::{manifest::Kind, run::SortOptions, store::UpdateMode};
use std::{
    path::{Path, PathBuf},
    time::Instant,
};

/// Delete keys from a store, as a new version, and publish it
///
/// Only keys are needed, no values. Keys that are absent change nothing. Readers keep the version that
/// they have open and see the new one when they refresh.
///
/// A version that would be empty, or without more than half of the keys, is not published unless
/// --allow-empty or --max-change is given; the exit code is then 1.
#[derive(Args, Debug)]
#[command(override_usage = "hashfold delete [OPTIONS] <DIR> <KEY>...\n       \
                            hashfold delete [OPTIONS] <DIR> --keys <FILE> [--key <COL>]")]
pub(crate) struct DeleteArgs {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    files: FileArgs,
    /// Memory budget for sorting, at least 1MiB
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = units::parse_memory)]
    memory: usize,
    #[command(flatten)]
    version: NewVersionArgs,
}

/// Memory for keys that wait, in bytes.
const KEYS_BYTES: usize = 16 << 20;

pub(crate) fn run(args: &DeleteArgs) -> Result<Exit> {
    let start = Instant::now();
    args.keys.require("delete DIR")?;
    check_kind(&args.store)?;
    folder::current(&args.store)?;
    args.keys.refuse_files()?;
    let stop = Stop::on_signals()?;
    let input = args.keys.open(keys::read_options(&args.files)?, &stop)?;
    let mut keys = input.start(args.files.bad_row_policy(), KEYS_BYTES, args.version.show())?;
    let mut writer = args.version.open(&args.store, &stop)?;
    let mut batch = writer.batch(SortOptions::within(args.memory))?;
    while let Some(given) = keys.next(&stop, &mut || Ok(()))? {
        given.keys().try_for_each(|key| batch.push(key, None))?;
    }
    let bad_rows = keys.finish()?;
    let facts = args.version.facts([("command", "delete".to_owned())].into_iter())?;
    let progress = Progress::start(args.version.show(), "writing", Unit::Entries, None);
    let info = writer.write(batch, UpdateMode::Auto, facts, &stop.watch(progress))?;
    let bad_rows_note = args.files.bad_rows_note(bad_rows);
    let made = Made { info, bad_rows, bad_rows_note, input_bytes: 0, added: None };
    args.version.finish("deleted from", &args.store, &mut writer, &made, start)
}

/// Refuses a folder that holds no store, and says how keys are deleted there.
fn check_kind(folder: &Path) -> Result<()> {
    let what = match folder::holds(folder)?.kind() {
        Some(Kind::Filter) => "is a filter; `hashfold filter remove` removes keys",
        Some(Kind::Table) => {
            "is a table, which never changes; make it again without the keys, or use a store \
             (`hashfold update`)"
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(format!("{}: {what}", folder.display())))
}
