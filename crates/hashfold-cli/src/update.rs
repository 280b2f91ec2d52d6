//! `hashfold update`: makes a new version of a store from a batch of rows.

use crate::{
    columns, delta_file, device,
    failure::{Exit, Failure, Result},
    folder,
    input::{InputThread, Inputs, Mark, Marker, ReadOptions},
    new_version::{Made, NewVersionArgs, parse_pair},
    options::ShapeArgs,
    progress::{Progress, Unit},
    rows::{self, RowArgs},
    stop::Stop,
    units,
};
use clap::{Args, ValueEnum};
use hashfold::{
    io::{ALIGNMENT, Access},
    manifest::Kind,
    run::Run as _,
    store::{Batch, StoreOptions, StoreWriter, UpdateMode, Version, VersionFacts, VersionInfo},
    table::IndexOptions,
};
use hashfold_rows::{Schema, Value};
use serde_json::{Map, json};
use std::{
    fs, iter,
    path::{Path, PathBuf},
    time::Instant,
};

/// Apply batches of rows to a store as a new version, and publish it
///
/// If DIR is absent or empty, a store is made. Later batches must have the columns of the first one,
/// unless --schema says otherwise; their values are converted to the kinds of the store where nothing
/// is lost. If rows have the same key, the last one wins, whether it is a value or a deletion.
/// Formats are those of `build`.
///
/// Readers keep the version that they have open and see the new one when they refresh. A version that
/// fails a gate is made, marked bad and not published, and the exit code is 1; `hashfold publish
/// --force` can still publish it. By default, a version fails that has no entries, or lacks more than
/// half of the current version's keys.
///
/// `hashfold delete` deletes keys without a file of rows.
#[derive(Args, Debug)]
#[command(
    override_usage = "hashfold update [OPTIONS] --key <COL> <DIR> <BATCH>...  (first batch)\n       \
                            hashfold update [OPTIONS] <DIR> <BATCH>...\n       \
                            hashfold update [OPTIONS] <DIR> --delta <FILE>"
)]
pub(crate) struct UpdateArgs {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// Files of rows, read in this order; '-' reads standard input
    #[arg(required_unless_present = "delta", value_name = "BATCH")]
    batches: Vec<String>,
    /// Apply a file that `hashfold diff` wrote, instead of batches; it must start at the current
    /// version
    #[arg(long, value_name = "FILE", conflicts_with_all = ["batches", "delete_where", "tombstone"])]
    delta: Option<PathBuf>,
    /// Way to combine the batch with the current version
    #[arg(long, default_value = "auto")]
    mode: ModeName,
    /// Delete the keys of rows that have this text in this column; may be repeated
    #[arg(long, value_name = "COL=VALUE", value_parser = parse_pair)]
    delete_where: Vec<(String, String)>,
    /// Delete the keys of rows that have true, t, yes, y or 1 in this column; false, f, no,
    /// n, 0 and nothing keep the row, and other text is a bad row. May be repeated
    #[arg(long, value_name = "COL")]
    tombstone: Vec<String>,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    version: NewVersionArgs,
    /// Number of chunks, which are ranges of Redis Cluster slots and are built in parallel; `merge
    /// --chunks` changes it later [default: 16]
    #[arg(
        long,
        value_name = "N",
        value_parser = units::parse_number::<u32>,
        help_heading = "When the store is made"
    )]
    chunks: Option<u32>,
    #[command(flatten, next_help_heading = "When the store is made")]
    shape: ShapeArgs,
}

/// Ways to combine a batch with the current version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeName {
    /// Write a delta while that is cheap, otherwise merge
    Auto,
    /// Merge the batch with all entries in one pass: rewrites the data of touched chunks
    Merge,
    /// Write the batch alone; lookups read it first, at the cost of a few more reads
    Delta,
    /// Replace all entries by the batch
    Replace,
}

impl From<ModeName> for UpdateMode {
    fn from(name: ModeName) -> UpdateMode {
        match name {
            ModeName::Auto => UpdateMode::Auto,
            ModeName::Merge => UpdateMode::Merge,
            ModeName::Delta => UpdateMode::Delta,
            ModeName::Replace => UpdateMode::Replace,
        }
    }
}

pub(crate) fn run(args: &UpdateArgs) -> Result<Exit> {
    let start = Instant::now();
    refuse_filter(&args.store)?;
    folder::refuse_table(&args.store)?;
    match &args.delta {
        Some(delta) => args.apply(delta, start),
        None => args.read(start),
    }
}

