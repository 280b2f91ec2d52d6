//! The text format of Prometheus.

use crate::{
    command::TABLE,
    data::ServedMemory,
    metrics::{CommandCounts, POWERS},
    process::Memory,
    shared::Shared,
};
use std::fmt::Write as _;

/// Returns all metrics. Labels are names of data sets and commands, never keys.
pub(super) fn text(shared: &Shared) -> String {
    let mut text = String::new();
    commands(shared, &mut text);
    latencies(shared, &mut text);
    let totals = shared.metrics.totals();
    family(&mut text, "lookups_total", "counter", "Keys that were looked up.");
    line(&mut text, "lookups_total", "result=\"hit\"", totals.hits);
    line(&mut text, "lookups_total", "result=\"miss\"", totals.misses);
    family(&mut text, "errors_total", "counter", "Error replies by code.");
    for (code, count) in shared.metrics.errors() {
        line(&mut text, "errors_total", &format!("code=\"{}\"", escaped(&code)), count);
    }
    for (name, help, value) in [
        ("connections_total", "Connections that were accepted.", totals.connections),
        ("connections_refused_total", "Connections beyond the limit.", totals.refused),
        ("connections_shed_total", "Connections closed to free memory of buffers.", totals.shed),
        ("input_bytes_total", "Bytes that clients sent.", totals.input_bytes),
        ("output_bytes_total", "Bytes that were sent to clients.", totals.output_bytes),
    ] {
        family(&mut text, name, "counter", help);
        line(&mut text, name, "", value);
    }
    family(&mut text, "connections", "gauge", "Connections that are open.");
    line(&mut text, "connections", "", shared.clients().len() as u64);
    let index: u64 = shared.views().map(|(_, view)| view.index_bytes()).sum();
    family(&mut text, "memory_bytes", "gauge", "Memory of the process, and of the indexes in it.");
    line(&mut text, "memory_bytes", "part=\"resident\"", Memory::now().resident);
    line(&mut text, "memory_bytes", "part=\"indexes\"", index);
    line(&mut text, "memory_bytes", "part=\"buffers\"", totals.buffer_bytes);
    line(&mut text, "memory_bytes", "part=\"reserved\"", shared.memory.reserved());
    if let Some(certificates) = &shared.certificates {
        let help = "1 while files of certificates changed and cannot be used.";
        family(&mut text, "tls_reload_failing", "gauge", help);
        line(&mut text, "tls_reload_failing", "", u64::from(certificates.error().is_some()));
    }
    data(shared, &mut text);
    deploy(shared, &mut text);
    text
}

fn commands(shared: &Shared, text: &mut String) {
    let counts = shared.metrics.commands();
    let called = || counts.iter().enumerate().filter(|(_, it)| it.calls + it.rejected > 0);
    family(text, "commands_total", "counter", "Calls of commands.");
    for (number, counts) in called() {
        let name = TABLE.full_name(number);
        for (result, count) in [
            ("ok", counts.calls - counts.failed),
            ("error", counts.failed),
            ("refused", counts.rejected),
        ] {
            line(text, "commands_total", &format!("command=\"{name}\",result=\"{result}\""), count);
        }
    }
    family(
        text,
        "command_duration_seconds",
        "histogram",
        "Times of commands, without those of waiting.",
    );
    for (number, counts) in called().filter(|(_, it)| it.calls > 0) {
        let labels = format!("command=\"{}\"", TABLE.full_name(number));
        times(text, "command_duration_seconds", &labels, counts);
    }
}

/// Writes the distribution of times with these labels.
fn times(text: &mut String, name: &str, labels: &str, counts: &CommandCounts) {
    let bucket = format!("{name}_bucket");
    let mut sum = 0;
    for (power, count) in counts.by_power.iter().enumerate().take(POWERS - 1) {
        sum += count;
        let seconds = (1_u64 << power) as f64 / 1e6;
        line(text, &bucket, &format!("{labels},le=\"{seconds}\""), sum);
    }
    line(text, &bucket, &format!("{labels},le=\"+Inf\""), counts.calls);
    let seconds = counts.microseconds as f64 / 1e6;
    let _ = writeln!(text, "hashfold_{name}_sum{{{labels}}} {seconds}");
    line(text, &format!("{name}_count"), labels, counts.calls);
}

