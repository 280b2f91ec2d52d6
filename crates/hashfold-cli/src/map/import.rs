//! `hashfold map import`: puts all rows of files.

use super::open::{self, ChangeArgs};
use crate::{
    applied::Applied,
    device,
    failure::{Exit, Result},
    folder,
    input::{Inputs, ReadOptions, SchemaPolicy, Selection},
    options::parse_seed,
    output::write_line,
    progress::{Progress, Show, Unit},
    rows::{self, FileArgs},
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::{
    Seed,
    folder::Contents,
    map::{KEY_BYTES_MAX, Map},
};
use hashfold_rows::Schema;
use serde_json::json;
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

/// Number of rows that are put together.
const ROWS_MAX: usize = 1024;
/// Size of the rows that are put together, about, or of one row.
const BYTES_MAX: usize = 4 << 20;
/// Time after which rows are durable while the command runs.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Put all rows of files in a map; makes the map if it is not there
///
/// A row replaces an older one with its key. The columns of a new map are those of its first input;
/// later inputs must have the same. Rows for a map without entries are sorted, in half of the memory or
/// in a file of the map's folder, and then written at once; other maps take rows as they are read, durable
/// every second. All rows are durable when the command ends. Rows are read in batches: if a bad row or one
/// Ctrl-C ends the command, the rows of the batches before stay in the map, and are durable; the other rows
/// of the batch with the bad row are not put. Without any row, no map is made. After that or a crash, run it
/// again on the same or the corrected input.
#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// Folder of the map
    #[arg(value_name = "DIR")]
    map: PathBuf,
    /// Files of rows; '-' reads standard input
    #[arg(value_name = "INPUT", required = true)]
    inputs: Vec<String>,
    #[command(flatten)]
    files: FileArgs,
    /// Column of the value, or path of a JSON field; may be repeated [default: all columns but the
    /// key]
    #[arg(long = "value", value_name = "COL")]
    values: Vec<String>,
    /// Infer the kinds of columns of CSV, TSV and JSON Lines from the first MiB, for a new map
    #[arg(long)]
    infer: bool,
    /// Action if columns are missing, compared with the map: strict refuses the input, fill stores null; a map
    /// gets no new columns
    #[arg(long, default_value = "strict", value_name = "strict|fill", value_parser = parse_policy)]
    schema: SchemaPolicy,
    /// Seed of the hash of a new map [default: random]
    #[arg(long, value_name = "N", value_parser = parse_seed)]
    seed: Option<Seed>,
    #[command(flatten)]
    change: ChangeArgs,
    /// Print progress and summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ImportArgs) -> Result<Exit> {
    let is_new = folder::holds(&args.map)? == Contents::Nothing;
    if is_new {
        open::check_free(&args.map)?;
    }
    let stop = Stop::on_signals()?;
    let start = Instant::now();
    // The lock comes before the columns are read.
    let mut map = if is_new { None } else { Some(args.change.open(&args.map, &stop)?) };
    let inputs = Inputs::open(&args.inputs, args.read_options(map.as_ref())?, &stop)?;
    let mut rows = 0;
    let imported = args.put(&mut map, inputs, &stop, &mut rows);
    let count = units::counted(rows, "row was", "rows were");
    let closed = map.map_or(Ok(()), open::close);
    let (bad_rows, bytes) = Applied { count, what: "put" }.end(imported, closed)?;
    args.report(rows, bad_rows, (bytes, start.elapsed().as_secs_f64()))
}

impl ImportArgs {
    fn read_options(&self, map: Option<&Map>) -> Result<ReadOptions> {
        let selection = Selection {
            values: self.values.clone(),
            infers: self.infer,
            policy: self.schema,
            ..Selection::default()
        };
        let mut options = self.files.read_options(selection);
        if let Some(map) = map {
            options.selection.follow(&open::schema(map)?, "the map");
        }
        Ok(options)
    }

