//! Changes of data sets in memory: event loops collect them and make them at once, those of all connections together.

use super::{
    on_map::{KeyNames, change},
    values::{Room, ValueMemory},
};
use crate::{
    command::{
        Arguments, FilterEdit, Found, Run, WRONG_TYPE, Work, inside, new_keys, replaces,
        reply_bytes, turn_groups,
    },
    data::{
        FilterHome, FilterTurns, MemoryUnit, ServedMemory, Space, TOO_LONG, memory_write_failed,
    },
    protocol::{Protocol, Reply},
    transaction::Calls,
};
use hashfold::{Error, memory::Slot, run::VALUE_BYTES_MAX};
use std::{
    ops::Range,
    sync::{Arc, RwLockWriteGuard},
};

/// Requests of connections of one event loop that change one data set in memory.
#[derive(Debug)]
pub(super) struct MemoryGroup {
    pub(super) memory: Arc<ServedMemory>,
    pub(super) requests: Vec<MemoryRequest>,
    calls: Calls,
    /// Filters as the requests have seen them, each space once.
    seen: Vec<SeenFilters>,
}

/// The filters of a space at the moment at which keys were looked for among them.
#[derive(Debug)]
pub(super) struct SeenFilters {
    space: Arc<Space>,
    /// Number of times that keys had become filters.
    shown: u64,
}

impl SeenFilters {
    /// Returns what is there now, if keys of the space may become filters.
    pub(super) fn now(space: &Arc<Space>) -> Option<(&Arc<Space>, u64)> {
        space.home().map(|home| (space, home.shown()))
    }

    /// Whether keys have become filters since, or are about to.
    fn are_more(&self) -> bool {
        let are_more = |home: &FilterHome| home.shown() != self.shown || home.has_reserved();
        self.space.home().is_some_and(|home| are_more(home))
    }
}

/// The request of a connection.
#[derive(Debug)]
pub(super) struct MemoryRequest {
    /// The number of the connection's place, and of the connection.
    pub(super) place: usize,
    pub(super) id: u64,
    pub(super) protocol: Protocol,
    /// Whether the client wants no reply.
    pub(super) is_silent: bool,
    /// Whether its keys name their space, as in `people:{4711}`.
    pub(super) is_named: bool,
    /// The place of what it has seen of filters, if its keys may become some.
    pub(super) seen: Option<usize>,
}

/// Memory for the replies of requests that run alone, and the turns of commands on filters.
#[derive(Clone, Copy)]
pub(super) struct Resources<'a> {
    pub(super) values: &'a Arc<ValueMemory>,
    pub(super) turns: &'a FilterTurns,
}

/// The replies to the requests of a group.
#[derive(Debug)]
pub(super) struct MemoryReplies {
    output: Vec<u8>,
    /// The place of each reply in the output.
    places: Vec<Range<usize>>,
    /// The memory of the output.
    room: Room,
}

