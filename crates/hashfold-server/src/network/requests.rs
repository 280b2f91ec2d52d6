//! Requests of connections: taken, and answered at once or added to what is answered together.

use super::{
    allow::{allow, note_error},
    answers::{READ_WAIT_MAX, TOO_MANY_READS},
    asked::{Added, Asked, What, add},
    batch::Batch,
    connection::Connection,
    event_loop::EventLoop,
    exec::{self, Execution},
    jobs::{AskedJob, Finished},
    on_filters,
    on_map::{ExecJob, Phase},
    target::Target,
};
use crate::{
    command::{Arguments, Call, Flag, Found, Login, Run, TABLE, Work, turn_groups, watch},
    data::TurnGroup,
    protocol::{Parsed, Reply, parse},
    slow_log::shown,
};
use std::ops::Range;

impl EventLoop {
    /// Takes requests of a connection: answers those that can be answered at once, and adds lookups to the
    /// batch. Stops before a request whose turn comes after lookups.
    pub(super) fn take_requests(&mut self, place: usize, batch: &mut Batch) {
        if self.shared.is_late_to_stop() {
            return;
        }
        while let Some(connection) = self.connections.get_mut(place)
            && connection.turn_requests > 0
            && connection.may_take()
            && !batch.is_full()
        {
            connection.turn_requests -= 1;
            if !self.take_request(place, batch) {
                return;
            }
        }
    }

    /// Takes one request. Returns whether the next one may be taken.
    fn take_request(&mut self, place: usize, batch: &mut Batch) -> bool {
        let mut places = std::mem::take(&mut self.places);
        let connection = &mut self.connections[place];
        let input = &connection.input[connection.taken..];
        let goes_on = match parse(input, connection.session.limits, &mut places) {
            Ok(Parsed::Request(size)) => {
                let is_taken = places.is_empty() || self.answer(place, size, &places, batch);
                if is_taken {
                    self.connections[place].taken += size;
                    self.connections[place].needs = 1;
                }
                is_taken
            }
            Ok(Parsed::Line(size, words)) => {
                connection.replace_line(size, &words);
                true
            }
            Ok(Parsed::Needs(bytes)) => {
                connection.needs = bytes;
                false
            }
            // The error is written when all requests before it are answered.
            Err(_) if connection.lookups > 0 => false,
            Err(error) => {
                Reply::new(&mut connection.output, connection.session.protocol)
                    .error(&error.to_string());
                connection.session.is_closing = true;
                false
            }
        };
        self.places = places;
        goes_on
    }

    /// Answers a request, or adds it to the batch. Returns `false` if its turn comes later.
    fn answer(
        &mut self,
        place: usize,
        size: usize,
        places: &[Range<usize>],
        batch: &mut Batch,
    ) -> bool {
        let connection = &mut self.connections[place];
        let input = &connection.input[connection.taken..connection.taken + size];
        let arguments = Arguments::new(input, places);
        let found = match TABLE.find(&arguments) {
            Ok(found) => found,
            Err(error) => {
                let is_exec = arguments.is(0, "exec");
                return self.reject(place, is_exec, None, &error);
            }
        };
        if let Err(rejection) = allow(&self.shared, &connection.session, found, &arguments) {
            // The request has its turn later, and is in no log before that.
            if connection.lookups > 0 {
                return false;
            }
            let error = rejection.note(&self.shared, &connection.session);
            let is_exec = matches!(found.command.run, Run::Exec);
            return self.reject(place, is_exec, Some(found.number), &error);
        }
        let is_queued = connection.session.transaction.is_some();
        if is_queued && !found.command.is(Flag::NotQueued) {
            return self.queue(place, size, places, found);
        }
        let asked = match found.command.run {
            Run::Lookup(parse) => parse(&arguments).map(|lookup| Some(What::Lookup(lookup))),
            Run::Change(_) | Run::Keys(_) => Ok(Some(What::Change)),
            Run::ChangeOrLookup(_, parse) => {
                parse(&arguments).map(|lookup| Some(What::ChangeOrLookup(lookup)))
            }
            Run::Watch => Ok(Some(What::Watch)),
            _ => Ok(None),
        };
        let added = asked.and_then(|what| {
            let Some(what) = what else { return Ok(Added::Elsewhere) };
            let group = (connection.lookups > 0).then_some(connection.group);
            let request = Asked { place, found, what, group };
            add(&self.shared, &mut connection.session, &request, &arguments, batch)
        });
        match added {
            Ok(Added::To(group)) => {
                connection.lookups += 1;
                connection.group = group;
                return true;
            }
            Ok(Added::Later) => return false,
            Ok(Added::Elsewhere) => {}
            Err(error) => return self.reply_error(place, Some(found.number), &error),
        }
        // Replies keep the order of requests.
        if connection.lookups > 0 {
            return false;
        }
        match found.command.run {
            Run::Exec => return self.exec(place, found.number),
            _ => self.run_command(place, size, places, found),
        }
        true
    }

