//! `ACL`: users and their rules, which are set in the configuration file.

use super::{
    entry::{Arguments, Call, Command, Flag, Group, Now, Run},
    table::TABLE,
};
use crate::{
    acl_log::{Denial, Entry, Reason},
    protocol::Reply,
    user::{Password, User},
};
use std::{collections::BTreeSet, time::Duration};

pub(super) const COMMANDS: &[Command] = &[Command::new(
    "acl",
    -2,
    Group::Server,
    "Shows users and their rules.",
    Run::Group(SUBCOMMANDS),
)];

const SUBCOMMANDS: &[Command] = &[
    now("whoami", 2, "Returns the user's name.", who_am_i),
    now("users", 2, "Returns the names of all users.", users).with(Flag::Admin),
    now("list", 2, "Returns the rules of all users.", list).with(Flag::Admin),
    now("getuser", 3, "Returns the rules of a user.", get_user)
        .with(Flag::Admin)
        .syntax("<username>"),
    now("cat", -2, "Returns the categories, or the commands in one.", categories)
        .syntax("[<category>]"),
    now("log", -2, "Returns calls that were refused, and failed logins.", log)
        .with(Flag::Admin)
        .syntax("[<count> | RESET]"),
    now("dryrun", -4, "Says whether a user may call a command.", dry_run)
        .with(Flag::Admin)
        .syntax("<username> <command> [<arg> ...]"),
    now("setuser", -3, "Returns an error: users are set in the configuration file.", |call| {
        call.reply.error("ERR users are set in the configuration file");
    })
    .with(Flag::Admin)
    .syntax("<username> [<rule> ...]"),
    now("deluser", -3, "Returns an error: users are set in the configuration file.", |call| {
        call.reply.error("ERR users are set in the configuration file");
    })
    .with(Flag::Admin)
    .syntax("<username> [<username> ...]"),
    super::help::HELP,
];

const fn now(name: &'static str, arity: i32, summary: &'static str, run: Now) -> Command {
    Command::new(name, arity, Group::Server, summary, Run::Now(run)).always()
}

fn who_am_i(call: &mut Call<'_, '_>) {
    let name = call.session.user().map_or("", |user| &user.name).to_owned();
    call.reply.bulk(name.as_bytes());
}

/// Returns all users, in the order of their names.
fn all(call: &Call<'_, '_>) -> Vec<std::sync::Arc<User>> {
    let mut users: Vec<_> = call.shared.served().users.values().cloned().collect();
    users.sort_by(|a, b| a.name.cmp(&b.name));
    users
}

fn users(call: &mut Call<'_, '_>) {
    let users = all(call);
    call.reply.array(users.len());
    users.iter().for_each(|user| call.reply.bulk(user.name.as_bytes()));
}

fn list(call: &mut Call<'_, '_>) {
    let users = all(call);
    call.reply.array(users.len());
    for user in users {
        let password = if has_password(&user) { "#(argon2)" } else { "nopass" };
        let keys: String = patterns(&user).iter().map(|pattern| format!(" ~{pattern}")).collect();
        let line = format!("user {} on {password}{keys} {}", user.name, user.commands.rules());
        call.reply.bulk(line.as_bytes());
    }
}

fn has_password(user: &User) -> bool {
    matches!(user.password, Password::Hash { .. })
}

fn patterns(user: &User) -> Vec<String> {
    if user.keys.is_empty() { vec!["*".into()] } else { user.keys.clone() }
}

fn get_user(call: &mut Call<'_, '_>) {
    let user = call.shared.served().users.get(&call.arguments.text(2)).cloned();
    let Some(user) = user else { return call.reply.null() };
    let reply = &mut *call.reply;
    reply.map(6);
    reply.bulk(b"flags");
    match has_password(&user) {
        true => reply.bulks(["on"]),
        false => reply.bulks(["on", "nopass"]),
    }
    reply.bulk(b"passwords");
    reply.array(0);
    reply.bulk(b"commands");
    reply.bulk(user.commands.rules().as_bytes());
    reply.bulk(b"keys");
    let keys: Vec<String> = patterns(&user).iter().map(|pattern| format!("~{pattern}")).collect();
    reply.bulk(keys.join(" ").as_bytes());
    reply.bulk(b"channels");
    reply.bulk(b"");
    reply.bulk(b"selectors");
    reply.array(0);
}

