//! Commands about the connection itself: greeting, password, closing.

use super::{
    SYNTAX_ERROR,
    entry::{Call, Command, Flag, Group, Run},
};
use crate::{
    data::View,
    protocol::Protocol,
    session::{Replies, Session},
    shared::Shared,
    user::{DEFAULT, User},
};
use std::sync::{Arc, atomic::Ordering::Relaxed};

pub(super) const COMMANDS: &[Command] = &[
    now("ping", -1, "Replies PONG, or its argument.", ping),
    now("echo", 2, "Replies its argument.", echo),
    now("quit", -1, "Closes the connection.", quit).with(Flag::NoAuth).always(),
    now("reset", 1, "Makes the connection as new.", reset).with(Flag::NoAuth).always(),
    now("auth", -2, "Gives a user's name and password.", auth).with(Flag::NoAuth).always(),
    now("hello", -1, "Selects RESP2 or RESP3, and says what the server is.", hello)
        .with(Flag::NoAuth)
        .always(),
    now("select", 2, "Selects database 0, the only one.", select).always(),
    Command::new("time", 1, Group::Server, "Returns the server's time.", Run::Now(time))
        .fast()
        .always(),
];

const fn now(
    name: &'static str,
    arity: i32,
    summary: &'static str,
    run: fn(&mut Call<'_, '_>),
) -> Command {
    Command::new(name, arity, Group::Connection, summary, Run::Now(run)).fast()
}

fn ping(call: &mut Call<'_, '_>) {
    match call.arguments.len() {
        1 => call.reply.simple("PONG"),
        2 => call.reply.bulk(call.arguments.at(1)),
        _ => call.reply.error(&super::wrong_arity("ping")),
    }
}

fn echo(call: &mut Call<'_, '_>) {
    call.reply.bulk(call.arguments.at(1));
}

fn quit(call: &mut Call<'_, '_>) {
    call.session.is_closing = true;
    call.ok();
}

fn reset(call: &mut Call<'_, '_>) {
    call.reply.set_protocol(Protocol::Resp2);
    let session = &mut *call.session;
    session.client.set_text(|texts| texts.name.clear());
    session.client.is_resp3.store(false, Relaxed);
    session.protocol = Protocol::Resp2;
    session.replies = Replies::On;
    session.reads_replicas = false;
    session.set_user(call.shared.stranger());
    call.reply.simple("RESET");
}

fn select(call: &mut Call<'_, '_>) {
    match call.arguments.integer(1) {
        Ok(0) => call.ok(),
        Ok(_) => call.reply.error("ERR DB index is out of range"),
        Err(_) => call.reply.error("ERR invalid DB index"),
    }
}

fn time(call: &mut Call<'_, '_>) {
    let now = call.shared.env.clock.unix_time();
    call.reply.bulks([&*now.as_secs().to_string(), &*now.subsec_micros().to_string()]);
}

fn auth(call: &mut Call<'_, '_>) {
    let arguments = call.arguments;
    let (name, password) = match arguments.len() {
        2 => (DEFAULT.as_bytes(), arguments.at(1)),
        3 => (arguments.at(1), arguments.at(2)),
        _ => return call.reply.error(SYNTAX_ERROR),
    };
    if arguments.len() == 2 && call.shared.stranger().is_some() {
        return call.reply.error(
            "ERR AUTH <password> called without any password configured for the default user. Are you \
             sure your configuration is correct?",
        );
    }
    match log_in(call.shared, call.session, name, password) {
        Ok(()) => call.ok(),
        Err(error) => call.reply.error(&error),
    }
}

/// Makes a session that of a user: `people`, or `people@41` to use this version of the data.
fn log_in(
    shared: &Shared,
    session: &mut Session,
    name: &[u8],
    password: &[u8],
) -> Result<(), String> {
    let wrong = || "WRONGPASS invalid username-password pair or user is disabled.".to_owned();
    let name = std::str::from_utf8(name).map_err(|_| wrong())?;
    let users = shared.users.load();
    let (user, version) = match users.get(name) {
        Some(user) => (user, None),
        None => {
            let (name, version) = name.rsplit_once('@').ok_or_else(wrong)?;
            (users.get(name).ok_or_else(wrong)?, Some(version))
        }
    };
    if !user.password.is(password) {
        return Err(wrong());
    }
    let fixed = version.map(|version| version_of(user, version)).transpose()?;
    session.set_user(Some(user.clone()));
    session.fixed = fixed;
    Ok(())
}

/// Returns a version of a user's store.
fn version_of(user: &User, version: &str) -> Result<Arc<View>, String> {
    let none = |data: &str| format!("NOVERSION {data} has no version {version}");
    let data = user.space.data().ok_or_else(|| none(&user.name))?;
    let number = version.parse().map_err(|_| none(data.name()))?;
    super::versions::open(data, number)
}

fn hello(call: &mut Call<'_, '_>) {
    if let Err(error) = greet(call) {
        return call.reply.error(&error);
    }
    let (id, cluster) = (call.session.client.id, call.shared.cluster.is_on());
    let protocol = call.session.protocol;
    let reply = &mut *call.reply;
    reply.map(7);
    for (name, value) in [("server", "hashfold"), ("version", super::info::REDIS_VERSION)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(if protocol == Protocol::Resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(id as i64);
    reply.bulk(b"mode");
    reply.bulk(if cluster { b"cluster" } else { b"standalone" });
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    super::info::modules(reply);
}

/// Does what the arguments of `HELLO` ask for: protocol, password and name.
fn greet(call: &mut Call<'_, '_>) -> Result<(), String> {
    let arguments = call.arguments;
    let protocol = match arguments.get(1) {
        None => call.session.protocol,
        Some(b"2") => Protocol::Resp2,
        Some(b"3") => Protocol::Resp3,
        Some(other) if crate::protocol::number(other).is_none() => {
            return Err("ERR Protocol version is not an integer or out of range".into());
        }
        Some(_) => return Err("NOPROTO unsupported protocol version".into()),
    };
    let (mut i, mut name, mut credentials) = (2, None, None);
    while i < arguments.len() {
        let left = arguments.len() - i - 1;
        if arguments.is(i, "auth") && left >= 2 {
            credentials = Some((arguments.at(i + 1), arguments.at(i + 2)));
            i += 3;
        } else if arguments.is(i, "setname") && left >= 1 {
            name = Some(super::client::checked_name(arguments.at(i + 1))?);
            i += 2;
        } else {
            return Err(format!("ERR Syntax error in HELLO option '{}'", arguments.text(i)));
        }
    }
    if let Some((user, password)) = credentials {
        log_in(call.shared, call.session, user, password)?;
    }
    if call.session.user().is_none() {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                    HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
                    select the RESP protocol version at the same time"
            .into());
    }
    if let Some(name) = name {
        call.session.client.set_text(|texts| texts.name = name);
    }
    call.session.protocol = protocol;
    call.session.client.is_resp3.store(protocol == Protocol::Resp3, Relaxed);
    call.reply.set_protocol(protocol);
    Ok(())
}