    /// Queues a command for `EXEC`, unless lookups from before `MULTI` are not answered yet.
    fn queue(&mut self, place: usize, size: usize, places: &[Range<usize>], found: Found) -> bool {
        let connection = &mut self.connections[place];
        if connection.lookups > 0 {
            return false;
        }
        let Connection { input, output, session, taken, .. } = connection;
        let arguments = Arguments::new(&input[*taken..*taken + size], places);
        let queued = match &mut session.transaction {
            Some(transaction) => transaction.push(found.number, &arguments),
            None => Ok(()),
        };
        if let Err(error) = queued {
            return self.reject(place, false, Some(found.number), &error);
        }
        session.client.note(self.shared.now(), found.number);
        session.show_transaction();
        let written = output.len();
        Reply::new(output, session.protocol).simple("QUEUED");
        if session.replies.silences() {
            output.truncate(written);
        }
        true
    }

    /// Runs the commands that a connection has queued: on another thread, if they may take long.
    fn exec(&mut self, place: usize, number: usize) -> bool {
        let start = self.shared.now();
        let session = &mut self.connections[place].session;
        session.client.note(start, number);
        let mut execution = match Execution::take(&self.shared, session, number, start) {
            Ok(execution) => execution,
            Err(error) => return self.reply_error(place, Some(number), &error),
        };
        let id = session.client.id;
        let map = match execution.map() {
            Ok(map) => map,
            Err(error) => return self.reply_error(place, Some(number), &error),
        };
        execution.set_replies(&mut session.replies);
        if let Some(map) = map {
            self.begin_wait(place);
            self.job_bytes += execution.bytes();
            let (results, phase) = (self.results.clone(), Phase::Waiting(Box::new(execution)));
            map.submit(Box::new(ExecJob { place, id, results, phase }));
            return true;
        }
        if execution.is_quick() {
            self.finish_exec(place, execution.run(None));
            return true;
        }
        self.begin_wait(place);
        self.job_bytes += execution.bytes();
        let (results, clock) = (self.results.clone(), self.shared.env.clock.clone());
        self.executor.spawn(Box::new(move || {
            let executed = Box::new(match clock.now().saturating_sub(start) < READ_WAIT_MAX {
                true => execution.run(None),
                false => execution.refuse(TOO_MANY_READS),
            });
            results.put(Finished::Transaction { place, id, executed });
        }));
        true
    }

    /// Runs a command that is no lookup.
    fn run_command(&mut self, place: usize, size: usize, places: &[Range<usize>], found: Found) {
        let start = self.shared.now();
        let connection = &mut self.connections[place];
        let Connection { input, output, session, taken, .. } = connection;
        let arguments = Arguments::new(&input[*taken..*taken + size], places);
        session.client.note(start, found.number);
        let written = output.len();
        let mut reply = Reply::new(output, session.protocol);
        let mut call = Call { shared: &self.shared, session, arguments, reply: &mut reply };
        let (mut job, mut is_login) = (None, false);
        match found.command.run {
            Run::Now(run) => run(&mut call),
            Run::Job(run) => match run(&mut call) {
                Ok(work) => job = Some(work),
                Err(error) => call.reply.error(&error),
            },
            Run::Keys(_) | Run::Change(_) | Run::ChangeOrLookup(..) => {
                match begin_on_filters(&call, found) {
                    Ok(work) => job = Some(work),
                    Err(error) => call.reply.error(&error),
                }
            }
            Run::Login(run) => match run(&mut call) {
                Ok(Login::Done) => {}
                Ok(Login::Open(work)) => job = Some(work),
                Ok(Login::Check(work)) => {
                    job = Some(work);
                    is_login = true;
                }
                Err(error) => call.reply.error(&error),
            },
            Run::GroupOr(run, _) => run(&mut call),
            Run::Watch => watch(&mut call),
            Run::Lookup(_) | Run::Exec | Run::Group(_) => {
                unreachable!(
                    "the caller has answered lookups and EXEC; the table finds subcommands"
                )
            }
        }
        let is_silent = session.replies.silences();
        if let Some(work) = job {
            let turn = Turn::of(found, &arguments);
            let asked = AskedJob::new(&self.shared, found, &arguments, start, is_silent);
            return self.start_job(place, Job { work, turn, is_login, asked });
        }
        let took = self.shared.now().saturating_sub(start);
        let failed = note_error(&self.shared, &output[written..]);
        self.metrics.note(found.number, 1, took, u64::from(failed));
        let arguments = || shown(found.command, &arguments);
        self.shared.note_slow(found.command, &session.client, took, arguments);
        if is_silent {
            output.truncate(written);
        }
    }

