//! `CLIENT`: what the server knows about connections.

use super::{
    SYNTAX_ERROR,
    entry::{Arguments, Call, Command, Flag, Group, Now, Run},
    table::TABLE,
};
use crate::{
    session::{Client, Replies},
    shared::Shared,
};
use std::{
    fmt::Write as _,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

pub(super) const COMMANDS: &[Command] = &[Command::new(
    "client",
    -2,
    Group::Connection,
    "Shows and changes what is known about connections.",
    Run::Group(SUBCOMMANDS),
)];

const SUBCOMMANDS: &[Command] = &[
    now("id", 2, "Returns the number of the connection.", id),
    now("info", 2, "Describes the connection.", info),
    now("list", -2, "Describes all connections.", list)
        .with(Flag::Admin)
        .syntax("[TYPE NORMAL|REPLICA|PUBSUB | ID <id> [<id> ...]]"),
    now("getname", 2, "Returns the name of the connection.", get_name),
    now("setname", 3, "Names the connection.", set_name).syntax("<name>"),
    now("setinfo", 4, "Names the client's library and its version.", set_info)
        .syntax("LIB-NAME|LIB-VER <value>"),
    now("reply", 3, "Turns replies on or off, or skips one.", reply)
        .with(Flag::NoMulti)
        .syntax("ON|OFF|SKIP"),
    now("kill", -3, "Closes connections.", kill)
        .with(Flag::Admin)
        .syntax("<ip:port> | ID|ADDR|LADDR|USER|TYPE|SKIPME|MAXAGE <value> [...]"),
    now(
        "no-evict",
        3,
        "Has no effect: no connection is closed for memory that it could give up.",
        on_or_off,
    )
    .with(Flag::Admin)
    .syntax("ON|OFF"),
    now("no-touch", 3, "Has no effect: reading changes no key.", on_or_off).syntax("ON|OFF"),
    now("capa", -3, "Notes what the client can do; nothing follows from it.", capa)
        .syntax("<capability> [<capability> ...]"),
    super::help::HELP,
];

const fn now(name: &'static str, arity: i32, summary: &'static str, run: Now) -> Command {
    Command::new(name, arity, Group::Connection, summary, Run::Now(run)).always()
}

fn id(call: &mut Call<'_, '_>) {
    call.reply.integer(call.session.client.id as i64);
}

fn get_name(call: &mut Call<'_, '_>) {
    match call.session.client.texts().name {
        name if name.is_empty() => call.reply.null(),
        name => call.reply.bulk(name.as_bytes()),
    }
}

/// Maximum size of a name, in bytes: names of clients are in no budget.
const NAME_BYTES_MAX: usize = 1024;

/// Returns a name that a client may have.
pub(super) fn checked_name(name: &[u8]) -> Result<String, String> {
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("ERR Client names have at most {NAME_BYTES_MAX} bytes."));
    }
    match std::str::from_utf8(name) {
        Ok(name) if name.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(name.into()),
        _ => Err("ERR Client names cannot contain spaces, newlines or special characters.".into()),
    }
}

fn set_name(call: &mut Call<'_, '_>) {
    match checked_name(call.arguments.at(2)) {
        Ok(name) => {
            call.session.client.set_text(|texts| texts.name = name);
            call.ok();
        }
        Err(error) => call.reply.error(&error),
    }
}

fn set_info(call: &mut Call<'_, '_>) {
    let arguments = call.arguments;
    let too_long = arguments.at(3).len() > NAME_BYTES_MAX;
    let Ok(text) = checked_name(arguments.at(3)) else {
        if too_long {
            let error = format!("ERR {} has at most {NAME_BYTES_MAX} bytes.", arguments.text(2));
            return call.reply.error(&error);
        }
        let name = arguments.text(2).to_ascii_lowercase();
        let error = format!("ERR {name} cannot contain spaces, newlines or special characters.");
        return call.reply.error(&error);
    };
    let client = &call.session.client;
    if arguments.is(2, "lib-name") {
        client.set_text(|texts| texts.lib_name = text);
    } else if arguments.is(2, "lib-ver") {
        client.set_text(|texts| texts.lib_version = text);
    } else {
        return call.reply.error(&format!("ERR Unrecognized option '{}'", arguments.text(2)));
    }
    call.ok();
}

fn reply(call: &mut Call<'_, '_>) {
    let arguments = call.arguments;
    if arguments.is(2, "on") {
        call.session.replies = Replies::On;
        call.ok();
    } else if arguments.is(2, "off") {
        call.session.replies = Replies::Off;
    } else if arguments.is(2, "skip") {
        if call.session.replies != Replies::Off {
            call.session.replies = Replies::SkipNext;
        }
    } else {
        call.reply.error(SYNTAX_ERROR);
    }
}

fn on_or_off(call: &mut Call<'_, '_>) {
    match call.arguments.is(2, "on") || call.arguments.is(2, "off") {
        true => call.ok(),
        false => call.reply.error(SYNTAX_ERROR),
    }
}

fn capa(call: &mut Call<'_, '_>) {
    call.ok();
}

fn info(call: &mut Call<'_, '_>) {
    let line = describe(call.shared, &call.session.client);
    call.reply.verbatim(&(line + "\n"));
}

fn list(call: &mut Call<'_, '_>) {
    match chosen(call.shared, &call.arguments) {
        Ok(clients) => {
            let mut text = String::new();
            for client in clients {
                let _ = writeln!(text, "{}", describe(call.shared, &client));
            }
            call.reply.verbatim(&text);
        }
        Err(error) => call.reply.error(&error),
    }
}

