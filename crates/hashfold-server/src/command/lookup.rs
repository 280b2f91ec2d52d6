//! Commands that look up keys: `GET`, `MGET`, `EXISTS` and others. All lookups that clients wait for
//! at one moment are answered by one call of `get_many`.

use super::{
    SYNTAX_ERROR,
    entry::{Arguments, Command, Group, Run},
    lcs::{self, LcsOptions},
    rdb, sketch,
};
use crate::{protocol::Reply, slow_log::cut};
use std::ops::Range;

pub(super) const COMMANDS: &[Command] = &[
    one_key("get", 2, Group::Strings, "Returns the value of a key.", |_| Ok(Lookup::Get)).fast(),
    many_keys("mget", Group::Strings, "Returns the values of keys.", |_| Ok(Lookup::GetAll)).fast(),
    one_key("strlen", 2, Group::Strings, "Returns the size of a value.", |_| Ok(Lookup::Size))
        .fast(),
    one_key("getrange", 4, Group::Strings, "Returns a part of a value.", part),
    one_key("substr", 4, Group::Strings, "Returns a part of a value.", part),
    many_keys("exists", Group::Generic, "Counts the keys that exist.", |_| Ok(Lookup::Count))
        .fast(),
    many_keys("touch", Group::Generic, "Counts the keys that exist.", |_| Ok(Lookup::Count)).fast(),
    one_key("type", 2, Group::Generic, "Returns the type of a key.", |_| Ok(Lookup::Type)).fast(),
    one_key("ttl", 2, Group::Generic, "Returns the time to live, in seconds.", |_| {
        Ok(Lookup::Expiry(Expiry { is_left: true, unit_ms: 1000 }))
    })
    .fast(),
    one_key("pttl", 2, Group::Generic, "Returns the time to live, in milliseconds.", |_| {
        Ok(Lookup::Expiry(Expiry { is_left: true, unit_ms: 1 }))
    })
    .fast(),
    one_key("expiretime", 2, Group::Generic, "Returns the time of expiry, in seconds.", |_| {
        Ok(Lookup::Expiry(Expiry { is_left: false, unit_ms: 1000 }))
    })
    .fast(),
    one_key(
        "pexpiretime",
        2,
        Group::Generic,
        "Returns the time of expiry, in milliseconds.",
        |_| Ok(Lookup::Expiry(Expiry { is_left: false, unit_ms: 1 })),
    )
    .fast(),
    one_key("dump", 2, Group::Generic, "Returns a value with a checksum.", |_| Ok(Lookup::Dump)),
    one_key(
        "lcs",
        -3,
        Group::Strings,
        "Returns the longest common subsequence of two values.",
        |it| LcsOptions::parse(it).map(Lookup::Lcs),
    )
    .keys(1, 2, 1),
    Command::new("object", -2, Group::Generic, "Shows how a value is stored.", Run::Group(OBJECT)),
    Command::new("memory", -2, Group::Server, "Shows what memory is used for.", Run::Group(MEMORY)),
];

const OBJECT: &[Command] = &[
    subcommand("encoding", "Returns the encoding of a value.", |_| Ok(Lookup::Encoding)),
    subcommand("refcount", "Returns 1.", |_| Ok(Lookup::Fixed("1"))),
    subcommand("idletime", "Returns 0.", |_| Ok(Lookup::Fixed("0"))),
    subcommand("freq", "Returns an error: no use of keys is counted.", |_| {
        Err("ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that \
             when switching between policies at runtime LRU and LFU data will take some time to adjust."
            .into())
    }),
    super::help::HELP,
];

const MEMORY: &[Command] = &[
    Command::new(
        "usage",
        -3,
        Group::Server,
        "Returns the bytes of a key and its value.",
        Run::Lookup(usage),
    )
    .reads()
    .keys(2, 2, 1)
    .syntax("<key> [SAMPLES <count>]"),
    super::info::MEMORY_STATS,
    super::info::MEMORY_PURGE,
    super::help::HELP,
];

