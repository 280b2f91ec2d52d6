//! The commands: what each takes, who may call it, and what it does.
//!
//! ```text
//!  arguments ─ Table::find → Command ─ check → run:  Now     answered by the network thread at once
//!                                                    Lookup  answered with others by one get_many
//!                                                    Change  done by the thread of a map, with others, or in memory
//!                                                    Job     answered by a thread that may wait for the device
//!                                                    Exec    runs the calls that MULTI has queued
//! ```

mod acl;
mod client;
mod cluster;
mod config;
mod connection;
mod durable;
mod edit;
mod entry;
mod expiry;
mod filter;
mod help;
mod info;
mod key;
mod keyspace;
mod lcs;
mod lookup;
mod number;
mod rdb;
mod rules;
mod sketch;
mod sketch_debug;
mod string;
mod table;
mod transaction;
mod versions;

#[cfg(test)]
pub(crate) use self::entry::word_places;
pub(crate) use self::{
    acl::{Refusal, refusal},
    client::describe,
    edit::{FilterEdit, FixedStrings, Strings, new_keys, turn_groups},
    entry::{
        Arguments, Call, Command, Flag, JobReply, KeyCall, Keys, Login, Run, StringCall, Work,
        inside,
    },
    keyspace::type_of,
    lookup::{Lookup, Needs, Value, Values},
    rules::CommandSet,
    sketch_debug::reply_bytes,
    table::{Found, TABLE},
    transaction::watch,
};

/// Whether a call reads values of a map, which are then looked up together with those of other calls.
pub(crate) fn reads(found: Found, arguments: &Arguments<'_>) -> bool {
    match found.command.run {
        Run::Change(_) => string::reads_old(found.command.name, arguments),
        run => matches!(run, Run::Lookup(_) | Run::ChangeOrLookup(..) | Run::Watch | Run::Keys(_)),
    }
}

/// Whether a call that changes strings replaces its keys, whatever they are.
pub(crate) fn replaces(found: Found, arguments: &Arguments<'_>) -> bool {
    matches!(found.command.run, Run::Change(_)) && !reads(found, arguments)
}

/// The reply to commands with another number of arguments than they take.
pub(crate) fn wrong_arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// The reply to arguments that a command does not understand.
pub(crate) const SYNTAX_ERROR: &str = "ERR syntax error";

/// The reply to an argument that must be a number and is none.
pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// The reply to a command for another type of key.
pub(crate) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
