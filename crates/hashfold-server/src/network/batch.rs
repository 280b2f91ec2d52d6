//! Lookups of many connections that are answered together.

use super::{
    on_map::MapGroup,
    on_memory::MemoryGroup,
    target::FoundFilter,
    values::{Room, ValueMemory},
};
use crate::{
    command::{Lookup, Needs, Value, Values},
    data::{ServedMap, ServedMemory, View},
};
use hashfold::{Error, ErrorClass, ErrorKind, Result};
use std::{ops::Range, sync::Arc};

/// Number of keys from which on a batch is full.
const KEYS_MAX: usize = 256;

/// The lookup of one request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The number of the connection's place, and of the connection.
    pub(super) place: usize,
    pub(super) id: u64,
    /// The number of the command.
    pub(super) command: usize,
    pub(super) lookup: Lookup,
    /// The range of its keys among those of the group.
    pub(super) keys: Range<usize>,
    /// Whether the client wants no reply.
    pub(super) is_silent: bool,
    /// Whether another server of the group has sent the client here, because it could not answer.
    pub(super) is_asking: bool,
}

/// Requests that look up keys in one view.
#[derive(Debug)]
pub(super) struct Group {
    /// `None` for users without a table or store.
    pub(super) view: Option<Arc<View>>,
    pub(super) requests: Vec<Request>,
    /// The bytes of all keys, one after the other, and where each ends.
    key_bytes: Vec<u8>,
    key_ends: Vec<usize>,
    /// Keys that are filters, with their places among the keys.
    filters: Vec<(usize, FoundFilter)>,
}

/// Requests that were not answered yet: lookups by view, and commands by map and by data set in memory.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) groups: Vec<Group>,
    pub(super) maps: Vec<MapGroup>,
    pub(super) memories: Vec<MemoryGroup>,
}

/// The group of a batch that has the requests of a connection: all of them, since groups are answered in no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupId {
    View(usize),
    Map(usize),
    Memory(usize),
}

impl Batch {
    /// Whether the batch takes no further request: the replies to one batch are written before the memory of all
    /// buffers is looked at.
    pub(super) fn is_full(&self) -> bool {
        let keys: usize = self.groups.iter().map(Group::keys).sum();
        let requests: usize = self.maps.iter().map(MapGroup::count).sum();
        let in_memory: usize = self.memories.iter().map(MemoryGroup::count).sum();
        keys + requests + in_memory >= KEYS_MAX
    }

    /// Whether the batch has no requests.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.maps.is_empty() && self.memories.is_empty()
    }

    /// Returns the number of the group of a map.
    pub(super) fn map(&mut self, map: &Arc<ServedMap>) -> usize {
        let is_it = |group: &MapGroup| Arc::ptr_eq(&group.map, map);
        self.maps.iter().position(is_it).unwrap_or_else(|| {
            self.maps.push(MapGroup::new(map.clone()));
            self.maps.len() - 1
        })
    }

    /// Returns the number of the group of a data set in memory.
    pub(super) fn memory(&mut self, memory: &Arc<ServedMemory>) -> usize {
        let is_it = |group: &MemoryGroup| Arc::ptr_eq(&group.memory, memory);
        self.memories.iter().position(is_it).unwrap_or_else(|| {
            self.memories.push(MemoryGroup::new(memory.clone()));
            self.memories.len() - 1
        })
    }

    /// Returns the number of the group of a view.
    pub(super) fn group(&mut self, view: Option<Arc<View>>) -> usize {
        let is_it = |group: &Group| group.is_of(view.as_ref());
        self.groups.iter().position(is_it).unwrap_or_else(|| {
            self.groups.push(Group::new(view));
            self.groups.len() - 1
        })
    }
}

impl Group {
    pub(super) fn new(view: Option<Arc<View>>) -> Group {
        Group {
            view,
            requests: Vec::new(),
            key_bytes: Vec::new(),
            key_ends: Vec::new(),
            filters: Vec::new(),
        }
    }

