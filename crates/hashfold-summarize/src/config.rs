//! The configuration of a run, in TOML.

use crate::{
    chains::ChainsEntry,
    duration::{DurationMs, Size},
    error::SummarizeError,
    range::{distinct, positive, within},
    rows::Layout,
    rule::RuleEntry,
};
use hashfold::pipeline::{
    Aggregate, BATCHES_MAX, Chains, Column, DISTINCT_PRECISION, Field, FieldKind, Rule, Summary,
    THREADS_MAX,
};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Component, Path, PathBuf},
};

/// Size of the longest event unless the file says otherwise, and the largest such limit, in bytes.
const EVENT_BYTES_MAX: u64 = 1 << 20;
const EVENT_BYTES_LIMIT: u64 = 64 << 20;
/// Number of connections of a stream unless the file says otherwise.
const CLIENTS_MAX: usize = 64;
/// Time between two checkpoints unless the file says otherwise, in milliseconds.
const CHECKPOINT_MS: i64 = 10_000;
/// Time after which a sender is idle unless the file says otherwise, in milliseconds: a minute.
const IDLE_MS: i64 = 60_000;
/// Time by which an event can be ahead unless the file says otherwise, in milliseconds: a day.
const AHEAD_MS: i64 = 86_400_000;
/// Time by which a live event can be after the date of the machine unless the file says otherwise, in milliseconds: a day.
const FUTURE_MS: i64 = 86_400_000;

/// The configuration of a run: streams, and their summaries.
#[derive(Clone, Debug)]
pub struct Config {
    /// The configuration file, for errors.
    pub place: String,
    /// Folder of the results: a folder a summary.
    pub out: PathBuf,
    /// Folder of checkpoints, a file for each stream; without it, there are none.
    pub checkpoints: Option<PathBuf>,
    /// Time between two checkpoints, in milliseconds.
    pub checkpoint_ms: u64,
    /// Folder of rejected frames, a file for each stream; without it, they are only counted.
    pub rejected: Option<PathBuf>,
    /// What becomes of the run when a source fails.
    pub on_source_failure: OnSourceFailure,
    /// Limit of the memory of groups in windows that have not ended, and of chains, of all streams together, in bytes.
    pub memory: Option<u64>,
    /// File of the figures of the run, in the text format of Prometheus.
    pub metrics_file: Option<PathBuf>,
    /// Address that answers `GET /metrics` with these figures.
    pub metrics_listen: Option<SocketAddr>,
    /// Streams by name.
    pub streams: Vec<Stream>,
}

/// A stream: sources of events of one format, with their own queues and threads.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Name of the stream.
    pub name: String,
    /// Format of an event.
    pub format: Format,
    /// Borders between events.
    pub framing: Framing,
    /// The envelope of an event.
    pub envelope: Envelope,
    /// Files to read, one after the other; `None` stands for standard input.
    pub files: Vec<Option<PathBuf>>,
    /// Whether the first line of each file is a header, which is skipped.
    pub has_header: bool,
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Maximum number of connections.
    pub clients_max: usize,
    /// Size of the longest event, in bytes.
    pub event_bytes_max: usize,
    /// Number of parser threads.
    pub parsers: usize,
    /// Number of worker threads.
    pub workers: usize,
    /// Number of batches between sources and summaries.
    pub batches: usize,
    /// Maximum time by which an event can be ahead of the clock and of other senders, in milliseconds.
    pub ahead_ms_max: i64,
    /// Maximum time by which an event over TCP or standard input can be after the date of the machine, in milliseconds.
    pub future_ms_max: i64,
    /// Time without events after which no other sender waits for a connection, in milliseconds.
    pub idle_ms_max: i64,
    /// The time of events; 0 for all without it.
    pub time: Option<TimeField>,
    /// Fields of events.
    pub fields: Vec<Field>,
    /// For each field, the column or path that it comes from.
    pub from: Vec<String>,
    /// Summaries of the stream, and their outputs.
    pub summaries: Vec<(Summary, OutputKind)>,
    /// Chains of the stream, and the summaries of their credits with their outputs.
    pub chains: Vec<(Chains, Vec<(Summary, OutputKind)>)>,
}

impl Stream {
    fn has_standard_input(&self) -> bool {
        self.files.iter().any(Option::is_none)
    }

    /// Returns the file of the stream in the folder of checkpoints.
    pub(crate) fn checkpoint(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.checkpoint", self.name))
    }

    /// Returns the file of the stream in the folder of rejected frames.
    pub(crate) fn rejected(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.jsonl", self.name))
    }