fn categories(call: &mut Call<'_, '_>) {
    let Some(category) = call.arguments.get(2) else {
        let all: BTreeSet<&str> =
            TABLE.top().iter().flat_map(|command| command.categories()).collect();
        return call.reply.bulks(all.into_iter().collect::<Vec<_>>());
    };
    let category = String::from_utf8_lossy(category).to_ascii_lowercase();
    let is_in = |number: &usize| TABLE.command(*number).categories().any(|name| name == category);
    let found: Vec<&str> = (0..TABLE.count()).filter(is_in).map(|i| TABLE.full_name(i)).collect();
    match found.is_empty() {
        true => call.reply.error(&format!("ERR Unknown category '{category}'")),
        false => call.reply.bulks(found),
    }
}

/// `ACL LOG [count | RESET]`.
fn log(call: &mut Call<'_, '_>) {
    let arguments = call.arguments;
    if arguments.len() > 3 {
        return call
            .reply
            .error("ERR unknown subcommand or wrong number of arguments for 'LOG'. Try ACL HELP.");
    }
    if arguments.len() == 3 && arguments.is(2, "reset") {
        call.shared.acl_log.clear();
        return call.ok();
    }
    let count = match arguments.len() {
        2 => 10,
        _ => match arguments.integer(2) {
            Ok(count) => usize::try_from(count).unwrap_or(0),
            Err(error) => return call.reply.error(&error),
        },
    };
    let (now, reply) = (call.shared.env.clock.unix_time(), &mut *call.reply);
    let entries = call.shared.acl_log.newest(count);
    reply.array(entries.len());
    entries.iter().for_each(|entry| write_entry(entry, now, reply));
}

fn write_entry(entry: &Entry, now: Duration, reply: &mut Reply<'_>) {
    let Denial { reason, is_in_multi, object, user } = &entry.denial;
    reply.map(10);
    reply.bulk(b"count");
    reply.integer(entry.count as i64);
    let context = if *is_in_multi { "multi" } else { "toplevel" };
    for (name, text) in
        [("reason", reason.name()), ("context", context), ("object", object), ("username", user)]
    {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    reply.bulk(b"age-seconds");
    reply.double(now.saturating_sub(entry.updated).as_millis() as f64 / 1000.0);
    reply.bulk(b"client-info");
    reply.bulk(entry.client.as_bytes());
    for (name, number) in [
        ("entry-id", entry.id),
        ("timestamp-created", entry.created.as_millis() as u64),
        ("timestamp-last-updated", entry.updated.as_millis() as u64),
    ] {
        reply.bulk(name.as_bytes());
        reply.integer(number as i64);
    }
}

fn dry_run(call: &mut Call<'_, '_>) {
    let name = call.arguments.text(2);
    let Some(user) = call.shared.served().users.get(&name).cloned() else {
        return call.reply.error(&format!("ERR User '{name}' not found"));
    };
    let rest = call.arguments.rest(3);
    if TABLE.by_name(rest.at(0)).is_none() {
        return call.reply.error(&format!("ERR Command '{}' not found", rest.text(0)));
    }
    match TABLE.find(&rest) {
        Err(error) => call.reply.error(&error),
        Ok(found) => match refusal(&user, found.number, &rest) {
            None => call.ok(),
            Some(refusal) => {
                let error = refusal.error(&user.name);
                call.reply.bulk(error.trim_start_matches("NOPERM ").as_bytes());
            }
        },
    }
}

/// What keeps a user from calling a command.
pub(crate) enum Refusal {
    /// The user may not call this command.
    Command(&'static str),
    /// The user may not use this key.
    Key(String),
}

impl Refusal {
    /// Returns the reply.
    pub(crate) fn error(&self, user: &str) -> String {
        match self {
            Refusal::Command(name) => {
                format!("NOPERM User {user} has no permissions to run the '{name}' command")
            }
            Refusal::Key(_) => "NOPERM No permissions to access a key".into(),
        }
    }

    /// Returns the entry of `ACL LOG`.
    pub(crate) fn denial(self, user: &str, is_in_multi: bool) -> Denial {
        let (reason, object) = match self {
            Refusal::Command(name) => (Reason::Command, name.into()),
            Refusal::Key(key) => (Reason::Key, key),
        };
        Denial { reason, is_in_multi, object, user: user.into() }
    }
}

/// Returns what the user's rules have against a call.
pub(crate) fn refusal(user: &User, number: usize, arguments: &Arguments<'_>) -> Option<Refusal> {
    // Commands before a login, such as AUTH, are always allowed: they lead to another user.
    let command = TABLE.command(number);
    if !user.commands.contains(number) && !command.is(Flag::NoAuth) {
        return Some(Refusal::Command(TABLE.full_name(number)));
    }
    if user.keys.is_empty() {
        return None;
    }
    let mut keys = command.keys.places(arguments.len());
    keys.find(|place| !user.may_use(arguments.at(*place)))
        .map(|place| Refusal::Key(arguments.text(place)))
}