    /// Whether the group is that of a view.
    #[inline]
    pub(super) fn is_of(&self, view: Option<&Arc<View>>) -> bool {
        match (&self.view, view) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        }
    }

    /// Returns the number of keys.
    pub(super) fn keys(&self) -> usize {
        self.key_ends.len()
    }

    /// Adds a key.
    #[inline]
    pub(super) fn push_key(&mut self, key: &[u8]) {
        self.key_bytes.extend_from_slice(key);
        self.key_ends.push(self.key_bytes.len());
    }

    /// Notes that the key that was added last is a filter.
    pub(super) fn last_key_is_filter(&mut self, filter: FoundFilter) {
        self.filters.push((self.key_ends.len() - 1, filter));
    }

    fn key(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.key_ends[i - 1] };
        &self.key_bytes[start..self.key_ends[i]]
    }

    fn filter(&self, i: usize) -> Option<FoundFilter> {
        let found = self.filters.iter().find(|(place, _)| *place == i);
        found.map(|(_, filter)| *filter)
    }

    /// Whether the lookups wait for no device.
    pub(super) fn is_in_memory(&self) -> bool {
        self.view.as_ref().is_none_or(|view| view.is_in_memory())
    }

    /// Looks up all keys, and passes the group on with their values: as a whole, or request by request if
    /// the values together take too much memory.
    pub(super) fn answer(self, memory: &Arc<ValueMemory>, pass: &mut dyn FnMut(Group, Answers)) {
        let answers = self.look_up(memory);
        if answers.too_large.is_none() || self.requests.len() == 1 {
            return pass(self, answers);
        }
        drop(answers);
        for request in &self.requests {
            let alone = self.part(std::slice::from_ref(request));
            let answers = alone.look_up(memory);
            pass(alone, answers);
        }
    }

    /// Refuses all requests, without a look at their keys.
    pub(super) fn refuse(self, error: &str, pass: &mut dyn FnMut(Group, Answers)) {
        let mut answers = Answers::default();
        (0..self.keys()).for_each(|_| answers.places.push(Place::Error(0)));
        answers.errors.push(error.into());
        pass(self, answers);
    }

    /// Splits the group into parts of this number of keys or a few more. All requests of a connection are
    /// in one part, since parts are answered in no order.
    pub(super) fn in_parts(self, keys: usize) -> Vec<Group> {
        if self.keys() <= keys {
            return vec![self];
        }
        let mut parts = Vec::new();
        let (mut start, mut count) = (0, 0);
        for (i, request) in self.requests.iter().enumerate() {
            let is_other = i > start && request.place != self.requests[i - 1].place;
            if is_other && count >= keys {
                parts.push(self.part(&self.requests[start..i]));
                (start, count) = (i, 0);
            }
            count += request.keys.len();
        }
        parts.push(self.part(&self.requests[start..]));
        parts
    }

    /// Returns a group that has some of the requests.
    fn part(&self, requests: &[Request]) -> Group {
        let mut part = Group::new(self.view.clone());
        for request in requests {
            let first = part.keys();
            for i in request.keys.clone() {
                part.push_key(self.key(i));
                self.filter(i).into_iter().for_each(|filter| part.last_key_is_filter(filter));
            }
            part.requests.push(Request { keys: first..part.keys(), ..*request });
        }
        part
    }

    /// Looks up all keys. If their values together take too much memory, all fail.
    pub(super) fn look_up(&self, memory: &Arc<ValueMemory>) -> Answers {
        let _reading = self.view.as_ref().map(|view| view.begin_reading(self.keys_of_one()));
        self.look_up_now(memory)
    }

    /// Looks up all keys for a transaction, beside which nothing changes its data sets in memory.
    pub(super) fn look_up_alone(&self, memory: &Arc<ValueMemory>) -> Answers {
        match self.view.as_ref().is_some_and(|view| view.memory().is_some()) {
            true => self.look_up_now(memory),
            false => self.look_up(memory),
        }
    }

    /// Looks up all keys, as [`Group::look_up`] does, unless that has to wait for changes of a map.
    pub(super) fn try_look_up(&self, memory: &Arc<ValueMemory>) -> Option<Answers> {
        let _reading = match &self.view {
            Some(view) => Some(view.try_begin_reading(self.keys_of_one())?),
            None => None,
        };
        Some(self.look_up_now(memory))
    }

    /// Returns the largest number of keys that a request has.
    fn keys_of_one(&self) -> usize {
        self.requests.iter().map(|request| request.keys.len()).max().unwrap_or(0)
    }

    /// Returns what is needed of the value of each key; nothing if all are needed as a whole.
    fn parts(&self) -> Vec<Part> {
        let needs = |request: &Request| request.lookup.needs();
        if self.requests.iter().all(|request| needs(request) == Needs::All) {
            return Vec::new();
        }
        let mut parts = vec![Part { needs: Needs::All, size: 0 }; self.keys()];
        for request in &self.requests {
            parts[request.keys.clone()].fill(Part { needs: needs(request), size: 0 });
        }
        parts
    }

    fn look_up_now(&self, memory: &Arc<ValueMemory>) -> Answers {
        let places = vec![Place::Absent; self.keys()];
        let mut answers = Answers { places, parts: self.parts(), ..Answers::default() };
        let Some(view) = &self.view else { return answers.with_filters(&self.filters) };
        let keys: Vec<&[u8]> = (0..self.keys()).map(|i| self.key(i)).collect();
        if let Some(data) = view.memory().filter(|_| !answers.parts.is_empty()) {
            answers.put_parts(view, data, &keys, memory);
            return answers.with_filters(&self.filters);
        }
        let mut seen = vec![false; keys.len()];
        let looked_up = view.get_many(&keys, &mut |i, stored| {
            seen[i] = true;
            answers.put(i, view, stored, memory);
            answers.go_on()
        });
        if looked_up.is_err() {
            // Keys of undamaged tables were answered. The others are asked one by one, so that each gets
            // its own error.
            let left = (0..keys.len()).filter(|i| !seen[*i]);
            left.for_each(|i| answers.ask(i, view, keys[i], memory));
        }
        answers.fail_if_too_large();
        answers.with_filters(&self.filters)
    }
}

