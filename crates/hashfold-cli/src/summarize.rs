//! `hashfold summarize`: event streams to windows of counts, sums and sketches.

use crate::{
    failure::{Exit, Failure, Result},
    output::{write_line, write_note},
    stop::Stop,
    units,
};
use clap::Args;
use hashfold::{
    Env,
    pipeline::{ChainsStats, QueueFill, Stats, SummaryStats, WorkerStats},
    work::{Clock as _, SystemClock},
};
use hashfold_rows::utc_of_ms;
use hashfold_summarize::{Config, Report, Run, StreamStats, SummarizeError, config::Stream};
use serde_json::{Value, json};
use std::{fs, path::PathBuf, sync::atomic::Ordering::Relaxed, time::Duration};

/// Time between two lines of progress, and between two JSON objects.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
const JSON_INTERVAL: Duration = Duration::from_secs(1);

/// Summarise event streams: groups, counts, sums, distinct values and quantiles by window of time
///
/// CONFIG is a TOML file: where events come from (files, standard input, TCP), their format (CSV, JSON), and the
/// summaries of them. Each window becomes a table, or a version of a store, that `hashfold get` and `hashfold scan` read.
/// Frames that are no events, and events that come too late, are counted. Chains credit an event, such as a purchase, to
/// those of its user before it. Counts can be read by Prometheus.
///
/// Runs until all files are read; with TCP addresses, until Ctrl-C or SIGTERM. Then all windows end, or, with
/// checkpoints, stay open for the next run. A file that cannot be read is reported at once; the others are read, and the
/// exit code says it at the end.
#[derive(Args, Debug)]
pub(crate) struct SummarizeArgs {
    /// Configuration file, in TOML
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    /// Check the configuration, and that its paths do not conflict with each other or with what is there; print one line, and exit
    #[arg(long)]
    check: bool,
    /// Print progress every 5 seconds, as JSON every second: events, rates, how full the queues are, and how evenly the
    /// workers share the work
    #[arg(long)]
    progress: bool,
    /// Print addresses, progress and counts as JSON objects, one per line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &SummarizeArgs) -> Result<Exit> {
    let path = &args.config;
    let text =
        fs::read_to_string(path).map_err(|error| Failure::io(path.display(), "read", &error))?;
    let folder = path.parent().unwrap_or(path);
    let config = Config::parse(&text, &path.display().to_string(), folder)
        .map_err(|error| failure(&error))?;
    if args.check {
        Run::check(&config, &Env::system()).map_err(|error| failure(&error))?;
        return say_checked(&config, args.json).map(|()| Exit::Done);
    }
    let stop = Stop::on_signals()?;
    let run = Run::start(&config, &Env::system(), stop.flag()).map_err(|error| failure(&error))?;
    // A closed pipe does not end the run.
    let _ = say_start(&run, args.json);
    let has_addresses = !run.addresses().is_empty();
    let mut progress = Progress::new(args);
    let stats = run.wait(&mut |stats| progress.show(stats)).map_err(|error| failure(&error))?;
    progress.show_reports(&stats);
    let said = stats.iter().try_for_each(|stream| say_end(stream, args.json));
    check_sources(&stats)?;
    said?;
    // A stream from the network has no other end.
    let is_early = stop.flag().load(Relaxed) && !has_addresses;
    Ok(if is_early { Exit::Stopped } else { Exit::Done })
}

/// Fails if a source has failed, or the last checkpoint could not be written.
fn check_sources(stats: &[StreamStats]) -> Result<()> {
    let mut errors = stats.iter().flat_map(StreamStats::failures);
    let Some(first) = errors.next() else { return Ok(()) };
    let mut failure = failure(first);
    match errors.count() {
        0 => {}
        1 => failure.message.push_str("; and 1 other source or checkpoint failed"),
        more => {
            let more = format!("; and {more} other sources or checkpoints failed");
            failure.message.push_str(&more);
        }
    }
    Err(failure)
}

