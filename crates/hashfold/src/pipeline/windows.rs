//! The open windows of a summary.

use super::{
    aggregate::State,
    budget::{ALLOCATION_BYTES, Account, slot_bytes},
    checkpoint::VERSION_ENDED,
    definition::{Aggregate, Column, Field, FieldKind, GROUP_BYTES_MAX, Summary},
    events::{Events, TIME_MS_MAX, Value},
    stats::SummaryStats,
};
use crate::{
    codec::{Decoder, put_bytes, put_varint},
    error::{Error, Result},
    work::MemoryBudget,
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

/// The groups of a window, and their memory.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) groups: Groups,
    /// The memory of the groups, in bytes, as the budget counts it.
    bytes: u64,
}

/// A summary, and its windows that have not ended.
#[derive(Debug)]
pub(super) struct Windows {
    pub(super) summary: Summary,
    /// For each column: the number of its field, and the kind of that.
    inputs: Vec<(Option<usize>, FieldKind)>,
    /// Windows by their number: time / length.
    open: BTreeMap<i64, Opened>,
    /// Windows that have ended, for the caller to take.
    ended: VecDeque<(i64, Opened)>,
    /// Number of the first of these that the last checkpoint has.
    noted: usize,
    /// Number of groups in windows that have ended, and their memory in bytes.
    ended_groups: u64,
    ended_bytes: u64,
    /// The memory of all groups, also of those that the caller has taken.
    account: Account,
    /// The most bytes by which an event can let the states of a group grow.
    growth_max: u64,
    /// Number of the first window that has not ended.
    first_open: i64,
    stats: SummaryStats,
    seed: u64,
    /// The group of the current event.
    group: Vec<u8>,
}

impl Windows {
    /// Makes a summary without events. `seed` is unpredictable, so that nobody can choose groups that collide.
    pub(super) fn new(
        summary: Summary,
        fields: &[Field],
        seed: u64,
        memory: &MemoryBudget,
    ) -> Windows {
        let input =
            |field: Option<usize>| (field, field.map_or(FieldKind::Int, |i| fields[i].kind));
        let inputs = summary.columns.iter().map(|column| input(column.aggregate.field())).collect();
        let growths = summary.columns.iter().map(|column| State::growth_max(&column.aggregate));
        Windows {
            inputs,
            open: BTreeMap::new(),
            ended: VecDeque::new(),
            noted: 0,
            ended_groups: 0,
            ended_bytes: 0,
            account: Account::new(memory),
            growth_max: growths.sum(),
            summary,
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
        let is_added = self.encode_group(events, event)
            && self.has_group(number)
            && self.add_to_group(number, events, event);
        match is_added {
            true => self.stats.events += 1,
            false => self.stats.no_group += 1,
        }
    }

    /// Adds an event to the current group, which is there. Returns whether there was memory for that.
    fn add_to_group(&mut self, number: i64, events: &Events, event: usize) -> bool {
        let opened = self.open.get_mut(&number).expect("it was made");
        let states = opened.groups.get_mut(&self.group[..]).expect("it was made");
        let columns = self.summary.columns.iter().zip(&self.inputs);
        let values = columns.map(|(column, (field, _))| {
            (&column.aggregate, field.map_or(Value::Null, |field| events.get(event, field)))
        });
        if self.growth_max == 0 {
            states.iter_mut().zip(values).for_each(|(state, (of, value))| state.add(of, value));
            return true;
        }
        let has_room = self.account.ensure(self.growth_max).is_ok();
        if !has_room
            && states
                .iter()
                .zip(values.clone())
                .any(|(state, (of, value))| state.may_grow(of, value))
        {
            return false;
        }
        let before = states_bytes(states);
        states.iter_mut().zip(values).for_each(|(state, (of, value))| state.add(of, value));
        let after = states_bytes(states);
        if after > before {
            self.account.add(after - before);
        } else if after < before {
            self.account.free(before - after);
        }
        opened.bytes = opened.bytes + after - before;
        true
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
            let (number, opened) = window.remove_entry();
            let groups = opened.groups.len() as u64;
            self.stats.overflows += overflows(&self.summary, &opened.groups);
            self.stats.windows += 1;
            self.stats.groups += groups;
            self.stats.open_groups -= groups;
            self.stats.open_windows -= 1;
            self.ended_groups += groups;
            self.ended_bytes += opened.bytes;
            self.ended.push_back((number, opened));
        }
    }

