//! `CLUSTER`: slots and servers, as cluster clients ask for them.

use super::entry::{Call, Command, Flag, Group, Now, Run};
use crate::{
    cluster::{Seen, SeenShard, View},
    session::Client,
};
use hashfold::store::{SLOTS, slot_of};
use std::{fmt::Write as _, net::IpAddr, sync::Arc};

pub(super) const COMMANDS: &[Command] = &[
    Command::new("cluster", -2, Group::Cluster, "Describes the cluster.", Run::Group(SUBCOMMANDS)),
    now("readonly", 1, "Allows reads from replicas.", |call| reads_replicas(call, true)).fast(),
    now("readwrite", 1, "Ends the effect of READONLY.", |call| reads_replicas(call, false)).fast(),
    now("asking", 1, "Says that another server could not answer the next command.", asking).fast(),
];

const SUBCOMMANDS: &[Command] = &[
    now("slots", 2, "Returns slots with their servers.", slots),
    now("shards", 2, "Returns groups of servers with their slots.", shards),
    now("nodes", 2, "Returns all servers, a line each.", nodes),
    now("info", 2, "Describes the state of the cluster.", info),
    now("myid", 2, "Returns the name of this server.", my_id),
    now("keyslot", 3, "Returns the slot of a key.", key_slot).syntax("<key>"),
    now("countkeysinslot", 3, "Returns an error: keys are not counted by slot.", count_keys)
        .syntax("<slot>"),
    now("replicas", 3, "Returns the replicas of a server.", replicas)
        .with(Flag::Admin)
        .syntax("<node-id>"),
    super::help::HELP,
];

const fn now(name: &'static str, arity: i32, summary: &'static str, run: Now) -> Command {
    Command::new(name, arity, Group::Cluster, summary, Run::Now(run)).always()
}

/// Calls `write` with the cluster, or replies that there is none.
fn with_view(call: &mut Call<'_, '_>, write: impl FnOnce(&Arc<View>, &mut Call<'_, '_>)) {
    match call.shared.cluster.view() {
        Some(view) => write(&view, call),
        None => call.reply.error("ERR This instance has cluster support disabled"),
    }
}

fn asking(call: &mut Call<'_, '_>) {
    if !call.shared.cluster.is_on() {
        return call.reply.error("ERR This instance has cluster support disabled");
    }
    call.session.is_asking = true;
    call.ok();
}

fn reads_replicas(call: &mut Call<'_, '_>, reads: bool) {
    if !call.shared.cluster.is_on() {
        return call.reply.error("ERR This instance has cluster support disabled");
    }
    call.session.reads_replicas = reads;
    call.ok();
}

fn slots(call: &mut Call<'_, '_>) {
    with_view(call, |view, call| {
        call.reply.array(view.shards.iter().map(|shard| shard.slots.len()).sum());
        for shard in &view.shards {
            for range in &shard.slots {
                let nodes = shard.nodes();
                call.reply.array(2 + nodes.len());
                call.reply.integer((*range.start()).into());
                call.reply.integer((*range.end()).into());
                nodes.into_iter().for_each(|node| address(node, call));
            }
        }
    });
}

/// Returns the host of a server: of this one, if it listens on all addresses, the one that the client
/// has reached.
fn host(node: &Seen, client: &Client) -> String {
    let is_any = node.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
    if is_any { client.own.ip().to_string() } else { node.host.clone() }
}

/// Writes the address and the name of a server.
fn address(node: &Seen, call: &mut Call<'_, '_>) {
    let client = &call.session.client;
    let (host, port) = (host(node, client), node.port_for(client.is_encrypted));
    let reply = &mut *call.reply;
    reply.array(4);
    reply.bulk(host.as_bytes());
    reply.integer(port.into());
    reply.bulk(node.id.as_bytes());
    reply.array(0);
}

fn shards(call: &mut Call<'_, '_>) {
    with_view(call, |view, call| {
        call.reply.array(view.shards.len());
        for shard in &view.shards {
            call.reply.map(2);
            call.reply.bulk(b"slots");
            call.reply.array(2 * shard.slots.len());
            for range in &shard.slots {
                call.reply.integer((*range.start()).into());
                call.reply.integer((*range.end()).into());
            }
            call.reply.bulk(b"nodes");
            call.reply.array(shard.all().len());
            shard.all().iter().for_each(|node| shard_node(shard, node, call));
        }
    });
}

