//! `COMMAND`, `CONFIG`, `SLOWLOG` and `LATENCY`: what clients and exporters ask a server about itself.

use super::{
    SYNTAX_ERROR,
    entry::{Call, Command, Flag, Group, Keys, Now, Run},
    table::{Found, TABLE},
};
use crate::protocol::{Reply, matches};
use std::sync::atomic::Ordering::Relaxed;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("command", -1, Group::Server, "Describes commands.", Run::Now(command)).always(),
    group("config", "Shows and changes settings.", CONFIG),
    group("slowlog", "Shows commands that took long.", SLOWLOG),
    group("latency", "Shows how long commands take.", LATENCY),
    group("module", "Shows modules.", MODULE),
];

const CONFIG: &[Command] = &[
    now("get", -3, "Returns settings by pattern.", get).with(Flag::Admin),
    now("set", -4, "Changes a setting until the server stops.", set).with(Flag::Admin),
    now("resetstat", 2, "Sets counters to 0.", reset_stat).with(Flag::Admin),
];

const SLOWLOG: &[Command] = &[
    now("get", -2, "Returns the last commands that took long.", slow_get).with(Flag::Admin),
    now("len", 2, "Returns the number of commands in the log.", slow_len).with(Flag::Admin),
    now("reset", 2, "Empties the log.", slow_reset).with(Flag::Admin),
];

const LATENCY: &[Command] = &[
    now("latest", 2, "Returns an empty list: no events are recorded.", empty).with(Flag::Admin),
    now("history", 3, "Returns an empty list: no events are recorded.", empty).with(Flag::Admin),
    now("reset", -2, "Returns 0: no events are recorded.", |call| call.reply.integer(0))
        .with(Flag::Admin),
    now("histogram", -2, "Returns the distribution of the times of commands.", histogram)
        .with(Flag::Admin),
];

const MODULE: &[Command] =
    &[now("list", 2, "Returns the modules whose commands the server knows.", |call| {
        super::info::modules(call.reply);
    })
    .with(Flag::Admin)];

const fn group(name: &'static str, summary: &'static str, all: &'static [Command]) -> Command {
    Command::new(name, -2, Group::Server, summary, Run::Group(all))
}

const fn now(name: &'static str, arity: i32, summary: &'static str, run: Now) -> Command {
    Command::new(name, arity, Group::Server, summary, Run::Now(run)).always()
}

fn empty(call: &mut Call<'_, '_>) {
    call.reply.array(0);
}

/// `COMMAND [COUNT|INFO|DOCS|LIST|GETKEYS]`.
fn command(call: &mut Call<'_, '_>) {
    let arguments = call.arguments;
    let Some(subcommand) = arguments.get(1) else {
        call.reply.array(TABLE.top().len());
        return TABLE.top().iter().for_each(|command| describe(command, "", call.reply));
    };
    let names = || arguments.from(2).map(|name| TABLE.by_name(name));
    match subcommand.to_ascii_lowercase().as_slice() {
        b"count" => call.reply.integer(TABLE.top().len() as i64),
        b"list" => call.reply.bulks(TABLE.top().iter().map(|command| command.name)),
        b"info" if arguments.len() == 2 => {
            call.reply.array(TABLE.top().len());
            TABLE.top().iter().for_each(|command| describe(command, "", call.reply));
        }
        b"info" => {
            call.reply.array(names().len());
            for found in names() {
                match found {
                    Some(found) => describe(found.command, "", call.reply),
                    None => call.reply.null_array(),
                }
            }
        }
        b"docs" => {
            let found: Vec<&Command> = match arguments.len() {
                2 => TABLE.top().to_vec(),
                _ => names().flatten().map(|found| found.command).collect(),
            };
            call.reply.map(found.len());
            found.into_iter().for_each(|command| document(command, call.reply));
        }
        b"getkeys" if arguments.len() > 2 => keys_of(call),
        _ => call.reply.error(&format!(
            "ERR unknown subcommand '{:.128}'. Try COMMAND HELP.",
            String::from_utf8_lossy(subcommand)
        )),
    }
}