fn say_checked(config: &Config, as_json: bool) -> Result<()> {
    let streams = config.streams.len();
    let of_chains = |stream: &Stream| stream.chains.iter().map(|(_, all)| all.len()).sum::<usize>();
    let summaries: usize =
        config.streams.iter().map(|stream| stream.summaries.len() + of_chains(stream)).sum();
    if as_json {
        return write_line(
            json!({ "event": "checked", "streams": streams, "summaries": summaries }),
        );
    }
    let streams = units::counted(streams as u64, "stream", "streams");
    let summaries = units::counted(summaries as u64, "summary", "summaries");
    write_line(format_args!("checked: {streams} and {summaries}, no problem"))
}

fn say_start(run: &Run, as_json: bool) -> Result<()> {
    for stream in run.continued() {
        let frames = stream.stats.totals.frames;
        let open = open_since(stream);
        if as_json {
            write_line(json!({
                "event": "continues", "stream": stream.name, "frames": frames, "open_since": open,
            }))?;
            continue;
        }
        let frames = units::counted(frames, "frame", "frames");
        let open = match open {
            Some(open) => format!("windows from {open} on are open"),
            None => "no window is open".into(),
        };
        let name = &stream.name;
        let mut line = format!("{name}: continues from its checkpoint behind {frames}; {open}");
        if let Some(how) = run.passing(name) {
            line.push_str(&format!(
                "; if the last run was killed, what it read {how} after that checkpoint is lost"
            ));
        }
        write_line(line)?;
    }
    if let Some(address) = run.metrics_address() {
        match as_json {
            true => write_line(json!({ "event": "metrics", "address": address.to_string() }))?,
            false => write_line(format_args!("metrics on http://{address}/metrics"))?,
        }
    }
    for (stream, address) in run.addresses() {
        match as_json {
            true => write_line(json!({
                "event": "listening", "stream": stream, "address": address.to_string(),
            }))?,
            false => write_line(format_args!("{stream}: listening on {address}; Ctrl-C stops"))?,
        }
    }
    Ok(())
}

/// Returns the start of the earliest open window.
fn open_since(stream: &StreamStats) -> Option<String> {
    let of_chains = stream.stats.chains.iter().flat_map(|chains| &chains.summaries);
    let summaries = stream.stats.summaries.iter().chain(of_chains);
    summaries.filter_map(|stats| stats.open_since_ms).min().map(utc_of_ms)
}

/// Lines of progress.
struct Progress {
    is_on: bool,
    as_json: bool,
    shown: Duration,
    /// Frames of each stream when they were shown last, or at the first call.
    frames: Vec<u64>,
    /// Number of reports of each stream that were printed.
    reported: Vec<usize>,
}

impl Progress {
    fn new(args: &SummarizeArgs) -> Progress {
        let (is_on, as_json) = (args.progress, args.json);
        let (frames, reported) = (Vec::new(), Vec::new());
        Progress { is_on, as_json, shown: SystemClock.now(), frames, reported }
    }

    /// Prints what happened to streams since the last call.
    fn show_reports(&mut self, streams: &[StreamStats]) {
        self.reported.resize(streams.len(), 0);
        for (stream, shown) in streams.iter().zip(&mut self.reported) {
            for report in &stream.reports[*shown..] {
                if self.as_json {
                    // A closed pipe does not end the run.
                    let _ = write_line(report_json(&stream.name, report));
                } else {
                    write_note(format_args!("{}: {report}", stream.name));
                }
            }
            *shown = stream.reports.len();
        }
    }

    fn show(&mut self, streams: &[StreamStats]) {
        self.show_reports(streams);
        if self.frames.is_empty() {
            // A run that continues begins with the frames of its checkpoint.
            self.frames = streams.iter().map(|stream| stream.stats.totals.frames).collect();
        }
        let now = SystemClock.now();
        let interval = if self.as_json { JSON_INTERVAL } else { LINE_INTERVAL };
        if !self.is_on || now - self.shown < interval {
            return;
        }
        let seconds = (now - self.shown).as_secs_f64();
        self.shown = now;
        for (stream, before) in streams.iter().zip(&mut self.frames) {
            let stats = &stream.stats;
            let rate = units::per_second(stats.totals.frames - *before, seconds);
            *before = stats.totals.frames;
            if self.as_json {
                // A closed pipe does not end the run.
                let _ = write_line(progress_json(stream, rate));
            } else {
                write_note(progress_line(stream, rate));
            }
        }
    }
}

