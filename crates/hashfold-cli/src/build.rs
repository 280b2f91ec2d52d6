//! `hashfold build`: makes a table from files of rows.

use crate::{
    columns, device,
    failure::{Exit, Failure, Result},
    folder,
    input::{Inputs, Taken},
    options::ShapeArgs,
    output::write_line,
    progress::{Progress, Show, Unit},
    rows::{self, RowArgs},
    stat,
    stop::Stop,
    units,
    wait::WaitArgs,
};
use clap::Args;
use hashfold::{
    Env, Error, ErrorKind, KeyHash, Seed, Table,
    folder::Contents,
    manifest::FIRST_NAME,
    run::Run as _,
    table::{TableBuilder, TableOptions, TableStats},
};
use hashfold_rows::Schema;
use serde_json::json;
use std::{
    path::{Path, PathBuf},
    time::Instant,
};

/// Build a table from files of rows
///
/// The file name gives the format: .csv .tsv .jsonl .ndjson .parquet .arrow .feather .raw, each also
/// with .gz, .gzip, .zst or .zstd appended. A file with such a name that was cut short or is not
/// compressed is refused. If rows have the same key, the last one wins.
///
/// One text or binary column is stored as its bytes. Several columns are stored as a row with names
/// and types. Fields of JSON Lines keep their JSON text unless --infer is given; without --value and
/// --infer, the value is the whole object without the key.
///
/// Limits: 16,384 columns or fields of a JSON object, 1 MiB for the line of column names, 256 MiB
/// per row.
///
/// Raw input is a sequence of records: key length and value length (u32, little-endian), key, value.
/// The output of `scan --format raw` starts with a record of the columns: its key length is 2^32 - 1,
/// it has no key, and its value is JSON.
#[derive(Args, Debug)]
#[command(override_usage = "hashfold build [OPTIONS] --key <COL> --out <DIR> <INPUT>...\n       \
                            hashfold build [OPTIONS] --out <DIR> <INPUT.raw>...")]
pub(crate) struct BuildArgs {
    /// Files of rows, read in this order; '-' reads standard input
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<String>,
    /// Folder to make the table in
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    rows: RowArgs,
    #[command(flatten)]
    shape: ShapeArgs,
    /// Replace an existing table; readers see the old one until the new one is complete
    #[arg(long)]
    replace: bool,
    /// Replace a table that has entries even if the input has no rows
    #[arg(long, requires = "replace")]
    allow_empty: bool,
    /// Only read the input, count its rows and hash their keys; build nothing
    #[arg(long)]
    dry_run: bool,
    /// Threads that sort and write [default: number of cores + 2]
    #[arg(long, value_name = "N", value_parser = units::parse_threads)]
    threads: Option<usize>,
    #[command(flatten)]
    wait: WaitArgs,
    /// Print progress and summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
}

/// Results of a build that the summary shows.
struct Outcome {
    /// Columns that the first input does not have.
    added: Option<String>,
    bad_rows: u64,
    duplicates: u64,
    input_bytes: u64,
    seconds: f64,
}

pub(crate) fn run(args: &BuildArgs) -> Result<Exit> {
    let start = Instant::now();
    folder::refuse_store(&args.out, "`hashfold update` changes it")?;
    refuse_others(&args.out)?;
    let stop = Stop::on_signals()?;
    let inputs = Inputs::open(&args.inputs, args.rows.read_options(), &stop)?;
    let meter = inputs.meter.clone();
    if args.dry_run {
        return args.dry_run(inputs, &stop, start);
    }
    let options = args.table_options()?;
    let executor = device::executor(args.threads);
    let options = options.env(Env { executor, ..Env::system() });
    let create = || TableBuilder::with(&args.out, options.clone()).map_err(or_replace);
    let builder = args.wait.retry(&stop, create)?;
    let mut sorter = builder.sorter(args.rows.sort_options())?;
    let first = inputs.schema.clone();
    let feed = inputs.start(args.rows.files.bad_row_policy())?;
    let mut digest = args.shape.seed.map(Digest::new);
    let push = |key: &[u8], value: Option<&[u8]>| {
        digest.iter_mut().for_each(|digest| digest.add(key, value.unwrap_or_default()));
        Ok(sorter.push(key, value)?)
    };
    let progress = rows::progress(&args.inputs, args.show());
    let taken = rows::take_all(feed, &meter, progress, &stop, push)?;
    let builder = builder.with_attribute(Schema::ATTRIBUTE, taken.schema.to_json())?;
    let builder = match digest {
        Some(digest) => builder.with_id(digest.id),
        None => builder,
    };
    let mut sorted = sorter.finish()?;
    let entries = sorted.summary().entries_max;
    args.check_not_emptied(entries)?;
    let progress = Progress::start(args.show(), "writing", Unit::Entries, Some(entries));
    let stats = builder.build(&mut sorted, &stop.watch(progress))?;
    let outcome = Outcome {
        added: columns::added(&first, &taken.schema),
        bad_rows: taken.bad_rows,
        duplicates: sorted.duplicates(),
        input_bytes: meter.bytes(),
        seconds: start.elapsed().as_secs_f64(),
    };
    args.report(&stats, &outcome)?;
    Ok(Exit::Done)
}

