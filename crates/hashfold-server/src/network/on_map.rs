//! Commands on maps: event loops collect them, and the thread of the map runs them, those of all connections
//! together.

use super::{
    batch::{TOO_LARGE, VALUES_BYTES_MAX},
    exec::{Executed, Execution},
    jobs::{Finished, Results},
    target::FoundFilter,
    values::{Room, ValueMemory},
};
use crate::{
    command::{
        Arguments, FilterEdit, Found, KeyCall, Lookup, Run, StringCall, Strings, TABLE, Value,
        Values, WRONG_TYPE, inside, new_keys, reads, replaces, turn_groups,
    },
    data::{FilterTurns, MapWork, Outcome, ServedMap, Space, State, Unit, Watch},
    protocol::{Protocol, Reply},
    shared::Shared,
    transaction::Calls,
};
use hashfold::map::Expiring;
use std::{ops::Range, sync::Arc, time::Duration};

/// Requests of connections of one event loop on one map.
#[derive(Debug)]
pub(super) struct MapGroup {
    pub(super) map: Arc<ServedMap>,
    requests: Vec<MapRequest>,
    calls: Calls,
}

/// The request of a connection.
#[derive(Debug)]
pub(super) struct MapRequest {
    /// The number of the connection's place, and of the connection.
    pub(super) place: usize,
    pub(super) id: u64,
    pub(super) protocol: Protocol,
    /// Whether the client wants no reply.
    pub(super) is_silent: bool,
    pub(super) keys: KeyNames,
}

/// What is known about the keys of a call besides their bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyNames {
    /// Whether they name their space, as in `people:{4711}`.
    pub(super) are_named: bool,
    /// Their space, if they may be filters.
    pub(super) space: Option<Arc<Space>>,
}

impl KeyNames {
    /// Returns the filter that a key is at this moment.
    fn filter(&self, key: &[u8]) -> Option<FoundFilter> {
        FoundFilter::of(self.space.as_ref()?, key)
    }

    /// Whether the client sees the filters that clients make.
    pub(super) fn see_filters(&self) -> bool {
        self.space.as_ref().is_some_and(|space| space.home().is_some())
    }

    /// Whether a filter is about to get this key.
    fn is_reserved(&self, key: &[u8]) -> bool {
        let home = self.space.as_ref().and_then(|space| space.home());
        home.is_some_and(|home| home.is_reserved(key))
    }
}

impl MapGroup {
    pub(super) fn new(map: Arc<ServedMap>) -> MapGroup {
        MapGroup { map, requests: Vec::new(), calls: Calls::default() }
    }

    /// Returns the number of requests.
    pub(super) fn count(&self) -> usize {
        self.requests.len()
    }

    /// Returns the memory of the requests, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.calls.bytes()
    }

    /// Returns the places of the connections, once for each request.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.requests.iter().map(|request| request.place)
    }

    /// Adds a request.
    pub(super) fn push(&mut self, found: Found, arguments: &Arguments<'_>, request: MapRequest) {
        self.calls.push(found.number, arguments);
        self.requests.push(request);
    }

    /// Gives the requests to the thread of the map.
    pub(super) fn submit(self, shared: &Shared, results: Results) {
        let MapGroup { map, requests, calls } = self;
        map.submit(Box::new(MapJob {
            requests,
            calls,
            start: shared.now(),
            turns: shared.turns.clone(),
            output: Vec::new(),
            room: Room::default(),
            values: shared.values.clone(),
            replies: Vec::new(),
            results,
        }));
    }
}

/// Requests that the thread of a map runs.
#[derive(Debug)]
pub(super) struct MapJob {
    pub(super) requests: Vec<MapRequest>,
    pub(super) calls: Calls,
    /// The time of their turn.
    pub(super) start: Duration,
    turns: Arc<FilterTurns>,
    output: Vec<u8>,
    /// The memory of the output.
    room: Room,
    values: Arc<ValueMemory>,
    pub(super) replies: Vec<MapReply>,
    results: Results,
}

/// The reply to a request.
#[derive(Debug, Default)]
pub(super) struct MapReply {
    unit: u64,
    bytes: Range<usize>,
    pub(super) done: Done,
}

