//! `hashfold build`: rows in, a table out.

use crate::{
    device,
    failure::{Exit, Result},
    input::{BadRowPolicy, Feed, Format, Inputs, Meter, ReadOptions, Selection, size},
    options::IndexArgs,
    output::write_line,
    progress::{Progress, Show, Unit},
    schema::{self, Schema},
    stat,
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::{
    Error, ErrorKind, KeyHash, Seed,
    io::Access,
    run::{Duplicates, Entry, MEMORY_BYTES_MIN, Run, SortOptions},
    table::{TableBuilder, TableOptions, TableStats},
};
use serde_json::json;
use std::{path::PathBuf, time::Instant};

/// Make a table of the rows of some files
///
/// The format of a file is known from its name: .csv .tsv .jsonl .ndjson .parquet .arrow .feather
/// .raw, and those with .gz or .zst behind. Of rows with the same key the last one wins.
///
/// A value is the bytes of its column if there is one, and it is text or binary; several columns
/// become a row with their names and types. Fields of JSON Lines keep their JSON text; without
/// --value all of the object but the key is the value.
///
/// Raw input is a sequence of: key length and value length (u32, little-endian), key, value.
#[derive(Args, Debug)]
pub(crate) struct BuildArgs {
    /// Files of rows, read in this order; '-' is standard input
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<String>,
    /// The column with the keys: text, numbers (as decimal text) or bytes
    #[arg(long, value_name = "COL")]
    key: Option<String>,
    /// A column of the value; may be given several times [default: all others]
    #[arg(long = "value", value_name = "COL")]
    values: Vec<String>,
    /// The folder to make the table in
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The format of all inputs [default: by their names]
    #[arg(long)]
    format: Option<Format>,
    /// Refuse input in which a key comes twice
    #[arg(long)]
    unique: bool,
    /// What to do with a row that cannot be used: stop, skip, or a new FILE to collect it in
    #[arg(long, default_value = "stop", value_name = "stop|skip|FILE", value_parser = parse_policy)]
    bad_rows: BadRowPolicy,
    /// The memory to use, 1MiB at least; values of many mebibytes take more
    #[arg(long, default_value = "1GiB", value_parser = units::parse_bytes)]
    memory: usize,
    /// The seed of the hash, for builds that can be repeated [default: random]
    #[arg(long, value_name = "N", value_parser = parse_seed)]
    seed: Option<Seed>,
    #[command(flatten)]
    index: IndexArgs,
    /// The unit of reading, in bytes
    #[arg(long, default_value = "4KiB", value_parser = units::parse_bytes)]
    block_size: usize,
    /// Replace the table if there is one; it is read until the new one is whole
    #[arg(long)]
    replace: bool,
    /// Only read the input: count its rows and hash their keys, and build nothing
    #[arg(long)]
    dry_run: bool,
    /// Threads that help to sort and write [default: the cores and two more]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Progress and summary as JSON objects on standard output
    #[arg(long)]
    json: bool,
    /// The first line of CSV and TSV files is a row; columns are named 1, 2, 3 ...
    #[arg(long)]
    no_header: bool,
    /// The character between the fields of CSV and TSV files [default: by the format]
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter)]
    delimiter: Option<u8>,
    /// Quotes in CSV and TSV files are text like any other
    #[arg(long)]
    no_quotes: bool,
}

/// What came of the input.
struct Outcome {
    bad_rows: u64,
    duplicates: u64,
    input_bytes: u64,
    seconds: f64,
}

pub(crate) fn run(args: &BuildArgs) -> Result<Exit> {
    let start = Instant::now();
    // Until the input is there, which may be never, a signal ends the command as ever.
    let inputs = Inputs::open(&args.inputs, args.read_options())?;
    let stop = Stop::on_signals()?;
    let (schema, meter) = (inputs.schema.clone(), inputs.meter.clone());
    if args.dry_run {
        return args.dry_run(inputs, &stop, start);
    }
    let options = args.table_options(&schema)?;
    let executor = device::executor(args.threads);
    let builder = TableBuilder::create(device::disk(), &args.out, options, executor)?;
    let mut sorter = builder.sorter(args.sort_options())?;
    let feed = inputs.start(args.bad_rows.clone())?;
    let mut digest = args.seed.map(Digest::new);
    let push = |key: &[u8], value: &[u8]| {
        digest.iter_mut().for_each(|digest| digest.add(key, value));
        Ok(sorter.push(key, Some(value))?)
    };
    let bad_rows = args.read(feed, &meter, &stop, push)?;
    let builder = match digest {
        Some(digest) => builder.with_id(digest.id),
        None => builder,
    };
    let sorted = sorter.finish()?;
    let summary = *sorted.summary();
    let progress =
        Progress::start(args.show(), "writing", Unit::Entries, Some(summary.entries_max));
    let mut watched = Watched { run: sorted, progress, stop: &stop, count: 0 };
    let stats = builder.build(&mut watched, &summary)?;
    let outcome = Outcome {
        bad_rows,
        duplicates: watched.run.duplicates(),
        input_bytes: meter.bytes(),
        seconds: start.elapsed().as_secs_f64(),
    };
    drop(watched);
    args.report(&stats, &outcome)?;
    Ok(Exit::Done)
}

