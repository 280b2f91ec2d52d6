//! The figures of a run in the text format of Prometheus, for a file and for a port.

use crate::{lane::StreamStats, report::Report};
use hashfold::pipeline::{ChainsStats, SummaryStats};
use std::{
    fmt::{Display, Write as _},
    sync::Arc,
};

/// The kind of a figure: a number that only grows while a run lasts, or one of this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

/// The figures of a run.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) streams: Vec<StreamStats>,
    /// Memory that is reserved for the groups and chains of all streams, in bytes.
    pub(crate) memory_reserved: u64,
    /// The limit of that memory in the configuration.
    pub(crate) memory_max: Option<u64>,
    /// Number of times that the file of figures could not be written.
    pub(crate) file_failures: u64,
}

impl Figures {
    /// Returns all figures as text. Labels are names in the configuration and numbers of workers, never fields of events.
    pub(crate) fn text(&self) -> String {
        let (mut text, streams) = (Text(String::new()), &self.streams[..]);
        totals(&mut text, streams);
        summaries(&mut text, streams);
        chains(&mut text, streams);
        queues(&mut text, streams);
        workers(&mut text, streams);
        let help =
            "Memory that is reserved for chains and the groups of windows that have not ended.";
        text.family("memory_reserved_bytes", Kind::Gauge, help);
        text.line("memory_reserved_bytes", &[], self.memory_reserved);
        if let Some(limit) = self.memory_max {
            let help = "Limit of the memory of groups and chains.";
            text.family("memory_limit_bytes", Kind::Gauge, help);
            text.line("memory_limit_bytes", &[], limit);
        }
        let help = "Number of times that the file of these figures could not be written.";
        text.family("metrics_file_failures_total", Kind::Counter, help);
        text.line("metrics_file_failures_total", &[], self.file_failures);
        text.0
    }
}

/// Names and values of labels.
type Labels<'a> = [(&'a str, &'a dyn Display)];

/// Lines of the format.
struct Text(String);

impl Text {
    /// Begins the lines of a metric.
    fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let (out, name) = (&mut self.0, format!("hashfold_summarize_{name}"));
        writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("a text takes all");
    }

    /// Appends the value of a metric with these labels, whose values are names or numbers.
    fn line(&mut self, name: &str, labels: &Labels<'_>, value: impl Display) {
        let out = &mut self.0;
        write!(out, "hashfold_summarize_{name}").expect("a text takes all");
        for (i, (label, value)) in labels.iter().enumerate() {
            // Names of streams and summaries have letters, digits, `-`, `_` and `.` only.
            let before = if i == 0 { '{' } else { ',' };
            write!(out, "{before}{label}=\"{value}\"").expect("a text takes all");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        writeln!(out, "{end} {value}").expect("a text takes all");
    }

    /// Appends a metric with a value for each stream.
    fn of_streams(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        streams: &[StreamStats],
        value: impl Fn(&StreamStats) -> u64,
    ) {
        self.family(name, kind, help);
        for stream in streams {
            self.line(name, &[("stream", &stream.name)], value(stream));
        }
    }
}

fn totals(text: &mut Text, streams: &[StreamStats]) {
    use Kind::{Counter, Gauge};
    let mut add = |name, kind, help, value: fn(&StreamStats) -> u64| {
        text.of_streams((name, kind, help), streams, value);
    };
    add("frames_total", Counter, "Frames that came in.", |it| it.stats.totals.frames);
    let help = "Size of the frames, with what was skipped of those that are too long.";
    add("input_bytes_total", Counter, help, |it| it.stats.totals.bytes);
    add("events_total", Counter, "Frames that were parsed.", |it| it.stats.totals.events);
    add("rejected_total", Counter, "Frames that are no events.", |it| it.stats.totals.rejected);
    let help = "Events that were refused since their time is too far ahead.";
    add("events_ahead_total", Counter, help, |it| it.stats.totals.ahead);
    let help = "Events that are held until it is known whether their times are right.";
    add("events_held", Gauge, help, |it| it.stats.totals.held);
    let help = "Events that neither summaries nor chains take.";
    add("events_unrouted_total", Counter, help, |it| it.stats.totals.unrouted);
    add("connections", Gauge, "Connections that are open.", |it| it.connections as u64);
    let help = "Connections that ended with an error.";
    add("connections_failed_total", Counter, help, |it| it.failed_connections as u64);
    let help = "Bytes of unfinished events at the ends of files, which are left for the next run.";
    add("unread_bytes", Gauge, help, |it| it.unread_bytes);
    let help = "Files and standard input that cannot be read any further.";
    add("sources_failed_total", Counter, help, |it| {
        let is_failed = |report: &&Arc<Report>| matches!(***report, Report::Failed(_));
        it.reports.iter().filter(is_failed).count() as u64
    });
    let help = "Checkpoints that could not be written.";
    add("checkpoints_failed_total", Counter, help, |it| it.failed_checkpoints);
}

