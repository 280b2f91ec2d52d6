//! Commands that go through all keys: `SCAN`, `KEYS` and `RANDOMKEY`.

use super::{
    SYNTAX_ERROR,
    entry::{Arguments, Call, Command, Flag, Group, JobReply, Run, Work},
};
use crate::{
    data::{Duplicates, FilterKey, ScanLimit, View},
    protocol::matches,
    session::Session,
};
use hashfold::Error;
use std::sync::Arc;

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "scan",
        -2,
        Group::Generic,
        "Returns some keys, and where to go on.",
        Run::Job(scan),
    )
    .reads(),
    Command::new(
        "keys",
        2,
        Group::Generic,
        "Returns all keys that match a pattern.",
        Run::Job(keys),
    )
    .reads()
    .with(Flag::Dangerous),
    Command::new("randomkey", 1, Group::Generic, "Returns a random key.", Run::Job(random_key))
        .reads(),
];

/// Maximum number of keys that `KEYS` goes through.
const KEYS_MAX: u64 = 1_000_000;

/// Maximum number of keys that one `SCAN` goes through.
const COUNT_MAX: i64 = 1_000_000;

/// Maximum number of bytes of the keys that `KEYS` returns.
const KEYS_BYTES_MAX: usize = 64 << 20;

/// One `SCAN` goes through about this number of bytes of keys at most.
const SCAN_BYTES: usize = 4 << 20;

/// Number of keys of which `RANDOMKEY` chooses one.
const SAMPLE: u64 = 64;

/// Returns the name of a filter's type.
pub(crate) fn type_of(filter: &FilterKey) -> &'static str {
    match filter.duplicates() {
        Duplicates::Ignored => "MBbloom--",
        Duplicates::Counted => "MBbloomCF",
    }
}

/// What `SCAN` looks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    cursor: u64,
    pattern: Option<Vec<u8>>,
    count: usize,
    kind: Option<String>,
}

impl Wanted {
    fn parse(arguments: &Arguments<'_>) -> Result<Wanted, String> {
        let cursor = std::str::from_utf8(arguments.at(1)).ok().and_then(|text| text.parse().ok());
        let cursor = cursor.ok_or("ERR invalid cursor")?;
        let mut wanted = Wanted { cursor, pattern: None, count: 10, kind: None };
        for i in (2..arguments.len()).step_by(2) {
            let value = arguments.get(i + 1).ok_or(SYNTAX_ERROR)?;
            if arguments.is(i, "match") {
                wanted.pattern = Some(value.to_vec());
            } else if arguments.is(i, "count") {
                let count = arguments.integer(i + 1)?;
                if count < 1 {
                    return Err(SYNTAX_ERROR.into());
                }
                wanted.count = count.min(COUNT_MAX) as usize;
            } else if arguments.is(i, "type") {
                wanted.kind = Some(checked_type(value)?);
            } else {
                return Err(SYNTAX_ERROR.into());
            }
        }
        Ok(wanted)
    }

    fn matches(&self, key: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| matches(pattern, key))
    }

    fn has_type(&self, name: &str) -> bool {
        self.kind.as_ref().is_none_or(|kind| kind.eq_ignore_ascii_case(name))
    }
}

fn checked_type(name: &[u8]) -> Result<String, String> {
    let name = String::from_utf8_lossy(name).into_owned();
    let known = ["string", "MBbloom--", "MBbloomCF", "list", "set", "zset", "hash", "stream"];
    match known.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
        true => Ok(name),
        false => Err(format!("ERR unknown type name '{name}'")),
    }
}

fn scan(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let wanted = Wanted::parse(&call.arguments)?;
    let (view, filters) = data_and_filters(call.session)?;
    Ok(Box::new(move || match scan_some(&wanted, view.as_deref(), &filters) {
        Err(error) => failed(&error),
        Ok((cursor, keys)) => Box::new(move |_, reply| {
            reply.array(2);
            reply.bulk(cursor.to_string().as_bytes());
            reply.array(keys.len());
            keys.iter().for_each(|key| reply.bulk(key));
        }),
    }))
}