/// Writes the times of lookups in each version that is open, and in the one that was current before.
fn latencies(shared: &Shared, text: &mut String) {
    let mut all = Vec::new();
    for data in shared.data() {
        for (number, counts) in data.latencies() {
            let version = number.map(|number| format!(",version=\"{number}\""));
            all.push((label(data.name()) + &version.unwrap_or_default(), counts));
        }
    }
    let help = "Times of lookups by data set and version.";
    family(text, "lookup_duration_seconds", "histogram", help);
    for (labels, counts) in &all {
        times(text, "lookup_duration_seconds", labels, counts);
    }
    let help = "Lookups with an error reply, by data set and version.";
    family(text, "lookups_failed_total", "counter", help);
    for (labels, counts) in &all {
        line(text, "lookups_failed_total", labels, counts.failed);
    }
}

fn data(shared: &Shared, text: &mut String) {
    family(text, "entries", "gauge", "Entries of a data set, at most.");
    for (data, view) in shared.views() {
        line(text, "entries", &label(data.name()), *view.entries().end());
    }
    for filter in shared.filters() {
        line(text, "entries", &label(&filter.name()), filter.glance().keys_max());
    }
    family(text, "version", "gauge", "Number of the version that is served.");
    for (data, view) in shared.views().filter(|(data, _)| data.is_store()) {
        let number = view.version().map_or(0, |version| version.info().name.number);
        line(text, "version", &label(data.name()), number);
    }
    family(text, "seq", "counter", "Sequence number after the last change of a map.");
    family_of_maps(shared, text, "seq", |(seq, _)| seq);
    family(
        text,
        "durable_seq",
        "counter",
        "Sequence number before which changes of a map are durable.",
    );
    family_of_maps(shared, text, "durable_seq", |(_, durable_seq)| durable_seq);
    let help = "Memory of a data set in memory, in bytes.";
    family_in_memory(shared, text, ("table_memory_bytes", help), |memory| memory.stat().bytes);
    let help = "Limit of the memory of a data set in memory, in bytes.";
    family_in_memory(shared, text, ("table_memory_limit_bytes", help), ServedMemory::memory_bytes);
    let help = "Changes of a data set in memory that are not saved.";
    family_in_memory(shared, text, ("unsaved_changes", help), ServedMemory::unsaved);
    family(
        text,
        "data_bytes",
        "gauge",
        "Size of a data set's files, or of its keys and values in memory.",
    );
    for (data, view) in shared.views() {
        line(text, "data_bytes", &label(data.name()), view.data_bytes());
    }
}

/// Appends a line for each map.
fn family_of_maps(shared: &Shared, text: &mut String, name: &str, of: fn((u64, u64)) -> u64) {
    for (data, view) in shared.views() {
        if let Some(map) = view.map() {
            line(text, name, &label(data.name()), of(map.seqs()));
        }
    }
}

/// Appends a family that has a line for each data set in memory.
fn family_in_memory(
    shared: &Shared,
    text: &mut String,
    (name, help): (&str, &str),
    of: fn(&ServedMemory) -> u64,
) {
    family(text, name, "gauge", help);
    for (data, view) in shared.views() {
        if let Some(memory) = view.memory() {
            line(text, name, &label(data.name()), of(memory));
        }
    }
}

fn deploy(shared: &Shared, text: &mut String) {
    let Some(deployment) = &shared.deployment else { return };
    let state = deployment.state();
    let unreachable =
        state.unreachable_since.map_or(0, |since| shared.now().saturating_sub(since).as_secs());
    for (name, help, value) in [
        (
            "pointer_seq",
            "Number of changes of the group's pointer that was seen.",
            state.report.seq,
        ),
        ("pointer_unreachable_seconds", "Time since the pointer cannot be read.", unreachable),
        (
            "follow_failing",
            "1 while fetching or activating fails.",
            u64::from(state.error.is_some()),
        ),
        ("fetch_limit_bytes_per_second", "Limit of transfers.", deployment.limit()),
    ] {
        family(text, name, "gauge", help);
        line(text, name, "", value);
    }
}

fn label(name: &str) -> String {
    format!("data=\"{}\"", escaped(name))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(text, "# HELP hashfold_{name} {help}\n# TYPE hashfold_{name} {kind}\n");
}

fn line(text: &mut String, name: &str, labels: &str, value: u64) {
    let _ = match labels {
        "" => writeln!(text, "hashfold_{name} {value}"),
        labels => writeln!(text, "hashfold_{name}{{{labels}}} {value}"),
    };
}