/// Maximum number of bytes of values that are kept at once, beside one value that has more.
pub(super) const VALUES_BYTES_MAX: usize = 64 << 20;

/// The reply to a request whose values have more bytes.
pub(super) const TOO_LARGE: &str =
    "ERR the values of one request have at most 64 MiB; ask for fewer keys at once";

/// The values of the keys of a group.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// Parts that are needed of the values; empty if all are needed as a whole.
    parts: Vec<Part>,
    /// The error reply if there was no room for a value.
    too_large: Option<String>,
    room: Room,
    places: Vec<Place>,
    bytes: Vec<u8>,
    errors: Vec<String>,
}

/// A part that is needed of a value.
#[derive(Clone, Copy, Debug)]
struct Part {
    needs: Needs,
    /// The size of the value as clients get it, in bytes.
    size: usize,
}

/// The place of a value, or of the part of it that is needed.
#[derive(Clone, Debug)]
enum Place {
    Absent,
    At(usize, usize),
    Filter(&'static str),
    Error(usize),
}

impl Answers {
    #[inline]
    fn put(&mut self, i: usize, view: &View, stored: Option<&[u8]>, memory: &Arc<ValueMemory>) {
        let Some(stored) = stored else { return };
        match self.parts.is_empty() {
            true => self.keep(i, view, stored, memory),
            false => self.put_part(i, view, stored, memory),
        }
    }

