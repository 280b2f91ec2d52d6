//! `ACL`: users and their rules, which are set in the configuration file.

use super::{
    entry::{Arguments, Call, Command, Flag, Group, Now, Run},
    table::TABLE,
};
use crate::user::{Password, User};
use std::collections::BTreeSet;

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
    now("getuser", 3, "Returns the rules of a user.", get_user).with(Flag::Admin),
    now("cat", -2, "Returns the categories, or the commands in one.", categories),
    now("log", -2, "Returns an empty list: refused calls are in the server's log.", log)
        .with(Flag::Admin),
    now("dryrun", -4, "Says whether a user may call a command.", dry_run).with(Flag::Admin),
    now("setuser", -3, "Returns an error: users are set in the configuration file.", |call| {
        call.reply.error("ERR users are set in the configuration file");
    })
    .with(Flag::Admin),
    now("deluser", -3, "Returns an error: users are set in the configuration file.", |call| {
        call.reply.error("ERR users are set in the configuration file");
    })
    .with(Flag::Admin),
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
    let Some(user) = user else { return call.reply.null_array() };
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

fn log(call: &mut Call<'_, '_>) {
    match call.arguments.get(2) {
        Some(reset) if reset.eq_ignore_ascii_case(b"reset") => call.ok(),
        _ => call.reply.array(0),
    }
}

fn dry_run(call: &mut Call<'_, '_>) {
    let name = call.arguments.text(2);
    let Some(user) = call.shared.served().users.get(&name).cloned() else {
        return call.reply.error(&format!("ERR User '{name}' not found"));
    };
    let rest = call.arguments.rest(3);
    match TABLE.find(&rest) {
        Err(error) => call.reply.error(&error),
        Ok(found) => match refusal(&user, found.number, &rest) {
            None => call.ok(),
            Some(error) => call.reply.bulk(error.trim_start_matches("NOPERM ").as_bytes()),
        },
    }
}

/// Returns the reply to a call that the user's rules do not allow.
pub(crate) fn refusal(user: &User, number: usize, arguments: &Arguments<'_>) -> Option<String> {
    // Commands before a login, such as AUTH, are always allowed: they lead to another user.
    let command = TABLE.command(number);
    if !user.commands.contains(number) && !command.is(Flag::NoAuth) {
        let name = TABLE.full_name(number);
        return Some(format!(
            "NOPERM User {} has no permissions to run the '{name}' command",
            user.name
        ));
    }
    let mut keys = command.keys.places(arguments.len());
    if user.keys.is_empty() || keys.all(|place| user.may_use(arguments.at(place))) {
        return None;
    }
    Some("NOPERM No permissions to access a key".into())
}
