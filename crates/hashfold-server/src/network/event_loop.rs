//! The event loop of one network thread.

use super::{
    batch::{Answers, Batch, Group, GroupId, Request},
    connection::{Connection, READ_BYTES, prepare},
    exec::{self, Executed, Execution},
    jobs::{Finished, Results},
    on_filters,
    on_map::{ExecJob, KeyNames, MapGroup, MapJob, MapRequest, Phase},
    redirect::{ask, moved},
    target::{Target, refusal as write_refusal},
    transport::Transport,
    values::ValueMemory,
};
use crate::{
    command::{
        Arguments, Call, Flag, Found, JobReply, Login, Lookup, Refusal, Run, TABLE, Work, describe,
        refusal, turn_groups, watch,
    },
    data::{OwnLatencies, TurnGroup},
    metrics::{ThreadMetrics, add as add_to},
    protocol::{Limits, Parsed, Reply, parse},
    session::{Client, Session},
    shared::Shared,
    slow_log::shown,
    tls::Certificates,
};
use hashfold::work::Executor;
use mio::{Events, Interest, Poll, Token, Waker, net::TcpListener};
use slab::Slab;
use std::{
    io::{self, Write as _},
    ops::Range,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed, mpsc::Receiver},
    time::Duration,
};
use tracing::{info, warn};

/// Token of the waker; listeners have the tokens below [`FIRST_CONNECTION`].
const WAKER: Token = Token(0);
const FIRST_CONNECTION: usize = 64;

/// Number of events that are taken from the system at once.
const EVENTS: usize = 1024;

/// The longest time without a look at connections that stall or were killed.
const TICK: Duration = Duration::from_millis(100);

/// Maximum number of requests that are taken from a connection before others have their turn: their replies
/// are written while they are in the CPU's cache.
const REQUESTS_AT_ONCE: usize = 256;

/// Number of keys that are read from the device together: several such parts are read at the same time, so
/// that the device always has work, also while one part is answered.
const DEVICE_KEYS: usize = 64;

/// Mean time of reads from the device up to which a lookup that is alone is not given to another thread:
/// that, and the way back, would take longer than the read.
const LONE_READ_MAX: Duration = Duration::from_micros(250);

/// Time after which lookups that wait for the device, behind those of other clients, are refused.
const READ_WAIT_MAX: Duration = Duration::from_secs(1);

/// The reply to them. Clients in cluster mode try again.
const TOO_MANY_READS: &str = "TRYAGAIN Too many reads are waiting";

/// A network thread's connections.
pub(crate) struct EventLoop {
    shared: Arc<Shared>,
    executor: Arc<dyn Executor>,
    metrics: Arc<ThreadMetrics>,
    latencies: OwnLatencies,
    poll: Poll,
    listeners: Vec<TcpListener>,
    connections: Slab<Connection>,
    /// Places of the connections to be worked on.
    listed: Vec<usize>,
    results: Results,
    finished: Receiver<Finished>,
    buffer: Box<[u8; READ_BYTES]>,
    /// Places of arguments; here so that its memory is used again.
    places: Vec<Range<usize>>,
    next_tick: Duration,
    /// Whether the system has refused to accept a connection.
    accepts_again: bool,
    /// Number of connections that wait for jobs or for the device.
    waiting: usize,
    /// Mean time of the last lookups that were alone; halved at each tick, so that a device that was slow is
    /// tried again.
    lone_read: Duration,
    /// Memory of the buffers of all connections, in bytes, as it was noted when they were read, and at the end
    /// of their turns.
    buffer_bytes: usize,
    /// Memory of the requests that threads of maps and other threads have, in bytes: connections that have gone
    /// leave it behind.
    job_bytes: usize,
    /// The memory of values.
    #[expect(
        clippy::redundant_allocation,
        reason = "cloned for each batch: counted for this thread alone"
    )]
    values: Arc<Arc<ValueMemory>>,
    /// Whether connections were not read because buffers took too much memory.
    is_paused: bool,
}

