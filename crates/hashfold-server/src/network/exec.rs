//! `EXEC`: the commands of a transaction, one after the other, while no other client changes their filters.

use super::{
    allow::note_error,
    batch::{Group, Request, TOO_LARGE, VALUES_BYTES_MAX},
    on_filters,
    on_map::{self, KeyNames, Turns},
    on_memory::change_alone,
    redirect::moved,
    target::{Target, refusal},
    values::Room,
};
use crate::{
    command::{self, Arguments, Call, Command, FilterEdit, Flag, Found, Run, turn_groups},
    data::{MemoryUnit, ServedMap, ServedMemory, TurnGroup, Unit, View},
    protocol::Reply,
    session::{Replies, Session},
    shared::Shared,
    slow_log::shown,
    transaction::{Pins, Transaction, Unkept, Watched},
};
use std::{
    sync::{Arc, RwLockWriteGuard},
    time::Duration,
};

/// Maximum number of keys that a transaction looks up at once.
const KEYS_AT_ONCE: usize = 4096;

/// Maximum memory of the commands of a transaction that a network thread runs itself, in bytes.
const QUICK_BYTES_MAX: usize = 64 << 10;

/// The reply to `EXEC` after a command that was refused.
const ABORTED: &str = "EXECABORT Transaction discarded because of previous errors.";

/// The reply to a command of a transaction for which the server, which stops, has no time left.
const STOPPED: &str = "ERR the server stops";

/// Returns the reply to an `EXEC` that is refused itself.
pub(super) fn refused(error: &str) -> String {
    let reason = error.strip_prefix("ERR ").unwrap_or(error);
    format!("EXECABORT Transaction discarded because of: {reason}")
}

/// A transaction that is to be run.
pub(super) struct Execution {
    shared: Arc<Shared>,
    /// The state of the connection, which waits.
    session: Session,
    transaction: Transaction,
    watched: Watched,
    begun: Begun,
}

/// How a transaction was begun.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    /// The number of the command `EXEC`.
    pub(super) number: usize,
    pub(super) start: Duration,
    /// Memory of the commands, in bytes.
    pub(super) bytes: usize,
    /// Whether the client wants no reply.
    pub(super) is_silent: bool,
}

/// What a transaction has led to.
pub(super) struct Executed {
    pub(super) begun: Begun,
    /// The state of the connection.
    pub(super) session: Session,
    pub(super) output: Vec<u8>,
    /// The memory of the output.
    room: Room,
    pub(super) notes: Vec<Note>,
    pub(super) reads: Vec<Read>,
    /// Filters that wait for changes of the map.
    unkept: Unkept,
}

/// A command that was run.
pub(super) struct Note {
    pub(super) command: usize,
    pub(super) took: Duration,
    pub(super) is_failed: bool,
}

/// Lookups that were answered together.
pub(super) struct Read {
    pub(super) view: Option<Arc<View>>,
    pub(super) calls: u64,
    pub(super) took: Duration,
    pub(super) failed: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
}

impl Execution {
    /// Takes the transaction of a connection, which has none after that.
    ///
    /// # Errors
    /// The reply: there is none, a command of it was refused, or other servers have its keys.
    pub(super) fn take(
        shared: &Arc<Shared>,
        session: &mut Session,
        number: usize,
        start: Duration,
    ) -> Result<Execution, String> {
        let transaction = session.transaction.take().ok_or("ERR EXEC without MULTI")?;
        let watched = std::mem::take(&mut session.watched);
        session.show_transaction();
        if transaction.is_refused() {
            return Err(ABORTED.into());
        }
        if shared.cluster.is_on() {
            let mut all = transaction.commands();
            all.try_for_each(|(found, arguments)| {
                moved(shared, &session.client, found, &arguments)
            })?;
        }
        let (shared, session) = (shared.clone(), session.clone());
        let begun = Begun { number, start, bytes: transaction.bytes(), is_silent: false };
        Ok(Execution { shared, session, transaction, watched, begun })
    }