fn shard_node(shard: &SeenShard, node: &Seen, call: &mut Call<'_, '_>) {
    let host = host(node, &call.session.client);
    let reply = &mut *call.reply;
    let role = if is_first(shard, node) { "master" } else { "replica" };
    let health = if node.is_alive() { "online" } else { "fail" };
    reply.map(7 + usize::from(node.tls_port.is_some()));
    for (name, text) in [("id", &*node.id), ("endpoint", &*host), ("ip", &*host)] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    reply.bulk(b"port");
    reply.integer(node.port.into());
    if let Some(port) = node.tls_port {
        reply.bulk(b"tls-port");
        reply.integer(port.into());
    }
    for (name, text) in [("role", role), ("health", health)] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    // All servers of a shard have the same data. Some clients read only from those whose offset is not 0.
    reply.bulk(b"replication-offset");
    reply.integer(1);
}

/// Whether a server is the one that clients see as the primary of its shard.
fn is_first(shard: &SeenShard, node: &Seen) -> bool {
    shard.nodes().first().is_some_and(|first| first.id == node.id)
}

/// Returns the line of a server in `CLUSTER NODES`.
fn line(view: &View, shard: &SeenShard, node: &Seen, now_ms: u128, client: &Client) -> String {
    let first = shard.nodes().first().map_or("-", |node| &node.id).to_owned();
    let is_first = node.id == first;
    let role = if is_first { "master" } else { "slave" };
    let myself = if node.is_self { "myself," } else { "" };
    let fail = if node.is_alive() { "" } else { ",fail" };
    let primary = if is_first { "-" } else { &first };
    let link = if node.is_alive() { "connected" } else { "disconnected" };
    let mut text = format!(
        "{} {}:{}@{} {myself}{role}{fail} {primary} 0 {now_ms} {} {link}",
        node.id,
        host(node, client),
        node.port_for(client.is_encrypted),
        u32::from(node.port) + 10_000,
        view.epoch,
    );
    for range in shard.slots.iter().filter(|_| is_first) {
        let _ = match range.start() == range.end() {
            true => write!(text, " {}", range.start()),
            false => write!(text, " {}-{}", range.start(), range.end()),
        };
    }
    text
}

fn nodes(call: &mut Call<'_, '_>) {
    with_view(call, |view, call| {
        let now = call.shared.env.clock.unix_time().as_millis();
        let mut text = String::new();
        for shard in &view.shards {
            for node in shard.all() {
                text.push_str(&line(view, shard, node, now, &call.session.client));
                text.push('\n');
            }
        }
        call.reply.verbatim(&text);
    });
}

fn info(call: &mut Call<'_, '_>) {
    with_view(call, |view, call| {
        let failed = view.shards.iter().filter(|shard| !shard.is_alive());
        let slots_failed: u32 =
            failed.flat_map(|shard| &shard.slots).map(|it| it.end() - it.start() + 1).sum();
        let known: usize = view.shards.iter().map(|shard| shard.all().len()).sum();
        let state = if slots_failed == 0 { "ok" } else { "fail" };
        let epoch = view.epoch;
        call.reply.verbatim(&format!(
            "cluster_state:{state}\r\ncluster_slots_assigned:{SLOTS}\r\ncluster_slots_ok:{}\r\n\
             cluster_slots_pfail:0\r\ncluster_slots_fail:{slots_failed}\r\ncluster_known_nodes:{known}\r\n\
             cluster_size:{}\r\ncluster_current_epoch:{epoch}\r\ncluster_my_epoch:{epoch}\r\n\
             cluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n",
            SLOTS - slots_failed,
            view.shards.len(),
        ));
    });
}

fn my_id(call: &mut Call<'_, '_>) {
    with_view(call, |view, call| call.reply.bulk(view.own().id.as_bytes()));
}

fn key_slot(call: &mut Call<'_, '_>) {
    with_view(call, |_, call| call.reply.integer(slot_of(call.arguments.at(2)).into()));
}

fn count_keys(call: &mut Call<'_, '_>) {
    with_view(call, |_, call| call.reply.error("ERR keys are not counted by slot; use DBSIZE"));
}

fn replicas(call: &mut Call<'_, '_>) {
    with_view(call, |view, call| {
        let id = call.arguments.text(2);
        let now = call.shared.env.clock.unix_time().as_millis();
        let shard = view.shards.iter().find(|shard| shard.all().iter().any(|node| node.id == id));
        let Some(shard) = shard else {
            return call.reply.error(&format!("ERR Unknown node {id}"));
        };
        let replicas = shard.all().iter().filter(|node| !is_first(shard, node));
        let lines = replicas.map(|node| line(view, shard, node, now, &call.session.client));
        let lines: Vec<String> = lines.collect();
        call.reply.bulks(lines.iter().map(String::as_str));
    });
}