/// A change of one key that needs no other, so that many are made together.
#[derive(Clone, Copy, Debug)]
enum Quick<'a> {
    Append(&'a [u8]),
    Set(&'a [u8]),
    Delete,
}

impl<'a> Quick<'a> {
    /// Returns the change that a call makes, if it is one of these.
    fn of(found: Found, arguments: &Arguments<'a>) -> Option<Quick<'a>> {
        match (found.command.name, arguments.len()) {
            ("append", 3) => Some(Quick::Append(arguments.at(2))),
            ("set", 3) => Some(Quick::Set(arguments.at(2))),
            ("del" | "unlink", 2) => Some(Quick::Delete),
            _ => None,
        }
    }

    /// Makes the change, and writes the reply. Returns whether the value was changed.
    fn make(self, slot: &mut Slot<'_>, reply: &mut Reply<'_>) -> bool {
        let made = match self {
            Quick::Append(more) => slot.append(more).map(|size| (Some(size as i64), true)),
            Quick::Set(value) => slot.put(value).map(|_| (None, true)),
            Quick::Delete => slot.remove().map(|was_there| (Some(i64::from(was_there)), was_there)),
        };
        match made {
            Ok((Some(number), is_changed)) => {
                reply.integer(number);
                is_changed
            }
            Ok((None, is_changed)) => {
                reply.simple("OK");
                is_changed
            }
            Err(error) => {
                reply.error(&self.refusal(slot, &error));
                false
            }
        }
    }

    /// Returns the reply to a change that failed.
    fn refusal(self, slot: &Slot<'_>, error: &Error) -> String {
        let size = match self {
            Quick::Append(more) => slot.size().unwrap_or(0) + more.len(),
            Quick::Set(value) => value.len(),
            Quick::Delete => 0,
        };
        match size > VALUE_BYTES_MAX {
            true => TOO_LONG.into(),
            false => memory_write_failed(error),
        }
    }
}

impl MemoryGroup {
    pub(super) fn new(memory: Arc<ServedMemory>) -> MemoryGroup {
        MemoryGroup { memory, requests: Vec::new(), calls: Calls::default(), seen: Vec::new() }
    }

    /// Returns the number of requests.
    pub(super) fn count(&self) -> usize {
        self.requests.len()
    }

    /// Notes what a request has seen of filters, before it is added. Returns the place of that.
    pub(super) fn note_seen(&mut self, (space, shown): (&Arc<Space>, u64)) -> usize {
        let is_it = |seen: &SeenFilters| Arc::ptr_eq(&seen.space, space);
        self.seen.iter().position(is_it).unwrap_or_else(|| {
            self.seen.push(SeenFilters { space: space.clone(), shown });
            self.seen.len() - 1
        })
    }

    /// Adds a request.
    pub(super) fn push(&mut self, found: Found, arguments: &Arguments<'_>, request: MemoryRequest) {
        self.calls.push(found.number, arguments);
        self.requests.push(request);
    }

    /// Returns the command of a request, and its arguments.
    pub(super) fn command(&self, i: usize) -> (Found, Arguments<'_>) {
        self.calls.command(i)
    }

    /// Makes all changes, those of each connection in their order: changes of one key in a row together, and commands
    /// on several keys alone.
    pub(super) fn run(&self, resources: Resources<'_>) -> MemoryReplies {
        let count = self.count();
        let (output, places, room) = (Vec::new(), vec![0..0; count], Room::default());
        let mut replies = MemoryReplies { output, places, room };
        let mut next = 0;
        while next < count {
            let quick = self.quick_from(next);
            if quick.is_empty() {
                self.run_alone(next, resources, &mut replies);
                next += 1;
                continue;
            }
            let end = next + quick.len();
            if !self.run_together(next, &quick, &mut replies) {
                (next..end).for_each(|i| self.run_beside_filters(i, resources, &mut replies));
            }
            next = end;
        }
        replies
    }

    /// Whether a key of one of these requests has become a filter since the request was taken. Keys become none as long as
    /// the caller keeps commands on several keys from running.
    fn have_new_filters(&self, requests: Range<usize>) -> bool {
        self.seen.iter().any(SeenFilters::are_more)
            && requests.into_iter().any(|i| self.is_new_filter(i))
    }

    fn is_new_filter(&self, i: usize) -> bool {
        let (Some(space), (found, arguments)) = (self.space_of(i), self.command(i)) else {
            return false;
        };
        let is_named = self.requests[i].is_named;
        let keys = found.command.keys.places(arguments.len()).map(|at| arguments.at(at));
        let mut keys = keys.map(|key| if is_named { inside(key) } else { key });
        let is_reserved = |key| space.home().is_some_and(|home| home.is_reserved(key));
        keys.any(|key| space.filter(key).is_some() || is_reserved(key))
    }

    /// Returns the space of the keys of a request, if they may become filters.
    fn space_of(&self, i: usize) -> Option<&Arc<Space>> {
        self.requests[i].seen.map(|seen| &self.seen[seen].space)
    }

    /// Returns the keys and the changes of the requests from one on, up to the first that runs alone.
    fn quick_from(&self, first: usize) -> Vec<(&[u8], Quick<'_>)> {
        let changes = (first..self.count()).map_while(|i| {
            let (found, arguments) = self.command(i);
            let change = Quick::of(found, &arguments)?;
            let key = arguments.at(1);
            Some((if self.requests[i].is_named { inside(key) } else { key }, change))
        });
        changes.collect()
    }

    /// Makes changes together. Returns `false` and makes none if a key has become a filter.
    fn run_together(
        &self,
        first: usize,
        changes: &[(&[u8], Quick<'_>)],
        MemoryReplies { output, places, .. }: &mut MemoryReplies,
    ) -> bool {
        let together = self.memory.begin_together();
        if self.have_new_filters(first..first + changes.len()) {
            return false;
        }
        let keys: Vec<&[u8]> = changes.iter().map(|(key, _)| *key).collect();
        let protocol = |i: usize| self.requests[first + i].protocol;
        let made = self.memory.change_many(&together, &keys, |i, slot| {
            let (start, (key, change)) = (output.len(), changes[i]);
            let mut reply = Reply::new(output, protocol(i));
            let is_changed = match self.check_unseen(first + i, key, change) {
                Ok(()) => change.make(slot, &mut reply),
                Err(error) => {
                    reply.error(&error);
                    false
                }
            };
            places[first + i] = start..output.len();
            is_changed
        });
        if let Err(error) = made {
            for i in 0..keys.len() {
                let start = output.len();
                Reply::new(output, protocol(i)).error(&error);
                places[first + i] = start..output.len();
            }
        }
        true
    }

    /// Refuses to put a string where a filter is that the client does not see.
    fn check_unseen(&self, i: usize, key: &[u8], change: Quick<'_>) -> Result<(), String> {
        match self.requests[i].seen.is_some() || matches!(change, Quick::Delete) {
            true => Ok(()),
            false => self.memory.check_no_filter(key),
        }
    }

    fn run_alone(&self, i: usize, resources: Resources<'_>, replies: &mut MemoryReplies) {
        let alone = self.memory.begin_alone();
        if !self.have_new_filters(i..i + 1) {
            return self.run_one(i, None, (&alone, resources.values), replies);
        }
        // Turns are taken before.
        drop(alone);
        self.run_beside_filters(i, resources, replies);
    }

    /// Runs a request whose keys may have become filters since it was taken.
    #[cold]
    fn run_beside_filters(&self, i: usize, resources: Resources<'_>, replies: &mut MemoryReplies) {
        let (found, arguments) = self.command(i);
        let _turns = resources.turns.alone(turn_groups(found.command, &arguments));
        let new_keys = new_keys(found.command, &arguments);
        let _reserved = self.space_of(i).and_then(|space| space.reserve(new_keys));
        let alone = self.memory.begin_alone();
        self.run_one(i, self.space_of(i).cloned(), (&alone, resources.values), replies);
    }

    fn run_one(
        &self,
        i: usize,
        space: Option<Arc<Space>>,
        (alone, values): (&RwLockWriteGuard<'_, ()>, &Arc<ValueMemory>),
        replies: &mut MemoryReplies,
    ) {
        let (found, arguments) = self.command(i);
        let MemoryRequest { protocol, is_named, .. } = self.requests[i];
        let MemoryReplies { output, places, room } = replies;
        let start = output.len();
        let names = KeyNames { are_named: is_named, space };
        let mut reply = Reply::new(output, protocol);
        // Many commands return a value that they read: one without room for it changes nothing.
        let mut make_room = |size| room.reserve_beside(start, size, values);
        let done = make_room(reply_bytes(found.command))
            .and_then(|()| {
                let mut unit = self.memory.unit(alone).with_room(&mut make_room);
                unit.set_sees_filters(self.requests[i].seen.is_some());
                change_alone(unit, (found, &arguments), &names, &mut reply)
            })
            .and_then(FilterEdit::apply);
        if let Err(error) = done {
            output.truncate(start);
            Reply::new(output, protocol).error(&error);
        }
        places[i] = start..output.len();
    }
}

impl MemoryReplies {
    /// Returns the bytes of a reply.
    pub(super) fn of(&self, i: usize) -> &[u8] {
        &self.output[self.places[i].clone()]
    }
}

/// Runs a command that changes strings, and perhaps filters of the space of its keys, and writes its reply. Returns the
/// changes of filters, which are to be made.
///
/// # Errors
/// The reply: nothing was changed, or there was no memory for all changes.
pub(super) fn change_alone(
    mut unit: MemoryUnit<'_>,
    (found, arguments): (Found, &Arguments<'_>),
    names: &KeyNames,
    reply: &mut Reply<'_>,
) -> Result<FilterEdit, String> {
    let places = names.are_named.then(|| arguments.places_inside(found.command.keys));
    let arguments = places.as_ref().map_or(*arguments, |places| arguments.with_places(places));
    let keys = || found.command.keys.places(arguments.len()).map(|at| arguments.at(at));
    let is_of_strings = !matches!(found.command.run, Run::Keys(_));
    let mut filters = FilterEdit::new(names.space.clone());
    if is_of_strings && keys().any(|key| filters.get(key).is_some()) && !replaces(found, &arguments)
    {
        return Err(WRONG_TYPE.into());
    }
    // A string takes the place of a filter, unless that is one of the configuration.
    for key in keys().filter(|_| is_of_strings) {
        filters.remove(key)?;
    }
    change(&mut unit, (found, arguments), &mut filters, reply)?;
    unit.end()?;
    Ok(filters)
}

/// Begins a command that changes strings in memory and filters beside them. The groups of its keys are the caller's until
/// the work has ended.
pub(super) fn begin(
    memory: &Arc<ServedMemory>,
    (found, arguments): (Found, &Arguments<'_>),
    names: KeyNames,
    protocol: Protocol,
) -> Work {
    let (memory, mut calls) = (memory.clone(), Calls::default());
    calls.push(found.number, arguments);
    Box::new(move || {
        let mut output = Vec::new();
        let (found, arguments) = calls.command(0);
        let new_keys = new_keys(found.command, &arguments);
        let _reserved = names.space.as_ref().and_then(|space| space.reserve(new_keys));
        let done = {
            let alone = memory.begin_alone();
            let mut reply = Reply::new(&mut output, protocol);
            let mut unit = memory.unit(&alone);
            unit.set_sees_filters(names.see_filters());
            let changed = change_alone(unit, (found, &arguments), &names, &mut reply);
            if !changed.as_ref().is_ok_and(FilterEdit::renames) {
                // Only a new key of a filter must be visible before others put a string there.
                drop(alone);
            }
            changed.and_then(FilterEdit::apply)
        };
        Box::new(move |_, reply| match done {
            Ok(()) => reply.append(&output),
            Err(error) => reply.error(&error),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        command::{TABLE, word_places},
        data::{FilterChange, MemorySettings},
    };
    use hashfold::{Env, filter::FilterOptions, work::MemoryBudget};
    use std::path::Path;

    /// Returns a data set in memory, and a space that it shares with filters.
    fn data() -> (Arc<ServedMemory>, Arc<Space>) {
        let (env, budget) = (Env::simulated(1), MemoryBudget::unlimited());
        let settings = MemorySettings {
            path: None,
            load: None,
            memory_bytes: 8 << 20,
            is_writable: true,
            threads: 1,
        };
        let memory = ServedMemory::open("clicks", settings, (&env, &budget)).unwrap();
        let home = FilterHome::open(&env, Path::new("made"), 16 << 20, &budget).unwrap();
        (Arc::new(memory), Arc::new(Space::new(None, [], Some(Arc::new(home)))))
    }

    fn make_filter(space: &Space, key: &str) {
        let show = &|show: &mut dyn FnMut()| {
            show();
            Ok(true)
        };
        let made = space.make_filter(key.as_bytes(), FilterOptions::exact(), show).unwrap();
        made.keep().unwrap();
    }

    #[test]
    fn requests_that_have_missed_a_filter_run_beside_it() {
        let (memory, space) = data();
        for (lines, replies, is_filter) in [
            (&["SET g w", "SET k v"][..], "+OK\r\n+OK\r\n", false),
            (&["APPEND k v", "SET k v"], "-WRONG+OK\r\n", false),
            (&["APPEND k v", "DEL g"], "-WRONG:1\r\n", true),
            (&["MSET g w k v"], "+OK\r\n", false),
            (&["INCR k", "APPEND g w"], "-WRONG:2\r\n", true),
            (&["DEL k", "APPEND k v"], ":1\r\n:1\r\n", false),
        ] {
            let mut group = MemoryGroup::new(memory.clone());
            for line in lines {
                let places = word_places(line);
                let arguments = Arguments::new(line.as_bytes(), &places);
                let found = TABLE.find(&arguments).map_err(|_| *line).unwrap();
                let seen = SeenFilters::now(&space).map(|seen| group.note_seen(seen));
                let (protocol, is_silent, is_named) = (Protocol::Resp2, false, false);
                let request =
                    MemoryRequest { place: 0, id: 1, protocol, is_silent, is_named, seen };
                group.push(found, &arguments, request);
            }
            make_filter(&space, "k");
            let (values, turns) = (Arc::new(ValueMemory::new(1 << 20)), FilterTurns::default());
            let run = group.run(Resources { values: &values, turns: &turns });
            let got: String =
                (0..lines.len()).map(|i| String::from_utf8_lossy(run.of(i)).into_owned()).collect();
            let wrong_type = format!("-{WRONG_TYPE}\r\n");
            assert_eq!(got.replace(&wrong_type, "-WRONG"), replies, "{lines:?}");
            assert_eq!(space.filter(b"k").is_some(), is_filter, "{lines:?}");
            let mut is_string = false;
            memory
                .get_many(&["k"], |_, value| {
                    is_string = value.is_some();
                    Ok(())
                })
                .unwrap();
            assert_eq!(is_string, !is_filter, "{lines:?}");
            let home = space.home().unwrap();
            home.apply(&[FilterChange::Remove(b"k".to_vec())]).unwrap();
            let alone = memory.begin_alone();
            let mut unit = memory.unit(&alone);
            unit.delete(b"k");
            unit.end().unwrap();
        }
    }

    #[test]
    fn plain_changes_of_one_key_are_made_together() {
        let is_quick = |line: &str| {
            let places = word_places(line);
            let arguments = Arguments::new(line.as_bytes(), &places);
            let found = TABLE.find(&arguments).map_err(|_| line.to_owned()).unwrap();
            Quick::of(found, &arguments).is_some()
        };
        assert!(["append k v", "SET k v", "DEL k", "unlink k"].into_iter().all(is_quick));
        let others = ["SET k v GET", "SET k v EX 1", "DEL a b", "SETNX k v", "INCR k", "flushall"];
        assert!(!others.into_iter().any(is_quick));
    }
}
