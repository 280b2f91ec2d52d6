//! `COMMAND`, `CONFIG`, `SLOWLOG` and `LATENCY`: what clients and exporters ask a server about itself.

use super::{
    SYNTAX_ERROR,
    entry::{Call, Command, Flag, Group, Keys, Now, Run},
    table::TABLE,
};
use crate::{
    config::MapDurability,
    protocol::{Reply, matches},
};
use std::sync::atomic::Ordering::Relaxed;

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "command",
        -1,
        Group::Server,
        "Describes commands.",
        Run::GroupOr(describe_all, COMMAND),
    )
    .always(),
    group("config", "Shows and changes settings.", CONFIG),
    group("slowlog", "Shows commands that took long.", SLOWLOG),
    group("latency", "Shows how long commands take.", LATENCY),
    group("module", "Shows modules.", MODULE),
];

const COMMAND: &[Command] = &[
    now("count", 2, "Returns the number of commands.", |call| {
        call.reply.integer(TABLE.top().len() as i64);
    }),
    now("list", -2, "Returns the names of commands.", list)
        .syntax("[FILTERBY MODULE <name> | ACLCAT <category> | PATTERN <pattern>]"),
    now("info", -2, "Describes commands to clients.", command_info).syntax("[<command> ...]"),
    now("docs", -2, "Describes commands to people.", docs).syntax("[<command> ...]"),
    now("getkeys", -3, "Returns the keys of a call.", keys_of).syntax("<command> [<arg> ...]"),
    super::help::HELP,
];

const CONFIG: &[Command] = &[
    now("get", -3, "Returns settings by pattern.", get)
        .with(Flag::Admin)
        .syntax("<pattern> [<pattern> ...]"),
    now("set", -4, "Changes settings until the server stops.", set)
        .with(Flag::Admin)
        .syntax("<directive> <value> [<directive> <value> ...]"),
    now("resetstat", 2, "Sets counters to 0.", reset_stat).with(Flag::Admin),
    super::help::HELP,
];

const SLOWLOG: &[Command] = &[
    now("get", -2, "Returns the last commands that took long.", slow_get)
        .with(Flag::Admin)
        .syntax("[<count>]"),
    now("len", 2, "Returns the number of commands in the log.", slow_len).with(Flag::Admin),
    now("reset", 2, "Empties the log.", slow_reset).with(Flag::Admin),
    super::help::HELP,
];

const LATENCY: &[Command] = &[
    now("latest", 2, "Returns the last sample of each event.", latest).with(Flag::Admin),
    now("history", 3, "Returns the samples of an event.", history)
        .with(Flag::Admin)
        .syntax("<event>"),
    now("reset", -2, "Forgets events.", forget_events).with(Flag::Admin).syntax("[<event> ...]"),
    now("histogram", -2, "Returns the distribution of the times of commands.", histogram)
        .with(Flag::Admin)
        .syntax("[<command> ...]"),
    super::help::HELP,
];

const MODULE: &[Command] = &[
    now("list", 2, "Returns the modules whose commands the server knows.", |call| {
        super::info::modules(call.reply);
    })
    .with(Flag::Admin),
    super::help::HELP,
];

const fn group(name: &'static str, summary: &'static str, all: &'static [Command]) -> Command {
    Command::new(name, -2, Group::Server, summary, Run::Group(all))
}

const fn now(name: &'static str, arity: i32, summary: &'static str, run: Now) -> Command {
    Command::new(name, arity, Group::Server, summary, Run::Now(run)).always()
}

/// `LATENCY LATEST`: for each event its name, and the time of its last sample, that sample and the longest one.
fn latest(call: &mut Call<'_, '_>) {
    let all = call.shared.latency_events.all();
    call.reply.array(all.len());
    for (name, series) in all {
        let (second, ms) = series.samples.back().copied().unwrap_or_default();
        call.reply.array(4);
        call.reply.bulk(name.as_bytes());
        for number in [second, ms, series.max_ms] {
            call.reply.integer(number as i64);
        }
    }
}

