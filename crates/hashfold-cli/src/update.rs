//! `hashfold update`: a batch of rows in, a new version of a store out.

use crate::{
    device,
    failure::{Exit, Failure, Result},
    folder,
    input::{Inputs, Mark, Marker, Meter, ReadOptions},
    options::ShapeArgs,
    output::write_line,
    progress::{Progress, Show, Unit},
    release::{GateArgs, Intent, Lines, Release},
    rows::{self, RowArgs},
    schema::{self, Schema},
    stop::Stop,
    units,
    watch::Watcher,
};
use clap::{Args, ValueEnum};
use hashfold::store::{
    Attributes, DeltaReader, Mode, Shape, SlotMap, StoreOptions, StoreWriter, VersionFacts,
    VersionInfo,
};
use hashfold::{io::ALIGNMENT, manifest::Kind, table::IndexOptions};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// Merge batches of rows into a new version of a store, and make it current
///
/// The store is made if DIR is not there or empty. From then on all batches have the columns of
/// the first one, and --key and --value are those of the store where they are not given. Of rows
/// with the same key the last one counts, be it a value or a deletion. Formats are those of `build`.
///
/// Readers go on reading the version that they have, and see the new one when they look for it.
/// A version that does not pass a gate is made and marked bad; the command then ends with exit code
/// 1, and only `hashfold publish --force` publishes the version all the same.
#[derive(Args, Debug)]
pub(crate) struct UpdateArgs {
    /// The folder of the store
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// Files of rows, read in this order; '-' is standard input
    #[arg(required_unless_present = "delta", value_name = "BATCH")]
    batches: Vec<String>,
    /// Instead of batches: a file that `hashfold diff` wrote, which leads from the current version
    #[arg(long, value_name = "FILE", conflicts_with_all = ["batches", "delete_where", "tombstone"])]
    delta: Option<PathBuf>,
    /// How the batch becomes part of the store
    #[arg(long, default_value = "auto")]
    mode: ModeName,
    /// Rows with this text in this column delete their key; may be given several times
    #[arg(long, value_name = "COL=VALUE", value_parser = parse_pair)]
    delete_where: Vec<(String, String)>,
    /// Rows with true, t, yes or 1 in this column delete their key
    #[arg(long, value_name = "COL")]
    tombstone: Vec<String>,
    #[command(flatten)]
    rows: RowArgs,
    /// Make the version and do not make it current
    #[arg(long)]
    no_publish: bool,
    /// Make the version, say how it compares with the current one, and remove it again
    #[arg(long)]
    dry_run: bool,
    /// Something to note about the version; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    note: Vec<(String, String)>,
    /// Threads that help to sort and write [default: the cores and two more]
    #[arg(long, value_name = "N", value_parser = units::parse_threads)]
    threads: Option<usize>,
    /// Progress and summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
    /// Split the keys into so many ranges of Redis Cluster slots, which are built side by side, in
    /// 1 MiB of memory each at least [default: 1]
    #[arg(long, value_name = "N", help_heading = "When the store is made")]
    chunks: Option<u32>,
    #[command(flatten, next_help_heading = "When the store is made")]
    shape: ShapeArgs,
    #[command(flatten, next_help_heading = "Gates")]
    gates: GateArgs,
}

/// How a batch becomes part of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeName {
    /// As a delta while that is cheap, else merged
    Auto,
    /// Merged with all that is there
    Merge,
    /// Written alone, and looked up first
    Delta,
    /// The batch is all that there shall be
    Replace,
}

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Mode {
        match name {
            ModeName::Auto => Mode::Auto,
            ModeName::Merge => Mode::Merge,
            ModeName::Delta => Mode::Delta,
            ModeName::Replace => Mode::Replace,
        }
    }
}

/// A version that was made, and what of.
struct Made {
    info: VersionInfo,
    bad_rows: u64,
    input_bytes: u64,
}

pub(crate) fn run(args: &UpdateArgs) -> Result<Exit> {
    let start = Instant::now();
    folder::refuse_table(&args.store)?;
    let sample = folder::newest_or_current(&args.store)?;
    match &args.delta {
        Some(delta) => args.apply(delta, start),
        None => args.read(sample.as_ref(), start),
    }
}

