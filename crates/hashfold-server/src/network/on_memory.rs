//! Changes of data sets in memory: event loops collect them and make them at once, those of all connections together.

use super::{
    on_map::{KeyNames, change},
    values::{Room, ValueMemory},
};
use crate::{
    command::{Arguments, FilterEdit, Found, Run, WRONG_TYPE, Work, inside, replaces},
    data::{MemoryUnit, ServedMemory, TOO_LONG, memory_write_failed},
    protocol::{Protocol, Reply},
    transaction::Calls,
};
use hashfold::{Error, memory::Slot, run::VALUE_BYTES_MAX};
use std::{ops::Range, sync::Arc};

/// Requests of connections of one event loop that change one data set in memory.
#[derive(Debug)]
pub(super) struct MemoryGroup {
    pub(super) memory: Arc<ServedMemory>,
    pub(super) requests: Vec<MemoryRequest>,
    calls: Calls,
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
        MemoryGroup { memory, requests: Vec::new(), calls: Calls::default() }
    }

    /// Returns the number of requests.
    pub(super) fn count(&self) -> usize {
        self.requests.len()
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
    pub(super) fn run(&self, values: &Arc<ValueMemory>) -> MemoryReplies {
        let count = self.count();
        let (output, places, room) = (Vec::new(), vec![0..0; count], Room::default());
        let mut replies = MemoryReplies { output, places, room };
        let mut next = 0;
        while next < count {
            let quick = self.quick_from(next);
            if quick.is_empty() {
                self.run_alone(next, values, &mut replies);
                next += 1;
            } else {
                self.run_together(next, &quick, &mut replies);
                next += quick.len();
            }
        }
        replies
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

    fn run_together(
        &self,
        first: usize,
        changes: &[(&[u8], Quick<'_>)],
        MemoryReplies { output, places, .. }: &mut MemoryReplies,
    ) {
        let keys: Vec<&[u8]> = changes.iter().map(|(key, _)| *key).collect();
        let protocol = |i: usize| self.requests[first + i].protocol;
        let made = self.memory.change_many(&keys, |i, slot| {
            let start = output.len();
            let is_changed = changes[i].1.make(slot, &mut Reply::new(output, protocol(i)));
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
    }

    fn run_alone(&self, i: usize, values: &Arc<ValueMemory>, replies: &mut MemoryReplies) {
        let (found, arguments) = self.command(i);
        let MemoryRequest { protocol, is_named, .. } = self.requests[i];
        let MemoryReplies { output, places, room } = replies;
        let start = output.len();
        let alone = self.memory.begin_alone();
        let unit = self.memory.unit(&alone);
        let names = KeyNames { are_named: is_named, space: None };
        let mut reply = Reply::new(output, protocol);
        // Many commands return the value before: one without room for it changes nothing.
        let done = room
            .reserve_beside(start, old_bytes(&unit, (found, &arguments), &names), values)
            .and_then(|()| change_alone(unit, (found, &arguments), &names, &mut reply))
            .and_then(FilterEdit::apply);
        if let Err(error) = done {
            output.truncate(start);
            Reply::new(output, protocol).error(&error);
        }
        places[i] = start..output.len();
    }
}

/// Returns the size of the value that a call reads first, in bytes.
fn old_bytes(
    unit: &MemoryUnit<'_>,
    (found, arguments): (Found, &Arguments<'_>),
    names: &KeyNames,
) -> usize {
    let Some(at) = found.command.keys.places(arguments.len()).next() else { return 0 };
    let key = arguments.at(at);
    unit.size_before(if names.are_named { inside(key) } else { key })
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
        let changed = {
            let alone = memory.begin_alone();
            let mut reply = Reply::new(&mut output, protocol);
            let (found, arguments) = calls.command(0);
            change_alone(memory.unit(&alone), (found, &arguments), &names, &mut reply)
        };
        let done = changed.and_then(FilterEdit::apply);
        Box::new(move |_, reply| match done {
            Ok(()) => reply.append(&output),
            Err(error) => reply.error(&error),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{TABLE, word_places};

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
