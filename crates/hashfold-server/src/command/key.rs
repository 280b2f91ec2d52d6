//! Commands that remove, rename and copy keys, whatever they are: strings of a map or in memory, and filters.

use super::{
    NOT_AN_INTEGER, SYNTAX_ERROR,
    entry::{Arguments, ChangeKeys, Command, Flag, Group, KeyCall, Run},
};
use hashfold::map::Expiring;

pub(super) const COMMANDS: &[Command] = &[
    generic("del", -2, "Deletes keys.", delete).keys(1, -1, 1),
    generic("unlink", -2, "Deletes keys.", delete).fast().keys(1, -1, 1),
    generic("rename", 3, "Renames a key.", rename).keys(1, 2, 1),
    generic("renamenx", 3, "Renames a key if no other one has the name.", rename_absent)
        .fast()
        .keys(1, 2, 1),
    generic("copy", -3, "Copies a value to another key.", copy).keys(1, 2, 1),
    flush("flushdb"),
    flush("flushall"),
];

const fn generic(
    name: &'static str,
    arity: i32,
    summary: &'static str,
    run: ChangeKeys,
) -> Command {
    Command::new(name, arity, Group::Generic, summary, Run::Keys(run)).writes()
}

const fn flush(name: &'static str) -> Command {
    Command::new(name, -1, Group::Server, "Deletes all keys.", Run::Keys(clear))
        .writes()
        .with(Flag::Dangerous)
}

fn delete(call: &mut KeyCall<'_, '_>) -> Result<(), String> {
    let mut deleted = 0;
    for key in call.arguments.from(1) {
        deleted += i64::from(delete_one(call, key)?);
    }
    call.integer(deleted)
}

/// Deletes a key. Returns whether there was one.
fn delete_one(call: &mut KeyCall<'_, '_>, key: &[u8]) -> Result<bool, String> {
    if call.filters.remove(key)? {
        call.strings.delete_hidden(key)?;
        return Ok(true);
    }
    let is_there = call.strings.has(key)?;
    if is_there {
        call.strings.delete(key)?;
    }
    Ok(is_there)
}

fn rename(call: &mut KeyCall<'_, '_>) -> Result<(), String> {
    move_value(call, true)?;
    call.ok()
}

fn rename_absent(call: &mut KeyCall<'_, '_>) -> Result<(), String> {
    let is_moved = move_value(call, false)?;
    call.integer(i64::from(is_moved))
}

/// Moves a value, with the time at which it expires. Returns whether it was moved: not to its own key, and not to
/// another one that exists, unless that is replaced.
fn move_value(call: &mut KeyCall<'_, '_>, replaces: bool) -> Result<bool, String> {
    let (from, to) = (call.arguments.at(1), call.arguments.at(2));
    let is_filter = call.filters.get(from).is_some();
    let value = if is_filter { None } else { call.strings.get(from)?.cloned() };
    if !is_filter && value.is_none() {
        return Err("ERR no such key".into());
    }
    if from == to || (!replaces && call.exists(to)?) {
        return Ok(false);
    }
    match value {
        None => {
            delete_one(call, to)?;
            call.filters.rename(from, to)?;
            call.strings.delete_hidden(from)?;
        }
        Some(value) => {
            put_over(call, to, value)?;
            call.strings.delete(from)?;
        }
    }
    Ok(true)
}

/// Puts a value in place of whatever has the key.
fn put_over(call: &mut KeyCall<'_, '_>, key: &[u8], value: Expiring) -> Result<(), String> {
    call.filters.remove(key)?;
    call.strings.put(key, value.value, value.expires_at)
}

/// Returns whether `COPY` replaces a value.
fn copy_replaces(arguments: &Arguments<'_>) -> Result<bool, String> {
    let (mut i, mut replaces) = (3, false);
    while i < arguments.len() {
        let next = arguments.get(i + 1);
        match next {
            _ if arguments.is(i, "replace") => replaces = true,
            Some(next) if arguments.is(i, "db") => {
                i += 1;
                match crate::protocol::number(next) {
                    Some(0) => {}
                    Some(number) if i32::try_from(number).is_ok() => {
                        return Err("ERR DB index is out of range".into());
                    }
                    Some(_) => {
                        let (min, max) = (i32::MIN, i32::MAX);
                        return Err(format!(
                            "ERR value is out of range, value must between {min} and {max}"
                        ));
                    }
                    None => return Err(NOT_AN_INTEGER.into()),
                }
            }
            _ => return Err(SYNTAX_ERROR.into()),
        }
        i += 1;
    }
    Ok(replaces)
}

fn copy(call: &mut KeyCall<'_, '_>) -> Result<(), String> {
    let (from, to) = (call.arguments.at(1), call.arguments.at(2));
    let replaces = copy_replaces(&call.arguments)?;
    if from == to {
        return Err("ERR source and destination objects are the same".into());
    }
    let is_filter = call.filters.get(from).is_some();
    let value = if is_filter { None } else { call.strings.get(from)?.cloned() };
    if !is_filter && value.is_none() || !replaces && call.exists(to)? {
        return call.integer(0);
    }
    let Some(value) = value else { return Err("ERR not supported for this module key".into()) };
    put_over(call, to, value)?;
    call.integer(1)
}

fn clear(call: &mut KeyCall<'_, '_>) -> Result<(), String> {
    let arguments = call.arguments;
    let is_known = arguments.len() == 1
        || arguments.len() == 2 && (arguments.is(1, "sync") || arguments.is(1, "async"));
    if !is_known {
        return Err(SYNTAX_ERROR.into());
    }
    call.strings.clear()?;
    call.filters.clear();
    call.ok()
}
