//! The event loop of one network thread.

use super::{
    batch::Batch,
    connection::{Connection, READ_BYTES, prepare},
    jobs::{Finished, Results},
    transport::Transport,
    values::ValueMemory,
};
use crate::{
    data::OwnLatencies,
    metrics::{ThreadMetrics, add as add_to},
    session::{Client, Session},
    shared::Shared,
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

/// A network thread's connections.
pub(crate) struct EventLoop {
    pub(super) shared: Arc<Shared>,
    pub(super) executor: Arc<dyn Executor>,
    pub(super) metrics: Arc<ThreadMetrics>,
    pub(super) latencies: OwnLatencies,
    poll: Poll,
    listeners: Vec<TcpListener>,
    pub(super) connections: Slab<Connection>,
    /// Places of the connections to be worked on.
    listed: Vec<usize>,
    pub(super) results: Results,
    pub(super) finished: Receiver<Finished>,
    buffer: Box<[u8; READ_BYTES]>,
    /// Places of arguments; here so that its memory is used again.
    pub(super) places: Vec<Range<usize>>,
    next_tick: Duration,
    /// Whether the system has refused to accept a connection.
    accepts_again: bool,
    /// Number of connections that wait for jobs or for the device.
    pub(super) waiting: usize,
    /// Mean time of the last lookups that were alone; halved at each tick, so that a device that was slow is
    /// tried again.
    pub(super) lone_read: Duration,
    /// Memory of the buffers of all connections, in bytes, as it was noted when they were read, and at the end
    /// of their turns.
    pub(super) buffer_bytes: usize,
    /// Memory of the requests that threads of maps and other threads have, in bytes: connections that have gone
    /// leave it behind.
    pub(super) job_bytes: usize,
    /// The memory of values.
    #[expect(
        clippy::redundant_allocation,
        reason = "cloned for each batch: counted for this thread alone"
    )]
    pub(super) values: Arc<Arc<ValueMemory>>,
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

    pub(super) fn list(&mut self, place: usize) {
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
    pub(super) fn has_room_after(&mut self, listed: &[usize]) -> bool {
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
