//! `hashfold map export`: writes all rows of a map, or publishes them as a version of a store.

use super::open;
use crate::{
    columns, device,
    failure::{Exit, Failure, Result},
    folder,
    new_version::{Made, NewVersionArgs},
    progress::{Progress, Unit},
    scan::EntriesArgs,
    stop::Stop,
    units,
};
use clap::{ArgGroup, Args};
use hashfold::{
    map::{Map, MapOptions},
    run::{Run as _, SortOptions},
    store::{StoreOptions, StoreWriter, UpdateMode},
};
use hashfold_rows::Schema;
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    time::Instant,
};

/// Write all entries of a map, or publish them as a version of a store
///
/// Without --store, the output is that of `hashfold map scan`, which `build`, `update` and `map import`
/// read in every format. With --store, the entries replace those of the store: they become a new version,
/// with the columns of the map, which readers of many processes share. If the folder is absent or empty, a
/// store is made. When entries expire is left out. A version that fails a gate is made, marked
/// bad and not published, and the exit code is 1, as with `hashfold update`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("of_a_version").multiple(true).requires("store").args([
    "memory", "no_publish", "dry_run", "note", "threads", "json", "min_entries", "allow_empty",
    "max_change", "require_key", "require_keys", "sample", "read_back",
]))]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    scan: EntriesArgs,
    /// Folder of a store: publish the entries as its next version instead of writing rows
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["format", "limit", "access", "version"],
        help_heading = "With a store"
    )]
    store: Option<PathBuf>,
    /// Memory for sorting
    #[arg(
        long,
        default_value = "1GiB",
        value_parser = units::parse_memory,
        value_name = "SIZE",
        help_heading = "With a store"
    )]
    memory: usize,
    #[command(flatten, next_help_heading = "With a store")]
    version: NewVersionArgs,
}

pub(crate) fn run(args: &ExportArgs) -> Result<Exit> {
    folder::require_map(args.scan.folder())?;
    match &args.store {
        None => args.scan.write(args.version.wait),
        Some(store) => args.publish(store),
    }
}

impl ExportArgs {
    fn publish(&self, store: &Path) -> Result<Exit> {
        let start = Instant::now();
        folder::refuse_table(store)?;
        let stop = Stop::on_signals()?;
        let open = || Ok(Map::open_with(self.scan.folder(), MapOptions::new())?);
        let map = self.version.wait.retry(&stop, open)?;
        let options = || Ok(StoreOptions::new().seed(map.seed()).id(device::random()?));
        self.version.with_store(store, &stop, &options, |writer| {
            let made = self.make(&map, writer, store, &stop)?;
            self.version.finish("exported to", store, writer, &made, start)
        })
    }

    /// Makes a version of all entries.
    fn make(&self, map: &Map, writer: &mut StoreWriter, store: &Path, stop: &Stop) -> Result<Made> {
        let schema = open::schema(map)?;
        if let Some(parent) = writer.parent()? {
            check_columns(&schema, &Schema::of_version(&parent)?, store)?;
        }
        writer.set_attribute(Schema::ATTRIBUTE, schema.to_json());
        let total = Some(map.stat().entries_max);
        let mut steps = stop
            .watch(Progress::start(self.version.show(), "reading", Unit::Entries, total))
            .steps();
        let mut batch = writer.batch(SortOptions::within(self.memory))?;
        let mut run = map.snapshot().scan();
        while run.advance()? {
            let entry = run.entry();
            if let Some(value) = entry.value {
                batch.push(entry.key, Some(value))?;
            }
            steps.step()?;
        }
        drop(steps);
        let entries = batch.entries();
        let show = self.version.show();
        let watch = stop.watch(Progress::start(show, "writing", Unit::Entries, Some(entries)));
        let origin = [("map", self.scan.folder().to_string_lossy().into_owned())];
        let facts = self.version.facts(origin.into_iter())?;
        let info = writer.write(batch, UpdateMode::Replace, facts, &watch)?;
        let note = format!("; from {}", self.scan.folder().display());
        let facts = [("rows".into(), json!(entries))].into_iter().collect();
        Ok(Made { info, note, facts, added: None })
    }
}

/// Refuses a store whose rows have other columns than those of the map.
fn check_columns(map: &Schema, store: &Schema, folder: &Path) -> Result<()> {
    if map == store {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{}: the store has the columns {}, the map {}; name another folder",
        folder.display(),
        columns::preview(store),
        columns::preview(map)
    )))
}