/// What a command has led to besides its reply.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Number of keys that were looked up and found, and of those that were not.
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// Keys that are watched from now on.
    pub(super) watches: Vec<Arc<Watch>>,
}

impl MapJob {
    /// Returns the bytes of a reply.
    pub(super) fn reply(&self, i: usize) -> &[u8] {
        &self.output[self.replies[i].bytes.clone()]
    }

    fn run_one(&mut self, i: usize, state: &mut State) {
        let (found, arguments) = self.calls.command(i);
        let request = &self.requests[i];
        let start = self.output.len();
        let mut unit = state.unit();
        let mut reply = Reply::new(&mut self.output, request.protocol);
        let turns = Turns::Take(&self.turns);
        let called = call(&mut unit, (found, &arguments), (&request.keys, turns), &mut reply);
        // A command whose reply has no room changes nothing.
        let ended = called.and_then(|done| {
            self.room.reserve(self.output.len(), &self.values)?;
            Ok((unit.end()?, done))
        });
        let (unit, done) = ended.unwrap_or_else(|error| {
            self.output.truncate(start);
            self.output.shrink_to(self.room.bytes());
            Reply::new(&mut self.output, request.protocol).error(&error);
            // What is refused by itself has no further error.
            (u64::MAX, Done::default())
        });
        self.replies.push(MapReply { unit, bytes: start..self.output.len(), done });
    }
}

impl MapWork for MapJob {
    fn keys(&self, visit: &mut dyn FnMut(&[u8])) {
        for (request, (found, arguments)) in self.requests.iter().zip(self.calls.all()) {
            visit_read(found, &arguments, request.keys.are_named, visit);
        }
    }

    fn clients(&self) -> usize {
        // The requests of a connection follow each other.
        self.requests.chunk_by(|a, b| a.place == b.place).count()
    }

    fn run(&mut self, state: &mut State) {
        (0..self.requests.len()).for_each(|i| self.run_one(i, state));
    }

    fn finish(mut self: Box<Self>, outcome: &Outcome) {
        // Work that was not run has no replies yet.
        self.replies.resize_with(self.requests.len(), MapReply::default);
        for (request, reply) in self.requests.iter().zip(&mut self.replies) {
            if let Some(error) = outcome.failure(reply.unit) {
                let start = self.output.len();
                Reply::new(&mut self.output, request.protocol).error(error);
                *reply = MapReply { bytes: start..self.output.len(), ..MapReply::default() };
            }
        }
        let results = self.results.clone();
        results.put(Finished::Map(self));
    }
}

/// Calls `visit` with the keys whose values a call reads.
fn visit_read(
    found: Found,
    arguments: &Arguments<'_>,
    are_named: bool,
    visit: &mut dyn FnMut(&[u8]),
) {
    if reads(found, arguments) {
        for key in found.command.keys.places(arguments.len()).map(|at| arguments.at(at)) {
            visit(if are_named { inside(key) } else { key });
        }
    }
}

/// How a command that changes filters gets them for itself.
#[derive(Clone, Copy)]
pub(super) enum Turns<'a> {
    /// Other commands on the filters wait from now on.
    Take(&'a FilterTurns),
    /// They wait already.
    Taken,
}

