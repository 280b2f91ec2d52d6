//! The event loop of one network thread.

use super::{
    batch::{Answers, Batch, Group, Request},
    connection::{Connection, READ_BYTES, prepare},
    jobs::{Finished, Results},
    redirect::{ask, moved},
    transport::Transport,
};
use crate::{
    command::{Arguments, Call, Flag, Found, Keys, Lookup, Run, TABLE, Work, refusal, type_of},
    data::{OwnLatencies, Space},
    metrics::{ThreadMetrics, add},
    protocol::{Limits, Parsed, Reply, parse},
    session::{Client, Session},
    shared::{Shared, SlowCommand},
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
use tracing::warn;

/// Token of the waker; listeners have the tokens below [`FIRST_CONNECTION`].
const WAKER: Token = Token(0);
const FIRST_CONNECTION: usize = 64;

/// Number of events that are taken from the system at once.
const EVENTS: usize = 1024;

/// The longest time without a look at connections that stall or were killed.
const TICK: Duration = Duration::from_millis(100);

/// Maximum number of requests that are taken from a connection before their replies are written.
const REQUESTS_AT_ONCE: usize = 1024;

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

/// Maximum number of arguments, and size of each, that the slow log keeps.
const SLOW_ARGUMENTS: usize = 32;
const SLOW_ARGUMENT_BYTES: usize = 128;

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
                    Token(number) if number < FIRST_CONNECTION => self.accept(number - 1),
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

    /// Whether the server stops and all requests that were read are answered.
    fn is_finished(&mut self) -> bool {
        if !self.shared.is_stopping.load(Relaxed) {
            return false;
        }
        self.listeners.clear();
        self.connections.iter().all(|(_, it)| it.has_sent_all() && !it.is_waiting && !it.may_take())
    }

    fn accept(&mut self, listener: usize) {
        while let Some(accepted) = self.listeners.get(listener).map(TcpListener::accept) {
            let (socket, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
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
                    self.accepts_again = true;
                    return;
                }
            };
            let is_encrypted = listener >= self.shared.config.listen.len();
            let count = self.shared.clients.lock().unwrap_or_else(PoisonError::into_inner).len();
            if count >= self.shared.config.clients_max {
                add(&self.metrics.refused, 1);
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
    }

    fn add(&mut self, mut transport: Transport, client: Arc<Client>) {
        let entry = self.connections.vacant_entry();
        let token = Token(FIRST_CONNECTION + entry.key());
        let both = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut transport.socket, token, both).is_err() {
            return;
        }
        add(&self.metrics.connections, 1);
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

    /// Reads from all connections that are ready, answers them, and writes their replies.
    fn turn(&mut self) {
        let listed = std::mem::take(&mut self.listed);
        let reads = self.reads();
        for &place in listed.iter().filter(|_| reads) {
            if !self.has_room() {
                break;
            }
            if let Some(connection) = self.connections.get_mut(place)
                && connection.may_read()
            {
                connection.read(&mut self.buffer, &self.metrics);
                connection.note_buffers(&mut self.buffer_bytes);
            }
        }
        while self.has_room_after(&listed) {
            let mut batch = Batch::default();
            listed.iter().for_each(|place| self.take_requests(*place, &mut batch));
            if batch.groups.is_empty() {
                break;
            }
            self.look_up(batch, listed.len() == 1);
        }
        let now = self.shared.now();
        for place in listed {
            self.finish_turn(place, now);
        }
        self.metrics.buffer_bytes.store(self.buffer_bytes as u64, Relaxed);
        self.shed();
        if self.is_paused && self.has_room() {
            self.go_on_reading();
        }
    }

    /// Whether the buffers of all connections together leave room for more bytes, or those of this thread are
    /// within its share.
    fn has_room(&self) -> bool {
        if self.buffer_bytes as u64 <= self.buffer_share() {
            return true;
        }
        self.metrics.buffer_bytes.store(self.buffer_bytes as u64, Relaxed);
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
        let may_read = self.connections.iter().filter(|(_, connection)| connection.may_read());
        let places: Vec<usize> = may_read.map(|(place, _)| place).collect();
        places.into_iter().for_each(|place| self.list(place));
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
        let may_read = connection.may_read() && reads;
        if connection.is_done() {
            self.close(place);
        } else if connection.may_take() || (may_read && has_room) {
            self.list(place);
        } else {
            self.is_paused |= may_read;
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
        for _ in 0..REQUESTS_AT_ONCE {
            if batch.is_full() {
                return;
            }
            let Some(connection) = self.connections.get_mut(place) else { return };
            if !connection.may_take() || !self.take_request(place, batch) {
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
            Err(error) => return self.reply_error(place, None, &error),
        };
        if let Err(error) = allow(&self.shared, &connection.session, found, &arguments) {
            return self.reply_error(place, Some(found.number), &error);
        }
        if let Run::Lookup(parse) = found.command.run {
            let added = parse(&arguments).and_then(|lookup| {
                let group = (connection.lookups > 0).then_some(connection.group);
                let request = Asked { place, found, lookup, group };
                add_lookup(&self.shared, &mut connection.session, &request, &arguments, batch)
            });
            return match added {
                Ok(None) => false,
                Ok(Some(group)) => {
                    connection.lookups += 1;
                    connection.group = group;
                    true
                }
                Err(error) => self.reply_error(place, Some(found.number), &error),
            };
        }
        // Replies keep the order of requests.
        if connection.lookups > 0 {
            return false;
        }
        self.run_command(place, size, places, found);
        true
    }

    /// Runs a command that is no lookup.
    fn run_command(&mut self, place: usize, size: usize, places: &[Range<usize>], found: Found) {
        let start = self.shared.now();
        let connection = &mut self.connections[place];
        let Connection { input, output, session, taken, .. } = connection;
        let arguments = Arguments::new(&input[*taken..*taken + size], places);
        session.client.note(start, found.number);
        let (before, written) = (session.replies, output.len());
        let mut reply = Reply::new(output, session.protocol);
        let mut call = Call { shared: &self.shared, session, arguments, reply: &mut reply };
        let mut job = None;
        match found.command.run {
            Run::Now(run) => run(&mut call),
            Run::Job(run) => match run(&mut call) {
                Ok(work) => job = Some(work),
                Err(error) => call.reply.error(&error),
            },
            Run::Login(run) => match run(&mut call) {
                Ok(work) => job = work,
                Err(error) => call.reply.error(&error),
            },
            Run::Lookup(_) | Run::Group(_) => {
                unreachable!("the caller has answered lookups; the table finds subcommands")
            }
        }
        let took = self.shared.now().saturating_sub(start);
        let failed = note_error(&self.shared, &output[written..]);
        self.metrics.note(found.number, 1, took, u64::from(failed));
        if took.as_micros() as u64 >= self.shared.slow_log_us.load(Relaxed) {
            let shown = if found.command.is(Flag::NoAuth) { 1 } else { SLOW_ARGUMENTS };
            let entry = slow(&self.shared, &session.client, took, &arguments, shown);
            self.shared.note_slow(entry);
        }
        let is_silent = before.silences(&mut session.replies);
        if is_silent {
            output.truncate(written);
        }
        if let Some(work) = job {
            let is_login = matches!(found.command.run, Run::Login(_));
            self.start_job(place, Job { work, is_login, is_silent });
        }
    }

    /// Gives a job to another thread. The connection waits for it.
    fn start_job(&mut self, place: usize, Job { work, is_login, is_silent }: Job) {
        self.begin_wait(place);
        let connection = &self.connections[place];
        let (id, results) = (connection.session.client.id, self.results.clone());
        let executor = if is_login { &self.shared.passwords } else { &self.executor };
        executor.spawn(Box::new(move || {
            results.put(Finished::Reply { place, id, reply: work(), is_silent });
        }));
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
        let before = session.replies;
        if before.silences(&mut session.replies) {
            output.truncate(written);
        }
        true
    }

    /// Answers the lookups of a batch: those in memory now, others on another thread. `is_of_one` says
    /// whether one connection alone has requests.
    fn look_up(&mut self, batch: Batch, is_of_one: bool) {
        for group in batch.groups {
            let start = self.shared.now();
            let is_in_memory = group.is_in_memory();
            if is_in_memory || (is_of_one && self.is_lone(&group)) {
                group.answer(&mut |group, answers| {
                    let took = self.shared.now().saturating_sub(start);
                    self.reply_to(&group, &answers, took);
                });
                if !is_in_memory {
                    let took = self.shared.now().saturating_sub(start);
                    self.lone_read = (self.lone_read * 7 + took) / 8;
                }
                continue;
            }
            for request in &group.requests {
                self.begin_wait(request.place);
            }
            for part in group.in_parts(DEVICE_KEYS) {
                let (results, clock) = (self.results.clone(), self.shared.env.clock.clone());
                self.executor.spawn(Box::new(move || {
                    let pass = &mut |group, answers| {
                        results.put(Finished::Lookups { group, answers, start });
                    };
                    match clock.now().saturating_sub(start) < READ_WAIT_MAX {
                        true => part.answer(pass),
                        false => part.refuse(TOO_MANY_READS, pass),
                    }
                }));
            }
        }
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
        add(&self.metrics.hits, hits);
        add(&self.metrics.misses, misses);
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
                Finished::Reply { place, id, reply, is_silent } => {
                    if let Some(connection) = self.connections.get_mut(place)
                        && connection.session.client.id == id
                    {
                        let Connection { output, session, .. } = connection;
                        let written = output.len();
                        let mut to_client = Reply::new(output, session.protocol);
                        reply(session, &mut to_client);
                        note_error(&self.shared, &output[written..]);
                        if is_silent {
                            output.truncate(written);
                        }
                    }
                    self.end_wait(place, id);
                }
            }
        }
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
        if std::mem::take(&mut self.accepts_again) {
            (0..self.listeners.len()).for_each(|listener| self.accept(listener));
        }
        self.latencies.forget_unused();
        self.lone_read /= 2;
        let mut closing = Vec::new();
        for (place, connection) in &mut self.connections {
            connection.rest();
            connection.note_buffers(&mut self.buffer_bytes);
            if connection.session.client.is_killed.load(Relaxed) || connection.is_stalled(now) {
                connection.break_off();
                closing.push(place);
            }
        }
        self.metrics.buffer_bytes.store(self.buffer_bytes as u64, Relaxed);
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
            add(&self.metrics.shed, 1);
            self.list(place);
        }
    }
}

