//! Commands on maps: event loops collect them, and the thread of the map runs them, those of all connections
//! together.

use super::{
    batch::{TOO_LARGE, VALUES_BYTES_MAX},
    exec::{Executed, Execution},
    jobs::{Finished, Results},
    values::{Room, ValueMemory},
};
use crate::{
    command::{
        Arguments, Found, Lookup, MapCall, Run, TABLE, Value, Values, WRONG_TYPE, inside, reads,
    },
    data::{MapWork, Outcome, ServedMap, State, Unit, Watch},
    protocol::{Protocol, Reply},
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
    /// Those that are filters: their places among the keys, and their types.
    pub(super) filters: Vec<(usize, &'static str)>,
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

    /// Gives the requests to the thread of the map. Their replies take memory of `values`.
    pub(super) fn submit(self, start: Duration, results: Results, values: Arc<ValueMemory>) {
        let MapGroup { map, requests, calls } = self;
        let (output, room, replies) = (Vec::new(), Room::default(), Vec::new());
        let job = MapJob { requests, calls, start, output, room, values, replies, results };
        map.submit(Box::new(job));
    }
}

/// Requests that the thread of a map runs.
#[derive(Debug)]
pub(super) struct MapJob {
    pub(super) requests: Vec<MapRequest>,
    pub(super) calls: Calls,
    /// The time of their turn.
    pub(super) start: Duration,
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
        let called = call(&mut unit, (found, &arguments), &request.keys, &mut reply);
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

/// Runs a command on a map, and writes its reply.
///
/// # Errors
/// The reply; nothing was changed.
pub(super) fn call(
    unit: &mut Unit<'_>,
    (found, arguments): (Found, &Arguments<'_>),
    keys: &KeyNames,
    reply: &mut Reply<'_>,
) -> Result<Done, String> {
    let places = keys.are_named.then(|| arguments.places_inside(found.command.keys));
    let arguments = places.as_ref().map_or(*arguments, |places| arguments.with_places(places));
    match found.command.run {
        Run::Change(_) if !keys.filters.is_empty() => Err(WRONG_TYPE.into()),
        Run::Change(change) => {
            let name = TABLE.full_name(found.number);
            change(&mut MapCall { name, arguments, unit, reply })?;
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
        let filter = names.filters.iter().find(|(filter, _)| *filter == i);
        let one = match (filter, unit.get(key)) {
            (Some((_, kind)), _) => One::Filter(kind),
            (None, Err(error)) => One::Failed(error),
            (None, Ok(None)) => One::Absent,
            (None, Ok(Some(value))) if lookup.needs_values() => One::Present(value.clone()),
            (None, Ok(Some(Expiring { expires_at, .. }))) => {
                One::Present(Expiring { value: Vec::new(), expires_at: *expires_at })
            }
        };
        match &one {
            One::Absent => done.misses += 1,
            One::Present(value) => bytes += value.value.len(),
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
    /// Without its bytes, if the lookup does not need them.
    Present(Expiring),
    Filter(&'static str),
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
            One::Present(value) => Value::Present(&value.value),
            One::Filter(kind) => Value::Filter(kind),
            One::Failed(error) => Value::Failed(error),
        }
    }

    fn expiry(&self, i: usize) -> (Option<u64>, u64) {
        let at = match &self.found[i] {
            One::Present(value) => value.expires_at,
            _ => None,
        };
        (at, self.now_ms)
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
                outcome.failure(unit).into_iter().for_each(|error| executed.fail(error));
                executed
            }
            Phase::Running => return,
        };
        self.results.put(Finished::Transaction { place, id, executed });
    }
}