impl EventLoop {
    /// Makes an event loop that accepts connections from these listeners; returns what wakes it, too.
    pub(crate) fn new(
        shared: Arc<Shared>,
        executor: Arc<dyn Executor>,
        mut listeners: Vec<TcpListener>,
    ) -> io::Result<(EventLoop, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        assert!(listeners.len() < FIRST_CONNECTION);
        for (i, listener) in listeners.iter_mut().enumerate() {
            poll.registry().register(listener, Token(1 + i), Interest::READABLE)?;
        }
        let (results, finished) = Results::new(waker.clone());
        let event_loop = EventLoop {
            metrics: shared.metrics.of_thread(),
            latencies: OwnLatencies::default(),
            values: Arc::new(shared.values.clone()),
            shared,
            executor,
            poll,
            listeners,
            connections: Slab::new(),
            listed: Vec::new(),
            results,
            finished,
            buffer: Box::new([0; READ_BYTES]),
            places: Vec::new(),
            next_tick: Duration::ZERO,
            accepts_again: false,
            waiting: 0,
            lone_read: Duration::ZERO,
            buffer_bytes: 0,
            job_bytes: 0,
            is_paused: false,
        };
        Ok((event_loop, waker))
    }

    /// Answers requests until the server stops.
    ///
    /// # Errors
    /// The system refuses to wait for sockets.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        while !self.is_finished() {
            let timeout = if self.listed.is_empty() { TICK } else { Duration::ZERO };
            match self.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                polled => polled?,
            }
            for event in &events {
                match event.token() {
                    WAKER => self.take_results(),
                    Token(number) if number < FIRST_CONNECTION => {
                        self.accepts_again |= self.accept(number - 1);
                    }
                    Token(number) => self.wake(number - FIRST_CONNECTION, event.is_readable()),
                }
            }
            self.turn();
            let now = self.shared.now();
            if now >= self.next_tick {
                self.tick(now);
            }
        }
        Ok(())
    }

    /// Whether the server stops and all requests that were read are answered, or have no time left.
    fn is_finished(&mut self) -> bool {
        if !self.shared.is_stopping.load(Relaxed) {
            return false;
        }
        self.listeners.clear();
        let is_late = self.shared.is_late_to_stop();
        let is_answered = |it: &Connection| is_late || (it.has_sent_all() && !it.may_take());
        self.connections.iter().all(|(_, it)| !it.is_waiting && is_answered(it))
    }

    /// Accepts connections. Returns whether the system refuses one, which waits then.
    fn accept(&mut self, listener: usize) -> bool {
        while let Some(accepted) = self.listeners.get(listener).map(TcpListener::accept) {
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) =>
                {
                    continue;
                }
                Err(error) => {
                    // The system has no more sockets, say; those that wait are accepted later.
                    if !self.accepts_again {
                        warn!(%error, "connections cannot be accepted");
                    }
                    return true;
                }
            };
            let is_encrypted = listener >= self.shared.config.listen.len();
            let count = self.shared.clients.lock().unwrap_or_else(PoisonError::into_inner).len();
            if count >= self.shared.config.clients_max {
                add_to(&self.metrics.refused, 1);
                if !is_encrypted {
                    // A new socket has room for a line; if not, the client sees the end all the same.
                    let _ = (&socket).write(b"-ERR max number of clients reached\r\n");
                }
                continue;
            }
            let Ok(own) = socket.local_addr() else { continue };
            if prepare(&socket).is_err() {
                continue;
            }
            let certificates = self.shared.certificates.as_ref().filter(|_| is_encrypted);
            let config = certificates.map(Certificates::current);
            let Ok(transport) = Transport::new(socket, config) else { continue };
            let (id, now) = (self.shared.new_id(), self.shared.now());
            let client = Client::new(id, (peer, own), is_encrypted, now);
            self.add(transport, Arc::new(client));
        }
        false
    }

    fn add(&mut self, mut transport: Transport, client: Arc<Client>) {
        let entry = self.connections.vacant_entry();
        let token = Token(FIRST_CONNECTION + entry.key());
        let both = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut transport.socket, token, both).is_err() {
            return;
        }
        add_to(&self.metrics.connections, 1);
        let mut clients = self.shared.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.insert(client.id, client.clone());
        drop(clients);
        let session = Session::new(client, self.shared.stranger());
        entry.insert(Connection::new(transport, session));
    }

    /// Notes that a connection can be read or written.
    fn wake(&mut self, place: usize, is_readable: bool) {
        if let Some(connection) = self.connections.get_mut(place) {
            connection.is_readable |= is_readable;
            self.list(place);
        }
    }

    fn list(&mut self, place: usize) {
        if let Some(connection) = self.connections.get_mut(place)
            && !connection.is_listed
        {
            connection.is_listed = true;
            self.listed.push(place);
        }
    }

    /// Whether requests are read: not once the server stops, so that a busy client cannot keep it up.
    fn reads(&self) -> bool {
        !self.shared.is_stopping.load(Relaxed)
    }

    /// Reads from all connections that are ready, answers them, and writes their replies: those of as many
    /// connections at once as fill a batch.
    fn turn(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        let is_of_one = listed.len() == 1;
        let mut left = &listed[..];
        while !left.is_empty() {
            let (mut batch, mut count) = (Batch::default(), 0);
            while count < left.len() && !batch.is_full() {
                self.begin_turn(left[count], &mut batch);
                count += 1;
            }
            let (part, others) = left.split_at(count);
            self.answer_all(part, batch, is_of_one);
            let now = self.shared.now();
            part.iter().for_each(|place| self.finish_turn(*place, now));
            left = others;
        }
        self.note_memory();
        self.shed();
        if self.is_paused && self.has_room() {
            self.go_on_reading();
        }
    }

    /// Shows other threads the memory of buffers, and of requests that are being answered.
    fn note_memory(&self) {
        let bytes = self.buffer_bytes + self.job_bytes;
        self.metrics.buffer_bytes.store(bytes as u64, Relaxed);
    }

    /// Whether the buffers of all connections together, with the requests that are being answered, leave room for
    /// more bytes, or those of this thread are within its share.
    fn has_room(&self) -> bool {
        if (self.buffer_bytes + self.job_bytes) as u64 <= self.buffer_share() {
            return true;
        }
        self.note_memory();
        self.shared.metrics.buffer_bytes() <= self.shared.config.client_memory_bytes
    }

    /// Whether the buffers leave room after these connections were read, or got replies.
    fn has_room_after(&mut self, listed: &[usize]) -> bool {
        for place in listed {
            if let Some(connection) = self.connections.get_mut(*place) {
                connection.note_buffers(&mut self.buffer_bytes);
            }
        }
        self.has_room()
    }

    /// Returns the part of the memory for buffers that is this thread's, in bytes.
    fn buffer_share(&self) -> u64 {
        self.shared.config.client_memory_bytes / self.shared.config.threads as u64
    }

    /// Lists the connections that were not read for lack of room.
    fn go_on_reading(&mut self) {
        self.is_paused = false;
        let may_go_on = self.connections.iter().filter(|(_, it)| it.may_read() || it.may_take());
        let places: Vec<usize> = may_go_on.map(|(place, _)| place).collect();
        places.into_iter().for_each(|place| self.list(place));
    }

    /// Reads from a connection, and takes its requests.
    fn begin_turn(&mut self, place: usize, batch: &mut Batch) {
        let (reads, has_room) = (self.reads(), self.has_room());
        let Some(connection) = self.connections.get_mut(place).filter(|_| has_room) else { return };
        connection.turn_requests = REQUESTS_AT_ONCE;
        if reads && connection.may_read() {
            connection.read(&mut self.buffer, &self.metrics);
            connection.note_buffers(&mut self.buffer_bytes);
        }
        self.take_requests(place, batch);
    }

    /// Answers a batch, and then the requests of its connections whose turn came after these lookups.
    fn answer_all(&mut self, places: &[usize], mut batch: Batch, is_of_one: bool) {
        while !batch.is_empty() {
            self.look_up(std::mem::take(&mut batch), is_of_one);
            if !self.has_room_after(places) {
                return;
            }
            places.iter().for_each(|place| self.take_requests(*place, &mut batch));
        }
    }

    /// Writes a connection's replies; closes it, or lists it again if there is more to do.
    fn finish_turn(&mut self, place: usize, now: Duration) {
        let (reads, has_room) = (self.reads(), self.has_room());
        let Some(connection) = self.connections.get_mut(place) else { return };
        connection.forget_taken();
        connection.write(now, &self.metrics);
        connection.is_listed = false;
        connection.session.client.output_bytes.store(connection.unsent(), Relaxed);
        connection.note_buffers(&mut self.buffer_bytes);
        let may_go_on = connection.may_take() || (connection.may_read() && reads);
        if connection.is_done() {
            self.close(place);
        } else if may_go_on && has_room {
            self.list(place);
        } else {
            self.is_paused |= may_go_on;
        }
    }

    fn close(&mut self, place: usize) {
        let mut connection = self.connections.remove(place);
        self.waiting -= usize::from(connection.is_waiting);
        connection.drop_buffers();
        connection.note_buffers(&mut self.buffer_bytes);
        // The socket is closed in any case when it is dropped.
        let _ = self.poll.registry().deregister(&mut connection.transport.socket);
        let mut clients = self.shared.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.remove(&connection.session.client.id);
    }

    /// Takes requests of a connection: answers those that can be answered at once, and adds lookups to the
    /// batch. Stops before a request whose turn comes after lookups.
    fn take_requests(&mut self, place: usize, batch: &mut Batch) {
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
        let is_stranger = connection.session.user().is_none();
        let limits = if is_stranger { Limits::STRANGER } else { Limits::CLIENT };
        let input = &connection.input[connection.taken..];
        let goes_on = match parse(input, &limits, &mut places) {
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

    /// Takes over what a transaction has led to.
    fn finish_exec(&mut self, place: usize, done: Executed) {
        let took = self.shared.now().saturating_sub(done.begun.start);
        self.metrics.note(done.begun.number, 1, took, 0);
        for note in &done.notes {
            self.metrics.note(note.command, 1, note.took, u64::from(note.is_failed));
        }
        for read in &done.reads {
            if let Some(view) = &read.view {
                self.latencies.of(view.latency()).note(read.calls, read.took, read.failed);
            }
            add_to(&self.metrics.hits, read.hits);
            add_to(&self.metrics.misses, read.misses);
        }
        let connection = &mut self.connections[place];
        connection.session = done.session;
        if !done.begun.is_silent {
            connection.output.extend(done.output);
            connection.break_off_if_full();
        }
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
            Run::Keys(_) => match begin_on_filters(&call, found) {
                Ok(work) => job = Some(work),
                Err(error) => call.reply.error(&error),
            },
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
            Run::Lookup(_)
            | Run::Change(_)
            | Run::ChangeOrLookup(..)
            | Run::Exec
            | Run::Group(_) => {
                unreachable!(
                    "the caller has answered lookups, changes and EXEC; the table finds subcommands"
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

    /// Writes the reply of a job.
    fn finish_job(&mut self, place: usize, reply: JobReply, asked: AskedJob) {
        let Connection { output, session, .. } = &mut self.connections[place];
        let written = output.len();
        let mut to_client = Reply::new(output, session.protocol);
        reply(session, &mut to_client);
        let failed = note_error(&self.shared, &output[written..]);
        if asked.is_silent {
            output.truncate(written);
        }
        let took = self.shared.now().saturating_sub(asked.start);
        self.metrics.note(asked.number, 1, took, u64::from(failed));
        let command = TABLE.command(asked.number);
        self.shared.note_slow(command, &session.client, took, || asked.arguments);
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

    /// Answers a batch: lookups in memory now, others on another thread, and commands on maps on the threads of
    /// these. `is_of_one` says whether one connection alone has requests.
    fn look_up(&mut self, batch: Batch, is_of_one: bool) {
        for group in batch.maps {
            self.submit(group);
        }
        for group in batch.groups {
            let start = self.shared.now();
            if group.is_in_memory() {
                let values = self.values.clone();
                group.answer(&values, &mut |group, answers| {
                    let took = self.shared.now().saturating_sub(start);
                    self.reply_to(&group, &answers, took);
                });
                continue;
            }
            let is_lone = is_of_one && self.is_lone(&group);
            if is_lone && let Some(answers) = group.try_look_up(&self.values) {
                let took = self.shared.now().saturating_sub(start);
                self.reply_to(&group, &answers, took);
                self.lone_read = (self.lone_read * 7 + took) / 8;
                continue;
            }
            for request in &group.requests {
                self.begin_wait(request.place);
            }
            for part in group.in_parts(DEVICE_KEYS) {
                let (results, clock) = (self.results.clone(), self.shared.env.clock.clone());
                let values = self.shared.values.clone();
                self.executor.spawn(Box::new(move || {
                    let pass = &mut |group, answers| {
                        results.put(Finished::Lookups { group, answers, start });
                    };
                    match clock.now().saturating_sub(start) < READ_WAIT_MAX {
                        true => part.answer(&values, pass),
                        false => part.refuse(TOO_MANY_READS, pass),
                    }
                }));
            }
        }
    }

    /// Gives commands on a map to its thread. Their connections wait.
    fn submit(&mut self, group: MapGroup) {
        group.places().for_each(|place| self.begin_wait(place));
        self.job_bytes += group.bytes();
        group.submit(&self.shared, self.results.clone());
    }

    /// Writes the replies of commands on a map.
    fn finish_map(&mut self, mut job: MapJob) {
        let took = self.shared.now().saturating_sub(job.start);
        self.job_bytes -= job.calls.bytes();
        for i in 0..job.requests.len() {
            let done = std::mem::take(&mut job.replies[i].done);
            add_to(&self.metrics.hits, done.hits);
            add_to(&self.metrics.misses, done.misses);
            let reply = job.reply(i);
            let failed = note_error(&self.shared, reply);
            let (found, arguments) = job.calls.command(i);
            self.metrics.note(found.number, 1, took, u64::from(failed));
            let MapRequest { place, id, is_silent, .. } = job.requests[i];
            if !self.is_open(place, id) {
                continue;
            }
            let connection = &mut self.connections[place];
            connection.lookups -= 1;
            let shown = || shown(found.command, &arguments);
            self.shared.note_slow(found.command, &connection.session.client, took, shown);
            let written = connection.output.len();
            connection.output.extend_from_slice(reply);
            if matches!(found.command.run, Run::Watch) && !failed {
                connection.watch(written, &arguments, done.watches);
            }
            if is_silent {
                connection.output.truncate(written);
            }
            connection.break_off_if_full();
        }
        job.requests.iter().for_each(|request| self.end_wait(request.place, request.id));
    }

    /// Whether a group from one connection is a single lookup that nobody else has to wait for, from a device
    /// that answers fast.
    fn is_lone(&self, group: &Group) -> bool {
        group.keys() == 1 && self.waiting == 0 && self.lone_read <= LONE_READ_MAX
    }

    /// Makes a connection wait for a job, or for the device.
    fn begin_wait(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        self.waiting += usize::from(!connection.is_waiting);
        connection.is_waiting = true;
    }

    /// Writes the replies to the lookups of a group.
    fn reply_to(&mut self, group: &Group, answers: &Answers, took: Duration) {
        let (mut hits, mut misses, mut all_failed) = (0, 0, 0);
        // Requests of one command follow each other mostly: they are counted together.
        let mut counted = (usize::MAX, 0, 0);
        for request in &group.requests {
            let answer = answers.of(group, request.keys.clone());
            let (found, absent) = answer.hits_and_misses();
            (hits, misses) = (hits + found, misses + absent);
            let failed = u64::from(answer.is_failed());
            all_failed += failed;
            let is_slow = self.shared.is_slow(took);
            if counted.0 != request.command {
                self.note_lookups(counted, took);
                counted = (request.command, 0, 0);
            }
            counted = (counted.0, counted.1 + 1, counted.2 + failed);
            let Some(connection) = self.connections.get_mut(request.place) else { continue };
            if connection.session.client.id != request.id {
                continue;
            }
            connection.lookups -= 1;
            if is_slow {
                let arguments = || request.lookup.words(TABLE.full_name(request.command), &answer);
                let command = TABLE.command(request.command);
                self.shared.note_slow(command, &connection.session.client, took, arguments);
            }
            if !request.is_silent {
                let mut reply = Reply::new(&mut connection.output, connection.session.protocol);
                let client = &connection.session.client;
                let elsewhere = (failed > 0).then(|| ask(&self.shared, client, request, &answer));
                match elsewhere.flatten() {
                    Some(elsewhere) => reply.error(&elsewhere),
                    None => request.lookup.reply(&answer, &mut reply),
                }
                connection.break_off_if_full();
            }
        }
        self.note_lookups(counted, took);
        if let Some(view) = &group.view {
            let calls = group.requests.len() as u64;
            self.latencies.of(view.latency()).note(calls, took, all_failed);
        }
        add_to(&self.metrics.hits, hits);
        add_to(&self.metrics.misses, misses);
    }

    fn note_lookups(&self, (command, calls, failed): (usize, u64, u64), took: Duration) {
        if calls > 0 {
            self.metrics.note(command, calls, took, failed);
        }
    }

    /// Writes the replies of jobs that have ended.
    fn take_results(&mut self) {
        while let Ok(finished) = self.finished.try_recv() {
            match finished {
                Finished::Lookups { group, answers, start } => {
                    let took = self.shared.now().saturating_sub(start);
                    self.reply_to(&group, &answers, took);
                    for request in &group.requests {
                        self.end_wait(request.place, request.id);
                    }
                }
                Finished::Map(job) => self.finish_map(*job),
                Finished::Transaction { place, id, executed } => {
                    self.job_bytes -= executed.begun.bytes;
                    if self.is_open(place, id) {
                        self.finish_exec(place, *executed);
                    }
                    self.end_wait(place, id);
                }
                Finished::Reply { place, id, reply, asked } => {
                    if self.is_open(place, id) {
                        self.finish_job(place, reply, asked);
                    }
                    self.end_wait(place, id);
                }
            }
        }
    }

    /// Whether the connection at a place is still the one that asked for something.
    fn is_open(&self, place: usize, id: u64) -> bool {
        self.connections.get(place).is_some_and(|it| it.session.client.id == id)
    }

    /// Lets a connection go on, if all it waited for has come.
    fn end_wait(&mut self, place: usize, id: u64) {
        if let Some(connection) = self.connections.get_mut(place)
            && connection.session.client.id == id
            && connection.lookups == 0
        {
            self.waiting -= usize::from(connection.is_waiting);
            connection.is_waiting = false;
            self.list(place);
        }
    }

    /// Looks for connections that stall or were killed.
    fn tick(&mut self, now: Duration) {
        self.next_tick = now + TICK;
        if self.accepts_again {
            let refused = (0..self.listeners.len()).map(|listener| self.accept(listener));
            self.accepts_again = refused.fold(false, |any, is_refused| any | is_refused);
            if !self.accepts_again {
                info!("connections are accepted again");
            }
        }
        self.latencies.forget_unused();
        self.lone_read /= 2;
        let mut closing = Vec::new();
        for (place, connection) in &mut self.connections {
            connection.rest();
            connection.note_buffers(&mut self.buffer_bytes);
            connection.note_stranger(now);
            if connection.session.client.is_killed.load(Relaxed) || connection.is_stalled(now) {
                connection.break_off();
                closing.push(place);
            }
        }
        self.note_memory();
        closing.into_iter().for_each(|place| self.list(place));
    }

    /// Closes the connections with the largest buffers, while those of all connections together take too
    /// much memory, and those of this thread more than its share: so threads do not all close some for the
    /// same excess.
    fn shed(&mut self) {
        let limit = self.shared.config.client_memory_bytes;
        let own = (self.buffer_bytes as u64).saturating_sub(self.buffer_share());
        if own == 0 {
            return;
        }
        let over = self.shared.metrics.buffer_bytes().saturating_sub(limit);
        let mut excess = over.min(own);
        while excess > 0 {
            let open = self.connections.iter_mut().filter(|(_, it)| it.buffer_bytes() > 0);
            let Some((place, largest)) = open.max_by_key(|(_, it)| it.buffer_bytes()) else {
                return;
            };
            excess = excess.saturating_sub(largest.buffer_bytes() as u64);
            largest.drop_buffers();
            largest.note_buffers(&mut self.buffer_bytes);
            add_to(&self.metrics.shed, 1);
            self.list(place);
        }
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
        if matches!(found.command.run, Run::Keys(_)) {
            return Turn::Alone(turn_groups(found.command, arguments));
        }
        let first = found.command.keys.places(arguments.len()).next();
        first.map_or(Turn::None, |at| Turn::WithOthers(TurnGroup::of(arguments.at(at))))
    }
}

/// Begins a command that changes filters, in a space whose strings clients do not change.
fn begin_on_filters(call: &Call<'_, '_>, found: Found) -> Result<Work, String> {
    let target = Target::of(call.session, &call.arguments, found.command.keys)?;
    on_filters::begin(call, found, &target)
}

/// What the end of a job needs to know about its command.
pub(super) struct AskedJob {
    number: usize,
    /// The time of its turn.
    start: Duration,
    /// The arguments as the slow log shows them.
    arguments: Vec<Vec<u8>>,
    /// Whether the client wants no reply.
    is_silent: bool,
}

impl AskedJob {
    fn new(
        shared: &Shared,
        found: Found,
        arguments: &Arguments<'_>,
        start: Duration,
        is_silent: bool,
    ) -> AskedJob {
        let arguments = match shared.slow_log.is_on() {
            true => shown(found.command, arguments),
            false => Vec::new(),
        };
        AskedJob { number: found.number, start, arguments, is_silent }
    }
}

/// A request about keys.
struct Asked {
    place: usize,
    found: Found,
    what: What,
    /// The group of earlier requests of the connection that were not answered.
    group: Option<GroupId>,
}

/// What is asked about keys.
#[derive(Clone, Copy, PartialEq)]
enum What {
    Lookup(Lookup),
    Change,
    /// A change of a map that clients change, and this lookup elsewhere.
    ChangeOrLookup(Lookup),
    Watch,
}

/// What has become of a request.
enum Added {
    To(GroupId),
    /// Its turn comes later, because earlier requests of the connection are in another group.
    Later,
    /// No batch: the request is answered in another way.
    Elsewhere,
}

/// Adds a request to the batch: one on a map to the commands for the thread of the map, unless it is a lookup that
/// needs no order among changes.
fn add(
    shared: &Shared,
    session: &mut Session,
    asked: &Asked,
    arguments: &Arguments<'_>,
    batch: &mut Batch,
) -> Result<Added, String> {
    let keys = asked.found.command.keys;
    let target = match Target::of(session, arguments, keys) {
        Err(_) if asked.what == What::Watch => return Ok(Added::Elsewhere),
        target => target?,
    };
    let is_of_map = |lookup: Lookup| {
        let is_after_changes = matches!(asked.group, Some(GroupId::Map(_)));
        target.map_of(lookup).is_some()
            && (is_after_changes || !lookup.is_of_one_value(keys.count(arguments.len())))
    };
    let what = match asked.what {
        What::ChangeOrLookup(_) if target.map().is_some_and(|map| map.refusal().is_none()) => {
            What::Change
        }
        What::ChangeOrLookup(lookup) => What::Lookup(lookup),
        what => what,
    };
    match (what, target.map()) {
        (What::Lookup(lookup), _) if !is_of_map(lookup) => {
            Ok(add_lookup(shared, session, asked, (lookup, target), arguments, batch))
        }
        (What::Change, map) if map.is_none_or(|map| map.refusal().is_some()) => {
            let command = asked.found.command;
            match target.space_of_filters(command, arguments) {
                Some(_) => Ok(Added::Elsewhere),
                None => Err(write_refusal(session, command, map.and_then(|map| map.refusal()))),
            }
        }
        (What::Watch, None) => Ok(Added::Elsewhere),
        (_, Some(_)) => Ok(add_on_map(shared, session, asked, &target, arguments, batch)),
        (What::Lookup(_) | What::Change | What::ChangeOrLookup(_), None) => {
            unreachable!("what is in other data sets is handled above")
        }
    }
}

/// Adds a lookup to those that are answered together.
fn add_lookup(
    shared: &Shared,
    session: &mut Session,
    asked: &Asked,
    (lookup, target): (Lookup, Target),
    arguments: &Arguments<'_>,
    batch: &mut Batch,
) -> Added {
    let keys = asked.found.command.keys;
    let number = batch.group(target.view.clone());
    let id = GroupId::View(number);
    if asked.group.is_some_and(|group| group != id) {
        return Added::Later;
    }
    session.client.note(shared.now(), asked.found.number);
    let group = &mut batch.groups[number];
    let keys = target.push_keys(session, arguments, keys, group);
    group.requests.push(Request {
        place: asked.place,
        id: session.client.id,
        command: asked.found.number,
        lookup,
        keys,
        is_silent: session.replies.silences(),
        is_asking: std::mem::take(&mut session.is_asking),
    });
    Added::To(id)
}

/// Adds a command to those for the thread of a map.
fn add_on_map(
    shared: &Shared,
    session: &mut Session,
    asked: &Asked,
    target: &Target,
    arguments: &Arguments<'_>,
    batch: &mut Batch,
) -> Added {
    let Some(map) = target.map() else { return Added::Elsewhere };
    let number = match asked.group {
        None => batch.map(map),
        Some(GroupId::Map(number)) if Arc::ptr_eq(&batch.maps[number].map, map) => number,
        Some(_) => return Added::Later,
    };
    session.client.note(shared.now(), asked.found.number);
    let space = target.space_with_filters().cloned();
    let request = MapRequest {
        place: asked.place,
        id: session.client.id,
        protocol: session.protocol,
        is_silent: session.replies.silences(),
        keys: KeyNames { are_named: target.is_named, space },
    };
    batch.maps[number].push(asked.found, arguments, request);
    Added::To(GroupId::Map(number))
}

/// What keeps a connection from making a call.
enum Rejection {
    /// The reply.
    Error(String),
    /// The user's rules.
    Rules(Refusal),
}

impl From<String> for Rejection {
    fn from(error: String) -> Rejection {
        Rejection::Error(error)
    }
}

impl Rejection {
    /// Returns the reply. What rules have refused is noted in `ACL LOG`.
    fn note(self, shared: &Shared, session: &Session) -> String {
        let refusal = match self {
            Rejection::Error(error) => return error,
            Rejection::Rules(refusal) => refusal,
        };
        let user = session.user().map_or("", |user| &user.name);
        let error = refusal.error(user);
        let denial = refusal.denial(user, session.transaction.is_some());
        let client = describe(shared, &session.client);
        shared.acl_log.add(denial, client, shared.env.clock.unix_time());
        error
    }
}

/// Refuses a call that the connection may not make.
fn allow(
    shared: &Shared,
    session: &Session,
    found: Found,
    arguments: &Arguments<'_>,
) -> Result<(), Rejection> {
    let Some(user) = session.user() else {
        return match found.command.is(Flag::NoAuth) {
            true => Ok(()),
            false => Err(Rejection::Error("NOAUTH Authentication required.".into())),
        };
    };
    if session.transaction.is_some() && found.command.is(Flag::NoMulti) {
        return Err(Rejection::Error("ERR Command not allowed inside a transaction".into()));
    }
    if let Some(refusal) = refusal(user, found.number, arguments) {
        return Err(Rejection::Rules(refusal));
    }
    let keys = found.command.keys.places(arguments.len());
    let mut longest = keys.map(|at| arguments.at(at).len()).max().unwrap_or(0);
    if longest > hashfold::run::KEY_BYTES_MAX {
        longest = hashfold::run::KEY_BYTES_MAX;
        return Err(format!("ERR a key has at most {longest} bytes").into());
    }
    match shared.cluster.is_on() {
        true => Ok(moved(shared, &session.client, found, arguments)?),
        false => Ok(()),
    }
}

/// Counts a reply if it is an error. Returns whether it is one.
pub(super) fn note_error(shared: &Shared, reply: &[u8]) -> bool {
    let Some(error) = reply.strip_prefix(b"-") else { return false };
    let end = memchr::memchr(b'\r', error).unwrap_or(error.len());
    shared.metrics.note_error(&String::from_utf8_lossy(&error[..end]));
    true
}