/// Writes the entry of a command in `COMMAND INFO`.
fn describe(command: &Command, container: &str, reply: &mut Reply<'_>) {
    let name = |command: &Command| match container {
        "" => command.name.to_owned(),
        container => format!("{container}|{}", command.name),
    };
    reply.array(10);
    reply.bulk(name(command).as_bytes());
    reply.integer(command.arity.into());
    let flags: Vec<&str> =
        Flag::ALL.iter().filter(|(flag, _)| command.is(*flag)).map(|(_, name)| *name).collect();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    let Keys { first, last, step } = command.keys;
    for place in [first, last, step] {
        reply.integer(place.into());
    }
    let categories: Vec<String> = command.categories().map(|name| format!("@{name}")).collect();
    reply.set(categories.len());
    categories.iter().for_each(|category| reply.simple(category));
    reply.array(0);
    describe_keys(command, reply);
    reply.array(command.subcommands().len());
    command.subcommands().iter().for_each(|subcommand| describe(subcommand, command.name, reply));
}

/// Writes the specification of a command's keys.
fn describe_keys(command: &Command, reply: &mut Reply<'_>) {
    let Keys { first, last, step } = command.keys;
    if step == 0 {
        return reply.array(0);
    }
    reply.array(1);
    reply.map(3);
    reply.bulk(b"flags");
    let flags: &[&str] =
        if command.is(Flag::Write) { &["RW", "update"] } else { &["RO", "access"] };
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    reply.bulk(b"begin_search");
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(b"index");
    reply.bulk(b"spec");
    reply.map(1);
    reply.bulk(b"index");
    reply.integer(first.into());
    reply.bulk(b"find_keys");
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(b"range");
    reply.bulk(b"spec");
    reply.map(3);
    let last = if last < 0 { last } else { last - first };
    for (name, number) in [("lastkey", last), ("keystep", step), ("limit", 0)] {
        reply.bulk(name.as_bytes());
        reply.integer(number.into());
    }
}

/// Writes the entry of a command in `COMMAND DOCS`.
fn document(command: &Command, reply: &mut Reply<'_>) {
    let subcommands = command.subcommands();
    reply.bulk(command.name.as_bytes());
    reply.map(3 + usize::from(!subcommands.is_empty()));
    let pairs = [("summary", command.summary), ("since", "1.0.0"), ("group", command.group.name())];
    for (name, text) in pairs {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if !subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(subcommands.len());
        subcommands.iter().for_each(|subcommand| document(subcommand, reply));
    }
}

/// `COMMAND GETKEYS`: the keys of another call.
fn keys_of(call: &mut Call<'_, '_>) {
    let rest = call.arguments.rest(2);
    let Ok(Found { command, .. }) = TABLE.find(&rest) else {
        return call.reply.error("ERR Invalid command specified");
    };
    let places: Vec<usize> = command.keys.places(rest.len()).collect();
    if places.is_empty() {
        return call.reply.error("ERR The command has no key arguments");
    }
    call.reply.array(places.len());
    places.into_iter().for_each(|place| call.reply.bulk(rest.at(place)));
}

/// Returns the settings that `CONFIG GET` shows, by name.
fn settings(call: &Call<'_, '_>) -> Vec<(&'static str, String)> {
    let config = &call.shared.config;
    let port = config.listen.first().map_or(0, std::net::SocketAddr::port);
    let cluster = if call.shared.cluster.is_on() { "yes" } else { "no" };
    vec![
        ("appendonly", "no".into()),
        ("bind", config.listen.iter().map(|it| it.ip().to_string()).collect::<Vec<_>>().join(" ")),
        ("cluster-enabled", cluster.into()),
        ("databases", "1".into()),
        ("maxclients", config.clients_max.to_string()),
        ("maxmemory", config.memory_bytes.to_string()),
        ("maxmemory-clients", config.client_memory_bytes.to_string()),
        ("maxmemory-policy", "noeviction".into()),
        ("port", port.to_string()),
        ("proto-max-bulk-len", crate::protocol::Limits::CLIENT.argument_bytes.to_string()),
        ("save", String::new()),
        ("slowlog-log-slower-than", call.shared.slow_log.threshold_us.load(Relaxed).to_string()),
        ("slowlog-max-len", crate::slow_log::COMMANDS_MAX.to_string()),
        ("timeout", "0".into()),
    ]
}