/// A data set, if there is one, and filters.
type Seen = (Option<Arc<View>>, Vec<Arc<FilterKey>>);

/// Returns the data set and the filters whose keys a connection sees.
///
/// # Errors
/// The reply: the store has no version yet, or the client has to choose a data set.
fn data_and_filters(session: &Session) -> Result<Seen, String> {
    let filters = session.space().map_or(Vec::new(), |space| space.filters());
    match session.choice() {
        Some(choice) if filters.is_empty() => Err(choice.to_owned()),
        _ => Ok((session.view()?, filters)),
    }
}

fn failed(error: &Error) -> JobReply {
    let message = format!("ERR {error}");
    Box::new(move |_, reply| reply.error(&message))
}

/// Returns the keys after a cursor, and the cursor after them. Filters come with the first keys.
fn scan_some(
    wanted: &Wanted,
    view: Option<&View>,
    filters: &[Arc<FilterKey>],
) -> Result<(u64, Vec<Vec<u8>>), Error> {
    let mut keys = Vec::new();
    if wanted.cursor == 0 {
        let named = filters.iter().filter(|filter| wanted.has_type(type_of(filter)));
        keys.extend(named.map(|filter| filter.key().to_vec()));
        keys.retain(|key| wanted.matches(key));
    }
    let Some(view) = view.filter(|_| wanted.has_type("string")) else { return Ok((0, keys)) };
    let limit = ScanLimit { keys: wanted.count, bytes: SCAN_BYTES };
    let cursor = view.scan_some(wanted.cursor, limit, &mut |key| {
        if wanted.matches(key) {
            keys.push(key.to_vec());
        }
    })?;
    Ok((cursor, keys))
}

fn keys(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let pattern = call.arguments.at(1).to_vec();
    let (view, filters) = data_and_filters(call.session)?;
    if view.as_ref().is_some_and(|view| *view.entries().end() > KEYS_MAX) {
        return Err(format!("ERR KEYS goes through at most {KEYS_MAX} keys; use SCAN"));
    }
    Ok(Box::new(move || {
        let mut keys: Vec<Vec<u8>> = filters.iter().map(|filter| filter.key().to_vec()).collect();
        keys.retain(|key| matches(&pattern, key));
        let mut bytes: usize = keys.iter().map(Vec::len).sum();
        let visited = view.map_or(Ok(()), |view| {
            view.visit_keys(&mut |key| {
                if matches(&pattern, key) {
                    bytes += key.len();
                    (bytes <= KEYS_BYTES_MAX).then(|| keys.push(key.to_vec()));
                }
            })
        });
        if let Err(error) = visited {
            return failed(&error);
        }
        if bytes > KEYS_BYTES_MAX {
            let message =
                format!("ERR KEYS returns at most {KEYS_BYTES_MAX} bytes of keys; use SCAN");
            return Box::new(move |_, reply| reply.error(&message));
        }
        Box::new(move |_, reply| {
            reply.array(keys.len());
            keys.iter().for_each(|key| reply.bulk(key));
        })
    }))
}

fn random_key(call: &mut Call<'_, '_>) -> Result<Work, String> {
    let (view, filters) = data_and_filters(call.session)?;
    let random = call.shared.env.random.next_u64();
    Ok(Box::new(move || {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        if let Some(view) = view {
            let sampled = view.sample(SAMPLE, random, &mut |key| {
                keys.push(key.to_vec());
                Ok(())
            });
            if let Err(error) = sampled {
                return failed(&error);
            }
        }
        keys.extend(filters.iter().map(|filter| filter.key().to_vec()));
        let chosen = (!keys.is_empty()).then(|| keys.swap_remove(random as usize % keys.len()));
        Box::new(move |_, reply| match chosen {
            Some(key) => reply.bulk(&key),
            None => reply.null(),
        })
    }))
}