    /// Returns the map, which is made if there is none.
    fn made<'a>(&self, map: &'a mut Option<Map>, schema: &Schema) -> Result<&'a Map> {
        if map.is_none() {
            *map = Some(self.create(schema)?);
        }
        Ok(map.as_ref().expect("it was made above"))
    }

    fn create(&self, schema: &Schema) -> Result<Map> {
        let attributes = vec![(Schema::ATTRIBUTE.to_owned(), schema.to_json())];
        let seed = self.seed.map_or_else(|| device::random().map(Seed), Ok)?;
        Ok(Map::create(&self.map, self.change.options().seed(seed).attributes(attributes))?)
    }

    /// Puts all rows, and counts them. Returns the numbers of bad rows and of bytes read.
    fn put(
        &self,
        map: &mut Option<Map>,
        inputs: Inputs,
        stop: &Stop,
        rows: &mut u64,
    ) -> Result<(u64, u64)> {
        match map {
            Some(map) if map.entries().max > 0 => self.put_as_read(map, inputs, stop, rows),
            _ => self.load(map, inputs, stop, rows),
        }
    }

    /// Sorts all rows, and loads them into a map without entries. A new map is made when a row was read
    /// or all input: its columns stay, and should not be those of input that cannot be read.
    fn load(
        &self,
        map: &mut Option<Map>,
        inputs: Inputs,
        stop: &Stop,
        rows: &mut u64,
    ) -> Result<(u64, u64)> {
        let (meter, schema) = (inputs.meter.clone(), inputs.schema.clone());
        let feed = inputs.key_bytes_max(KEY_BYTES_MAX).start(self.files.bad_row_policy())?;
        let mut sorter = None;
        let mut count = 0;
        let progress = rows::progress(&self.inputs, self.show());
        let taken = rows::take_all(feed, &meter, progress, stop, |key, value| {
            let sorter = match &mut sorter {
                Some(sorter) => sorter,
                None => {
                    let map = self.made(map, &schema)?;
                    sorter.insert(map.sorter(self.change.sort_options())?)
                }
            };
            sorter.push(key, Some(value.unwrap_or_default()))?;
            count += 1;
            Ok(())
        });
        // Rows of the batches before a bad row or a stop are put, too.
        if let Some(sorter) = sorter {
            let progress = Progress::start(self.show(), "writing", Unit::Entries, Some(count));
            let map = self.made(map, &schema)?;
            map.import(&mut sorter.finish()?, &Stop::never().watch(progress))?;
            *rows = count;
        }
        let taken = taken?;
        self.made(map, &schema)?;
        Ok((taken.bad_rows, meter.bytes()))
    }

    /// Puts rows as they are read.
    fn put_as_read(
        &self,
        map: &Map,
        inputs: Inputs,
        stop: &Stop,
        rows: &mut u64,
    ) -> Result<(u64, u64)> {
        let meter = inputs.meter.clone();
        let feed = inputs.key_bytes_max(KEY_BYTES_MAX).start(self.files.bad_row_policy())?;
        let progress = rows::progress(&self.inputs, self.show());
        let (mut bytes, mut synced) = (0, Instant::now());
        let mut batch: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut put = |batch: &mut Vec<(Vec<u8>, Vec<u8>)>| -> Result<()> {
            let count = batch.len() as u64;
            map.put_many(batch.drain(..))?;
            *rows += count;
            Ok(())
        };
        let taken = rows::take_all(feed, &meter, progress, stop, |key, value| {
            batch.push((key.to_vec(), value.unwrap_or_default().to_vec()));
            bytes += key.len() + value.map_or(0, <[u8]>::len);
            if batch.len() >= ROWS_MAX || bytes > BYTES_MAX {
                bytes = 0;
                put(&mut batch)?;
                if synced.elapsed() >= SYNC_INTERVAL {
                    map.sync()?;
                    synced = Instant::now();
                }
            }
            Ok(())
        });
        // Rows of the batches before that of a bad row are put, too.
        put(&mut batch)?;
        Ok((taken?.bad_rows, meter.bytes()))
    }

    fn show(&self) -> Show {
        if self.json { Show::Json } else { Show::Text }
    }

    fn report(&self, rows: u64, bad_rows: u64, (bytes, seconds): (u64, f64)) -> Result<Exit> {
        let folder = self.map.display();
        if self.json {
            write_line(json!({
                "event": "imported", "map": folder.to_string(), "rows": rows,
                "bad_rows": bad_rows, "input_bytes": bytes, "seconds": seconds,
            }))?;
        } else {
            write_line(format_args!(
                "imported into {folder}: {}{}; {seconds:.1} s, {}/s",
                units::counted(rows, "row", "rows"),
                self.files.bad_rows_note(bad_rows),
                units::bytes(units::per_second(bytes, seconds)),
            ))?;
        }
        Ok(Exit::Done)
    }
}

/// Reads the name of a policy; the columns of a map never change.
fn parse_policy(text: &str) -> Result<SchemaPolicy, String> {
    match text {
        "strict" => Ok(SchemaPolicy::Strict),
        "fill" => Ok(SchemaPolicy::Fill),
        _ => Err("expected strict or fill: the columns of a map never change".into()),
    }
}