fn get(call: &mut Call<'_, '_>) {
    let mut found = settings(call);
    let patterns: Vec<Vec<u8>> = call.arguments.from(2).map(<[u8]>::to_ascii_lowercase).collect();
    found.retain(|(name, _)| patterns.iter().any(|pattern| matches(pattern, name.as_bytes())));
    call.reply.map(found.len());
    for (name, value) in found {
        call.reply.bulk(name.as_bytes());
        call.reply.bulk(value.as_bytes());
    }
}

fn set(call: &mut Call<'_, '_>) {
    let arguments = call.arguments;
    if arguments.len() != 4 {
        return call.reply.error(&super::wrong_arity("config|set"));
    }
    if !arguments.is(2, "slowlog-log-slower-than") {
        let name = arguments.text(2);
        return call.reply.error(&format!(
            "ERR Unknown option or number of arguments for CONFIG SET - '{name}': settings are in the \
             configuration file"
        ));
    }
    match arguments.integer(3) {
        // A negative number turns the log off.
        Ok(us) => {
            call.shared.slow_log.threshold_us.store(u64::try_from(us).unwrap_or(u64::MAX), Relaxed);
            call.ok();
        }
        Err(_) => call.reply.error(
            "ERR CONFIG SET failed (possibly related to argument 'slowlog-log-slower-than') - argument \
             couldn't be parsed into an integer",
        ),
    }
}

fn reset_stat(call: &mut Call<'_, '_>) {
    call.shared.metrics.reset();
    call.ok();
}

fn slow_get(call: &mut Call<'_, '_>) {
    let count = match call.arguments.len() {
        2 => Ok(10),
        3 => call.arguments.integer(2),
        _ => Err(SYNTAX_ERROR.into()),
    };
    let count = match count {
        Ok(-1) => usize::MAX,
        Ok(count) if count >= 0 => count as usize,
        Ok(_) => return call.reply.error("ERR count should be greater than or equal to -1"),
        Err(error) => return call.reply.error(&error),
    };
    let found = call.shared.slow_log.newest(count);
    call.reply.array(found.len());
    for command in found {
        call.reply.array(6);
        call.reply.integer(command.id as i64);
        call.reply.integer(command.at as i64);
        call.reply.integer(command.took.as_micros() as i64);
        call.reply.array(command.arguments.len());
        command.arguments.iter().for_each(|argument| call.reply.bulk(argument));
        call.reply.bulk(command.peer.as_bytes());
        call.reply.bulk(command.name.as_bytes());
    }
}

fn slow_len(call: &mut Call<'_, '_>) {
    call.reply.integer(call.shared.slow_log.count() as i64);
}

fn slow_reset(call: &mut Call<'_, '_>) {
    call.shared.slow_log.clear();
    call.ok();
}

/// `LATENCY HISTOGRAM [command…]`: how many calls took at most 1, 2, 4… microseconds.
fn histogram(call: &mut Call<'_, '_>) {
    let names: Vec<String> = call
        .arguments
        .from(2)
        .map(|name| String::from_utf8_lossy(name).to_ascii_lowercase())
        .collect();
    let counts = call.shared.metrics.commands();
    let wanted = |number: &usize| {
        counts[*number].calls > 0
            && (names.is_empty() || names.iter().any(|name| name == TABLE.full_name(*number)))
    };
    let found: Vec<usize> = (0..TABLE.count()).filter(wanted).collect();
    call.reply.map(found.len());
    for number in found {
        let counts = &counts[number];
        call.reply.bulk(TABLE.full_name(number).as_bytes());
        call.reply.map(2);
        call.reply.bulk(b"calls");
        call.reply.integer(counts.calls as i64);
        call.reply.bulk(b"histogram_usec");
        let filled = counts.by_power.iter().filter(|count| **count > 0).count();
        call.reply.map(filled);
        let mut sum = 0;
        for (power, count) in counts.by_power.iter().enumerate().filter(|(_, count)| **count > 0) {
            sum += count;
            call.reply.integer(1 << power);
            call.reply.integer(sum as i64);
        }
    }
}