fn history(call: &mut Call<'_, '_>) {
    let all = call.shared.latency_events.all();
    let samples = all.get(&*call.arguments.text(2)).map(|it| &it.samples);
    let samples = samples.into_iter().flatten();
    call.reply.array(samples.clone().count());
    for (second, ms) in samples {
        call.reply.array(2);
        for number in [second, ms] {
            call.reply.integer(*number as i64);
        }
    }
}

fn forget_events(call: &mut Call<'_, '_>) {
    let names: Vec<String> = (2..call.arguments.len()).map(|i| call.arguments.text(i)).collect();
    call.reply.integer(call.shared.latency_events.forget(&names) as i64);
}

/// `COMMAND`: describes all commands.
fn describe_all(call: &mut Call<'_, '_>) {
    call.reply.array(TABLE.top().len());
    (0..TABLE.top().len()).for_each(|number| describe(number, call.reply));
}

/// `COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]`.
fn list(call: &mut Call<'_, '_>) {
    let arguments = call.arguments;
    if arguments.len() == 2 {
        return call.reply.bulks(TABLE.top().iter().map(|command| command.name));
    }
    if arguments.len() != 5 || !arguments.is(2, "filterby") {
        return call.reply.error(SYNTAX_ERROR);
    }
    let value = arguments.text(4).to_ascii_lowercase();
    let wanted = |number: usize| match () {
        () if arguments.is(3, "aclcat") => {
            TABLE.command(number).categories().any(|category| category == value)
        }
        () if arguments.is(3, "pattern") => {
            matches(value.as_bytes(), TABLE.full_name(number).as_bytes())
        }
        // The only module is that of the filters of RedisBloom.
        () => value == "bf" && matches!(TABLE.command(number).group, Group::Bloom | Group::Cuckoo),
    };
    if !["module", "aclcat", "pattern"].iter().any(|word| arguments.is(3, word)) {
        return call.reply.error(SYNTAX_ERROR);
    }
    let found: Vec<&str> =
        (0..TABLE.count()).filter(|it| wanted(*it)).map(|it| TABLE.full_name(it)).collect();
    call.reply.bulks(found);
}

fn command_info(call: &mut Call<'_, '_>) {
    if call.arguments.len() == 2 {
        return describe_all(call);
    }
    let names = call.arguments.from(2);
    call.reply.array(names.len());
    for name in names {
        match TABLE.by_full_name(name) {
            Some(found) => describe(found.number, call.reply),
            None => call.reply.null(),
        }
    }
}

fn docs(call: &mut Call<'_, '_>) {
    let found: Vec<usize> = match call.arguments.len() {
        2 => (0..TABLE.top().len()).collect(),
        _ => {
            let names = call.arguments.from(2);
            names.filter_map(|name| TABLE.by_full_name(name)).map(|found| found.number).collect()
        }
    };
    call.reply.map(found.len());
    found.into_iter().for_each(|number| document(number, call.reply));
}