impl UpdateArgs {
    /// Makes a version from the batches. The lock comes before the current version is read: a writer
    /// that ends meanwhile may change the columns.
    fn read(&self, start: Instant) -> Result<Exit> {
        let stop = Stop::on_signals()?;
        let thread = InputThread::start()?;
        let options = || self.store_options();
        self.version.with_store(&self.store, &stop, &options, |writer| {
            let made = self.make(writer, thread, &stop)?;
            self.finish(writer, &made, start)
        })
    }

    /// Makes a version from a delta file.
    fn apply(&self, delta: &Path, start: Instant) -> Result<Exit> {
        if self.mode == ModeName::Replace {
            return Err(Failure::usage(
                "--mode replace needs batches; a delta file changes the current version",
            ));
        }
        let stop = Stop::on_signals()?;
        let mut writer = self.version.open(&self.store, &stop)?;
        let Some(entries) = delta_file::check(&writer, &self.store, delta)? else {
            let current = writer.pointer().current.unwrap_or_default();
            return self.version.finish_unchanged(
                "updated",
                &self.store,
                (current, "these changes"),
                Map::default(),
            );
        };
        let watch = stop.watch(self.progress(&writer, entries)?);
        let sort = self.rows.sort_options();
        let info = writer.apply(delta, sort, self.mode.into(), self.facts()?, &watch)?;
        drop(watch);
        let input_bytes = fs::metadata(delta).map_or(0, |metadata| metadata.len());
        let facts = [("input_bytes".into(), json!(input_bytes))].into_iter().collect();
        let made = Made { info, note: String::new(), facts, added: None };
        self.finish(&mut writer, &made, start)
    }

    fn make(&self, writer: &mut StoreWriter, thread: InputThread, stop: &Stop) -> Result<Made> {
        let sample = writer.parent()?;
        let options = self.read_options(sample.as_ref())?;
        let inputs = Inputs::open_in(thread, &self.batches, options, stop)?;
        let meter = inputs.meter.clone();
        let old = sample.as_ref().map(Schema::of_version).transpose()?;
        let mut batch = writer.batch(self.rows.sort_options())?;
        let mut mode = self.mode;
        if let Some(old) = old.as_ref().filter(|old| old.form != inputs.schema.form) {
            mode = self.rewrite(writer, old, &inputs.schema, &mut batch, stop)?;
        }
        let feed = inputs.start(self.rows.files.bad_row_policy())?;
        let progress = rows::progress(&self.batches, self.version.show());
        let mut count = 0;
        let push = |key: &[u8], value: Option<&[u8]>| {
            count += 1;
            Ok(batch.push(key, value)?)
        };
        let taken = rows::take_all(feed, &meter, progress, stop, push)?;
        if old.as_ref() != Some(&taken.schema) {
            writer.set_attribute(Schema::ATTRIBUTE, taken.schema.to_json());
        }
        let added = old.and_then(|old| columns::added(&old, &taken.schema));
        let watch = stop.watch(self.progress(writer, batch.entries())?);
        let info = writer.write(batch, mode.into(), self.facts()?, &watch)?;
        let bad_rows_note = self.rows.files.bad_rows_note(taken.bad_rows);
        let note = format!("; from {}{bad_rows_note}", units::counted(count, "row", "rows"));
        let facts = [
            ("rows".into(), json!(count)),
            ("bad_rows".into(), json!(taken.bad_rows)),
            ("input_bytes".into(), json!(meter.bytes())),
        ];
        Ok(Made { info, note, facts: facts.into_iter().collect(), added })
    }

    /// Adds all entries of the current version to a batch, with their only column as a row that has
    /// room for further ones. Returns the mode for the batch.
    fn rewrite(
        &self,
        writer: &StoreWriter,
        old: &Schema,
        new: &Schema,
        batch: &mut Batch,
        stop: &Stop,
    ) -> Result<ModeName> {
        match self.mode {
            ModeName::Replace => return Ok(ModeName::Replace),
            ModeName::Delta => {
                return Err(Failure::usage(
                    "--mode delta cannot add a column to values that have a single one, because \
                     they are written anew; leave it out",
                ));
            }
            ModeName::Auto | ModeName::Merge => {}
        }
        let Some(current) = writer.pointer().current else { return Ok(ModeName::Replace) };
        let options = hashfold::ReadOptions::new().data(Access::Cached).index(Access::Mapped);
        let version = Version::open(&self.store, current, &options)
            .map_err(folder::about_version(&self.store, current))?;
        let mut value = Vec::new();
        for chunks in version.parts() {
            let mut run = version.scan_chunks(chunks);
            while run.advance()? {
                stop.check()?;
                let entry = run.entry();
                let row = old.row(entry.value.unwrap_or_default())?;
                value.clear();
                let first = row.iter().map(|(_, value)| value);
                let values = first.chain(iter::repeat(Value::Null));
                new.encode(values, &mut value).expect("the kind of the column is the same");
                batch.push(entry.key, Some(&value))?;
            }
        }
        Ok(ModeName::Replace)
    }