    /// Takes over whether the client gets replies: to this command, and to the next.
    pub(super) fn set_replies(&mut self, replies: &mut Replies) {
        self.begun.is_silent = replies.silences();
        self.session.replies = *replies;
    }

    /// Returns the memory of the commands, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.begun.bytes
    }

    /// Whether the transaction waits for no device and takes little time.
    pub(super) fn is_quick(&self) -> bool {
        let is_in_memory = |view: Result<Option<Arc<View>>, String>| {
            view.ok().flatten().is_none_or(|view| view.is_in_memory())
        };
        let others = self.session.user().into_iter().flat_map(|user| user.spaces.values());
        self.transaction.bytes() <= QUICK_BYTES_MAX
            && self.transaction.commands().all(|(found, arguments)| {
                let target = self.target_in_memory(found, &arguments);
                is_quick(found.command)
                    || target.is_some_and(|target| target.space_with_filters().is_none())
            })
            && is_in_memory(self.session.view())
            && others.map(|space| space.view()).all(is_in_memory)
    }

    /// Returns the target of a command that changes strings in memory.
    fn target_in_memory(&self, found: Found, arguments: &Arguments<'_>) -> Option<Target> {
        let target = Target::of(&self.session, arguments, found.command.keys).ok()?;
        (is_change(found.command) && target.changeable_memory().is_some()).then_some(target)
    }

    /// Returns the data sets in memory that the commands are about, each once, in an order that all transactions have:
    /// if there are any, also those beside whose strings the commands make filters.
    fn memories(&self) -> Vec<Arc<ServedMemory>> {
        let calls = self.transaction.commands().filter(|(found, _)| is_of_data(*found));
        let memories = calls.filter_map(|(found, arguments)| {
            let target = Target::of(&self.session, &arguments, found.command.keys).ok()?;
            target.memory().cloned()
        });
        let mut memories: Vec<_> = memories.collect();
        let is_of_filters = |(found, arguments): (Found, Arguments<'_>)| {
            matches!(found.command.run, Run::Job(_))
                && found.command.keys.count(arguments.len()) > 0
        };
        if !memories.is_empty() && self.transaction.commands().any(is_of_filters) {
            let view = self.session.view().ok().flatten();
            memories.extend(view.and_then(|view| view.memory().cloned()));
            let home = self.session.space().and_then(|space| space.home());
            let beside = home.map_or(Vec::new(), |home| home.beside());
            memories.extend(beside.iter().filter_map(|data| data.memory()));
        }
        memories.sort_by_key(|memory| Arc::as_ptr(memory).addr());
        memories.dedup_by(|a, b| Arc::ptr_eq(a, b));
        memories
    }

    /// Returns the map that the commands and the watched keys are about, if they are about one.
    ///
    /// # Errors
    /// The reply: they are about several, or change data in memory, too.
    pub(super) fn map(&self) -> Result<Option<Arc<ServedMap>>, String> {
        let mut maps: Vec<Arc<ServedMap>> = Vec::new();
        let calls = self.transaction.commands().filter(|(found, _)| is_of_data(*found));
        // What has no target gets its error when it is run.
        let targets = calls.filter_map(|(found, arguments)| {
            Target::of(&self.session, &arguments, found.command.keys).ok()
        });
        maps.extend(targets.filter_map(|target| target.map().cloned()));
        let spaces = self.session.user().into_iter().flat_map(|user| user.all_spaces());
        for map in spaces.filter_map(|space| space.data()?.map()) {
            if self.watched.of_maps().any(|watch| map.has(watch)) {
                maps.push(map);
            }
        }
        let first = maps.first().cloned();
        let Some(map) = first else { return Ok(None) };
        if !maps.iter().all(|other| Arc::ptr_eq(other, &map)) {
            return Err("ERR the keys of a transaction must be in one map".into());
        }
        let mut calls = self.transaction.commands();
        match calls.any(|(found, arguments)| self.target_in_memory(found, &arguments).is_some()) {
            true => Err("ERR a transaction changes a map or data in memory, not both".into()),
            false => Ok(Some(map)),
        }
    }

    /// Returns the commands on data, and whether their keys name their space.
    pub(super) fn calls(&self) -> impl Iterator<Item = (Found, Arguments<'_>, bool)> {
        let calls = self.transaction.commands().filter(|(found, _)| is_of_data(*found));
        calls.filter_map(|(found, arguments)| {
            let target = Target::of(&self.session, &arguments, found.command.keys).ok()?;
            target.map()?;
            Some((found, arguments, target.is_named))
        })
    }

    /// Runs the commands, those on a map in `unit`. If a key that is watched has changed, it runs none.
    pub(super) fn run(self, mut unit: Option<&mut Unit<'_>>) -> Executed {
        let (memories, groups) = (self.memories(), filter_groups(&self.session, &self.transaction));
        // Makers of filters wait for the map's thread while they have what it waits for here.
        let new_keys = new_keys(&self.transaction);
        let waits = !groups.is_empty() || !memories.is_empty() || !new_keys.is_empty();
        if let Some(Err(error)) = unit.as_mut().filter(|_| waits).map(|unit| unit.pause()) {
            return self.refuse(&error);
        }
        let Execution { shared, session, transaction, watched, begun } = self;
        let _turns = shared.turns.alone(groups);
        let _reserved = session.space().and_then(|space| space.reserve(new_keys));
        let alone = memories.iter().map(|memory| (memory, memory.begin_alone())).collect();
        let alone = AloneInMemory(alone);
        let (output, notes, reads) = (Vec::new(), Vec::new(), Vec::new());
        let (room, pins) = (Room::default(), Pins::new(memories.clone()));
        let unkept = pins.unkept().clone();
        let mut executed = Executed { begun, session, output, room, notes, reads, unkept };
        executed.session.pins = Some(pins);
        let now_ms = unit.as_ref().map_or(0, |unit| unit.now_ms());
        let is_changed = watched.has_changed(&executed.session, now_ms);
        let mut reply = Reply::new(&mut executed.output, executed.session.protocol);
        if is_changed {
            reply.null_array();
        } else {
            reply.array(transaction.count());
            executed.run_all(&shared, &transaction, unit.as_deref_mut(), &alone);
        }
        executed.session.pins = None;
        // Before the turns end: the changes of the unit are not written.
        if let Some(unit) = unit.filter(|_| waits) {
            unit.go_on();
        }
        executed
    }

    /// Runs nothing, and replies with an error.
    pub(super) fn refuse(self, error: &str) -> Executed {
        let mut output = Vec::new();
        Reply::new(&mut output, self.session.protocol).error(error);
        note_error(&self.shared, &output);
        let Execution { session, begun, .. } = self;
        let (notes, reads) = (Vec::new(), Vec::new());
        let (room, unkept) = (Room::default(), Unkept::default());
        Executed { begun, session, output, room, notes, reads, unkept }
    }
}