    /// Looks up the parts of values in memory that are needed, and no other bytes of long values.
    fn put_parts(
        &mut self,
        view: &View,
        data: &ServedMemory,
        keys: &[&[u8]],
        memory: &Arc<ValueMemory>,
    ) {
        let (needs, is_plain): (Vec<_>, _) =
            (self.parts.iter().map(|part| part.needs).collect(), view.is_plain());
        // Clients get a row as text, of which a part is known when all of it is there.
        let part = |i: usize, size| match is_plain || needs[i] == Needs::Nothing {
            true => needs[i].range(size),
            false => 0..size,
        };
        let stopped = data.get_parts(keys, part, |i, found| {
            match found {
                Some((part, size)) if is_plain => {
                    self.parts[i].size = size;
                    self.keep(i, view, part, memory);
                }
                Some((stored, _)) => self.put_part(i, view, stored, memory),
                None => {}
            }
            self.go_on()
        });
        debug_assert!(stopped.is_ok() || self.too_large.is_some());
        self.fail_if_too_large();
    }

    /// Ends a lookup after a value for which there is no room: nothing is read in vain.
    fn go_on(&self) -> Result<()> {
        if self.too_large.is_some() { Err(ErrorKind::Stopped.into()) } else { Ok(()) }
    }

    /// Lets all keys fail if there was no room for a value.
    fn fail_if_too_large(&mut self) {
        if let Some(error) = self.too_large.clone() {
            (0..self.places.len()).for_each(|i| self.fail_with(i, error.clone()));
        }
    }

    /// Keeps the part of a value that is needed.
    fn put_part(&mut self, i: usize, view: &View, stored: &[u8], memory: &Arc<ValueMemory>) {
        let (needs, start) = (self.parts[i].needs, self.bytes.len());
        if needs == Needs::Nothing {
            self.places[i] = Place::At(start, start);
            return;
        }
        if view.is_plain() {
            self.parts[i].size = stored.len();
            return self.keep(i, view, &stored[needs.range(stored.len())], memory);
        }
        // Clients get a row as text, whose size is known when all of it is there.
        self.keep(i, view, stored, memory);
        if let Place::At(start, end) = self.places[i] {
            let part = needs.range(end - start);
            self.parts[i].size = end - start;
            self.bytes.copy_within(start + part.start..start + part.end, start);
            self.bytes.truncate(start + part.len());
            self.places[i] = Place::At(start, start + part.len());
        }
    }

    /// Keeps a value.
    #[inline]
    fn keep(&mut self, i: usize, view: &View, stored: &[u8], memory: &Arc<ValueMemory>) {
        let start = self.bytes.len();
        if start + stored.len() > self.room.bytes() && !self.make_room(stored.len(), memory) {
            return;
        }
        match view.show(stored, &mut self.bytes) {
            Ok(()) => self.places[i] = Place::At(start, self.bytes.len()),
            Err(error) => {
                self.bytes.truncate(start);
                self.fail(i, view, &error);
            }
        }
    }

    /// Makes room for a value. Returns whether there is as much.
    #[cold]
    fn make_room(&mut self, size: usize, memory: &Arc<ValueMemory>) -> bool {
        let all = self.bytes.len() + size;
        let grown = match all > VALUES_BYTES_MAX && all > size {
            true => Err(TOO_LARGE.to_owned()),
            false => self.room.grow(all, memory),
        };
        self.too_large = grown.err();
        self.too_large.is_none()
    }

    /// Looks up one key, unless all will fail.
    #[cold]
    fn ask(&mut self, i: usize, view: &View, key: &[u8], memory: &Arc<ValueMemory>) {
        if self.too_large.is_some() {
            return;
        }
        let asked = view.get_with(key, &mut |stored| self.put(i, view, stored, memory));
        if let Err(error) = asked {
            if error.class() == ErrorClass::Damage {
                view.note_damage();
            }
            self.fail(i, view, &error);
        }
    }

    #[cold]
    fn fail(&mut self, i: usize, view: &View, error: &Error) {
        view.note_failed_read();
        let code = if error.class() == ErrorClass::Damage { "DAMAGED" } else { "ERR" };
        self.fail_with(i, format!("{code} {error}"));
    }

    #[cold]
    fn fail_with(&mut self, i: usize, message: String) {
        self.places[i] = Place::Error(self.errors.len());
        self.errors.push(message);
    }

    fn with_filters(mut self, filters: &[(usize, FoundFilter)]) -> Answers {
        filters.iter().for_each(|(i, filter)| self.places[*i] = Place::Filter(filter.kind));
        self
    }