    fn number(&self, time_ms: i64) -> i64 {
        self.summary.window_ms.map_or(0, |window_ms| time_ms.div_euclid(window_ms))
    }

    /// Removes and returns the earliest window that has ended, with its number. Its memory counts until
    /// [`Windows::free`].
    pub(super) fn pop(&mut self) -> Option<(i64, Opened)> {
        let window = self.ended.pop_front()?;
        self.noted = self.noted.saturating_sub(1);
        self.ended_groups -= window.1.groups.len() as u64;
        self.ended_bytes -= window.1.bytes;
        Some(window)
    }

    /// Does what [`Windows::pop`] does if the last checkpoint has the window.
    pub(super) fn pop_noted(&mut self) -> Option<(i64, Opened)> {
        if self.noted > 0 { self.pop() } else { None }
    }

    /// Returns the memory of the windows that have ended, in bytes.
    pub(super) fn ended_bytes(&self) -> u64 {
        self.ended_bytes
    }

    /// Whether the windows that have ended have more than twice as many groups as those that are open may have.
    pub(super) fn has_too_many_ended(&self) -> bool {
        self.ended_groups > 2 * self.summary.groups_max as u64
    }

    /// Notes that a checkpoint has all windows that have ended until now.
    pub(super) fn note(&mut self) {
        self.noted = self.ended.len();
    }

    /// Gives the memory of a window back.
    pub(super) fn free(&mut self, ended: Opened) {
        let bytes = ended.bytes;
        drop(ended);
        self.account.free(bytes);
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
        let waiting_windows = self.ended.len() as u64;
        SummaryStats {
            open_since_ms,
            waiting_windows,
            open_bytes: self.account.used(),
            ..self.stats
        }
    }

    /// Encodes the group of an event. Returns whether it is short enough.
    fn encode_group(&mut self, events: &Events, event: usize) -> bool {
        self.group.clear();
        put_group(&mut self.group, events, event, &self.summary.group_by)
    }

    /// Makes the current group in a window if it is not there. Returns whether it is there then.
    fn has_group(&mut self, number: i64) -> bool {
        if let Some(opened) = self.open.get(&number)
            && opened.groups.contains_key(&self.group[..])
        {
            return true;
        }
        if self.stats.open_groups >= self.summary.groups_max as u64 {
            return false;
        }
        let states = self.summary.columns.iter().zip(&self.inputs);
        let states: Box<[State]> =
            states.map(|(column, (_, kind))| State::new(&column.aggregate, *kind)).collect();
        // With room for its first event, so that no group is without one.
        let room = group_bytes(&self.group, &states) + self.growth_max;
        self.account.ensure(room).is_ok()
            && self.insert(number, self.group.clone().into(), states).is_ok()
    }

    /// Inserts a group into a window. Returns whether it was not there.
    ///
    /// # Errors
    /// `Memory` if the budget is exhausted; the group is not inserted then.
    fn insert(&mut self, number: i64, group: Box<[u8]>, states: Box<[State]>) -> Result<bool> {
        let bytes = group_bytes(&group, &states);
        self.account.ensure(bytes)?;
        let stats = &mut self.stats;
        let seed = self.seed;
        let opened = self.open.entry(number).or_insert_with(|| {
            stats.open_windows += 1;
            Opened { groups: Groups::with_hasher(GroupHash(seed)), bytes: 0 }
        });
        let is_new = opened.groups.insert(group, states).is_none();
        if is_new {
            self.stats.open_groups += 1;
            self.account.add(bytes);
            opened.bytes += bytes;
        }
        Ok(is_new)
    }