/// Writes the entry of a command in `COMMAND INFO`.
fn describe(number: usize, reply: &mut Reply<'_>) {
    let command = TABLE.command(number);
    reply.array(10);
    reply.bulk(TABLE.full_name(number).as_bytes());
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
    subcommands(number).for_each(|number| describe(number, reply));
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

/// Returns the numbers of the subcommands of a command.
fn subcommands(number: usize) -> impl Iterator<Item = usize> {
    TABLE.numbers_with_subcommands(number).skip(1)
}

/// Writes the entry of a command in `COMMAND DOCS`.
fn document(number: usize, reply: &mut Reply<'_>) {
    let command = TABLE.command(number);
    let count = command.subcommands().len();
    reply.bulk(TABLE.full_name(number).as_bytes());
    reply.map(3 + usize::from(count > 0));
    let pairs = [("summary", command.summary), ("since", "1.0.0"), ("group", command.group.name())];
    for (name, text) in pairs {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if count > 0 {
        reply.bulk(b"subcommands");
        reply.map(count);
        subcommands(number).for_each(|number| document(number, reply));
    }
}

/// `COMMAND GETKEYS`: the keys of another call.
fn keys_of(call: &mut Call<'_, '_>) {
    let rest = call.arguments.rest(2);
    let command = match TABLE.find(&rest) {
        Ok(found) => found.command,
        Err(error) if error.starts_with("ERR wrong number") => {
            return call.reply.error("ERR Invalid number of arguments specified for command");
        }
        Err(_) => return call.reply.error("ERR Invalid command specified"),
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
    let view = call.session.view().ok().flatten();
    let in_memory = view.as_ref().and_then(|view| view.memory().map(|it| it.memory_bytes()));
    let durability = view.and_then(|view| view.map().map(|map| map.durability()));
    vec![
        ("appendfsync", durability.map_or("everysec", MapDurability::of_redis).into()),
        ("appendonly", if durability.is_some() { "yes" } else { "no" }.into()),
        ("bind", config.listen.iter().map(|it| it.ip().to_string()).collect::<Vec<_>>().join(" ")),
        ("cluster-enabled", cluster.into()),
        ("databases", "1".into()),
        (
            "latency-monitor-threshold",
            call.shared.latency_events.threshold_ms.load(Relaxed).to_string(),
        ),
        ("maxclients", config.clients_max.to_string()),
        ("maxmemory", in_memory.unwrap_or(config.memory_bytes).to_string()),
        ("maxmemory-clients", config.client_memory_bytes.to_string()),
        ("maxmemory-policy", "noeviction".into()),
        ("port", port.to_string()),
        ("proto-max-bulk-len", call.session.limits.argument_bytes.to_string()),
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

/// `CONFIG SET name value…`: sets all, or none if a name or value is wrong.
fn set(call: &mut Call<'_, '_>) {
    let arguments = call.arguments;
    if !arguments.len().is_multiple_of(2) {
        return call.reply.error(&super::wrong_arity("config|set"));
    }
    let (slow_log, events) = (&call.shared.slow_log, &call.shared.latency_events);
    let mut changes = Vec::new();
    for i in (2..arguments.len()).step_by(2) {
        let name = arguments.text(i).to_ascii_lowercase();
        let setting = match name.as_str() {
            "slowlog-log-slower-than" => &slow_log.threshold_us,
            "latency-monitor-threshold" => &events.threshold_ms,
            _ => {
                return call.reply.error(&format!(
                    "ERR Unknown option or number of arguments for CONFIG SET - '{name}': settings are in \
                     the configuration file"
                ));
            }
        };
        let problem = match arguments.integer(i + 1) {
            Ok(value) if value >= 0 => {
                changes.push((setting, value as u64));
                continue;
            }
            // A negative number turns the slow log off.
            Ok(_) if name == "slowlog-log-slower-than" => {
                changes.push((setting, u64::MAX));
                continue;
            }
            Ok(_) => "argument must be between 0 and 9223372036854775807 inclusive",
            Err(_) => "argument couldn't be parsed into an integer",
        };
        return call.reply.error(&format!(
            "ERR CONFIG SET failed (possibly related to argument '{name}') - {problem}"
        ));
    }
    changes.into_iter().for_each(|(setting, value)| setting.store(value, Relaxed));
    call.ok();
}

fn reset_stat(call: &mut Call<'_, '_>) {
    call.shared.metrics.reset();
    call.ok();
}

fn slow_get(call: &mut Call<'_, '_>) {
    let count = match call.arguments.len() {
        2 => Ok(10),
        3 => call.arguments.integer(2),
        _ => {
            return call.reply.error(
                "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
            );
        }
    };
    let count = match count {
        Ok(-1) => usize::MAX,
        Ok(count) if count >= 0 => count as usize,
        _ => return call.reply.error("ERR count should be greater than or equal to -1"),
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
