//! Commands that change strings of a map, or of a data set in memory: `SET` and its relatives, `APPEND`, `MSET` and others.

use super::{
    NOT_AN_INTEGER, SYNTAX_ERROR,
    entry::{Arguments, Change, Command, Group, Run, StringCall},
    wrong_arity,
};
use crate::data::TOO_LONG;
use hashfold::map::VALUE_BYTES_MAX;

pub(super) const COMMANDS: &[Command] = &[
    one("set", -3, "Sets a value.", set),
    one("setnx", 3, "Sets the value of a key that does not exist.", set_absent).fast(),
    one("setex", 4, "Sets a value that expires after seconds.", set_for_seconds),
    one("psetex", 4, "Sets a value that expires after milliseconds.", set_for_milliseconds),
    one("getset", 3, "Sets a value, and returns the one before.", get_set).fast(),
    one("getex", -2, "Returns a value, and sets when it expires.", get_and_expire).fast(),
    one("getdel", 2, "Returns a value, and deletes its key.", get_and_delete).fast(),
    one("delifeq", 3, "Deletes a key that has this value.", delete_if_equal).fast(),
    one("append", 3, "Appends to a value.", append).fast(),
    one("setrange", 4, "Replaces a part of a value.", set_range),
    pairs("mset", "Sets several values.", set_all),
    pairs("msetnx", "Sets several values if none of the keys exists.", set_all_absent),
];

const fn one(name: &'static str, arity: i32, summary: &'static str, run: Change) -> Command {
    Command::new(name, arity, Group::Strings, summary, Run::Change(run)).writes().keys(1, 1, 1)
}

const fn pairs(name: &'static str, summary: &'static str, run: Change) -> Command {
    Command::new(name, -3, Group::Strings, summary, Run::Change(run)).writes().keys(1, -1, 2)
}

/// Whether a call reads the value that it replaces, so that it is looked up before.
pub(super) fn reads_old(name: &str, arguments: &Arguments<'_>) -> bool {
    const READING: [&str; 5] = ["nx", "xx", "get", "keepttl", "ifeq"];
    match name {
        "set" => (3..arguments.len()).any(|i| READING.iter().any(|word| arguments.is(i, word))),
        "setex" | "psetex" | "mset" => false,
        _ => true,
    }
}

/// How an argument says when a value expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time {
    /// Milliseconds of the unit.
    unit: i64,
    /// Whether the time is from now on, not since 1970.
    is_relative: bool,
}

const SECONDS: Time = Time { unit: 1000, is_relative: true };
const MILLISECONDS: Time = Time { unit: 1, is_relative: true };

/// The options that name a time.
const TIMES: [(&str, Time); 4] = [
    ("ex", SECONDS),
    ("px", MILLISECONDS),
    ("exat", Time { unit: 1000, is_relative: false }),
    ("pxat", Time { unit: 1, is_relative: false }),
];

impl Time {
    /// Returns the time that an argument says, in milliseconds since 1970.
    fn parse(self, argument: &[u8], now_ms: u64, name: &str) -> Result<u64, String> {
        let number = crate::protocol::number(argument).ok_or(NOT_AN_INTEGER)?;
        let start = if self.is_relative { now_ms as i64 } else { 0 };
        let at = number.checked_mul(self.unit).and_then(|ms| ms.checked_add(start));
        match at {
            Some(at) if number > 0 => Ok(at as u64),
            _ => Err(format!("ERR invalid expire time in '{name}' command")),
        }
    }
}

/// What is to become of the time at which a value expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry<'a> {
    /// `SET` removes it, `GETEX` leaves it.
    Unsaid,
    Keep,
    Remove,
    At(Time, &'a [u8]),
}

/// What the value before must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition<'a> {
    None,
    Absent,
    Present,
    Equal(&'a [u8]),
}

/// The options of `SET`, and some of them of `GETEX`.
#[derive(Clone, Copy, Debug)]
struct Options<'a> {
    condition: Condition<'a>,
    returns_old: bool,
    expiry: Expiry<'a>,
}

