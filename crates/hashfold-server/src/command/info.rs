//! `INFO`, and the memory of a server.

use super::{
    entry::{Call, Command, Flag, Group, Run, Work},
    table::TABLE,
};
use crate::{
    data::memory_write_failed,
    process::{CpuTime, Memory},
    protocol::Reply,
    shared::Shared,
    tls::Certificates,
};
use hashfold_deploy::NodeVersion;
use std::{fmt::Write as _, sync::atomic::Ordering::Relaxed};

/// The version of Redis whose commands and replies the server has.
pub(crate) const REDIS_VERSION: &str = "7.2.4";

pub(super) const COMMANDS: &[Command] = &[
    Command::new("info", -1, Group::Server, "Describes the server.", Run::Now(info)).always(),
    Command::new("dbsize", 1, Group::Server, "Returns the number of keys.", Run::Job(db_size))
        .reads()
        .fast(),
    Command::new(
        "lastsave",
        1,
        Group::Server,
        "Returns the time of the last save, or else of the start.",
        Run::Now(last_save),
    )
    .fast()
    .always(),
];

/// `MEMORY STATS`.
pub(super) const MEMORY_STATS: Command = Command::new(
    "stats",
    2,
    Group::Server,
    "Returns the memory of the server.",
    Run::Now(memory_stats),
);

/// `MEMORY PURGE`.
pub(super) const MEMORY_PURGE: Command = Command::new(
    "purge",
    2,
    Group::Server,
    "Moves values in memory together, so that there is room for others.",
    Run::Job(memory_purge),
)
// It takes as long as there are values, and a transaction runs alone.
.with(Flag::NoMulti);

fn memory_purge(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let memory = call.session.view()?.and_then(|view| view.memory().cloned());
    Ok(Box::new(move || {
        let compacted = memory.map_or(Ok(()), |memory| memory.compact());
        Box::new(move |_, reply| match compacted {
            Ok(()) => reply.simple("OK"),
            Err(error) => reply.error(&memory_write_failed(&error)),
        })
    }))
}

/// Writes the modules whose commands the server knows.
pub(super) fn modules(reply: &mut Reply<'_>) {
    reply.array(1);
    reply.map(2);
    reply.bulk(b"name");
    reply.bulk(b"bf");
    reply.bulk(b"ver");
    reply.integer(20_800);
}

fn last_save(call: &mut Call<'_, '_>) {
    call.reply.integer(last_save_s(call.shared) as i64);
}

/// Returns when data in memory were saved last, or else when the server was started, in seconds since 1970.
fn last_save_s(shared: &Shared) -> u64 {
    let up = shared.now().saturating_sub(shared.started);
    let started_s = shared.env.clock.unix_time().saturating_sub(up).as_secs();
    shared.memories().map(|memory| memory.saved_at_s()).fold(started_s, u64::max)
}

fn db_size(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let view = call.session.view()?;
    let filters = call.session.space().map_or(0, |space| space.filters().len());
    Ok(Box::new(move || {
        let counted = view.map_or(Ok(0), |view| view.count());
        Box::new(move |_, reply| match counted {
            Ok(entries) => reply.integer(entries as i64 + filters as i64),
            Err(error) => reply.error(&format!("ERR {error}")),
        })
    }))
}

fn memory_stats(call: &mut Call<'_, '_>) {
    let memory = Memory::now();
    let index: u64 = call.shared.views().map(|(_, view)| view.index_bytes()).sum();
    call.reply.map(4);
    let numbers = [
        ("peak.allocated", memory.peak),
        ("total.allocated", memory.resident),
        ("indexes", index),
        (
            "clients.normal",
            call.shared.clients().iter().map(|it| it.output_bytes.load(Relaxed) as u64).sum(),
        ),
    ];
    for (name, bytes) in numbers {
        call.reply.bulk(name.as_bytes());
        call.reply.integer(bytes as i64);
    }
}

/// A section of `INFO`.
struct Section {
    name: &'static str,
    write: fn(&Shared, &mut String),
    /// Whether plain `INFO` has it.
    is_default: bool,
}

const fn section(name: &'static str, write: fn(&Shared, &mut String)) -> Section {
    Section { name, write, is_default: true }
}

const fn on_request(name: &'static str, write: fn(&Shared, &mut String)) -> Section {
    Section { name, write, is_default: false }
}

/// The sections of `INFO`, in order.
const SECTIONS: &[Section] = &[
    section("Server", server),
    section("Clients", clients),
    section("Memory", memory),
    section("Persistence", persistence),
    section("Stats", stats),
    section("Replication", replication),
    section("CPU", cpu),
    section("Modules", |_, text| text.push_str("module:name=bf,ver=20800\r\n")),
    on_request("Commandstats", command_stats),
    section("Errorstats", error_stats),
    on_request("Latencystats", latency_stats),
    section("Cluster", cluster),
    section("Deploy", deploy),
    section("Keyspace", keyspace),
    section("Data", data),
];