/// What an id is made from in builds that can be repeated: all that goes into the table, in order,
/// so that different tables have different ids.
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
    fn read_options(&self) -> ReadOptions {
        ReadOptions {
            format: self.format,
            delimiter: self.delimiter,
            header: !self.no_header,
            quotes: !self.no_quotes,
            selection: Selection {
                key: self.key.clone(),
                values: self.values.clone(),
                first: None,
            },
        }
    }

    fn table_options(&self, schema: &Schema) -> Result<TableOptions> {
        let seed = match self.seed {
            Some(seed) => seed,
            None => Seed(device::random()?),
        };
        Ok(TableOptions {
            seed,
            id: device::random()?,
            index: self.index.options(),
            block_size: self.block_size,
            access: Access::Direct,
            replace: self.replace,
            attributes: vec![(schema::ATTRIBUTE.into(), schema.to_json())],
        })
    }

    fn sort_options(&self) -> SortOptions {
        // The rest is for the input and for the blocks that are being written.
        let memory_bytes = (self.memory - self.memory / 16).max(self.memory.min(MEMORY_BYTES_MIN));
        let duplicates = if self.unique { Duplicates::Refuse } else { Duplicates::KeepLast };
        SortOptions { duplicates, ..SortOptions::within(memory_bytes) }
    }

    fn show(&self) -> Show {
        if self.json { Show::Json } else { Show::Text }
    }

    /// Takes all rows; returns the number of bad ones.
    fn read(
        &self,
        mut feed: Feed,
        meter: &Meter,
        stop: &Stop,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<u64> {
        let total = self.inputs.iter().map(|path| size(path)).sum();
        let mut progress = Progress::start(self.show(), "reading", Unit::Bytes, total);
        while let Some(batch) = feed.next(stop)? {
            for (key, value) in batch.entries() {
                take(key, value)?;
            }
            feed.give_back(batch);
            progress.set(meter.bytes());
        }
        feed.finish()
    }

    /// Reads and hashes as a build does.
    fn dry_run(&self, inputs: Inputs, stop: &Stop, start: Instant) -> Result<Exit> {
        let (schema, meter) = (inputs.schema.clone(), inputs.meter.clone());
        let seed = self.seed.unwrap_or_default();
        let (mut rows, mut hashes, mut row_bytes) = (0u64, 0, 0);
        let bad_rows =
            self.read(inputs.start(self.bad_rows.clone())?, &meter, stop, |key, value| {
                rows += 1;
                row_bytes += (key.len() + value.len()) as u64;
                hashes ^= KeyHash::of(key, seed).low();
                Ok(())
            })?;
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
                schema.describe(),
                units::bytes(units::per_second(meter.bytes(), seconds)),
            ))?;
        }
        Ok(Exit::Done)
    }

    fn report(&self, stats: &TableStats, outcome: &Outcome) -> Result<()> {
        let &Outcome { bad_rows, duplicates, input_bytes, seconds } = outcome;
        if self.json {
            return write_line(json!({
                "event": "built", "table": self.out.to_string_lossy(),
                "stats": stat::to_json(stats), "bad_rows": bad_rows, "duplicates": duplicates,
                "input_bytes": input_bytes, "seconds": seconds,
            }));
        }
        let mut notes = String::new();
        if duplicates > 0 {
            notes += &format!(", {}", units::counted(duplicates, "duplicate", "duplicates"));
        }
        if bad_rows > 0 {
            notes += &format!(", {}", units::counted(bad_rows, "bad row", "bad rows"));
            notes += match &self.bad_rows {
                BadRowPolicy::Collect(_) => " collected",
                BadRowPolicy::Stop | BadRowPolicy::Skip => " skipped",
            };
        }
        write_line(format_args!(
            "built {}: {}{notes}; {}, index {:.2} bits a key; {seconds:.1} s, {}/s",
            self.out.display(),
            units::counted(stats.entries, "entry", "entries"),
            units::bytes(stats.data_bytes),
            stats.index_bits_per_key(),
            units::bytes(units::per_second(input_bytes, seconds)),
        ))
    }
}

/// A run that shows how far it is, and ends when the user asks to stop.
struct Watched<'a, R> {
    run: R,
    progress: Progress,
    stop: &'a Stop,
    count: u64,
}

impl<R: Run> Run for Watched<'_, R> {
    #[inline]
    fn advance(&mut self) -> hashfold::Result<bool> {
        const ENTRIES_BETWEEN_LOOKS: u64 = 1 << 12;
        if self.count.is_multiple_of(ENTRIES_BETWEEN_LOOKS) {
            if self.stop.is_asked() {
                return Err(Error::new(ErrorKind::Stopped));
            }
            self.progress.set(self.count);
        }
        self.count += 1;
        self.run.advance()
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        self.run.entry()
    }
}

fn parse_policy(text: &str) -> Result<BadRowPolicy, String> {
    Ok(match text {
        "" => return Err("expected stop, skip or a file".into()),
        "stop" => BadRowPolicy::Stop,
        "skip" => BadRowPolicy::Skip,
        file => BadRowPolicy::Collect(file.into()),
    })
}

fn parse_seed(text: &str) -> Result<Seed, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map(Seed).map_err(|error| error.to_string())
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        _ if text == "\\t" => Ok(b'\t'),
        [b'"' | b'\n' | b'\r'] => Err("quotes and line ends have their own meaning".into()),
        [byte] => Ok(*byte),
        _ => Err("expected one ASCII character, or \\t".into()),
    }
}