impl<'a> Options<'a> {
    fn parse(arguments: &Arguments<'a>, first: usize, is_set: bool) -> Result<Options<'a>, String> {
        let (condition, expiry) = (Condition::None, Expiry::Unsaid);
        let mut options = Options { condition, returns_old: false, expiry };
        let mut i = first;
        while i < arguments.len() {
            let next = arguments.get(i + 1);
            let time = TIMES.iter().find(|(word, _)| arguments.is(i, word));
            match (time, next, options.condition, options.expiry) {
                (Some((_, time)), Some(next), _, Expiry::Unsaid) => {
                    options.expiry = Expiry::At(*time, next);
                    i += 1;
                }
                // An option that is repeated counts the last time.
                (Some((_, time)), Some(next), _, Expiry::At(before, _)) if before == *time => {
                    options.expiry = Expiry::At(*time, next);
                    i += 1;
                }
                (Some(_), ..) => return Err(SYNTAX_ERROR.into()),
                (_, _, _, Expiry::Unsaid | Expiry::Keep)
                    if is_set && arguments.is(i, "keepttl") =>
                {
                    options.expiry = Expiry::Keep;
                }
                (_, _, _, Expiry::Unsaid | Expiry::Remove)
                    if !is_set && arguments.is(i, "persist") =>
                {
                    options.expiry = Expiry::Remove;
                }
                (_, _, Condition::None | Condition::Absent, _)
                    if is_set && arguments.is(i, "nx") =>
                {
                    options.condition = Condition::Absent;
                }
                (_, _, Condition::None | Condition::Present, _)
                    if is_set && arguments.is(i, "xx") =>
                {
                    options.condition = Condition::Present;
                }
                (_, Some(next), Condition::None | Condition::Equal(_), _)
                    if is_set && arguments.is(i, "ifeq") =>
                {
                    options.condition = Condition::Equal(next);
                    i += 1;
                }
                _ if is_set && arguments.is(i, "get") => options.returns_old = true,
                _ => return Err(SYNTAX_ERROR.into()),
            }
            i += 1;
        }
        Ok(options)
    }

    /// Returns the time that the options say, if they say one.
    fn expires_at(&self, now_ms: u64, name: &str) -> Result<Option<u64>, String> {
        match self.expiry {
            Expiry::At(time, argument) => time.parse(argument, now_ms, name).map(Some),
            _ => Ok(None),
        }
    }

    /// Whether the value before makes a difference, not only whether there is one and when it expires.
    fn reads_old(&self) -> bool {
        self.returns_old || matches!(self.condition, Condition::Equal(_))
    }
}

fn set(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let (key, value) = (call.arguments.at(1), call.arguments.at(2));
    let options = Options::parse(&call.arguments, 3, true)?;
    let mut expires_at = options.expires_at(call.strings.now_ms(), call.name)?;
    let old = if options.reads_old() { call.strings.get(key)?.cloned() } else { None };
    let is_set = match options.condition {
        Condition::None => true,
        Condition::Absent => !call.strings.has(key)?,
        Condition::Present => call.strings.has(key)?,
        Condition::Equal(value) => old.as_ref().is_some_and(|old| old.value == value),
    };
    if is_set {
        if options.expiry == Expiry::Keep {
            expires_at = call.strings.expiry(key)?.flatten();
        }
        call.strings.put(key, value.to_vec(), expires_at)?;
        // As in Redis: also a value that has expired already, of a key that was absent.
        call.strings.note_change(key);
    }
    match (options.returns_old, old) {
        (true, Some(old)) => call.reply.bulk(&old.value),
        (false, _) if is_set => call.reply.simple("OK"),
        _ => call.reply.null(),
    }
    Ok(())
}

fn set_absent(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let (key, value) = (call.arguments.at(1), call.arguments.at(2));
    if call.strings.has(key)? {
        return call.integer(0);
    }
    call.strings.put(key, value.to_vec(), None)?;
    call.integer(1)
}

fn set_for_seconds(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    set_for(call, SECONDS)
}

fn set_for_milliseconds(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    set_for(call, MILLISECONDS)
}

fn set_for(call: &mut StringCall<'_, '_>, time: Time) -> Result<(), String> {
    let at = time.parse(call.arguments.at(2), call.strings.now_ms(), call.name)?;
    call.strings.put(call.arguments.at(1), call.arguments.at(3).to_vec(), Some(at))?;
    call.ok()
}

fn get_set(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let (key, value) = (call.arguments.at(1), call.arguments.at(2));
    let old = call.strings.get(key)?.cloned();
    call.strings.put(key, value.to_vec(), None)?;
    match old {
        Some(old) => call.reply.bulk(&old.value),
        None => call.reply.null(),
    }
    Ok(())
}

fn get_and_expire(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let key = call.arguments.at(1);
    let options = Options::parse(&call.arguments, 2, false)?;
    let now_ms = call.strings.now_ms();
    let Some(old) = call.strings.get(key)?.cloned() else {
        call.reply.null();
        return Ok(());
    };
    let at = options.expires_at(now_ms, call.name)?;
    call.reply.bulk(&old.value);
    let is_changed = at.is_some() || (options.expiry == Expiry::Remove && old.expires_at.is_some());
    if is_changed { call.strings.put(key, old.value, at) } else { Ok(()) }
}

fn get_and_delete(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let key = call.arguments.at(1);
    call.value(key)?;
    if call.strings.has(key)? {
        call.strings.delete(key)?;
    }
    Ok(())
}

fn delete_if_equal(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let (key, value) = (call.arguments.at(1), call.arguments.at(2));
    let is_equal = call.strings.get(key)?.is_some_and(|old| old.value == value);
    if is_equal {
        call.strings.delete(key)?;
    }
    call.integer(i64::from(is_equal))
}

fn append(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let (key, more) = (call.arguments.at(1), call.arguments.at(2));
    let old = call.strings.get(key)?.cloned();
    let (mut value, expires_at) = old.map_or((Vec::new(), None), |it| (it.value, it.expires_at));
    if value.len() + more.len() > VALUE_BYTES_MAX {
        return Err(TOO_LONG.into());
    }
    value.extend_from_slice(more);
    let len = value.len();
    call.strings.put(key, value, expires_at)?;
    call.integer(len as i64)
}

fn set_range(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    let (key, part) = (call.arguments.at(1), call.arguments.at(3));
    let offset = call.arguments.integer(2)?;
    if offset < 0 {
        return Err("ERR offset is out of range".into());
    }
    let old = call.strings.get(key)?.cloned();
    let (mut value, expires_at) = old.map_or((Vec::new(), None), |it| (it.value, it.expires_at));
    if part.is_empty() {
        return call.integer(value.len() as i64);
    }
    let offset = offset as usize;
    if offset > VALUE_BYTES_MAX - part.len().min(VALUE_BYTES_MAX) {
        return Err(TOO_LONG.into());
    }
    let end = offset + part.len();
    value.resize(value.len().max(end), 0);
    value[offset..end].copy_from_slice(part);
    let len = value.len();
    call.strings.put(key, value, expires_at)?;
    call.integer(len as i64)
}

/// Returns the pairs of keys and values.
fn pairs_of<'a>(
    call: &StringCall<'a, '_>,
) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a>, String> {
    let arguments = call.arguments;
    match arguments.len() % 2 {
        0 => Err(wrong_arity(call.name)),
        _ => {
            Ok((1..arguments.len()).step_by(2).map(move |i| (arguments.at(i), arguments.at(i + 1))))
        }
    }
}