/// Returns the connections that `CLIENT LIST [TYPE t] [ID id…]` asks for.
fn chosen(shared: &Shared, arguments: &Arguments<'_>) -> Result<Vec<Arc<Client>>, String> {
    let mut clients = shared.clients();
    if arguments.len() == 2 {
        return Ok(clients);
    }
    if arguments.is(2, "type") && arguments.len() == 4 {
        retain_type(&mut clients, &arguments.text(3))?;
        return Ok(clients);
    }
    if arguments.is(2, "id") && arguments.len() > 3 {
        let ids: Option<Vec<i64>> = arguments.from(3).map(crate::protocol::number).collect();
        let ids = ids.ok_or("ERR Invalid client ID")?;
        clients.retain(|client| ids.contains(&(client.id as i64)));
        return Ok(clients);
    }
    Err(SYNTAX_ERROR.into())
}

/// Returns a connection's line of `CLIENT LIST`.
pub(crate) fn describe(shared: &Shared, client: &Client) -> String {
    let now = shared.now();
    let texts = client.texts();
    let command = client.command.load(Relaxed);
    let command = if command < TABLE.count() { TABLE.full_name(command) } else { "NULL" };
    let active = Duration::from_millis(client.active_ms.load(Relaxed));
    let (multi, output) = (client.queued.load(Relaxed), client.output_bytes.load(Relaxed));
    let queued_bytes = client.queued_bytes.load(Relaxed);
    let flags = if multi < 0 { "N" } else { "x" };
    format!(
        "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={flags} db=0 sub=0 psub=0 ssub=0 multi={multi} \
         watch={} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem={} rbs=0 rbp=0 obl=0 oll=0 omem={} tot-mem={} \
         events=r cmd={command} user={} redir=-1 resp={} lib-name={} lib-ver={} tot-cmds={}",
        client.id,
        client.peer,
        client.own,
        texts.name,
        now.saturating_sub(client.since).as_secs(),
        now.saturating_sub(active).as_secs(),
        client.watched.load(Relaxed),
        queued_bytes,
        output,
        output + queued_bytes,
        texts.user,
        if client.is_resp3.load(Relaxed) { 3 } else { 2 },
        texts.lib_name,
        texts.lib_version,
        client.commands.load(Relaxed),
    )
}

fn kill(call: &mut Call<'_, '_>) {
    let arguments = call.arguments;
    let found = match arguments.len() {
        3 => with_address(call.shared, &arguments.text(2)),
        _ => matching(call, &arguments),
    };
    let clients = match found {
        Ok(clients) => clients,
        Err(error) => return call.reply.error(&error),
    };
    for client in &clients {
        client.is_killed.store(true, Relaxed);
    }
    let is_own = clients.iter().any(|client| client.id == call.session.client.id);
    call.session.is_closing |= is_own;
    match arguments.len() {
        3 => call.ok(),
        _ => call.reply.integer(clients.len() as i64),
    }
}

fn with_address(shared: &Shared, address: &str) -> Result<Vec<Arc<Client>>, String> {
    let found = shared.clients().into_iter().find(|client| client.peer.to_string() == address);
    found.map(|client| vec![client]).ok_or_else(|| "ERR No such client".into())
}

/// Returns the connections that all filters of `CLIENT KILL` match.
fn matching(call: &Call<'_, '_>, arguments: &Arguments<'_>) -> Result<Vec<Arc<Client>>, String> {
    let mut clients = call.shared.clients();
    let mut keeps_own = true;
    for i in (2..arguments.len()).step_by(2) {
        if i + 1 == arguments.len() {
            return Err(SYNTAX_ERROR.into());
        }
        let value = arguments.text(i + 1);
        match arguments.text(i).to_ascii_lowercase().as_str() {
            "id" => {
                let id = value.parse().ok().filter(|id: &u64| *id > 0);
                let id = id.ok_or("ERR client-id should be greater than 0")?;
                clients.retain(|client| client.id == id);
            }
            "addr" => clients.retain(|client| client.peer.to_string() == value),
            "laddr" => clients.retain(|client| client.own.to_string() == value),
            "user" => {
                if !call.shared.served().users.contains_key(&value) {
                    return Err(format!("ERR No such user '{value}'"));
                }
                clients.retain(|client| client.texts().user == value);
            }
            "type" => retain_type(&mut clients, &value)?,
            "skipme" => {
                keeps_own = match value.to_ascii_lowercase().as_str() {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(SYNTAX_ERROR.into()),
                };
            }
            "maxage" => {
                let age: i64 = crate::protocol::number(value.as_bytes())
                    .ok_or("ERR maxage is not an integer or out of range")?;
                let age = u64::try_from(age).ok().filter(|age| *age > 0);
                let age = age.ok_or("ERR maxage should be greater than 0")?;
                let now = call.shared.now();
                clients.retain(|client| now.saturating_sub(client.since).as_secs() >= age);
            }
            _ => return Err(SYNTAX_ERROR.into()),
        }
    }
    let own = call.session.client.id;
    clients.retain(|client| !keeps_own || client.id != own);
    Ok(clients)
}

/// Keeps the connections of a type, in the words of Redis: all are normal ones.
fn retain_type(clients: &mut Vec<Arc<Client>>, kind: &str) -> Result<(), String> {
    match kind.to_ascii_lowercase().as_str() {
        "normal" => {}
        "master" | "primary" | "replica" | "slave" | "pubsub" => clients.clear(),
        _ => return Err(format!("ERR Unknown client type '{kind}'")),
    }
    Ok(())
}