/// The data sets in memory beside which nothing runs while a transaction does.
struct AloneInMemory<'a>(Vec<(&'a Arc<ServedMemory>, RwLockWriteGuard<'a, ()>)>);

impl AloneInMemory<'_> {
    /// Begins a command on a data set in memory, if it is one of these.
    fn unit(&self, memory: &Arc<ServedMemory>) -> Option<MemoryUnit<'_>> {
        let (memory, alone) = self.0.iter().find(|(own, _)| Arc::ptr_eq(own, memory))?;
        Some(memory.unit(alone))
    }
}

/// Whether a command waits for nothing but its keys, and hundreds of it take little time: `CLIENT LIST` takes the
/// longer the more connections there are.
fn is_quick(command: &Command) -> bool {
    match command.run {
        Run::Lookup(_) => true,
        Run::Now(_) | Run::GroupOr(..) => command.is(Flag::Fast),
        _ => false,
    }
}

/// Whether a command reads or changes keys of a table, a store, a map or a data set in memory.
fn is_of_data(found: Found) -> bool {
    matches!(found.command.run, Run::Lookup(_) | Run::ChangeOrLookup(..))
        || is_change(found.command)
}

/// Whether a command changes keys.
fn is_change(command: &Command) -> bool {
    matches!(command.run, Run::Change(_) | Run::Keys(_))
}

