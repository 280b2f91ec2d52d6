//! Commands that change single keys. Tables and stores change in batches, so these are refused: never
//! with `READONLY`, on which clients look for another server and try again.

use super::entry::{Call, Command, Flag, Group, Run};

pub(super) const COMMANDS: &[Command] = &[
    string("set", -3),
    string("setnx", 3),
    string("setex", 4),
    string("psetex", 4),
    string("getset", 3),
    string("getex", -2),
    string("getdel", 2),
    string("append", 3),
    string("setrange", 4),
    string("incr", 2),
    string("decr", 2),
    string("incrby", 3),
    string("decrby", 3),
    string("incrbyfloat", 3),
    refused("mset", -3, Group::Strings).keys(1, -1, 2),
    refused("msetnx", -3, Group::Strings).keys(1, -1, 2),
    refused("del", -2, Group::Generic).keys(1, -1, 1),
    refused("unlink", -2, Group::Generic).keys(1, -1, 1),
    refused("expire", -3, Group::Generic).keys(1, 1, 1),
    refused("pexpire", -3, Group::Generic).keys(1, 1, 1),
    refused("expireat", -3, Group::Generic).keys(1, 1, 1),
    refused("pexpireat", -3, Group::Generic).keys(1, 1, 1),
    refused("persist", 2, Group::Generic).keys(1, 1, 1),
    refused("rename", 3, Group::Generic).keys(1, 2, 1),
    refused("renamenx", 3, Group::Generic).keys(1, 2, 1),
    refused("copy", -3, Group::Generic).keys(1, 2, 1),
    refused("flushdb", -1, Group::Server).with(Flag::Dangerous),
    refused("flushall", -1, Group::Server).with(Flag::Dangerous),
];

const fn refused(name: &'static str, arity: i32, group: Group) -> Command {
    Command::new(name, arity, group, "Is refused: data change in batches.", Run::Now(refuse))
        .writes()
}

const fn string(name: &'static str, arity: i32) -> Command {
    refused(name, arity, Group::Strings).keys(1, 1, 1).fast()
}

fn refuse(call: &mut Call<'_, '_>) {
    let user = call.session.user().map_or("", |user| &user.name).to_owned();
    let name = String::from_utf8_lossy(call.arguments.at(0)).to_ascii_lowercase();
    call.reply.error(&format!(
        "NOPERM User {user} has no permissions to run the '{name}' command: tables and stores change in \
         batches; see `hashfold update`"
    ));
}