fn info(call: &mut Call<'_, '_>) {
    let wanted: Vec<String> = call
        .arguments
        .from(1)
        .map(|name| String::from_utf8_lossy(name).to_ascii_lowercase())
        .collect();
    let all = wanted.iter().any(|name| name == "all" || name == "everything");
    let default = wanted.is_empty() || wanted.iter().any(|name| name == "default");
    let mut text = String::new();
    for Section { name, write, is_default } in SECTIONS {
        let is_named = wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(name));
        if all || is_named || (default && *is_default) {
            text.push_str(if text.is_empty() { "" } else { "\r\n" });
            let _ = write!(text, "# {name}\r\n");
            write(call.shared, &mut text);
        }
    }
    call.reply.verbatim(&text);
}

/// Appends a line of a section.
fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(text, "{name}:{value}\r\n");
}

fn server(shared: &Shared, text: &mut String) {
    let up = shared.now().saturating_sub(shared.started);
    line(text, "redis_version", REDIS_VERSION);
    line(text, "server_name", "hashfold");
    line(text, "hashfold_version", env!("CARGO_PKG_VERSION"));
    line(text, "redis_mode", if shared.cluster.is_on() { "cluster" } else { "standalone" });
    line(text, "os", std::env::consts::OS);
    line(text, "arch_bits", usize::BITS);
    if let Some(error) = shared.certificates.as_ref().and_then(Certificates::error) {
        line(text, "tls_error", error.replace(['\r', '\n'], " "));
    }
    line(text, "process_id", std::process::id());
    line(text, "run_id", &shared.run_id);
    line(text, "tcp_port", shared.config.listen.first().map_or(0, std::net::SocketAddr::port));
    line(text, "server_time_usec", shared.env.clock.unix_time().as_micros());
    line(text, "uptime_in_seconds", up.as_secs());
    line(text, "uptime_in_days", up.as_secs() / 86_400);
    line(text, "io_threads", shared.config.threads);
}

fn clients(shared: &Shared, text: &mut String) {
    line(text, "connected_clients", shared.clients().len());
    line(text, "maxclients", shared.config.clients_max);
    line(text, "blocked_clients", 0);
}

fn memory(shared: &Shared, text: &mut String) {
    let memory = Memory::now();
    let index: u64 = shared.views().map(|(_, view)| view.index_bytes()).sum();
    line(text, "used_memory", memory.resident);
    line(text, "used_memory_rss", memory.resident);
    line(text, "used_memory_peak", memory.peak);
    line(text, "maxmemory", shared.config.memory_bytes);
    line(text, "maxmemory_policy", "noeviction");
    line(text, "index_memory", index);
    line(text, "reserved_memory", shared.memory.reserved());
}

fn persistence(shared: &Shared, text: &mut String) {
    line(text, "loading", u8::from(shared.is_loading()));
    line(text, "async_loading", 0);
    let unsaved: u64 = shared.memories().map(|memory| memory.unsaved()).sum();
    line(text, "rdb_changes_since_last_save", unsaved);
    line(text, "rdb_last_save_time", last_save_s(shared));
    line(text, "aof_enabled", u8::from(shared.maps().next().is_some()));
    let failed = shared.maps().any(|map| map.sync_error().is_some());
    line(text, "aof_last_write_status", if failed { "err" } else { "ok" });
}

fn stats(shared: &Shared, text: &mut String) {
    let totals = shared.metrics.totals();
    line(text, "total_connections_received", totals.connections);
    line(text, "total_commands_processed", totals.commands);
    line(text, "instantaneous_ops_per_sec", shared.metrics.commands_per_second());
    line(text, "total_net_input_bytes", totals.input_bytes);
    line(text, "total_net_output_bytes", totals.output_bytes);
    line(text, "rejected_connections", totals.refused);
    line(text, "evicted_clients", totals.shed);
    line(text, "expired_keys", 0);
    line(text, "evicted_keys", 0);
    line(text, "keyspace_hits", totals.hits);
    line(text, "keyspace_misses", totals.misses);
    line(text, "total_error_replies", totals.errors);
}

fn replication(shared: &Shared, text: &mut String) {
    line(text, "role", "master");
    line(text, "connected_slaves", 0);
    line(text, "master_replid", &shared.run_id);
    // Data on all servers are the same. Some clients read only from replicas whose offset is not 0.
    line(text, "master_repl_offset", 1);
    line(text, "slave_repl_offset", 1);
}

fn cpu(_: &Shared, text: &mut String) {
    let cpu = CpuTime::now();
    line(text, "used_cpu_sys", format_args!("{:.6}", cpu.system_s));
    line(text, "used_cpu_user", format_args!("{:.6}", cpu.user_s));
}