fn set_all(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    put_all(call)?;
    call.ok()
}

/// Puts all pairs, or none if one is too long.
fn put_all(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    pairs_of(call)?.try_for_each(|(key, value)| call.strings.check(key, value))?;
    pairs_of(call)?.try_for_each(|(key, value)| call.strings.put(key, value.to_vec(), None))
}

fn set_all_absent(call: &mut StringCall<'_, '_>) -> Result<(), String> {
    for (key, _) in pairs_of(call)? {
        if call.strings.has(key)? {
            return call.integer(0);
        }
    }
    put_all(call)?;
    call.integer(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the options of `SET`, separated by blanks. Shows what they are.
    fn check(words: &str, expected: Result<&str, &str>) {
        let mut places = Vec::new();
        let mut start = 0;
        for word in words.split(' ') {
            places.push(start..start + word.len());
            start += word.len() + 1;
        }
        let arguments = Arguments::new(words.as_bytes(), &places);
        let parsed = Options::parse(&arguments, 0, true);
        let shown = parsed.and_then(|options| {
            let at = options.expires_at(1_000_000, "set")?;
            let condition = match options.condition {
                Condition::None => "",
                Condition::Absent => "absent ",
                Condition::Present => "present ",
                Condition::Equal(_) => "equal ",
            };
            let keep = if options.expiry == Expiry::Keep { "keep " } else { "" };
            let get = if options.returns_old { "old " } else { "" };
            Ok(format!("{condition}{keep}{get}{}", at.unwrap_or(0)))
        });
        assert_eq!(shown.as_deref().map_err(String::as_str), expected, "{words}");
    }

    #[test]
    fn options_come_in_any_order_and_contradictions_are_errors() {
        check("EX 10", Ok("1010000"));
        check("px 10 NX", Ok("absent 1000010"));
        check("get xx KEEPTTL", Ok("present keep old 0"));
        check("NX NX EX 1 EX 2", Ok("absent 1002000"));
        check("EXAT 10 IFEQ old", Ok("equal 10000"));
        check("PXAT 9223372036854775807", Ok("9223372036854775807"));
        for wrong in
            ["NX XX", "EX", "EX 1 PX 1", "EX 1 KEEPTTL", "IFEQ a NX", "IFEQ", "PERSIST", "x"]
        {
            check(wrong, Err(SYNTAX_ERROR));
        }
        check("EX x", Err(NOT_AN_INTEGER));
        for wrong in ["EX 0", "PX -1", "EX 9223372036854775", "PX 9223372036854775807"] {
            check(wrong, Err("ERR invalid expire time in 'set' command"));
        }
    }
}