const fn one_key(
    name: &'static str,
    arity: i32,
    group: Group,
    summary: &'static str,
    parse: fn(&Arguments<'_>) -> Result<Lookup, String>,
) -> Command {
    Command::new(name, arity, group, summary, Run::Lookup(parse)).reads().keys(1, 1, 1)
}

const fn many_keys(
    name: &'static str,
    group: Group,
    summary: &'static str,
    parse: fn(&Arguments<'_>) -> Result<Lookup, String>,
) -> Command {
    Command::new(name, -2, group, summary, Run::Lookup(parse)).reads().keys(1, -1, 1)
}

const fn subcommand(
    name: &'static str,
    summary: &'static str,
    parse: fn(&Arguments<'_>) -> Result<Lookup, String>,
) -> Command {
    Command::new(name, 3, Group::Generic, summary, Run::Lookup(parse))
        .reads()
        .keys(2, 2, 1)
        .syntax("<key>")
}

/// What a client asked about keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lookup {
    Get,
    GetAll,
    Size,
    /// A part of the value, from the first to the last byte; negative numbers count from the end.
    Part(i64, i64),
    Count,
    Type,
    /// The time to live, or the time of expiry.
    Expiry(Expiry),
    Encoding,
    Fixed(&'static str),
    Usage,
    Dump,
    /// The longest common subsequence of two values.
    Lcs(LcsOptions),
    /// The sketches in the values.
    Sketches(sketch::Asked),
}

/// The bytes of a value that the reply to a lookup depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// None, nor how many there are: only whether there is a value.
    Nothing,
    /// None, but how many there are.
    Size,
    /// Those from the first to the last, and how many there are; negative numbers count from the end.
    Part(i64, i64),
    All,
}

impl Needs {
    /// Returns the range of the bytes in a value of this size.
    pub(crate) fn range(self, size: usize) -> Range<usize> {
        match self {
            Needs::Nothing | Needs::Size => 0..0,
            Needs::Part(first, last) => range(first, last, size),
            Needs::All => 0..size,
        }
    }
}

/// How the expiry of a key is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// Whether the time that is left is asked for, not the time of expiry.
    is_left: bool,
    /// Milliseconds of the unit.
    unit_ms: u64,
}

impl Expiry {
    /// Returns the reply for a key that expires at `at`, if it does.
    fn reply(self, at: Option<u64>, now_ms: u64) -> i64 {
        let Some(at) = at else { return -1 };
        let ms = if self.is_left { at.saturating_sub(now_ms) } else { at };
        (ms.saturating_add(self.unit_ms / 2) / self.unit_ms) as i64
    }
}

fn part(arguments: &Arguments<'_>) -> Result<Lookup, String> {
    Ok(Lookup::Part(arguments.integer(2)?, arguments.integer(3)?))
}

fn usage(arguments: &Arguments<'_>) -> Result<Lookup, String> {
    match arguments.len() {
        3 => Ok(Lookup::Usage),
        5 if arguments.is(3, "samples") && arguments.integer(4)? >= 0 => Ok(Lookup::Usage),
        _ => Err(SYNTAX_ERROR.into()),
    }
}

/// The value of a key that was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Absent,
    /// The bytes that clients get, as far as the lookup needs them.
    Present(&'a [u8]),
    /// The key is a filter, of this type.
    Filter(&'static str),
    /// The value could not be read: the reply.
    Failed(&'a str),
}

/// The values of the keys of one call.
pub(crate) trait Values {
    /// Returns the number of keys.
    fn count(&self) -> usize;

    /// Returns a key.
    fn key(&self, i: usize) -> &[u8];

    /// Returns the value of a key.
    fn value(&self, i: usize) -> Value<'_>;

    /// Returns the size of the value of a key as clients get it, in bytes; 0 if the lookup does not need it, or there is no
    /// value.
    fn size(&self, i: usize) -> usize;

    /// Returns the time at which a key expires, and the time now, in milliseconds since 1970. Keys of maps and
    /// filters may expire.
    fn expiry(&self, i: usize) -> (Option<u64>, u64);
}

impl Lookup {
    /// Returns the bytes of each value that the reply depends on.
    pub(crate) fn needs(self) -> Needs {
        match self {
            Lookup::Count | Lookup::Type | Lookup::Expiry(_) | Lookup::Fixed(_) => Needs::Nothing,
            Lookup::Size | Lookup::Usage => Needs::Size,
            Lookup::Part(first, last) => Needs::Part(first, last),
            Lookup::Encoding => Needs::Part(0, INTEGER_BYTES_MAX as i64 - 1),
            Lookup::Get | Lookup::GetAll | Lookup::Dump | Lookup::Lcs(_) | Lookup::Sketches(_) => {
                Needs::All
            }
        }
    }

    /// Whether the lookup depends on one value and nothing else, so that it can be answered beside changes.
    pub(crate) fn is_of_one_value(self, keys: usize) -> bool {
        keys == 1 && !matches!(self, Lookup::Expiry(_))
    }

    /// Whether the command is about values, so that a filter is a key of the wrong type.
    pub(crate) fn is_about_strings(self) -> bool {
        matches!(self, Lookup::Get | Lookup::Size | Lookup::Part(..))
    }

    /// Returns the call as the slow log shows it. `name` is that of its command: `get`, `object|encoding`.
    pub(crate) fn words(self, name: &str, values: &dyn Values) -> Vec<Vec<u8>> {
        let numbers = match self {
            Lookup::Part(first, last) => vec![first.to_string(), last.to_string()],
            _ => Vec::new(),
        };
        let names = name.split('|').map(str::as_bytes);
        let keys = (0..values.count()).map(|i| values.key(i));
        let all: Vec<&[u8]> =
            names.chain(keys).chain(numbers.iter().map(String::as_bytes)).collect();
        cut(all.into_iter())
    }

    /// Writes the reply.
    pub(crate) fn reply(self, values: &dyn Values, reply: &mut Reply<'_>) {
        match self {
            Lookup::GetAll => get_all(values, reply),
            Lookup::Count => count(values, reply),
            Lookup::Lcs(options) => lcs::reply(options, values, reply),
            Lookup::Sketches(asked) => asked.reply(values, reply),
            _ => self.reply_to_one(values, reply),
        }
    }

    fn reply_to_one(self, values: &dyn Values, reply: &mut Reply<'_>) {
        match (values.value(0), self) {
            (Value::Failed(error), _) => reply.error(error),
            (Value::Filter(_), _) if self.is_about_strings() => reply.error(super::WRONG_TYPE),
            (Value::Filter(name), Lookup::Type) => reply.simple(name),
            (Value::Filter(_), Lookup::Encoding) => reply.bulk(b"raw"),
            (Value::Absent, Lookup::Size) => reply.integer(0),
            (Value::Absent, Lookup::Part(..)) => reply.bulk(b""),
            (Value::Absent, Lookup::Type) => reply.simple("none"),
            (Value::Present(_), Lookup::Type) => reply.simple("string"),
            (Value::Absent, Lookup::Expiry(_)) => reply.integer(-2),
            (_, Lookup::Expiry(expiry)) => {
                let (at, now_ms) = values.expiry(0);
                reply.integer(expiry.reply(at, now_ms));
            }
            (Value::Present(_) | Value::Filter(_), Lookup::Fixed(number)) => {
                reply.integer(number.parse().unwrap_or(0));
            }
            (Value::Absent, _) => reply.null(),
            (Value::Present(_), Lookup::Size) => reply.integer(values.size(0) as i64),
            (Value::Present(start), Lookup::Encoding) => {
                reply.bulk(encoding(start, values.size(0)).as_bytes());
            }
            (Value::Present(_), Lookup::Usage) => {
                reply.integer((values.key(0).len() + values.size(0)) as i64);
            }
            (Value::Present(value), Lookup::Dump) => reply.bulk(&rdb::dump(value)),
            (Value::Filter(_), Lookup::Dump) => {
                reply.error("ERR filters are dumped with BF.SCANDUMP or CF.SCANDUMP");
            }
            (Value::Present(value), _) => reply.bulk(value),
            (Value::Filter(_), _) => reply.null(),
        }
    }
}

fn get_all(values: &dyn Values, reply: &mut Reply<'_>) {
    let all = || (0..values.count()).map(|i| values.value(i));
    if let Some(Value::Failed(error)) = all().find(|value| matches!(value, Value::Failed(_))) {
        return reply.error(error);
    }
    reply.array(values.count());
    for value in all() {
        match value {
            Value::Present(value) => reply.bulk(value),
            _ => reply.null(),
        }
    }
}

fn count(values: &dyn Values, reply: &mut Reply<'_>) {
    let mut present = 0;
    for i in 0..values.count() {
        match values.value(i) {
            Value::Failed(error) => return reply.error(error),
            Value::Absent => {}
            Value::Present(_) | Value::Filter(_) => present += 1,
        }
    }
    reply.integer(present);
}

/// Returns the range that `GETRANGE` means: both ends are included, negative ones count from the end.
fn range(first: i64, last: i64, len: usize) -> Range<usize> {
    if first < 0 && last < 0 && first > last {
        return 0..0;
    }
    let len = len as i64;
    let from_start = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (first, last) = (from_start(first), from_start(last).min(len - 1));
    if first > last || len == 0 { 0..0 } else { first as usize..last as usize + 1 }
}

/// Maximum size of a value that Redis stores beside its header, in bytes.
const EMBEDDED_BYTES_MAX: usize = 44;

/// Maximum size of a value that Redis stores as an integer, in bytes.
const INTEGER_BYTES_MAX: usize = 20;

/// Returns the encoding that Redis would choose for a value with these first bytes and this size.
fn encoding(start: &[u8], size: usize) -> &'static str {
    match size {
        0..=INTEGER_BYTES_MAX if crate::protocol::number(start).is_some() => "int",
        0..=EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_redis() {
        let text = b"This is a string";
        for (first, last, expected) in [
            (0, 3, "This"),
            (-3, -1, "ing"),
            (0, -1, "This is a string"),
            (10, 100, "string"),
            (0, -100, "T"),
            (5, 3, ""),
            (-1, -5, ""),
            (100, 200, ""),
            (i64::MIN, i64::MAX, "This is a string"),
        ] {
            let found = &text[range(first, last, text.len())];
            assert_eq!(found, expected.as_bytes(), "{first} {last}");
        }
        assert_eq!(range(0, -1, 0), 0..0);
        assert_eq!(range(0, 0, 0), 0..0);
    }

    #[test]
    fn encodings_are_those_of_redis() {
        for (value, expected) in [("12", "int"), ("-7", "int"), ("012", "embstr"), ("", "embstr")] {
            assert_eq!(encoding(value.as_bytes(), value.len()), expected);
        }
        assert_eq!(encoding(&[b'a'; 20], 44), "embstr");
        assert_eq!(encoding(&[b'1'; 20], 21), "embstr");
        assert_eq!(encoding(&[b'1'; 20], 45), "raw");
    }
}
