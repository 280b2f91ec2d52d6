//! Commands that remove, rename and copy keys of a map, whatever their values.

use super::{
    NOT_AN_INTEGER, SYNTAX_ERROR,
    entry::{Arguments, Change, Command, Flag, Group, MapCall, Run},
};

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

const fn generic(name: &'static str, arity: i32, summary: &'static str, run: Change) -> Command {
    Command::new(name, arity, Group::Generic, summary, Run::Change(run)).writes()
}

const fn flush(name: &'static str) -> Command {
    Command::new(name, -1, Group::Server, "Deletes all keys.", Run::Change(clear))
        .writes()
        .with(Flag::Dangerous)
}

fn delete(call: &mut MapCall<'_, '_, '_>) -> Result<(), String> {
    let mut deleted = 0;
    for key in call.arguments.from(1) {
        if call.unit.get(key)?.is_some() {
            call.unit.delete(key);
            deleted += 1;
        }
    }
    call.integer(deleted)
}

fn rename(call: &mut MapCall<'_, '_, '_>) -> Result<(), String> {
    move_value(call, true)?;
    call.ok()
}

fn rename_absent(call: &mut MapCall<'_, '_, '_>) -> Result<(), String> {
    let is_moved = move_value(call, false)?;
    call.integer(i64::from(is_moved))
}

/// Moves a value, with the time at which it expires. Returns whether it was moved: not to its own key, and not to
/// another one that exists, unless that is replaced.
fn move_value(call: &mut MapCall<'_, '_, '_>, replaces: bool) -> Result<bool, String> {
    let (from, to) = (call.arguments.at(1), call.arguments.at(2));
    let value = call.unit.get(from)?.cloned().ok_or("ERR no such key")?;
    if from == to || (!replaces && call.unit.get(to)?.is_some()) {
        return Ok(false);
    }
    call.unit.put(to, value.value, value.expires_at)?;
    call.unit.delete(from);
    Ok(true)
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

fn copy(call: &mut MapCall<'_, '_, '_>) -> Result<(), String> {
    let (from, to) = (call.arguments.at(1), call.arguments.at(2));
    let replaces = copy_replaces(&call.arguments)?;
    if from == to {
        return Err("ERR source and destination objects are the same".into());
    }
    let Some(value) = call.unit.get(from)?.cloned() else { return call.integer(0) };
    if !replaces && call.unit.get(to)?.is_some() {
        return call.integer(0);
    }
    call.unit.put(to, value.value, value.expires_at)?;
    call.integer(1)
}

fn clear(call: &mut MapCall<'_, '_, '_>) -> Result<(), String> {
    let arguments = call.arguments;
    let is_known = arguments.len() == 1
        || arguments.len() == 2 && (arguments.is(1, "sync") || arguments.is(1, "async"));
    if !is_known {
        return Err(SYNTAX_ERROR.into());
    }
    call.unit.clear()?;
    call.ok()
}