/// Returns the groups of the filters that the commands are about: keys of jobs are filters, and those of other commands
/// may be if their space has filters.
fn filter_groups(session: &Session, transaction: &Transaction) -> Vec<TurnGroup> {
    let has_filters = |found: Found, arguments: &Arguments<'_>| {
        // What has no target gets its error when it is run.
        let target = Target::of(session, arguments, found.command.keys);
        target.is_ok_and(|target| target.may_be_filters())
    };
    let groups = transaction.commands().flat_map(|(found, arguments)| match found.command.run {
        Run::Job(_) => {
            let places = found.command.keys.places(arguments.len());
            places.map(|place| TurnGroup::of(arguments.at(place))).collect()
        }
        _ if is_change(found.command) && has_filters(found, &arguments) => {
            turn_groups(found.command, &arguments)
        }
        _ => Vec::new(),
    });
    groups.collect()
}

/// Returns the keys that the commands give to filters.
fn new_keys(transaction: &Transaction) -> Vec<Vec<u8>> {
    let calls = transaction.commands();
    calls.flat_map(|(found, arguments)| command::new_keys(found.command, &arguments)).collect()
}

impl Executed {
    fn run_all(
        &mut self,
        shared: &Shared,
        transaction: &Transaction,
        mut unit: Option<&mut Unit<'_>>,
        alone: &AloneInMemory<'_>,
    ) {
        let mut next = 0;
        while next < transaction.count() {
            let (found, arguments) = transaction.command(next);
            if let Some(unit) = unit.as_deref_mut() {
                if self.run_on_map(shared, (found, arguments), unit) {
                    next += 1;
                    continue;
                }
                self.show_changes(found, unit);
            }
            if self.run_in_memory(shared, (found, arguments), alone) {
                next += 1;
                continue;
            }
            next += match found.command.run {
                _ if shared.is_late_to_stop() => {
                    Reply::new(&mut self.output, self.session.protocol).error(STOPPED);
                    1
                }
                Run::Lookup(_) | Run::ChangeOrLookup(..) => self.look_up(shared, transaction, next),
                _ => {
                    self.run_command(shared, found, arguments);
                    1
                }
            };
        }
    }

    /// Makes the filters durable that have waited for changes of the map, which are durable now if clients wait for that.
    pub(super) fn keep_filters(&mut self) {
        if let Err(error) = self.unkept.keep() {
            self.fail(&error);
        }
    }

    /// Replaces the replies by an error, if nothing was changed after all.
    pub(super) fn fail(&mut self, error: &str) {
        self.unkept.remove();
        self.output.clear();
        Reply::new(&mut self.output, self.session.protocol).error(error);
    }

    /// Shows the changes of a map so far to a command about all keys.
    fn show_changes(&self, found: Found, unit: &mut Unit<'_>) {
        let space = self.session.space().filter(|_| matches!(found.command.run, Run::Job(_)));
        let (Some(space), Some(pins)) = (space, &self.session.pins) else { return };
        let beside = space.home().map_or(Vec::new(), |home| home.beside());
        for data in space.data().into_iter().chain(&beside) {
            if let Some(view) =
                data.view().filter(|view| view.map().is_some_and(|map| map.has_unit(unit)))
                && let Some(view) = view.with_changes(unit.changes())
            {
                pins.show(data, view);
            }
        }
    }