/// Work for another thread.
struct Job {
    work: Work,
    /// Whether a password is checked.
    is_login: bool,
    /// Whether the client wants no reply.
    is_silent: bool,
}

/// A lookup that was asked for.
struct Asked {
    place: usize,
    found: Found,
    lookup: Lookup,
    /// The group of earlier lookups of the connection that were not answered.
    group: Option<usize>,
}

/// Adds a lookup to the batch, and returns its group; `None` if its turn comes later, because earlier
/// lookups of the connection are in another group.
fn add_lookup(
    shared: &Shared,
    session: &mut Session,
    asked: &Asked,
    arguments: &Arguments<'_>,
    batch: &mut Batch,
) -> Result<Option<usize>, String> {
    let keys = asked.found.command.keys;
    let other = other_space(session, arguments, keys)?;
    let strips = other.is_some();
    let (view, space) = match other {
        Some(other) => (other.view()?, Some(other)),
        None => (session.view()?, session.space().cloned()),
    };
    let number = batch.group(view);
    if asked.group.is_some_and(|group| group != number) {
        return Ok(None);
    }
    session.client.note(shared.now(), asked.found.number);
    let before = session.replies;
    let group = &mut batch.groups[number];
    let first = group.keys();
    for key in keys.places(arguments.len()).map(|at| arguments.at(at)) {
        let key = if strips { named(key).map_or(key, |(_, key)| key) } else { key };
        group.push_key(key);
        if let Some(filter) = space.as_ref().and_then(|space| space.filter(key)) {
            group.last_key_is_filter(type_of(&filter));
        }
    }
    let keys = first..group.keys();
    group.requests.push(Request {
        place: asked.place,
        id: session.client.id,
        command: asked.found.number,
        lookup: asked.lookup,
        keys,
        is_silent: before.silences(&mut session.replies),
        is_asking: std::mem::take(&mut session.is_asking),
    });
    Ok(Some(number))
}

