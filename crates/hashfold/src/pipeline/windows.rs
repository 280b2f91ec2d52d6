//! The open windows of a summary.

use super::{
    aggregate::State,
    definition::{Field, FieldKind, GROUP_BYTES_MAX, Summary},
    events::{Events, Value},
    stats::SummaryStats,
};
use crate::{
    codec::{Decoder, put_bytes, put_varint},
    error::{Error, Result},
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::{BuildHasher, Hasher},
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Groups by their encoded fields.
pub(super) type Groups = HashMap<Box<[u8]>, Box<[State]>, GroupHash>;

const TEXT: u8 = 0;
const INT: u8 = 1;

/// The number of the first window that is not closed, before any event.
const NONE_CLOSED: i64 = i64::MIN;

/// A summary, and its windows that have not ended.
#[derive(Debug)]
pub(super) struct Windows {
    pub(super) summary: Summary,
    /// For each column: the number of its field, and the kind of that.
    inputs: Vec<(Option<usize>, FieldKind)>,
    /// Groups by the number of their window: time / length.
    open: BTreeMap<i64, Groups>,
    /// Windows that have ended, for the caller to take.
    ended: VecDeque<(i64, Groups)>,
    /// Number of the first window that has not ended.
    first_open: i64,
    stats: SummaryStats,
    seed: u64,
    /// The group of the current event.
    group: Vec<u8>,
}

impl Windows {
    /// Makes a summary without events. `seed` is unpredictable, so that nobody can choose groups that collide.
    pub(super) fn new(summary: Summary, fields: &[Field], seed: u64) -> Windows {
        let input =
            |field: Option<usize>| (field, field.map_or(FieldKind::Int, |i| fields[i].kind));
        let inputs = summary.columns.iter().map(|column| input(column.aggregate.field())).collect();
        Windows {
            summary,
            inputs,
            open: BTreeMap::new(),
            ended: VecDeque::new(),
            first_open: NONE_CLOSED,
            stats: SummaryStats::default(),
            seed,
            group: Vec::new(),
        }
    }

    /// Adds an event that the summary takes. `now_ms` is the clock of the stream, with this event.
    pub(super) fn add(&mut self, now_ms: i64, events: &Events, event: usize) {
        self.advance(now_ms);
        let number = self.number(events.times()[event]);
        if number < self.first_open {
            self.stats.late += 1;
            return;
        }
        if !self.encode_group(events, event) || !self.has_group(number) {
            self.stats.no_group += 1;
            return;
        }
        let groups = self.open.get_mut(&number).expect("it was made");
        let states = groups.get_mut(&self.group[..]).expect("it was made");
        for ((state, column), (field, _)) in
            states.iter_mut().zip(&self.summary.columns).zip(&self.inputs)
        {
            let value = field.map_or(Value::Null, |field| events.get(event, field));
            state.add(&column.aggregate, value);
        }
        self.stats.events += 1;
    }

    /// Lets windows end whose end, with the allowed lateness, is not after `now_ms`. [`Windows::pop`] returns them.
    pub(super) fn advance(&mut self, now_ms: i64) {
        if let Some(window_ms) = self.summary.window_ms {
            let horizon = now_ms.saturating_sub(self.summary.lateness_ms);
            self.end_before(horizon.div_euclid(window_ms));
        }
    }

    /// Lets all windows end.
    pub(super) fn end(&mut self) {
        if let Some((last, _)) = self.open.last_key_value() {
            self.end_before(last + 1);
        }
    }

    /// Lets windows end whose number is less. At once, so that the number of open groups does not depend on batches.
    fn end_before(&mut self, first_open: i64) {
        if first_open <= self.first_open {
            return;
        }
        self.first_open = first_open;
        while let Some(window) = self.open.first_entry()
            && *window.key() < first_open
        {
            let (number, groups) = window.remove_entry();
            self.stats.windows += 1;
            self.stats.groups += groups.len() as u64;
            self.stats.open_groups -= groups.len() as u64;
            self.stats.open_windows -= 1;
            self.ended.push_back((number, groups));
        }
    }

    fn number(&self, time_ms: i64) -> i64 {
        self.summary.window_ms.map_or(0, |window_ms| time_ms.div_euclid(window_ms))
    }

    /// Removes and returns the earliest window that has ended, with its number.
    pub(super) fn pop(&mut self) -> Option<(i64, Groups)> {
        self.ended.pop_front()
    }

    /// Returns start and end of a window, in milliseconds since 1970.
    pub(super) fn span(&self, number: i64) -> Option<(i64, i64)> {
        let window_ms = self.summary.window_ms?;
        let start = number.saturating_mul(window_ms);
        Some((start, start.saturating_add(window_ms)))
    }

    /// Returns the counts so far.
    pub(super) fn stats(&self) -> SummaryStats {
        let first = self.open.first_key_value();
        let open_since_ms =
            first.and_then(|(number, _)| self.span(*number)).map(|(start, _)| start);
        SummaryStats { open_since_ms, ..self.stats }
    }

    /// Encodes the group of an event. Returns whether it is short enough.
    fn encode_group(&mut self, events: &Events, event: usize) -> bool {
        self.group.clear();
        put_group(&mut self.group, events, event, &self.summary.group_by)
    }

    /// Makes the group in a window if it is not there. Returns whether it is there then.
    fn has_group(&mut self, number: i64) -> bool {
        if let Some(groups) = self.open.get(&number)
            && groups.contains_key(&self.group[..])
        {
            return true;
        }
        if self.stats.open_groups >= self.summary.groups_max as u64 {
            return false;
        }
        let states = self.summary.columns.iter().zip(&self.inputs);
        let states =
            states.map(|(column, (_, kind))| State::new(&column.aggregate, *kind)).collect();
        self.insert(number, self.group.clone().into(), states);
        true
    }

    fn insert(&mut self, number: i64, group: Box<[u8]>, states: Box<[State]>) -> bool {
        let stats = &mut self.stats;
        let seed = self.seed;
        let groups = self.open.entry(number).or_insert_with(|| {
            stats.open_windows += 1;
            Groups::with_hasher(GroupHash(seed))
        });
        let is_new = groups.insert(group, states).is_none();
        self.stats.open_groups += u64::from(is_new);
        is_new
    }

    /// Appends the open windows and the counts to a checkpoint.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        self.stats.put(out);
        out.extend(self.first_open.to_le_bytes());
        put_varint(out, self.open.len() as u64);
        for (number, groups) in &self.open {
            out.extend(number.to_le_bytes());
            put_varint(out, groups.len() as u64);
            for (group, states) in groups {
                put_bytes(out, group);
                states.iter().for_each(|state| state.put(out));
            }
        }
    }

    /// Reads open windows and counts from a checkpoint.
    pub(super) fn restore(&mut self, fields: &mut Decoder<'_>) -> Result<()> {
        self.stats = SummaryStats::take(fields)?;
        self.first_open = fields.u64()? as i64;
        for _ in 0..fields.varint()? {
            let number = fields.u64()? as i64;
            for _ in 0..fields.varint()? {
                let group: Box<[u8]> = fields.sized_bytes()?.into();
                decode_group(&group, self.summary.group_by.len())?;
                let mut states = Vec::with_capacity(self.inputs.len());
                for (column, (_, kind)) in self.summary.columns.iter().zip(&self.inputs) {
                    states.push(State::take(&column.aggregate, *kind, fields)?);
                }
                if !self.insert(number, group, states.into()) {
                    return Err(Error::field("group", "each once in a window", "one twice"));
                }
            }
        }
        fields.end()
    }
}