    fn finish(&self, writer: &mut StoreWriter, made: &Made, start: Instant) -> Result<Exit> {
        self.version.finish("updated", &self.store, writer, made, start)
    }

    fn read_options(&self, sample: Option<&VersionInfo>) -> Result<ReadOptions> {
        let mut options = self.rows.read_options();
        let text = |(column, text): &(String, String)| Marker {
            column: column.clone(),
            mark: Mark::Text(text.clone()),
        };
        let yes = |column: &String| Marker { column: column.clone(), mark: Mark::Yes };
        let markers = self.delete_where.iter().map(text).chain(self.tombstone.iter().map(yes));
        options.selection.markers = markers.collect();
        if let Some(sample) = sample {
            self.check_shape(sample)?;
            options.selection.follow(&Schema::of_version(sample)?, "the store");
        }
        Ok(options)
    }

    /// Refuses options that differ from those of the store.
    fn check_shape(&self, sample: &VersionInfo) -> Result<()> {
        let chunks = sample.shape.slots.chunks();
        if let Some(asked) = self.chunks.filter(|asked| *asked != chunks) {
            return Err(Failure::usage(format!(
                "--chunks is {asked}, but the store has {chunks}; `hashfold merge --chunks {asked}` rewrites it"
            )));
        }
        let (asked, has) = (self.shape.index.options(), sample.shape.index);
        if asked != IndexOptions::default() && asked != has {
            return Err(Failure::usage(format!(
                "the index is {}, but the store was made with {}; a store keeps its own",
                describe(&asked),
                describe(&has)
            )));
        }
        let (asked, has) = (self.shape.block_size, sample.shape.block_size);
        if asked != ALIGNMENT && asked != has {
            return Err(Failure::usage(format!(
                "--block-size is {asked}, but the store was made with {has}"
            )));
        }
        if let Some(asked) = self.shape.seed.filter(|asked| *asked != sample.seed) {
            return Err(Failure::usage(format!(
                "--seed is {asked}, but the store was made with {}",
                sample.seed
            )));
        }
        Ok(())
    }

    fn store_options(&self) -> Result<StoreOptions> {
        let options = StoreOptions::new()
            .seed(self.shape.seed()?)
            .id(device::random()?)
            .index(self.shape.index.options())
            .block_size(self.shape.block_size);
        Ok(match self.chunks {
            Some(chunks) => options.chunks(chunks),
            None => options,
        })
    }

    fn facts(&self) -> Result<VersionFacts> {
        let delta = self.delta.iter().map(|path| ("delta", path.to_string_lossy().into_owned()));
        let inputs = self.batches.iter().map(|path| ("input", path.clone()));
        self.version.facts(inputs.chain(delta))
    }

    /// Shows the progress of writing a version. The total is unknown if the library chooses between
    /// delta and merge.
    fn progress(&self, writer: &StoreWriter, entries: u64) -> Result<Progress> {
        let total = match self.mode {
            ModeName::Auto => None,
            ModeName::Delta | ModeName::Replace => Some(entries),
            ModeName::Merge => {
                Some(entries + writer.parent()?.map_or(0, |parent| *parent.entries().end()))
            }
        };
        Ok(Progress::start(self.version.show(), "writing", Unit::Entries, total))
    }
}

/// Refuses the folder of a filter, which has no rows to update.
fn refuse_filter(folder: &Path) -> Result<()> {
    match folder::holds(folder)?.kind() {
        Some(Kind::Filter) => Err(Failure::usage(format!(
            "{}: is a filter, expected a store; `hashfold filter add` inserts keys",
            folder.display()
        ))),
        Some(Kind::Map) => Err(Failure::usage(format!(
            "{}: is a map, expected a store; `hashfold map import` puts rows",
            folder.display()
        ))),
        _ => Ok(()),
    }
}

/// Describes the options of an index: `dense, bucket size 64, coding limit 32, absent bits 0`.
fn describe(index: &IndexOptions) -> String {
    let IndexOptions { choice, bucket_size, coding_limit, absent_bits } = index;
    format!(
        "{choice}, bucket size {bucket_size}, coding limit {coding_limit}, absent bits {absent_bits}"
    )
}