    /// Returns all summaries, those of chains, too.
    pub(crate) fn all_summaries(&self) -> impl Iterator<Item = &(Summary, OutputKind)> {
        let of_chains = self.chains.iter().flat_map(|(_, summaries)| summaries);
        self.summaries.iter().chain(of_chains)
    }

    /// Returns the chains that are dumped.
    pub(crate) fn dumped_chains(&self) -> impl Iterator<Item = &Chains> {
        let chains = self.chains.iter().map(|(chains, _)| chains);
        chains.filter(|chains| chains.dump_ms.is_some())
    }
}

/// Formats of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated values with these columns.
    Csv {
        /// Names of the columns.
        columns: Vec<String>,
        /// The byte between two values.
        delimiter: u8,
    },
    /// A JSON object.
    Json,
}

/// Borders between events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Framing {
    /// A line each, which ends with LF or CR LF.
    #[default]
    Lines,
    /// RFC 6587: an event that begins with a digit begins with its length and a space; others are lines.
    Octets,
}

/// Envelopes of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Envelope {
    /// Nothing.
    #[default]
    None,
    /// The header of a syslog message (RFC 5424), which is removed.
    Syslog,
}

/// The time of events.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TimeField {
    /// The column or path.
    pub from: String,
    /// The unit or format.
    pub format: TimeFormat,
}

/// Units and formats of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeFormat {
    /// Seconds since 1970, perhaps with a fraction.
    S,
    /// Milliseconds since 1970.
    Ms,
    /// Microseconds since 1970.
    Us,
    /// Nanoseconds since 1970.
    Ns,
    /// A text as in RFC 3339, with its zone.
    Rfc3339,
    /// A text as in RFC 3339, which is in UTC if it has no zone.
    Utc,
}

/// What becomes of a run when one of its files, or standard input, cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnSourceFailure {
    /// The other sources and streams go on, and the run fails at its end.
    #[default]
    Continue,
    /// The run ends with the error.
    Stop,
}