impl UpdateArgs {
    /// Makes a version of the batches; `sample` is a version of the store, if there is one.
    fn read(&self, sample: Option<&VersionInfo>, start: Instant) -> Result<Exit> {
        let options = self.read_options(sample)?;
        // Until the input is there, which may be never, a signal ends the command as ever.
        let inputs = Inputs::open(&self.batches, options)?;
        let watcher = Watcher::new(&Stop::on_signals()?);
        let (schema, meter) = (inputs.schema.clone(), inputs.meter.clone());
        let executor = device::executor(self.threads);
        let mut writer = match sample {
            Some(_) => folder::open_store(&self.store, executor)?,
            None => {
                let options = self.store_options(&schema)?;
                StoreWriter::create(device::disk(), &self.store, options, executor)?
            }
        }
        .watched_by(watcher.watch());
        let result = self
            .make(&mut writer, inputs, &meter, &watcher)
            .and_then(|made| self.finish(&mut writer, made, start));
        self.leave(writer, sample.is_none());
        result
    }

    /// Makes a version of a delta file.
    fn apply(&self, delta: &Path, start: Instant) -> Result<Exit> {
        if self.mode == ModeName::Replace {
            return Err(Failure::usage("a delta changes what is there; it cannot replace it"));
        }
        let watcher = Watcher::new(&Stop::on_signals()?);
        let executor = device::executor(self.threads);
        let mut writer = folder::open_store(&self.store, executor)?.watched_by(watcher.watch());
        let entries = check_delta(&writer, &self.store, delta)?;
        watcher.show(Some(self.progress(&writer, entries)?));
        let sort = self.rows.sort_options();
        let info = writer.apply(delta, sort, self.mode.into(), self.facts()?)?;
        watcher.show(None);
        let input_bytes = fs::metadata(delta).map_or(0, |metadata| metadata.len());
        self.finish(&mut writer, Made { info, bad_rows: 0, input_bytes }, start)
    }

    /// Leaves nothing of a store that was made for a version that is not there.
    fn leave(&self, writer: StoreWriter, is_new: bool) {
        if is_new {
            // What cannot be removed is no store, or one that the next update makes anew.
            let _ = writer.abandon();
        }
    }

    fn make(
        &self,
        writer: &mut StoreWriter,
        inputs: Inputs,
        meter: &Meter,
        watcher: &Watcher,
    ) -> Result<Made> {
        let mut batch = writer.batch(self.rows.sort_options())?;
        let feed = inputs.start(self.rows.files.bad_rows.clone())?;
        let progress = rows::progress(&self.batches, self.show());
        let bad_rows = rows::take_all(feed, meter, progress, watcher.stop(), |key, value| {
            Ok(batch.push(key, value)?)
        })?;
        watcher.show(Some(self.progress(writer, batch.entries())?));
        let info = writer.write(batch, self.mode.into(), self.facts()?)?;
        watcher.show(None);
        Ok(Made { info, bad_rows, input_bytes: meter.bytes() })
    }

    /// Checks the version, and publishes it, keeps it, or removes it.
    fn finish(&self, writer: &mut StoreWriter, made: Made, start: Instant) -> Result<Exit> {
        let intent = if self.dry_run || self.no_publish { Intent::Keep } else { Intent::Publish };
        let number = made.info.name.number;
        let release = Release::decide(writer, made.info, &self.gates, intent);
        if self.dry_run {
            writer.discard(number)?;
        }
        let release = release?;
        let seconds = start.elapsed().as_secs_f64();
        if self.json {
            let mut object = json!({ "event": "updated" });
            let map = object.as_object_mut().expect("it is an object");
            map.extend(release.to_json(&self.store));
            map.extend([
                ("dry_run".into(), json!(self.dry_run)),
                ("bad_rows".into(), json!(made.bad_rows)),
                ("input_bytes".into(), json!(made.input_bytes)),
                ("seconds".into(), json!(seconds)),
            ]);
            write_line(object)?;
        } else {
            let state = if self.dry_run { "not kept" } else { release.state() };
            write_line(format_args!(
                "updated {}: version {number}, {state}: {}{}; {seconds:.1} s",
                self.store.display(),
                release.describe(),
                self.rows.files.bad_rows_note(made.bad_rows),
            ))?;
        }
        let state = if self.dry_run { "would not be published" } else { "is not published" };
        release.conclude(&self.store, state, if self.json { Lines::Json } else { Lines::Text })
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
        match sample {
            Some(sample) => {
                self.check_shape(sample)?;
                options.selection.follow(&Schema::of_version(sample)?);
            }
            None if folder::holds(&self.store)?.kind() == Some(Kind::Store) => {}
            // What a first update leaves that was killed.
            None => {
                folder::check_empty(&self.store, "store", &["CURRENT.new", "tables", "versions"])?;
            }
        }
        Ok(options)
    }