    /// Gives a job to another thread. The connection waits for it.
    fn start_job(&mut self, place: usize, Job { work, turn, is_login, asked }: Job) {
        self.begin_wait(place);
        let connection = &self.connections[place];
        let (id, results) = (connection.session.client.id, self.results.clone());
        let executor = if is_login { &self.shared.passwords } else { &self.executor };
        let shared = self.shared.clone();
        executor.spawn(Box::new(move || {
            let reply = match turn {
                Turn::None => work(),
                Turn::WithOthers(group) => {
                    let _turn = shared.turns.with_others(group);
                    work()
                }
                Turn::Alone(groups) => {
                    let _turns = shared.turns.alone(groups);
                    work()
                }
            };
            // The server may end with the reply; the executor must not be dropped in a thread of its own.
            drop(shared);
            results.put(Finished::Reply { place, id, reply, asked });
        }));
    }

    /// Refuses a command before it is run or queued. The transaction that it belongs to will not run.
    fn reject(&mut self, place: usize, is_exec: bool, number: Option<usize>, error: &str) -> bool {
        let connection = &mut self.connections[place];
        if connection.lookups > 0 {
            return false;
        }
        if is_exec {
            connection.session.end_transaction();
            return self.reply_error(place, number, &exec::refused(error));
        }
        if let Some(transaction) = &mut connection.session.transaction {
            transaction.refuse();
            connection.session.show_transaction();
        }
        self.reply_error(place, number, error)
    }

    /// Replies with an error, unless lookups before it are not answered yet.
    fn reply_error(&mut self, place: usize, number: Option<usize>, error: &str) -> bool {
        let connection = &mut self.connections[place];
        if connection.lookups > 0 {
            return false;
        }
        if let Some(number) = number {
            self.metrics.note_rejected(number);
        }
        let Connection { output, session, .. } = connection;
        let written = output.len();
        Reply::new(output, session.protocol).error(error);
        note_error(&self.shared, &output[written..]);
        if session.replies.silences() {
            output.truncate(written);
        }
        true
    }
}

/// Work for another thread.
struct Job {
    work: Work,
    turn: Turn,
    /// Whether a password is checked.
    is_login: bool,
    asked: AskedJob,
}

/// Which other commands on filters wait for a job.
enum Turn {
    /// None: the job is about no filter.
    None,
    /// Those that need a filter of this group for themselves.
    WithOthers(TurnGroup),
    /// All about filters of these groups.
    Alone(Vec<TurnGroup>),
}

impl Turn {
    fn of(found: Found, arguments: &Arguments<'_>) -> Turn {
        if matches!(found.command.run, Run::Keys(_) | Run::Change(_) | Run::ChangeOrLookup(..)) {
            return Turn::Alone(turn_groups(found.command, arguments));
        }
        let first = found.command.keys.places(arguments.len()).next();
        first.map_or(Turn::None, |at| Turn::WithOthers(TurnGroup::of(arguments.at(at))))
    }
}

/// Begins a command that changes filters, in a space whose strings clients do not change, or that are in memory.
fn begin_on_filters(call: &Call<'_, '_>, found: Found) -> Result<Work, String> {
    let target = Target::of(call.session, &call.arguments, found.command.keys)?;
    on_filters::begin(call, found, &target)
}