    /// Appends the counts, the open windows, and those that have ended to a checkpoint.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        self.stats.put(out);
        out.extend(self.first_open.to_le_bytes());
        put_varint(out, self.open.len() as u64);
        self.open.iter().for_each(|(number, opened)| put_window(out, *number, opened));
        put_varint(out, self.ended.len() as u64);
        self.ended.iter().for_each(|(number, ended)| put_window(out, *number, ended));
    }

    /// Reads counts and windows from a checkpoint.
    pub(super) fn restore(&mut self, fields: &mut Decoder<'_>, version: u8) -> Result<()> {
        self.stats = SummaryStats::take(fields, version)?;
        self.first_open = fields.u64()? as i64;
        for _ in 0..fields.varint()? {
            let (number, groups) = self.take_window(fields)?;
            for (group, states) in groups {
                if !self.insert(number, group, states)? {
                    return Err(Error::field("window", "each once", "one twice"));
                }
            }
        }
        let ended = if version >= VERSION_ENDED { fields.varint()? } else { 0 };
        for _ in 0..ended {
            let (number, groups) = self.take_window(fields)?;
            // Not counted: they go as soon as the pipeline has begun, and another one may have used their memory since.
            self.ended_groups += groups.len() as u64;
            self.ended.push_back((number, Opened { groups, bytes: 0 }));
        }
        self.note();
        // Other summaries need theirs, as when the checkpoint was made.
        self.account.fit();
        fields.end()
    }

    /// Reads the number and the groups of a window from a checkpoint.
    fn take_window(&self, fields: &mut Decoder<'_>) -> Result<(i64, Groups)> {
        let number = fields.u64()? as i64;
        if number.unsigned_abs() > TIME_MS_MAX as u64 {
            let expected = format!("at most {TIME_MS_MAX} from 0");
            return Err(Error::field("number of a window", expected, number));
        }
        let mut groups = Groups::with_hasher(GroupHash(self.seed));
        for _ in 0..fields.varint()? {
            let group: Box<[u8]> = fields.sized_bytes()?.into();
            decode_group(&group, self.summary.group_by.len())?;
            let mut states = Vec::with_capacity(self.inputs.len());
            for (column, (_, kind)) in self.summary.columns.iter().zip(&self.inputs) {
                states.push(State::take(&column.aggregate, *kind, fields)?);
            }
            if groups.insert(group, states.into()).is_some() {
                return Err(Error::field("group", "each once in a window", "one twice"));
            }
        }
        Ok((number, groups))
    }
}

/// Appends a window to a checkpoint.
fn put_window(out: &mut Vec<u8>, number: i64, Opened { groups, .. }: &Opened) {
    out.extend(number.to_le_bytes());
    put_varint(out, groups.len() as u64);
    for (group, states) in groups {
        put_bytes(out, group);
        states.iter().for_each(|state| state.put(out));
    }
}