/// Outputs of windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputKind {
    /// A table for each window.
    #[default]
    Table,
    /// A version of a store for each window.
    Store,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    out: PathBuf,
    checkpoints: Option<PathBuf>,
    checkpoint_interval: Option<DurationMs>,
    rejected: Option<PathBuf>,
    #[serde(default)]
    on_source_failure: OnSourceFailure,
    memory: Option<Size>,
    metrics_file: Option<PathBuf>,
    metrics_listen: Option<SocketAddr>,
    #[serde(default)]
    stream: BTreeMap<String, StreamEntry>,
    #[serde(default)]
    chains: BTreeMap<String, ChainsEntry>,
    #[serde(default)]
    summary: BTreeMap<String, SummaryEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StreamEntry {
    format: FormatName,
    columns: Option<Vec<String>>,
    delimiter: Option<char>,
    #[serde(default)]
    framing: Framing,
    #[serde(default)]
    envelope: Envelope,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    header: bool,
    #[serde(default)]
    listen: Vec<SocketAddr>,
    clients: Option<usize>,
    event_max: Option<Size>,
    parsers: Option<usize>,
    workers: Option<usize>,
    batches: Option<usize>,
    ahead: Option<DurationMs>,
    future: Option<DurationMs>,
    idle: Option<DurationMs>,
    time: Option<TimeField>,
    fields: BTreeMap<String, FieldEntry>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum FormatName {
    Csv,
    Json,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FieldEntry {
    r#type: KindName,
    from: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KindName {
    Int,
    Float,
    Text,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct SummaryEntry {
    stream: Option<String>,
    chains: Option<String>,
    #[serde(default)]
    r#where: Vec<RuleEntry>,
    #[serde(default)]
    group_by: Vec<String>,
    window: Option<DurationMs>,
    lateness: Option<DurationMs>,
    groups_max: Option<usize>,
    #[serde(default)]
    output: OutputKind,
    columns: Vec<ColumnEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ColumnEntry {
    name: String,
    count: Option<CountEntry>,
    sum: Option<String>,
    min: Option<String>,
    max: Option<String>,
    distinct: Option<String>,
    precision: Option<u8>,
    top: Option<String>,
    quantiles: Option<String>,
    at: Option<Vec<f64>>,
    histogram: Option<String>,
    bounds: Option<Vec<f64>>,
}

/// `count = true`, or the number of values of `top`.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum CountEntry {
    Events(bool),
    Values(usize),
}

impl Config {
    /// Reads a configuration from TOML. Paths are relative to `folder`; `place` is the file, for errors.
    ///
    /// # Errors
    /// `Config`: the line that is not understood, or the name that has no meaning.
    pub fn parse(text: &str, place: &str, folder: &Path) -> Result<Config, SummarizeError> {
        let wrong = |message: String| SummarizeError::Config { place: place.into(), message };
        let file: File = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        file.config(place, folder).map_err(wrong)
    }
}

impl File {
    fn config(self, place: &str, folder: &Path) -> Result<Config, String> {
        let mut streams = Vec::new();
        for (name, entry) in self.stream {
            check_name("stream", &name)?;
            streams.push(
                entry
                    .stream(&name, folder)
                    .map_err(|message| format!("stream \"{name}\": {message}"))?,
            );
        }
        let inputs = streams.iter().flat_map(|stream: &Stream| &stream.files);
        if inputs.filter(|file| file.is_none()).count() > 1 {
            return Err("files: expected standard input (\"-\") at most once".into());
        }
        if self.checkpoints.is_some() && streams.iter().any(Stream::has_standard_input) {
            let expected = "checkpoints: expected streams of files and TCP";
            return Err(format!("{expected}, got one of standard input (\"-\")"));
        }
        for (name, entry) in self.chains {
            check_name("chains", &name)?;
            if self.summary.contains_key(&name) {
                return Err(format!("chains \"{name}\": expected another name than a summary has"));
            }
            add_chains(&mut streams, &name, entry)
                .map_err(|message| format!("chains \"{name}\": {message}"))?;
        }
        for (name, entry) in self.summary {
            check_name("summary", &name)?;
            add_summary(&mut streams, &name, entry)
                .map_err(|message| format!("summary \"{name}\": {message}"))?;
        }
        check_streams(&streams)?;
        let interval = self.checkpoint_interval.map_or(CHECKPOINT_MS, |interval| interval.0);
        let checkpoint_ms = positive("checkpoint-interval", interval, "ms")?.unsigned_abs();
        let memory = self.memory.map(|size| positive("memory", size.0, "B")).transpose()?;
        let path = |setting, path| path_in(folder, setting, path);
        let optional = |setting, of: Option<PathBuf>| of.map(|of| path(setting, of)).transpose();
        Ok(Config {
            place: place.into(),
            out: path("out", self.out)?,
            checkpoints: optional("checkpoints", self.checkpoints)?,
            checkpoint_ms,
            rejected: optional("rejected", self.rejected)?,
            on_source_failure: self.on_source_failure,
            memory,
            metrics_file: optional("metrics-file", self.metrics_file)?,
            metrics_listen: self.metrics_listen,
            streams,
        })
    }
}

fn add_chains(streams: &mut [Stream], name: &str, entry: ChainsEntry) -> Result<(), String> {
    let stream = streams.iter_mut().find(|stream| stream.name == entry.stream);
    let stream = stream.ok_or_else(|| format!("there is no stream \"{}\"", entry.stream))?;
    let chains = entry.chains(name, &stream.fields, stream.time.is_some())?;
    stream.chains.push((chains, Vec::new()));
    Ok(())
}

/// Adds a summary of the events of a stream, or of the credits of chains.
fn add_summary(streams: &mut [Stream], name: &str, entry: SummaryEntry) -> Result<(), String> {
    let output = entry.output;
    match (entry.stream.clone(), entry.chains.clone()) {
        (Some(of), None) => {
            let stream = streams.iter_mut().find(|stream| stream.name == of);
            let stream = stream.ok_or_else(|| format!("there is no stream \"{of}\""))?;
            let summary = entry.summary(name, stream)?;
            stream.summaries.push((summary, output));
        }
        (None, Some(of)) => {
            let found = streams.iter_mut().find_map(|stream| {
                let place = stream.chains.iter().position(|(chains, _)| chains.name == of)?;
                Some((stream, place))
            });
            let (stream, place) = found.ok_or_else(|| format!("there are no chains \"{of}\""))?;
            let fields = stream.chains[place].0.credit_fields(&stream.fields);
            let credits = Stream { fields, ..stream.clone() };
            stream.chains[place].1.push((entry.summary(name, &credits)?, output));
        }
        _ => return Err("expected one of `stream` and `chains`".into()),
    }
    Ok(())
}

/// Returns the path of a setting, which is relative to a folder. Refuses an empty one.
fn path_in(folder: &Path, setting: &str, path: PathBuf) -> Result<PathBuf, String> {
    match path.as_os_str().is_empty() {
        true => Err(format!("{setting}: expected a path, got an empty one")),
        false => Ok(folder.join(path)),
    }
}

/// Returns a path without the parts `.`.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

/// Refuses streams and chains without a result.
fn check_streams(streams: &[Stream]) -> Result<(), String> {
    if streams.is_empty() {
        return Err("expected a stream".into());
    }
    for stream in streams {
        if stream.summaries.is_empty() && stream.chains.is_empty() {
            return Err(format!("stream \"{}\": expected a summary of it", stream.name));
        }
        let is_idle = |(chains, summaries): &&(Chains, Vec<_>)| {
            summaries.is_empty() && chains.dump_ms.is_none()
        };
        if let Some((chains, _)) = stream.chains.iter().find(is_idle) {
            return Err(format!(
                "chains \"{}\": expected a summary of them, or `dump`",
                chains.name
            ));
        }
    }
    Ok(())
}

/// Refuses names that are no names of files.
fn check_name(what: &str, name: &str) -> Result<(), String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !name.is_empty() && !name.starts_with('.') && name.chars().all(is_good) {
        true => Ok(()),
        false => {
            Err(format!("{what} \"{name}\": expected a name of letters, digits, `-`, `_` and `.`"))
        }
    }
}

impl StreamEntry {
    fn stream(self, name: &str, folder: &Path) -> Result<Stream, String> {
        let format = self.format()?;
        let mut fields = Vec::new();
        let mut from = Vec::new();
        for (field, entry) in self.fields {
            let kind = match entry.r#type {
                KindName::Int => FieldKind::Int,
                KindName::Float => FieldKind::Float,
                KindName::Text => FieldKind::Text,
            };
            from.push(entry.from.unwrap_or_else(|| field.clone()));
            fields.push(Field::new(&field, kind));
        }
        if let Format::Csv { columns, .. } = &format {
            let mut named = from.iter().chain(self.time.as_ref().map(|time| &time.from));
            if let Some(absent) = named.find(|from| !columns.contains(from)) {
                return Err(format!("there is no column \"{absent}\""));
            }
        }
        if self.files.is_empty() && self.listen.is_empty() {
            return Err("expected `files` or `listen`".into());
        }
        let event_bytes_max = self.event_max.map_or(EVENT_BYTES_MAX, |size| size.0);
        if !(1..=EVENT_BYTES_LIMIT).contains(&event_bytes_max) {
            return Err(format!("event-max: expected 1B to 64MiB, got {event_bytes_max}B"));
        }
        if let Some(i) = self.files.iter().position(String::is_empty) {
            let count = self.files.len();
            return Err(format!(
                "files: expected names of files, got an empty one, number {} of {count}",
                i + 1
            ));
        }
        let file = |file: String| (file != "-").then(|| folder.join(file));
        let files: Vec<_> = self.files.into_iter().map(file).collect();
        distinct("files", files.iter().flatten().map(|file| plain(file).display().to_string()))?;
        Ok(Stream {
            name: name.into(),
            format,
            framing: self.framing,
            envelope: self.envelope,
            files,
            has_header: self.header,
            listen: self.listen,
            clients_max: positive("clients", self.clients.unwrap_or(CLIENTS_MAX), "")?,
            event_bytes_max: event_bytes_max as usize,
            parsers: within("parsers", self.parsers.unwrap_or(1), THREADS_MAX)?,
            workers: within("workers", self.workers.unwrap_or(1), THREADS_MAX)?,
            batches: within("batches", self.batches.unwrap_or(32), BATCHES_MAX)?,
            ahead_ms_max: self.ahead.map_or(AHEAD_MS, |ahead| ahead.0),
            future_ms_max: self.future.map_or(FUTURE_MS, |future| future.0),
            idle_ms_max: self.idle.map_or(IDLE_MS, |idle| idle.0),
            time: self.time,
            fields,
            from,
            summaries: Vec::new(),
            chains: Vec::new(),
        })
    }

    fn format(&self) -> Result<Format, String> {
        match (self.format, &self.columns) {
            (FormatName::Json, None) if self.header || self.delimiter.is_some() => {
                Err("`header` and `delimiter` are for the format \"csv\"".into())
            }
            (FormatName::Json, None) => Ok(Format::Json),
            (FormatName::Json, Some(_)) => Err("`columns` are for the format \"csv\"".into()),
            (FormatName::Csv, None) => Err("the format \"csv\" needs `columns`".into()),
            (FormatName::Csv, Some(columns)) => {
                let delimiter = self.delimiter.unwrap_or(',');
                match u8::try_from(delimiter) {
                    Ok(byte) if byte.is_ascii() && !b"\"\r\n".contains(&byte) => {
                        Ok(Format::Csv { columns: columns.clone(), delimiter: byte })
                    }
                    _ => Err(format!("delimiter: expected an ASCII character, got {delimiter:?}")),
                }
            }
        }
    }
}

impl SummaryEntry {
    fn summary(self, name: &str, stream: &Stream) -> Result<Summary, String> {
        let field = |name: &str| {
            let found = stream.fields.iter().position(|field| field.name == name);
            found.ok_or_else(|| {
                format!("there is no field \"{name}\" in the stream \"{}\"", stream.name)
            })
        };
        let columns: Result<Vec<Column>, String> = self
            .columns
            .into_iter()
            .map(|entry| {
                let name = entry.name.clone();
                let aggregate = entry.aggregate(&field);
                aggregate
                    .map(|aggregate| Column { name: name.clone(), aggregate })
                    .map_err(|message| format!("column \"{name}\": {message}"))
            })
            .collect();
        let rules: Result<Vec<Rule>, String> = self
            .r#where
            .into_iter()
            .map(|entry| entry.rule("where", &field, &stream.fields))
            .collect();
        distinct("group-by", &self.group_by)?;
        let group_by: Result<Vec<usize>, String> =
            self.group_by.iter().map(|name| field(name)).collect();
        let mut summary = Summary::new(name, columns?).rules(rules?).group_by(group_by?);
        let lateness_ms = self.lateness.map_or(0, |lateness| lateness.0);
        match self.window {
            Some(window) => {
                if stream.time.is_none() {
                    return Err(format!("a window needs `time` in the stream \"{}\"", stream.name));
                }
                summary = summary.windows(window.0, lateness_ms);
            }
            None if self.lateness.is_some() => return Err("`lateness` needs `window`".into()),
            None => {}
        }
        if let Some(groups_max) = self.groups_max {
            summary = summary.groups_max(positive("groups-max", groups_max, "")?);
        }
        summary.check(&stream.fields).map_err(|error| error.to_string())?;
        let schema = Layout::new(&summary, &stream.fields).schema;
        let columns = schema.columns.iter().map(|column| &column.name);
        distinct("names of the key and of columns", columns.chain([&schema.key]))?;
        Ok(summary)
    }
}

impl ColumnEntry {
    fn aggregate(
        self,
        field: &impl Fn(&str) -> Result<usize, String>,
    ) -> Result<Aggregate, String> {
        let is_with = |option: bool, name: &str, of: &str| match option {
            true => Err(format!("`{name}` is for `{of}`")),
            false => Ok(()),
        };
        is_with(self.precision.is_some() && self.distinct.is_none(), "precision", "distinct")?;
        is_with(self.at.is_some() && self.quantiles.is_none(), "at", "quantiles")?;
        is_with(self.bounds.is_some() && self.histogram.is_none(), "bounds", "histogram")?;
        let precision = self.precision.unwrap_or(DISTINCT_PRECISION);
        let names = [
            &self.sum,
            &self.min,
            &self.max,
            &self.distinct,
            &self.top,
            &self.quantiles,
            &self.histogram,
        ];
        let given = names.into_iter().filter(|name| name.is_some()).count();
        match (self.count, given) {
            (Some(CountEntry::Events(true)), 0) => return Ok(Aggregate::Count),
            (Some(CountEntry::Values(_)) | None, 1) => {}
            _ => {
                return Err(
                    "expected one of `count = true`, `sum`, `min`, `max`, `distinct`, `top`, \
                            `quantiles` and `histogram`"
                        .into(),
                );
            }
        }
        let values = match self.count {
            Some(CountEntry::Values(values)) => Some(values),
            _ => None,
        };
        is_with(values.is_some() && self.top.is_none(), "count = NUMBER", "top")?;
        if let Some(name) = self.sum {
            Ok(Aggregate::Sum(field(&name)?))
        } else if let Some(name) = self.min {
            Ok(Aggregate::Min(field(&name)?))
        } else if let Some(name) = self.max {
            Ok(Aggregate::Max(field(&name)?))
        } else if let Some(name) = self.distinct {
            Ok(Aggregate::Distinct { field: field(&name)?, precision })
        } else if let Some(name) = self.top {
            Ok(Aggregate::Top { field: field(&name)?, count: values.unwrap_or(10) })
        } else if let Some(name) = self.quantiles {
            let at = self.at.unwrap_or_else(|| vec![0.5, 0.9, 0.99]);
            Ok(Aggregate::Quantiles { field: field(&name)?, at })
        } else {
            let name = self.histogram.unwrap_or_default();
            let bounds = self.bounds.ok_or("`histogram` needs `bounds`")?;
            Ok(Aggregate::Histogram { field: field(&name)?, bounds })
        }
    }
}