    /// Returns the values of a request's keys.
    pub(super) fn of<'a>(&'a self, group: &'a Group, keys: Range<usize>) -> Answer<'a> {
        Answer { answers: self, group, keys }
    }
}

/// The values of one request's keys.
pub(super) struct Answer<'a> {
    answers: &'a Answers,
    group: &'a Group,
    keys: Range<usize>,
}

impl Answer<'_> {
    /// Returns the number of keys that were found, and of those that were not.
    pub(super) fn hits_and_misses(&self) -> (u64, u64) {
        let absent = self.answers.places[self.keys.clone()].iter();
        let absent = absent.filter(|place| matches!(place, Place::Absent)).count() as u64;
        (self.keys.len() as u64 - absent, absent)
    }

    /// Whether the value of any key could not be read.
    pub(super) fn is_failed(&self) -> bool {
        let mut places = self.answers.places[self.keys.clone()].iter();
        places.any(|place| matches!(place, Place::Error(_)))
    }
}

impl Values for Answer<'_> {
    fn count(&self) -> usize {
        self.keys.len()
    }

    fn key(&self, i: usize) -> &[u8] {
        self.group.key(self.keys.start + i)
    }

    #[inline]
    fn value(&self, i: usize) -> Value<'_> {
        let answers = self.answers;
        match answers.places[self.keys.start + i] {
            Place::Absent => Value::Absent,
            Place::At(start, end) => Value::Present(&answers.bytes[start..end]),
            Place::Filter(kind) => Value::Filter(kind),
            Place::Error(error) => Value::Failed(&answers.errors[error]),
        }
    }

    fn size(&self, i: usize) -> usize {
        let answers = self.answers;
        match (&answers.places[self.keys.start + i], answers.parts.get(self.keys.start + i)) {
            (_, Some(part)) => part.size,
            (Place::At(start, end), None) => end - start,
            (Place::Absent | Place::Filter(_) | Place::Error(_), None) => 0,
        }
    }

    fn expiry(&self, i: usize) -> (Option<u64>, u64) {
        self.group.filter(self.keys.start + i).map_or((None, 0), |filter| filter.expiry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a group of requests, each of a connection and with this number of keys.
    fn group(requests: &[(usize, usize)]) -> Group {
        let mut group = Group::new(None);
        for (i, (place, keys)) in requests.iter().enumerate() {
            let first = group.keys();
            (0..*keys).for_each(|key| group.push_key(format!("{i} {key}").as_bytes()));
            group.requests.push(Request {
                place: *place,
                id: i as u64,
                command: 0,
                lookup: Lookup::Get,
                keys: first..group.keys(),
                is_silent: false,
                is_asking: false,
            });
        }
        group
    }

    #[test]
    fn parts_have_all_requests_of_a_connection_in_order() {
        let requests = [(0, 1), (0, 1), (0, 1), (1, 9), (2, 1), (3, 1), (3, 1), (4, 2), (5, 1)];
        for keys in 1..20 {
            let parts = group(&requests).in_parts(keys);
            let mut next = 0;
            for part in &parts {
                for request in &part.requests {
                    assert_eq!(request.id, next);
                    let keys = request.keys.clone();
                    assert_eq!(keys.len(), requests[next as usize].1);
                    for (key, i) in keys.enumerate() {
                        assert_eq!(part.key(i), format!("{next} {key}").as_bytes());
                    }
                    next += 1;
                }
            }
            assert_eq!(next, requests.len() as u64);
            let ends = parts.iter().map(|part| part.requests.last().unwrap().place);
            let starts = parts.iter().skip(1).map(|part| part.requests[0].place);
            assert!(ends.zip(starts).all(|(end, start)| end != start), "{keys}");
            assert!(parts.iter().rev().skip(1).all(|part| part.keys() >= keys), "{keys}");
        }
        assert_eq!(group(&requests).in_parts(1).len(), 6);
        assert_eq!(group(&requests).in_parts(18).len(), 1);
    }
}