/// Returns the space that the keys of a command name, as in `people:{4711}`.
fn other_space(
    session: &Session,
    arguments: &Arguments<'_>,
    keys: Keys,
) -> Result<Option<Arc<Space>>, String> {
    let Some(user) = session.user().filter(|user| !user.spaces.is_empty()) else { return Ok(None) };
    let space_of = |at: usize| {
        let (name, _) = named(arguments.at(at))?;
        user.spaces.get(std::str::from_utf8(name).ok()?)
    };
    let mut spaces = keys.places(arguments.len()).map(space_of);
    let first = spaces.next().flatten();
    let is_same = |other: Option<&Arc<Space>>| match (first, other) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    };
    match spaces.all(is_same) {
        true => Ok(first.cloned()),
        false => Err("ERR keys of one command must be in one data set".into()),
    }
}

/// Splits a key such as `people:{4711}` into the name of a space and the key there.
fn named(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', key)?;
    let inside = key[colon + 1..].strip_prefix(b"{")?.strip_suffix(b"}")?;
    Some((&key[..colon], inside))
}

/// Refuses a call that the connection may not make.
fn allow(
    shared: &Shared,
    session: &Session,
    found: Found,
    arguments: &Arguments<'_>,
) -> Result<(), String> {
    let Some(user) = session.user() else {
        return match found.command.is(Flag::NoAuth) {
            true => Ok(()),
            false => Err("NOAUTH Authentication required.".into()),
        };
    };
    if let Some(refused) = refusal(user, found.number, arguments) {
        return Err(refused);
    }
    let keys = found.command.keys.places(arguments.len());
    let mut longest = keys.map(|at| arguments.at(at).len()).max().unwrap_or(0);
    if longest > hashfold::run::KEY_BYTES_MAX {
        longest = hashfold::run::KEY_BYTES_MAX;
        return Err(format!("ERR a key has at most {longest} bytes"));
    }
    match shared.cluster.is_on() {
        true => moved(shared, &session.client, found, arguments),
        false => Ok(()),
    }
}

/// Counts a reply if it is an error. Returns whether it is one.
fn note_error(shared: &Shared, reply: &[u8]) -> bool {
    let Some(error) = reply.strip_prefix(b"-") else { return false };
    let end = memchr::memchr(b'\r', error).unwrap_or(error.len());
    shared.metrics.note_error(&String::from_utf8_lossy(&error[..end]));
    true
}

/// Returns the entry of the slow log for a call, with this number of arguments: those of a login are secret.
fn slow(
    shared: &Shared,
    client: &Client,
    took: Duration,
    arguments: &Arguments<'_>,
    shown: usize,
) -> SlowCommand {
    let cut = |argument: &[u8]| argument[..argument.len().min(SLOW_ARGUMENT_BYTES)].to_vec();
    SlowCommand {
        id: shared.new_id(),
        at: shared.env.clock.unix_time().as_secs(),
        took,
        arguments: arguments.from(0).take(shown).map(cut).collect(),
        peer: client.peer.to_string(),
        name: client.texts().name,
    }
}