/// Returns the number of sums whose result is null since they are beyond 64 bits.
fn overflows(summary: &Summary, groups: &Groups) -> u64 {
    let is_sum = |column: &Column| matches!(column.aggregate, Aggregate::Sum(_));
    if !summary.columns.iter().any(is_sum) {
        return 0;
    }
    let states = groups.values().flat_map(|states| states.iter());
    states.filter(|state| state.is_overflow()).count() as u64
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

/// Returns the memory of a group in bytes, as a budget counts it: its slot, its fields, and its states.
fn group_bytes(group: &[u8], states: &[State]) -> u64 {
    slot_bytes::<(Box<[u8]>, Box<[State]>)>()
        + (group.len() as u64 + ALLOCATION_BYTES)
        + (size_of_val(states) as u64 + ALLOCATION_BYTES)
        + states_bytes(states)
}

/// Returns the memory outside of the states themselves, in bytes.
fn states_bytes(states: &[State]) -> u64 {
    states.iter().map(State::bytes).sum()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::{Random as _, SeededRandom};

    /// A summary with a column of each kind, by the text of field 0.
    fn windows(memory: &MemoryBudget) -> Windows {
        let fields =
            [("user", FieldKind::Text), ("weight", FieldKind::Float), ("page", FieldKind::Text)];
        let fields = fields.map(|(name, kind)| Field::new(name, kind));
        let columns = vec![
            Column::new("events", Aggregate::Count),
            Column::new("sum", Aggregate::Sum(1)),
            Column::new("most", Aggregate::Max(1)),
            Column::new("pages", Aggregate::Distinct { field: 2, precision: 8 }),
            Column::new("top", Aggregate::Top { field: 2, count: 3 }),
            Column::new("middle", Aggregate::Quantiles { field: 1, at: vec![0.5] }),
            Column::new("bars", Aggregate::Histogram { field: 1, bounds: vec![0.0] }),
        ];
        let summary = Summary::new("all", columns).group_by(vec![0]).windows(1000, 100);
        Windows::new(summary, &fields, 1, memory)
    }

    /// Adds an event of some of 30 users and 500 pages.
    fn add(windows: &mut Windows, random: &SeededRandom, time: i64) {
        let below = |end| random.next_u64() % end;
        let mut events = Events::new(3);
        events.begin();
        events.set(0, Value::Text(format!("user{}", below(30) * below(30) / 30).as_bytes()));
        events.set(1, Value::Float(below(1_000_000) as f64 - 500.0));
        events.set(2, Value::Text("page".repeat(below(90) as usize).as_bytes()));
        events.end(time - below(200) as i64);
        windows.add(time, &events, 0);
    }

    /// Takes windows that have ended, none of which has a group without an event.
    fn hand_over(windows: &mut Windows) {
        while let Some((_, ended)) = windows.pop() {
            for states in ended.groups.values() {
                assert!(matches!(states[0], State::Count(1..)), "{states:?}");
            }
            windows.free(ended);
        }
    }

    /// Counts all groups anew.
    fn recounted(windows: &Windows) -> u64 {
        let ended = windows.ended.iter().map(|(_, opened)| opened);
        let groups = windows.open.values().chain(ended).flat_map(|opened| &opened.groups);
        groups.map(|(group, states)| group_bytes(group, states)).sum()
    }

    #[test]
    fn each_byte_of_a_group_is_counted_until_its_window_is_handed_over() {
        let (budget, random) = (MemoryBudget::unlimited(), SeededRandom::new(3));
        let mut windows = windows(&budget);
        for time in 0..8000 {
            add(&mut windows, &random, time);
            if time % 97 == 0 {
                assert_eq!(windows.stats().open_bytes, recounted(&windows));
                assert!(budget.reserved() >= windows.stats().open_bytes);
            }
            if time % 1700 == 0 {
                hand_over(&mut windows);
            }
        }
        windows.end();
        hand_over(&mut windows);
        assert_eq!(windows.stats().open_bytes, 0);
        drop(windows);
        assert_eq!(budget.reserved(), 0);
    }

    /// Budgets from less than a group to more than all: none is exceeded, each event is counted once, and no group is
    /// without an event.
    #[test]
    fn a_budget_is_never_exceeded() {
        let mut refused = Vec::new();
        for limit in [0, 1000, 10_000, 100_000, 1_000_000, 10_000_000] {
            let (budget, random) = (MemoryBudget::new(limit), SeededRandom::new(4));
            let mut windows = windows(&budget);
            for time in 0..5000 {
                add(&mut windows, &random, time);
                assert!(windows.stats().open_bytes <= budget.reserved());
                assert!(budget.reserved() <= limit);
                hand_over(&mut windows);
            }
            let stats = windows.stats();
            assert_eq!(stats.events + stats.late + stats.no_group, 5000);
            assert_eq!(stats.open_bytes, recounted(&windows));
            refused.push(stats.no_group);
        }
        assert!(refused.is_sorted_by(|a, b| a >= b), "{refused:?}");
        assert_eq!((refused[0] > 4700, refused[5]), (true, 0), "{refused:?}");
    }

    /// With all memory in use, groups whose states do not grow take further events.
    #[test]
    fn at_the_limit_events_that_need_no_memory_are_added() {
        let (budget, random) = (MemoryBudget::new(20_000), SeededRandom::new(5));
        let mut windows = windows(&budget);
        for time in 0..900 {
            add(&mut windows, &random, time);
            hand_over(&mut windows);
        }
        let before = windows.stats();
        assert!(before.no_group > 0 && before.open_groups > 0);
        let mut events = Events::new(3);
        events.begin();
        let group = windows.open.values().next().unwrap().groups.keys().next().unwrap().clone();
        let Value::Text(user) = decode_group(&group, 1).unwrap()[0] else { panic!("a text") };
        events.set(0, Value::Text(user));
        events.end(900);
        // Null in all other fields.
        windows.add(900, &events, 0);
        let after = windows.stats();
        assert_eq!((after.events, after.no_group), (before.events + 1, before.no_group));
    }
}