/// Runs a command on a map, and writes its reply.
///
/// # Errors
/// The reply; nothing was changed.
pub(super) fn call(
    unit: &mut Unit<'_>,
    (found, arguments): (Found, &Arguments<'_>),
    (keys, turns): (&KeyNames, Turns<'_>),
    reply: &mut Reply<'_>,
) -> Result<Done, String> {
    let places = keys.are_named.then(|| arguments.places_inside(found.command.keys));
    let arguments = places.as_ref().map_or(*arguments, |places| arguments.with_places(places));
    match found.command.run {
        Run::Change(_) | Run::ChangeOrLookup(..) | Run::Keys(_) => {
            unit.set_sees_filters(keys.see_filters());
            let mut places = found.command.keys.places(arguments.len()).map(|at| arguments.at(at));
            let is_filter = places.any(|key| keys.filter(key).is_some() || keys.is_reserved(key));
            let is_of_all = keys.space.is_some() && found.command.keys.count(arguments.len()) == 0;
            unit.attempt(|unit| match is_filter || is_of_all {
                true => change_with_filters(unit, (found, arguments), (keys, turns), reply),
                false => change(unit, (found, arguments), &mut FilterEdit::new(None), reply),
            })?;
            Ok(Done::default())
        }
        Run::Lookup(parse) => look_up(unit, parse(&arguments)?, (found, &arguments), keys, reply),
        _ => {
            let all = found.command.keys.places(arguments.len()).map(|at| arguments.at(at));
            let watches: Result<_, String> = all.map(|key| unit.watch(key).map(Arc::new)).collect();
            reply.simple("OK");
            Ok(Done { watches: watches?, ..Done::default() })
        }
    }
}

/// Runs a command that changes keys.
///
/// # Errors
/// The reply.
pub(super) fn change(
    strings: &mut dyn Strings,
    (found, arguments): (Found, Arguments<'_>),
    filters: &mut FilterEdit,
    reply: &mut Reply<'_>,
) -> Result<(), String> {
    let name = TABLE.full_name(found.number);
    match found.command.run {
        Run::Change(change) | Run::ChangeOrLookup(change, _) => {
            change(&mut StringCall { name, arguments, strings, reply })
        }
        Run::Keys(run) => run(&mut KeyCall { name, arguments, strings, filters, reply }),
        _ => unreachable!("the caller runs others"),
    }
}

/// Runs a command that changes keys, some of which are filters. Filters are changed at once, strings with the
/// other changes of the unit: a crash in between leaves only those of the filters.
fn change_with_filters(
    unit: &mut Unit<'_>,
    (found, arguments): (Found, Arguments<'_>),
    (keys, turns): (&KeyNames, Turns<'_>),
    reply: &mut Reply<'_>,
) -> Result<(), String> {
    let is_of_strings = matches!(found.command.run, Run::Change(_) | Run::ChangeOrLookup(..));
    let needs_string = is_of_strings && !replaces(found, &arguments);
    let all = || found.command.keys.places(arguments.len()).map(|at| arguments.at(at));
    let are_wrong = || needs_string && all().any(|key| keys.filter(key).is_some());
    if are_wrong() {
        return Err(WRONG_TYPE.into());
    }
    let _turns = match turns {
        Turns::Take(turns) => {
            // Makers of filters have their turns while they wait for the map's thread.
            unit.pause()?;
            let turns = turns.alone(turn_groups(found.command, &arguments));
            let new_keys = new_keys(found.command, &arguments);
            let reserved = keys.space.as_ref().and_then(|space| space.reserve(new_keys));
            unit.go_on();
            (turns, reserved)
        }
        Turns::Taken => (Vec::new(), None),
    };
    // A filter may have got a reserved key.
    if are_wrong() {
        return Err(WRONG_TYPE.into());
    }
    let mut filters = FilterEdit::new(keys.space.clone());
    let changed = change(unit, (found, arguments), &mut filters, reply).and_then(|()| {
        for key in all().filter(|_| is_of_strings) {
            filters.remove(key)?;
        }
        if filters.is_changed() { unit.check_durable() } else { Ok(()) }
    });
    changed.and_then(|()| filters.apply())
}

fn look_up(
    unit: &mut Unit<'_>,
    lookup: Lookup,
    (found, arguments): (Found, &Arguments<'_>),
    names: &KeyNames,
    reply: &mut Reply<'_>,
) -> Result<Done, String> {
    let places = found.command.keys.places(arguments.len());
    let keys: Vec<&[u8]> = places.map(|at| arguments.at(at)).collect();
    unit.load(&keys);
    let (mut done, mut found, mut bytes) = (Done::default(), Vec::new(), 0);
    for (i, key) in keys.iter().enumerate() {
        let one = match (names.filter(key), unit.get(key)) {
            (Some(filter), _) => One::Filter(filter),
            (None, Err(error)) => One::Failed(error),
            (None, Ok(None)) => One::Absent,
            (None, Ok(Some(Expiring { value, expires_at }))) => One::Present {
                part: value[lookup.needs().range(value.len())].to_vec(),
                size: value.len(),
                expires_at: *expires_at,
            },
        };
        match &one {
            One::Absent => done.misses += 1,
            One::Present { part, .. } => bytes += part.len(),
            One::Filter(_) | One::Failed(_) => {}
        }
        if i > 0 && bytes > VALUES_BYTES_MAX {
            return Err(TOO_LARGE.into());
        }
        found.push(one);
    }
    done.hits = keys.len() as u64 - done.misses;
    lookup.reply(&UnitValues { keys, found, now_ms: unit.now_ms() }, reply);
    Ok(done)
}

/// The values of the keys of a lookup in a map.
struct UnitValues<'a> {
    keys: Vec<&'a [u8]>,
    found: Vec<One>,
    now_ms: u64,
}

/// What was found for a key.
enum One {
    Absent,
    /// The bytes that the lookup needs of a value, and the size of the value.
    Present {
        part: Vec<u8>,
        size: usize,
        expires_at: Option<u64>,
    },
    Filter(FoundFilter),
    Failed(String),
}

impl Values for UnitValues<'_> {
    fn count(&self) -> usize {
        self.keys.len()
    }

    fn key(&self, i: usize) -> &[u8] {
        self.keys[i]
    }

    fn value(&self, i: usize) -> Value<'_> {
        match &self.found[i] {
            One::Absent => Value::Absent,
            One::Present { part, .. } => Value::Present(part),
            One::Filter(filter) => Value::Filter(filter.kind),
            One::Failed(error) => Value::Failed(error),
        }
    }

    fn size(&self, i: usize) -> usize {
        match &self.found[i] {
            One::Present { size, .. } => *size,
            One::Absent | One::Filter(_) | One::Failed(_) => 0,
        }
    }

    fn expiry(&self, i: usize) -> (Option<u64>, u64) {
        match &self.found[i] {
            One::Present { expires_at, .. } => (*expires_at, self.now_ms),
            One::Filter(filter) => filter.expiry,
            One::Absent | One::Failed(_) => (None, self.now_ms),
        }
    }
}

/// A transaction that the thread of a map runs.
#[derive(Debug)]
pub(super) struct ExecJob {
    pub(super) place: usize,
    pub(super) id: u64,
    pub(super) results: Results,
    pub(super) phase: Phase,
}

/// How far a transaction has come.
pub(super) enum Phase {
    Waiting(Box<Execution>),
    /// What it has led to, and the number of its unit.
    Run(Box<Executed>, u64),
    /// Nothing, while it is run.
    Running,
}

impl std::fmt::Debug for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Phase::Waiting(_) => "Waiting",
            Phase::Run(..) => "Run",
            Phase::Running => "Running",
        })
    }
}