    /// Refuses to change what a store keeps for ever.
    fn check_shape(&self, sample: &VersionInfo) -> Result<()> {
        let chunks = sample.shape.slots.chunks();
        if let Some(asked) = self.chunks.filter(|asked| *asked != chunks) {
            return Err(Failure::usage(format!(
                "--chunks is {asked}, but the store was made with {chunks}"
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

    fn store_options(&self, schema: &Schema) -> Result<StoreOptions> {
        Ok(StoreOptions {
            seed: self.shape.seed()?,
            id: device::random()?,
            shape: Shape {
                slots: SlotMap::new(self.chunks.unwrap_or(1))?,
                index: self.shape.index.options(),
                block_size: self.shape.block_size,
            },
            attributes: vec![(schema::ATTRIBUTE.into(), schema.to_json())],
        })
    }

    fn facts(&self) -> Result<VersionFacts> {
        let delta = self.delta.iter().map(|path| ("delta", path.to_string_lossy().into_owned()));
        let inputs = self.batches.iter().map(|path| ("input", path.clone()));
        let notes = self.note.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let all = inputs.chain(delta).chain(notes);
        let provenance: Attributes =
            all.map(|(name, value)| (name.to_owned(), value.into_bytes())).collect();
        Ok(VersionFacts { id: device::random()?, created_s: device::now_s(), provenance })
    }

    fn show(&self) -> Show {
        if self.json { Show::Json } else { Show::Text }
    }

    /// Shows the writing of a version. How much there is to write is known where it is not for
    /// the library to choose.
    fn progress(&self, writer: &StoreWriter, entries: u64) -> Result<Progress> {
        let total = match self.mode {
            ModeName::Auto => None,
            ModeName::Delta | ModeName::Replace => Some(entries),
            ModeName::Merge => {
                Some(entries + writer.parent()?.map_or(0, |parent| *parent.entries().end()))
            }
        };
        Ok(Progress::start(self.show(), "writing", Unit::Entries, total))
    }
}

/// Refuses a delta that does not lead from the current version; returns its number of entries.
fn check_delta(writer: &StoreWriter, store: &Path, delta: &Path) -> Result<u64> {
    let reader = DeltaReader::open(device::disk().as_ref(), delta)?;
    let (info, pointer) = (reader.info(), writer.pointer());
    if (info.store, info.seed) != (pointer.store, pointer.seed) {
        return Err(Failure::input(
            delta.display(),
            format_args!("is a delta of another store than {}", store.display()),
        ));
    }
    for number in writer.numbers()? {
        let made = writer.version(number).is_ok_and(|version| version.name.id == info.target);
        if made {
            return Err(Failure::input(
                delta.display(),
                format_args!(
                    "leads to version {number} of {}, which is there already; \
                     `hashfold publish` makes it current",
                    store.display()
                ),
            ));
        }
    }
    let parent = writer.parent()?.map(|parent| parent.name);
    if parent.map(|parent| parent.id) != Some(info.parent) {
        let current = parent.map_or("none".into(), |name| {
            format!("{}, whose id is {:#018x}", name.number, name.id)
        });
        return Err(Failure::input(
            delta.display(),
            format_args!(
                "leads from the version with id {:#018x}; the current version of {} is {current}",
                info.parent,
                store.display()
            ),
        ));
    }
    Ok(info.entries)
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("expected a name, '=' and a value".into()),
    }
}

/// An index as its options: `dense, bucket size 64, coding limit 32, absent bits 0`.
fn describe(index: &IndexOptions) -> String {
    let IndexOptions { choice, bucket_size, coding_limit, absent_bits } = index;
    format!(
        "{choice}, bucket size {bucket_size}, coding limit {coding_limit}, absent bits {absent_bits}"
    )
}