/// Adds advice to the error that there is a table already.
fn or_replace(error: Error) -> Failure {
    let exists = matches!(error.kind(), ErrorKind::Exists);
    let Failure { exit, message } = error.into();
    let hint = if exists { "; replace it with --replace" } else { "" };
    Failure { exit, message: message + hint }
}

/// The id of a table in a reproducible build: a hash of all entries in order, so that different
/// tables have different ids.
struct Digest {
    seed: Seed,
    id: u64,
}

impl Digest {
    fn new(seed: Seed) -> Digest {
        Digest { seed, id: seed.0 }
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        let key = KeyHash::of(key, self.seed).low();
        self.id = KeyHash::of(value, Seed(self.id ^ key)).low();
    }
}

impl BuildArgs {
    /// Refuses to replace a table that has entries by an empty one.
    fn check_not_emptied(&self, entries: u64) -> Result<()> {
        if entries > 0 || !self.replace || self.allow_empty {
            return Ok(());
        }
        let before = Table::open(&self.out).map_or(0, |table| table.stats().entries);
        match before {
            0 => Ok(()),
            before => Err(Failure {
                exit: Exit::No,
                message: format!(
                    "{}: the input has no rows, and the table has {}; it stays. If that is meant, give \
                     --allow-empty",
                    self.out.display(),
                    units::counted(before, "entry", "entries"),
                ),
            }),
        }
    }

    fn table_options(&self) -> Result<TableOptions> {
        Ok(TableOptions::new()
            .seed(self.shape.seed()?)
            .id(device::random()?)
            .index(self.shape.index.options())
            .block_size(self.shape.block_size)
            .replace(self.replace))
    }

    fn show(&self) -> Show {
        if self.json { Show::Json } else { Show::Text }
    }

    /// Reads and hashes all rows, and builds nothing.
    fn dry_run(&self, inputs: Inputs, stop: &Stop, start: Instant) -> Result<Exit> {
        let meter = inputs.meter.clone();
        let seed = self.shape.seed.unwrap_or_default();
        let (mut rows, mut hashes, mut row_bytes) = (0u64, 0, 0);
        let feed = inputs.start(self.rows.files.bad_row_policy())?;
        let progress = rows::progress(&self.inputs, self.show());
        let taken = rows::take_all(feed, &meter, progress, stop, |key, value| {
            rows += 1;
            row_bytes += (key.len() + value.map_or(0, <[u8]>::len)) as u64;
            hashes ^= KeyHash::of(key, seed).low();
            Ok(())
        })?;
        let Taken { bad_rows, schema } = taken;
        let seconds = start.elapsed().as_secs_f64();
        if self.json {
            write_line(json!({
                "event": "read", "rows": rows, "bad_rows": bad_rows, "row_bytes": row_bytes,
                "hashes": format!("{hashes:#018x}"), "schema": schema,
                "input_bytes": meter.bytes(), "seconds": seconds,
            }))?;
        } else {
            write_line(format_args!(
                "read {} and {}: {}; {seconds:.1} s, {}/s",
                units::counted(rows, "row", "rows"),
                units::counted(bad_rows, "bad row", "bad rows"),
                columns::describe(&schema),
                units::bytes(units::per_second(meter.bytes(), seconds)),
            ))?;
        }
        Ok(Exit::Done)
    }

    fn report(&self, stats: &TableStats, outcome: &Outcome) -> Result<()> {
        let &Outcome { ref added, bad_rows, duplicates, input_bytes, seconds } = outcome;
        if self.json {
            return write_line(json!({
                "event": "built", "table": self.out.to_string_lossy(),
                "stats": stat::to_json(stats), "bad_rows": bad_rows, "duplicates": duplicates,
                "columns_added": added, "input_bytes": input_bytes, "seconds": seconds,
            }));
        }
        let mut notes = String::new();
        if duplicates > 0 {
            notes += &format!(", {}", units::counted(duplicates, "duplicate", "duplicates"));
        }
        notes += &self.rows.files.bad_rows_note(bad_rows);
        write_line(format_args!(
            "built {}: {}{notes}; {}, index {}; {seconds:.1} s, {}/s",
            self.out.display(),
            units::counted(stats.entries, "entry", "entries"),
            units::bytes(stats.data_bytes),
            units::index_size(stats.index_bytes, stats.index_bits_per_key(), stats.entries),
            units::bytes(units::per_second(input_bytes, seconds)),
        ))?;
        match added {
            Some(added) => write_line(format_args!("columns added, null in older rows: {added}")),
            None => Ok(()),
        }
    }
}

/// Refuses a folder with files that belong to no table, and to no build that was killed.
fn refuse_others(folder: &Path) -> Result<()> {
    let is_ours = folder::holds(folder)? != Contents::Nothing
        || device::disk().exists(&folder.join(FIRST_NAME))?;
    if is_ours { Ok(()) } else { folder::check_empty(folder, "table", &[]) }
}