impl MapWork for ExecJob {
    fn keys(&self, visit: &mut dyn FnMut(&[u8])) {
        let Phase::Waiting(execution) = &self.phase else { return };
        for (found, arguments, are_named) in execution.calls() {
            visit_read(found, &arguments, are_named, visit);
        }
    }

    fn clients(&self) -> usize {
        1
    }

    fn run(&mut self, state: &mut State) {
        let Phase::Waiting(execution) = std::mem::replace(&mut self.phase, Phase::Running) else {
            return;
        };
        let mut unit = state.unit();
        let mut executed = execution.run(Some(&mut unit));
        let unit = unit.end().unwrap_or_else(|error| {
            executed.fail(&error);
            u64::MAX
        });
        self.phase = Phase::Run(Box::new(executed), unit);
    }

    fn finish(self: Box<Self>, outcome: &Outcome) {
        let (place, id) = (self.place, self.id);
        let executed = match self.phase {
            Phase::Waiting(execution) => {
                Box::new(execution.refuse(outcome.failure(0).unwrap_or("ERR nothing was run")))
            }
            Phase::Run(mut executed, unit) => {
                match outcome.failure(unit) {
                    Some(error) => executed.fail(error),
                    None => executed.keep_filters(),
                }
                executed
            }
            Phase::Running => return,
        };
        self.results.put(Finished::Transaction { place, id, executed });
    }
}