fn report_json(stream: &str, report: &Report) -> Value {
    match report {
        Report::Replaced { file, offset } => json!({
            "event": "replaced", "stream": stream, "file": file.display().to_string(), "offset": offset,
        }),
        Report::Unsaved(error) => json!({
            "event": "checkpoint_failed", "stream": stream, "error": error.to_string(),
        }),
        other => {
            json!({ "event": "source_failed", "stream": stream, "error": other.to_string() })
        }
    }
}

fn progress_json(stream: &StreamStats, rate: u64) -> Value {
    let (stats, workers) = (&stream.stats, &stream.stats.workers);
    let each = |of: fn(&WorkerStats) -> Value| workers.iter().map(of).collect::<Vec<_>>();
    json!({
        "event": "progress", "stream": stream.name, "frames": stats.totals.frames, "frames_per_s": rate,
        "parser_queue": stats.parser_queue, "parser_queue_mean": rounded(stats.parser_fill.mean()),
        "worker_queues": stats.worker_queues,
        "worker_queue_means": each(|it| rounded(it.fill.mean()).into()), "queue_max": stats.batches,
        "worker_events": each(|it| it.events.into()),
        "worker_busy_s": each(|it| rounded(it.busy.as_secs_f64()).into()),
        "event_imbalance": rounded(stats.event_imbalance()),
        "busy_imbalance": rounded(stats.busy_imbalance()), "open_groups": open_groups(stats),
        "open_bytes": open_bytes(stats), "connections": stream.connections, "open_since": open_since(stream),
    })
}

/// Returns a line of progress; a queue is shown as its batches now and their mean.
fn progress_line(stream: &StreamStats, rate: u64) -> String {
    let stats = &stream.stats;
    let queue = |now: usize, fill: QueueFill| format!("{now} ({:.1})", fill.mean());
    let workers = stats.worker_queues.iter().zip(&stats.workers);
    let workers: Vec<String> = workers.map(|(now, worker)| queue(*now, worker.fill)).collect();
    format!(
        "{}: {} frames, {}/s; queues of {} batches, now (mean): parsers {}, workers {}; imbalance {:.2} of events, \
         {:.2} of time; {} open groups, {}",
        stream.name,
        units::count(stats.totals.frames),
        units::count(rate),
        stats.batches,
        queue(stats.parser_queue, stats.parser_fill),
        workers.join(", "),
        stats.event_imbalance(),
        stats.busy_imbalance(),
        units::count(open_groups(stats)),
        units::bytes(open_bytes(stats)),
    )
}

/// Rounds to thousandths.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// Returns the figures of all summaries, those of chains, too.
fn all_summaries(stats: &Stats) -> impl Iterator<Item = &SummaryStats> {
    stats.summaries.iter().chain(stats.chains.iter().flat_map(|chains| &chains.summaries))
}

fn open_groups(stats: &Stats) -> u64 {
    all_summaries(stats).map(|summary| summary.open_groups).sum()
}

fn open_bytes(stats: &Stats) -> u64 {
    all_summaries(stats).map(|summary| summary.open_bytes).sum()
}

fn say_end(stream: &StreamStats, as_json: bool) -> Result<()> {
    let totals = stream.stats.totals;
    if as_json {
        let summaries = stream.summaries.iter().zip(&stream.stats.summaries);
        return write_line(json!({
            "event": "summarized", "stream": stream.name, "frames": totals.frames, "bytes": totals.bytes,
            "events": totals.events, "rejected": totals.rejected, "ahead": totals.ahead,
            "held": totals.held, "unrouted": totals.unrouted, "failed_connections": stream.failed_connections,
            "unread_bytes": stream.unread_bytes, "failed_checkpoints": stream.failed_checkpoints,
            "summaries": summaries.map(|(name, stats)| summary_json(name, stats)).collect::<Vec<_>>(),
            "chains": chains(stream).map(chains_json).collect::<Vec<_>>(),
        }));
    }
    let mut line = format!("{}: {}", stream.name, units::counted(totals.events, "event", "events"));
    put_count(&mut line, totals.rejected, "rejected");
    put_count(&mut line, totals.ahead, "too far ahead");
    put_count(&mut line, totals.held, "far ahead and held for the next run");
    put_count(&mut line, totals.unrouted, "in no summary");
    let connections = ("connection failed", "connections failed");
    put_counted(&mut line, stream.failed_connections as u64, connections);
    let checkpoints = ("checkpoint not written", "checkpoints not written");
    put_counted(&mut line, stream.failed_checkpoints, checkpoints);
    put_count(&mut line, stream.unread_bytes, "bytes of an unfinished event left for the next run");
    write_line(line)?;
    for (name, stats) in stream.summaries.iter().zip(&stream.stats.summaries) {
        say_summary(name, stats, ("event", "events"))?;
    }
    chains(stream).try_for_each(say_chains)
}