    /// Runs a command on a map. Returns whether it is one.
    fn run_on_map(
        &mut self,
        shared: &Shared,
        (found, arguments): (Found, Arguments<'_>),
        unit: &mut Unit<'_>,
    ) -> bool {
        let keys = found.command.keys;
        if !is_of_data(found) {
            return false;
        }
        let Ok(target) = Target::of(&self.session, &arguments, keys) else { return false };
        let Some(map) = target.map() else { return false };
        if let Run::Lookup(parse) = target.run(found.command.run)
            && parse(&arguments).is_ok_and(|lookup| target.map_of(lookup).is_none())
        {
            return false;
        }
        let (start, written) = (shared.now(), self.output.len());
        let refused = map.refusal().filter(|_| is_change(found.command));
        if refused.is_some() && target.space_of_filters(found.command, &arguments).is_some() {
            return false;
        }
        let space = target.space_with_filters().cloned();
        let names = KeyNames { are_named: target.is_named, space };
        let mut reply = Reply::new(&mut self.output, self.session.protocol);
        let called = match refused {
            _ if written > VALUES_BYTES_MAX => Err(TOO_LARGE.into()),
            Some(reason) => Err(refusal(&self.session, found.command, Some(reason))),
            None => on_map::call(unit, (found, &arguments), (&names, Turns::Taken), &mut reply),
        };
        let done = called.unwrap_or_else(|error| {
            self.output.truncate(written);
            Reply::new(&mut self.output, self.session.protocol).error(&error);
            on_map::Done::default()
        });
        let took = shared.now().saturating_sub(start);
        let (hits, misses) = (done.hits, done.misses);
        self.reads.push(Read { view: None, calls: 1, took, failed: 0, hits, misses });
        self.note(shared, (found, arguments), written, took);
        true
    }

    /// Runs a command that changes strings in memory. Returns whether it is one.
    fn run_in_memory(
        &mut self,
        shared: &Shared,
        (found, arguments): (Found, Arguments<'_>),
        alone: &AloneInMemory<'_>,
    ) -> bool {
        if !is_of_data(found) || shared.is_late_to_stop() {
            return false;
        }
        let target = Target::of(&self.session, &arguments, found.command.keys);
        let Ok(target) = target else { return false };
        let Some(memory) = target.changeable_memory() else { return false };
        let is_lookup = matches!(target.run(found.command.run), Run::Lookup(_));
        let Some(mut unit) = alone.unit(memory).filter(|_| !is_lookup) else { return false };
        let (start, written) = (shared.now(), self.output.len());
        let space = target.space_with_filters().cloned();
        let names = KeyNames { are_named: target.is_named, space };
        unit.set_sees_filters(names.see_filters());
        let mut reply = Reply::new(&mut self.output, self.session.protocol);
        let changed = match written > VALUES_BYTES_MAX {
            true => Err(TOO_LARGE.into()),
            false => change_alone(unit, (found, &arguments), &names, &mut reply),
        };
        if let Err(error) = changed.and_then(FilterEdit::apply) {
            self.output.truncate(written);
            Reply::new(&mut self.output, self.session.protocol).error(&error);
        }
        let took = shared.now().saturating_sub(start);
        self.note(shared, (found, arguments), written, took);
        true
    }

    /// Answers the lookups from one command on, those that can be answered together. Returns their number.
    fn look_up(&mut self, shared: &Shared, transaction: &Transaction, first: usize) -> usize {
        let start = shared.now();
        let mut group: Option<Group> = None;
        for i in first..transaction.count() {
            let (found, arguments) = transaction.command(i);
            match self.add_lookup(found, &arguments, &mut group) {
                Ok(true) => {}
                Ok(false) => break,
                // An error has its turn after the lookups before it.
                Err(_) if group.is_some() => break,
                Err(error) => {
                    let written = self.output.len();
                    Reply::new(&mut self.output, self.session.protocol).error(&error);
                    self.note(shared, (found, arguments), written, Duration::ZERO);
                    return 1;
                }
            }
        }
        let Some(group) = group else { return 0 };
        self.answer(shared, transaction, first, &group, start);
        group.requests.len()
    }

    /// Adds a command to the group of those before. Returns whether it was added: not if it is no lookup, or
    /// one in another data set.
    fn add_lookup(
        &self,
        found: Found,
        arguments: &Arguments<'_>,
        group: &mut Option<Group>,
    ) -> Result<bool, String> {
        let (Run::Lookup(parse) | Run::ChangeOrLookup(_, parse)) = found.command.run else {
            return Ok(false);
        };
        if self.output.len() > VALUES_BYTES_MAX {
            return Err(TOO_LARGE.into());
        }
        let (lookup, keys) = (parse(arguments)?, found.command.keys);
        let target = Target::of(&self.session, arguments, keys)?;
        // It runs on its map, or keeps its result where clients change strings.
        let runs_alone = target.map_of(lookup).is_some()
            || !matches!(target.run(found.command.run), Run::Lookup(_));
        if runs_alone && group.is_some() {
            return Ok(false);
        }
        let group = group.get_or_insert_with(|| Group::new(target.view.clone()));
        if !group.is_of(target.view.as_ref()) || group.keys() >= KEYS_AT_ONCE {
            return Ok(false);
        }
        let keys = target.push_keys(&self.session, arguments, keys, group);
        group.requests.push(Request {
            place: 0,
            id: self.session.client.id,
            command: found.number,
            lookup,
            keys,
            is_silent: false,
            is_asking: false,
        });
        Ok(true)
    }

    /// Writes the replies to the lookups of a group, the first of which is the command `first`.
    fn answer(
        &mut self,
        shared: &Shared,
        transaction: &Transaction,
        first: usize,
        group: &Group,
        start: Duration,
    ) {
        let answers = group.look_up_alone(&shared.values);
        let took = shared.now().saturating_sub(start);
        let calls = group.requests.len() as u64;
        let (view, failed, hits, misses) = (group.view.clone(), 0, 0, 0);
        let mut read = Read { view, calls, took, failed, hits, misses };
        for (i, request) in group.requests.iter().enumerate() {
            let answer = answers.of(group, request.keys.clone());
            let (found, absent) = answer.hits_and_misses();
            (read.hits, read.misses) = (read.hits + found, read.misses + absent);
            read.failed += u64::from(answer.is_failed());
            let written = self.output.len();
            let mut reply = Reply::new(&mut self.output, self.session.protocol);
            request.lookup.reply(&answer, &mut reply);
            self.note(shared, transaction.command(first + i), written, took);
        }
        self.reads.push(read);
    }

    /// Runs a command that is no lookup.
    fn run_command(&mut self, shared: &Shared, found: Found, arguments: Arguments<'_>) {
        let (start, written) = (shared.now(), self.output.len());
        let session = &mut self.session;
        let mut reply = Reply::new(&mut self.output, session.protocol);
        let mut call = Call { shared, session, arguments, reply: &mut reply };
        let work = match found.command.run {
            Run::Now(run) => {
                run(&mut call);
                Ok(None)
            }
            Run::GroupOr(run, _) => {
                run(&mut call);
                Ok(None)
            }
            Run::Job(run) => run(&mut call).map(Some),
            Run::Change(_) | Run::Keys(_) => {
                let target = Target::of(call.session, &arguments, found.command.keys);
                target.and_then(|target| on_filters::begin(&call, found, &target)).map(Some)
            }
            Run::Lookup(_)
            | Run::ChangeOrLookup(..)
            | Run::Login(_)
            | Run::Exec
            | Run::Watch
            | Run::Group(_) => {
                unreachable!("lookups are answered together; others are not queued")
            }
        };
        match work {
            Ok(None) => {}
            Ok(Some(work)) => work()(&mut self.session, &mut reply),
            Err(error) => reply.error(&error),
        }
        let took = shared.now().saturating_sub(start);
        self.note(shared, (found, arguments), written, took);
    }

    /// Notes a command whose reply begins after `written` bytes. A reply for which there is no room becomes an
    /// error.
    fn note(
        &mut self,
        shared: &Shared,
        (found, arguments): (Found, Arguments<'_>),
        written: usize,
        took: Duration,
    ) {
        if let Err(error) = self.make_room(shared) {
            self.output.truncate(written);
            Reply::new(&mut self.output, self.session.protocol).error(&error);
        }
        let is_failed = note_error(shared, &self.output[written..]);
        let arguments = || shown(found.command, &arguments);
        shared.note_slow(found.command, &self.session.client, took, arguments);
        self.notes.push(Note { command: found.number, took, is_failed });
    }
}

impl Executed {
    /// Makes room for the output.
    ///
    /// # Errors
    /// The reply: there is not as much.
    fn make_room(&mut self, shared: &Shared) -> Result<(), String> {
        match self.output.len() {
            size if size > REPLY_BYTES_MAX => Err(TOO_LARGE.into()),
            size => self.room.reserve(size, &shared.values),
        }
    }
}

/// Maximum size of the reply to a transaction, in bytes: errors for which there is always room come on top.
const REPLY_BYTES_MAX: usize = VALUES_BYTES_MAX + (1 << 20);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        command::{CommandSet, TABLE, word_places},
        data::{FilterHome, Space},
        session::Client,
        user::{Password, User},
    };
    use hashfold::{Env, work::MemoryBudget};
    use std::{collections::HashMap, net::SocketAddr, path::Path};

    /// Returns the state of a connection whose user makes filters, and names keys of another space `other:{key}`.
    fn session() -> Session {
        let (env, memory) = (Env::simulated(1), MemoryBudget::unlimited());
        let home = FilterHome::open(&env, Path::new("made"), 16 << 20, &memory).unwrap();
        let user = User {
            name: "eve".into(),
            password: Password::None,
            space: Arc::new(Space::new(None, [], Some(Arc::new(home)))),
            spaces: HashMap::from([("other".into(), Arc::new(Space::new(None, [], None)))]),
            commands: CommandSet::of(["+@all"]).unwrap(),
            keys: Vec::new(),
            choice: None,
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 6379));
        let client = Client::new(1, (address, address), false, Duration::ZERO);
        Session::new(Arc::new(client), Some(Arc::new(user)))
    }

    #[test]
    fn a_transaction_waits_for_filters_of_the_spaces_of_its_keys_only() {
        let session = session();
        let groups = |line: &str| {
            let places = word_places(line);
            let arguments = Arguments::new(line.as_bytes(), &places);
            let found = TABLE.find(&arguments).map_err(|_| line.to_owned()).unwrap();
            let mut transaction = Transaction::default();
            transaction.push(found.number, &arguments).unwrap();
            filter_groups(&session, &transaction)
        };
        assert_eq!(groups("DEL a"), [TurnGroup::of(b"a")]);
        assert_eq!(groups("BF.ADD a x"), [TurnGroup::of(b"a")]);
        assert_eq!(groups("FLUSHALL"), TurnGroup::all());
        assert!(groups("DEL other:{a}").is_empty() && groups("GET a").is_empty());
    }

    #[test]
    fn network_threads_run_only_commands_of_which_hundreds_take_little_time() {
        let is_quick = |name| is_quick(TABLE.command(TABLE.number(name).unwrap()));
        assert!(["get", "mget", "exists", "ping", "time"].into_iter().all(is_quick));
        for name in ["client|list", "command", "command|docs", "info", "keys", "bf.add"] {
            assert!(!is_quick(name), "{name}");
        }
    }
}
