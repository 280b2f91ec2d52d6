//! `hashfold delete`: deletes keys from a store.

use crate::{
    failure::{Exit, Failure, Result},
    folder,
    keys::KeyArgs,
    new_version::{Made, NewVersionArgs},
    options::AccessArgs,
    progress::{Progress, Unit},
    rows::FileArgs,
    source::{Accesses, Cure, note_index_damage},
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::{
    ReadOptions,
    io::Access,
    manifest::Kind,
    run::SortOptions,
    store::{StoreWriter, UpdateMode, Version},
};
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    time::Instant,
};

/// Delete keys from a store, as a new version, and publish it
///
/// Only keys are needed, no values. Each key is looked up first. Keys that are absent change nothing;
/// if all are absent, no version is made. Readers keep the version that they have open and see the
/// new one when they refresh.
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
    #[command(flatten)]
    access: AccessArgs,
    /// Memory budget for sorting, at least 1MiB
    #[arg(long, default_value = "256MiB", value_name = "SIZE", value_parser = units::parse_memory)]
    memory: usize,
    #[command(flatten)]
    version: NewVersionArgs,
}

/// The event, for messages.
const DELETED: &str = "deleted from";

/// Memory for keys that wait, in bytes.
const KEYS_BYTES: usize = 16 << 20;

pub(crate) fn run(args: &DeleteArgs) -> Result<Exit> {
    let start = Instant::now();
    args.keys.require("delete DIR")?;
    check_kind(&args.store)?;
    folder::current(&args.store)?;
    args.keys.refuse_files()?;
    let stop = Stop::on_signals()?;
    let mut writer = args.version.open(&args.store, &stop)?;
    args.delete(&mut writer, &stop, start)
}

impl DeleteArgs {
    /// Makes a version without the keys, unless the current version has none of them.
    fn delete(&self, writer: &mut StoreWriter, stop: &Stop, start: Instant) -> Result<Exit> {
        let current = folder::current(&self.store)?;
        let options = self.access.to_look_up(ReadOptions::new().index(Access::Mapped));
        let version = Version::open(&self.store, current, &options)?;
        note_index_damage(&self.store, Cure::Repair, version.index_damage());
        let input = self.keys.open(self.files.key_options()?, stop)?;
        let mut keys = input.start(self.files.bad_row_policy(), KEYS_BYTES, self.version.show())?;
        if Accesses::of(version.table_stats()).is_any(Access::Direct) {
            self.keys.note_refused_io_uring();
        }
        let mut batch = writer.batch(SortOptions::within(self.memory))?;
        let mut given = 0;
        while let Some(some) = keys.next(stop, &mut || Ok(()))? {
            let some: Vec<&[u8]> = some.keys().collect();
            given += some.len() as u64;
            version.get_many(&some, &mut |i, value| match value {
                Some(_) => batch.push(some[i], None),
                None => Ok(()),
            })?;
        }
        drop(version);
        let bad_rows = keys.finish()?;
        let found = batch.entries();
        let facts = [
            ("keys".into(), json!(given)),
            ("found".into(), json!(found)),
            ("bad_rows".into(), json!(bad_rows)),
        ];
        let counts = facts.into_iter().collect();
        if found == 0 {
            let has = "none of the keys";
            return self.version.finish_unchanged(DELETED, &self.store, (current, has), counts);
        }
        let facts = self.version.facts([("command", "delete".to_owned())].into_iter())?;
        let progress = Progress::start(self.version.show(), "writing", Unit::Entries, None);
        let info = writer.write(batch, UpdateMode::Auto, facts, &stop.watch(progress))?;
        let keys = units::counted(found, "key", "keys");
        let bad_rows_note = self.files.bad_rows_note(bad_rows);
        let note = format!("; {keys} of {} found{bad_rows_note}", units::count(given));
        let made = Made { info, note, facts: counts, added: None };
        self.version.finish(DELETED, &self.store, writer, &made, start)
    }
}

/// Refuses a folder that holds no store, and says how keys are deleted there.
fn check_kind(folder: &Path) -> Result<()> {
    let what = match folder::holds(folder)?.kind() {
        Some(Kind::Filter) => "is a filter; `hashfold filter remove` removes keys",
        Some(Kind::Map) => "is a map; `hashfold map delete` deletes keys",
        Some(Kind::Table) => {
            "is a table, which never changes; make it again without the keys, or use a store \
             (`hashfold update`)"
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(format!("{}: {what}", folder.display())))
}