fn say_summary(name: &str, stats: &SummaryStats, (one, many): (&str, &str)) -> Result<()> {
    let mut line = format!(
        "  {name}: {} in {} of {}",
        units::counted(stats.events, one, many),
        units::counted(stats.groups, "group", "groups"),
        units::counted(stats.windows, "window", "windows"),
    );
    put_count(&mut line, stats.late, "late");
    put_count(&mut line, stats.no_group, "beyond the groups or the memory allowed");
    let sums = ("sum null since it is beyond 64 bits", "sums null since they are beyond 64 bits");
    put_counted(&mut line, stats.overflows, sums);
    put_counted(&mut line, stats.open_windows, ("window open", "windows open"));
    let waiting = ("window not published", "windows not published");
    put_counted(&mut line, stats.waiting_windows, waiting);
    write_line(line)
}

/// Names and counts of chains, and the names of their summaries.
type ChainsOf<'a> = (&'a (String, Vec<String>), &'a ChainsStats);

fn chains(stream: &StreamStats) -> impl Iterator<Item = ChainsOf<'_>> {
    stream.chains.iter().zip(&stream.stats.chains)
}

fn say_chains(((name, summaries), stats): ChainsOf<'_>) -> Result<()> {
    let mut line = format!(
        "  {name}: {}, {}",
        units::counted(stats.touches, "touch", "touches"),
        units::counted(stats.conversions, "conversion", "conversions"),
    );
    put_count(&mut line, stats.direct, "of them without a touch");
    put_counted(&mut line, stats.users, ("user in memory", "users in memory"));
    put_count(&mut line, stats.late, "late");
    put_count(&mut line, stats.no_user, "without a user");
    put_count(&mut line, stats.too_long, "too long");
    put_counted(&mut line, stats.dumps, ("dump", "dumps"));
    write_line(line)?;
    let mut summaries = summaries.iter().zip(&stats.summaries);
    summaries.try_for_each(|(name, stats)| say_summary(name, stats, ("credit", "credits")))
}

fn chains_json(((name, summaries), stats): ChainsOf<'_>) -> Value {
    let summaries = summaries.iter().zip(&stats.summaries);
    json!({
        "name": name, "touches": stats.touches, "conversions": stats.conversions,
        "direct": stats.direct, "late": stats.late, "no_user": stats.no_user,
        "too_long": stats.too_long, "users": stats.users, "bytes": stats.bytes, "dumps": stats.dumps,
        "summaries": summaries.map(|(name, stats)| summary_json(name, stats)).collect::<Vec<_>>(),
    })
}

fn put_counted(line: &mut String, count: u64, (one, many): (&str, &str)) {
    if count > 0 {
        line.push_str(&format!(", {}", units::counted(count, one, many)));
    }
}

fn put_count(line: &mut String, count: u64, what: &str) {
    if count > 0 {
        line.push_str(&format!(", {} {what}", units::count(count)));
    }
}

fn summary_json(name: &str, stats: &SummaryStats) -> Value {
    json!({
        "name": name, "events": stats.events, "late": stats.late, "no_group": stats.no_group,
        "windows": stats.windows, "groups": stats.groups, "overflows": stats.overflows,
        "open_windows": stats.open_windows, "waiting_windows": stats.waiting_windows,
    })
}

/// Returns the failure for a run that does not start, or ends early.
pub(crate) fn failure(error: &SummarizeError) -> Failure {
    match error {
        SummarizeError::Data(error) => error.clone().into(),
        SummarizeError::Io { place, action, source } => Failure::io(place, action, source),
        other => Failure::usage(other.to_string()),
    }
}