/// Appends fields of an event as a group, up to [`GROUP_BYTES_MAX`] bytes in an empty vector; null is empty text. Returns whether they
/// are short enough.
pub(super) fn put_group(
    out: &mut Vec<u8>,
    events: &Events,
    event: usize,
    fields: &[usize],
) -> bool {
    for field in fields {
        match events.get(event, *field) {
            Value::Int(value) => {
                out.push(INT);
                out.extend(value.to_le_bytes());
            }
            Value::Text(text) => {
                out.push(TEXT);
                put_bytes(out, text);
            }
            Value::Null | Value::Float(_) => out.extend([TEXT, 0]),
        }
        if out.len() > GROUP_BYTES_MAX {
            return false;
        }
    }
    true
}

/// Decodes the fields of a group.
pub(super) fn decode_group(group: &[u8], count: usize) -> Result<Vec<Value<'_>>> {
    let mut fields = Decoder::new(group);
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        values.push(match fields.u8()? {
            TEXT => Value::Text(fields.sized_bytes()?),
            INT => Value::Int(fields.u64()? as i64),
            other => return Err(Error::field("kind of a group's field", "0 or 1", other)),
        });
    }
    fields.end()?;
    Ok(values)
}

/// The hash function of groups: XXH3 with a seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupHash(u64);

/// The hash of one group.
pub(super) struct GroupHasher {
    seed: u64,
    hash: u64,
}

impl BuildHasher for GroupHash {
    type Hasher = GroupHasher;

    fn build_hasher(&self) -> GroupHasher {
        GroupHasher { seed: self.0, hash: 0 }
    }
}

impl Hasher for GroupHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.hash ^= xxh3_64_with_seed(bytes, self.seed);
    }

    /// The size of a group, which its encoding determines.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.hash
    }
}