fn command_stats(shared: &Shared, text: &mut String) {
    for (number, counts) in
        shared.metrics.commands().iter().enumerate().filter(|(_, it)| it.calls > 0)
    {
        let per_call = counts.microseconds as f64 / counts.calls as f64;
        let _ = write!(
            text,
            "cmdstat_{}:calls={},usec={},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}\r\n",
            TABLE.full_name(number),
            counts.calls,
            counts.microseconds,
            counts.rejected,
            counts.failed,
        );
    }
}

fn error_stats(shared: &Shared, text: &mut String) {
    for (code, count) in shared.metrics.errors() {
        let _ = write!(text, "errorstat_{code}:count={count}\r\n");
    }
}

fn latency_stats(shared: &Shared, text: &mut String) {
    for (number, counts) in
        shared.metrics.commands().iter().enumerate().filter(|(_, it)| it.calls > 0)
    {
        let name = TABLE.full_name(number);
        let at = |fraction| counts.at_most_us(fraction) as f64;
        let _ = write!(
            text,
            "latency_percentiles_usec_{name}:p50={:.3},p99={:.3},p99.9={:.3}\r\n",
            at(0.5),
            at(0.99),
            at(0.999)
        );
    }
}

fn cluster(shared: &Shared, text: &mut String) {
    line(text, "cluster_enabled", u8::from(shared.cluster.is_on()));
}

fn deploy(shared: &Shared, text: &mut String) {
    let Some(deployment) = &shared.deployment else {
        return line(text, "deploy_enabled", 0);
    };
    let (config, state) = (deployment.config(), deployment.state());
    line(text, "deploy_enabled", 1);
    line(text, "deploy_group", &config.group);
    line(text, "deploy_node", &config.node);
    if let Some(zone) = &config.zone {
        line(text, "deploy_zone", zone);
    }
    line(text, "deploy_seq", state.report.seq);
    line(text, "deploy_trusted_keys", config.trusted_keys.len());
    line(text, "deploy_fetch_limit", deployment.limit());
    if let Some(since) = state.unreachable_since {
        line(text, "deploy_unreachable_seconds", shared.now().saturating_sub(since).as_secs());
    }
    if let Some(error) = &state.error {
        line(text, "deploy_error", error.replace(['\r', '\n'], " "));
    }
    for (store, versions) in &state.report.versions {
        for (number, NodeVersion { state, bytes, of, .. }) in versions {
            let name = format!("deploy_{store}_{number}");
            line(text, &name, format_args!("{state},bytes={bytes},of={of}"));
        }
    }
}

fn keyspace(shared: &Shared, text: &mut String) {
    let keys: u64 = shared.views().map(|(_, view)| *view.entries().end()).sum();
    if keys > 0 {
        let _ = write!(text, "db0:keys={keys},expires=0,avg_ttl=0\r\n");
    }
}

fn data(shared: &Shared, text: &mut String) {
    for (data, view) in shared.views() {
        let entries = view.entries();
        let version = view.version().map_or(0, |version| version.info().name.number);
        let _ = write!(
            text,
            "data_{}:kind={},version={version},entries={},exact={},bytes={},index_bytes={},mapped={}\r\n",
            data.name(),
            data.kind(),
            entries.end(),
            u8::from(entries.start() == entries.end()),
            view.data_bytes(),
            view.index_bytes(),
            u8::from(view.is_in_memory()),
        );
    }
    for (data, view) in shared.views() {
        if let Some(map) = view.map() {
            let (seq, durable_seq) = map.seqs();
            let _ = write!(
                text,
                "map_{}:durability={},seq={seq},durable_seq={durable_seq},writable={}\r\n",
                data.name(),
                map.durability().name(),
                u8::from(map.refusal().is_none()),
            );
        }
    }
    for (data, view) in shared.views() {
        if let Some(memory) = view.memory() {
            let stats = memory.stat();
            let _ = write!(
                text,
                "memory_{}:keys={},data_bytes={},used_bytes={},page_bytes={},memory={},unsaved={},writable={}\r\n",
                data.name(),
                stats.keys,
                stats.data_bytes,
                stats.bytes,
                stats.page_bytes,
                memory.memory_bytes(),
                memory.unsaved(),
                u8::from(memory.refusal().is_none()),
            );
        }
    }
    for filter in shared.filters() {
        let stats = filter.glance();
        let _ = write!(
            text,
            "data_{}:kind=filter,entries={},bytes={},memory={},writable={}\r\n",
            filter.name(),
            stats.fingerprints,
            stats.file_bytes,
            stats.memory_bytes,
            u8::from(filter.is_writable()),
        );
    }
}
