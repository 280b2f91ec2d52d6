//! Options of the verbs that read rows, and the loop over rows.

use crate::{
    failure::Result,
    input::{
        BadRowAction, BadRowLimit, BadRowPolicy, Feed, Format, Meter, ReadOptions, SchemaPolicy,
        Selection, Taken, size,
    },
    keys,
    progress::{Progress, Show, Unit},
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::run::{Duplicates, MEMORY_BYTES_MIN, SortOptions};

/// Options for reading files of rows.
#[derive(Args, Debug)]
pub(crate) struct FileArgs {
    /// Column with the keys: text, numbers (stored as decimal text) or bytes. In JSON Lines, a.b is
    /// the field b of the object in the field a. Needed unless the store or map has it, the input is
    /// raw, or its lines are keys
    #[arg(long, value_name = "COL")]
    pub(crate) key: Option<String>,
    /// Format of all inputs [default: by the file names]
    #[arg(long)]
    pub(crate) format: Option<Format>,
    /// Action for rows that can't be used: stop, skip, or collect them in FILE as they are, with the
    /// reasons in FILE.reasons; files of an earlier run are replaced
    #[arg(long, default_value = "stop", value_name = "stop|skip|FILE", value_parser = parse_action)]
    bad_rows: BadRowAction,
    /// Number or percentage of bad rows above which skipping or collecting them fails
    #[arg(long, default_value = "1%", value_name = "N|PERCENT", value_parser = parse_limit)]
    max_bad_rows: BadRowLimit,
    #[command(flatten)]
    text: TextArgs,
}

/// Options for reading CSV and TSV files.
#[derive(Args, Debug, Default)]
pub(crate) struct TextArgs {
    /// Read the first line of CSV and TSV files as a row; columns are then named 1, 2, 3 ...
    #[arg(long)]
    no_header: bool,
    /// Character between the fields of CSV and TSV files [default: comma or tab, by the format]
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter)]
    delimiter: Option<u8>,
    /// Read quotes in CSV and TSV files as ordinary text
    #[arg(long)]
    no_quotes: bool,
}

/// Options for the rows that become entries.
#[derive(Args, Debug)]
pub(crate) struct RowArgs {
    #[command(flatten)]
    pub(crate) files: FileArgs,
    /// Column of the value, or path of a JSON field; may be repeated [default: all columns but the
    /// key]
    #[arg(long = "value", value_name = "COL")]
    pub(crate) values: Vec<String>,
    /// Infer the kinds of columns of CSV, TSV and JSON Lines from the first MiB: bool, int64,
    /// float64, date, timestamp, lists of numbers. Later values of other kinds are bad rows
    #[arg(long)]
    infer: bool,
    /// Action if columns are new or missing, compared with the store or the first input
    #[arg(long, default_value = "strict", value_name = "POLICY")]
    pub(crate) schema: SchemaPolicy,
    /// Refuse input with duplicate keys; without it, the last row wins
    #[arg(long)]
    unique: bool,
    /// Memory budget for sorting, at least 1MiB. Values above 1 MiB take about five times the size of
    /// the largest one in addition
    #[arg(long, default_value = "1GiB", value_name = "SIZE", value_parser = units::parse_memory)]
    memory: usize,
}

impl FileArgs {
    pub(crate) fn read_options(&self, selection: Selection) -> ReadOptions {
        self.text.read_options(self.format, Selection { key: self.key.clone(), ..selection })
    }

    /// Returns how files of keys are read.
    pub(crate) fn key_options(&self) -> Result<ReadOptions> {
        keys::read_options(self.key.as_deref(), self.format, &self.text)
    }

    pub(crate) fn bad_row_policy(&self) -> BadRowPolicy {
        BadRowPolicy { action: self.bad_rows.clone(), limit: self.max_bad_rows }
    }

    /// `, 3 bad rows skipped`, or nothing.
    pub(crate) fn bad_rows_note(&self, count: u64) -> String {
        let what = match &self.bad_rows {
            _ if count == 0 => return String::new(),
            BadRowAction::Collect(_) => "collected",
            BadRowAction::Stop | BadRowAction::Skip => "skipped",
        };
        format!(", {} {what}", units::counted(count, "bad row", "bad rows"))
    }
}

impl TextArgs {
    pub(crate) fn read_options(&self, format: Option<Format>, selection: Selection) -> ReadOptions {
        let (header, quotes) = (!self.no_header, !self.no_quotes);
        ReadOptions { format, delimiter: self.delimiter, header, quotes, selection }
    }
}

impl RowArgs {
    pub(crate) fn read_options(&self) -> ReadOptions {
        self.files.read_options(Selection {
            values: self.values.clone(),
            infers: self.infer,
            policy: self.schema,
            ..Selection::default()
        })
    }

    pub(crate) fn sort_options(&self) -> SortOptions {
        // The rest of the budget is for reading input and for blocks in flight to the device.
        let memory_bytes = (self.memory - self.memory / 16).max(self.memory.min(MEMORY_BYTES_MIN));
        let duplicates = if self.unique { Duplicates::Refuse } else { Duplicates::KeepLast };
        SortOptions { duplicates, ..SortOptions::within(memory_bytes) }
    }
}

/// Starts to show the progress of reading these inputs.
pub(crate) fn progress(inputs: &[String], show: Show) -> Progress {
    let total = inputs.iter().map(|path| size(path)).sum();
    Progress::start(show, "reading", Unit::Bytes, total)
}

/// Passes all rows to `take`.
pub(crate) fn take_all(
    mut feed: Feed,
    meter: &Meter,
    mut progress: Progress,
    stop: &Stop,
    mut take: impl FnMut(&[u8], Option<&[u8]>) -> Result<()>,
) -> Result<Taken> {
    while let Some(batch) = feed.next(stop)? {
        for (key, value) in batch.entries() {
            take(key, value)?;
        }
        feed.give_back(batch);
        progress.set(meter.bytes());
    }
    feed.finish()
}

fn parse_action(text: &str) -> Result<BadRowAction, String> {
    Ok(match text {
        "" => return Err("expected stop, skip or a file".into()),
        "stop" => BadRowAction::Stop,
        "skip" => BadRowAction::Skip,
        file => BadRowAction::Collect(file.into()),
    })
}

fn parse_limit(text: &str) -> Result<BadRowLimit, String> {
    let limit = match text.strip_suffix('%') {
        Some(percent) => percent
            .parse()
            .ok()
            .filter(|percent| (0.0..=100.0).contains(percent))
            .map(BadRowLimit::Percent),
        None => text.parse().ok().map(BadRowLimit::Count),
    };
    limit.ok_or_else(|| "expected a number of rows, or a percentage such as 0.5%".into())
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        _ if text == "\\t" => Ok(b'\t'),
        [b'"' | b'\n' | b'\r'] => Err("quotes and line ends have their own meaning".into()),
        [byte] => Ok(*byte),
        _ => Err("expected one ASCII character, or \\t".into()),
    }
}