fn summaries(text: &mut Text, streams: &[StreamStats]) {
    use Kind::{Counter, Gauge};
    let mut add = |name, kind, help, value: fn(&SummaryStats) -> u64| {
        text.family(name, kind, help);
        for stream in streams {
            let of_chains = stream.chains.iter().zip(&stream.stats.chains);
            let of_chains = of_chains.flat_map(|((_, names), it)| names.iter().zip(&it.summaries));
            let summaries = stream.summaries.iter().zip(&stream.stats.summaries);
            for (summary, stats) in summaries.chain(of_chains) {
                let labels: [(&str, &dyn Display); 2] =
                    [("stream", &stream.name), ("summary", summary)];
                text.line(name, &labels, value(stats));
            }
        }
    };
    add("summary_events_total", Counter, "Events that are in a summary.", |it| it.events);
    let help = "Events that came after the end of their window.";
    add("summary_late_total", Counter, help, |it| it.late);
    let help = "Events without room: too many groups, too long a group, or no memory left.";
    add("summary_no_group_total", Counter, help, |it| it.no_group);
    let help = "Sums in windows that ended which are null since they are beyond 64 bits.";
    add("summary_overflows_total", Counter, help, |it| it.overflows);
    add("windows_total", Counter, "Windows that ended.", |it| it.windows);
    add("groups_total", Counter, "Groups in windows that ended.", |it| it.groups);
    add("open_windows", Gauge, "Windows that are open.", |it| it.open_windows);
    add("open_groups", Gauge, "Groups in open windows.", |it| it.open_groups);
    let help = "Windows that have ended and wait for a checkpoint.";
    add("waiting_windows", Gauge, help, |it| it.waiting_windows);
    let help = "Memory of the groups in windows that are open or wait.";
    add("open_bytes", Gauge, help, |it| it.open_bytes);
}

fn chains(text: &mut Text, streams: &[StreamStats]) {
    use Kind::{Counter, Gauge};
    let mut add = |name, kind, help, value: fn(&ChainsStats) -> u64| {
        text.family(name, kind, help);
        for stream in streams {
            for ((chains, _), stats) in stream.chains.iter().zip(&stream.stats.chains) {
                let labels: [(&str, &dyn Display); 2] =
                    [("stream", &stream.name), ("chains", chains)];
                text.line(name, &labels, value(stats));
            }
        }
    };
    add("touches_total", Counter, "Touches that were appended to chains.", |it| it.touches);
    add("conversions_total", Counter, "Conversions that were shared out.", |it| it.conversions);
    let help = "Conversions without a touch.";
    add("conversions_direct_total", Counter, help, |it| it.direct);
    let help = "Touches and conversions that came too late.";
    add("chains_late_total", Counter, help, |it| it.late);
    add("chains_no_user_total", Counter, "Events without a user.", |it| it.no_user);
    let help = "Events whose user or channel is too long.";
    add("chains_too_long_total", Counter, help, |it| it.too_long);
    add("chains_dumps_total", Counter, "Dumps of chains.", |it| it.dumps);
    add("chains_users", Gauge, "Users with a chain in memory.", |it| it.users);
    add("chains_bytes", Gauge, "Memory of chains.", |it| it.bytes);
}

fn queues(text: &mut Text, streams: &[StreamStats]) {
    let help = "Number of all batches of a stream: the bound of each queue.";
    let family = ("batches", Kind::Gauge, help);
    text.of_streams(family, streams, |it| it.stats.batches as u64);
    text.family("queue_batches", Kind::Gauge, "Batches that wait for a parser or a worker.");
    each_queue(streams, |labels, now, _| text.line("queue_batches", labels, now));
    let help = "Mean number of batches in a queue when one was taken.";
    text.family("queue_batches_mean", Kind::Gauge, help);
    each_queue(streams, |labels, _, mean| text.line("queue_batches_mean", labels, mean));
}

/// Calls `visit` with the labels of each queue, and its batches now and on the mean.
fn each_queue(streams: &[StreamStats], mut visit: impl FnMut(&Labels<'_>, usize, f64)) {
    for StreamStats { name, stats, .. } in streams {
        let labels: [(&str, &dyn Display); 2] = [("stream", name), ("queue", &"parsers")];
        visit(&labels, stats.parser_queue, stats.parser_fill.mean());
        for (i, (worker, now)) in stats.workers.iter().zip(&stats.worker_queues).enumerate() {
            let queue = format!("worker-{i}");
            let labels: [(&str, &dyn Display); 2] = [("stream", name), ("queue", &queue)];
            visit(&labels, *now, worker.fill.mean());
        }
    }
}

fn workers(text: &mut Text, streams: &[StreamStats]) {
    let each = |visit: &mut dyn FnMut(&Labels<'_>, u64, f64)| {
        for stream in streams {
            for (i, worker) in stream.stats.workers.iter().enumerate() {
                let labels: [(&str, &dyn Display); 2] = [("stream", &stream.name), ("worker", &i)];
                visit(&labels, worker.events, worker.busy.as_secs_f64());
            }
        }
    };
    let help = "Events for the summaries of a worker, once for each summary.";
    text.family("worker_events_total", Kind::Counter, help);
    each(&mut |labels, events, _| text.line("worker_events_total", labels, events));
    let help = "Time in which a worker summarised events and wrote windows.";
    text.family("worker_busy_seconds_total", Kind::Counter, help);
    each(&mut |labels, _, busy| text.line("worker_busy_seconds_total", labels, busy));
    let help = "The busiest worker over the mean of all workers: 1 if all have as much to do.";
    text.family("worker_imbalance", Kind::Gauge, help);
    for StreamStats { name, stats, .. } in streams {
        for (of, value) in [("events", stats.event_imbalance()), ("busy", stats.busy_imbalance())] {
            let labels: [(&str, &dyn Display); 2] = [("stream", name), ("of", &of)];
            text.line("worker_imbalance", &labels, value);
        }
    }
}
