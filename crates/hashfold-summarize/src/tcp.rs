//! Events from TCP: a thread for each connection, and one for each address.

use crate::{
    config::Stream,
    error::SummarizeError,
    framing::Ending,
    source::{DRAIN_MAX, End, Source},
};
use hashfold::{
    pipeline::{Input, SourceId},
    work::{Clock as _, SystemClock},
};
use socket2::{SockRef, TcpKeepalive};
use std::{
    io::{self, ErrorKind},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between two looks for a connection, and whether the run is to stop.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(20);
/// Time after which a connection that is silent looks whether the run is to stop.
const READ_TIMEOUT: Duration = Duration::from_millis(100);
/// After this long without a byte, the system asks whether the sender is still there.
const SILENCE_MAX: Duration = Duration::from_secs(300);
/// What errors call a connection.
const PLACE: &str = "a connection";

/// State that the threads of all connections of a stream share.
#[derive(Debug)]
pub(crate) struct Connections {
    stream: Stream,
    input: Input,
    stop: Arc<AtomicBool>,
    /// Connections that are open.
    pub(crate) open: AtomicUsize,
    /// Connections that ended with an error.
    pub(crate) failed: AtomicUsize,
    /// The time until which all are read that have come, once the run is to stop.
    drain_end: OnceLock<Duration>,
}

impl Connections {
    pub(crate) fn new(stream: &Stream, input: Input, stop: &Arc<AtomicBool>) -> Connections {
        Connections {
            stream: stream.clone(),
            input,
            stop: stop.clone(),
            open: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            drain_end: OnceLock::new(),
        }
    }

    /// Returns the time until which is read what has come. The first call sets it.
    fn drain_end(&self) -> Duration {
        *self.drain_end.get_or_init(|| SystemClock.now() + DRAIN_MAX)
    }
}

/// Listens on an address.
pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener, SummarizeError> {
    let listen = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    let failed =
        |source| SummarizeError::Io { place: address.to_string(), action: "listen", source };
    listen().map_err(failed)
}

/// Accepts connections until the run is to stop, then those that wait already, and waits for the ends of all. Beyond the
/// maximum number of connections, new ones wait.
pub(crate) fn accept(listener: TcpListener, shared: &Arc<Connections>) {
    let mut threads = Vec::new();
    loop {
        // Before the look for a connection, so that none is missed that came before the run is to stop.
        let is_stopping = shared.stop.load(Ordering::Relaxed);
        if is_stopping && SystemClock.now() >= shared.drain_end() {
            break;
        }
        threads.retain(|thread: &JoinHandle<()>| !thread.is_finished());
        let is_full = shared.open.load(Ordering::Relaxed) >= shared.stream.clients_max;
        match (!is_full).then(|| listener.accept()) {
            Some(Ok((connection, _))) => threads.extend(spawn(connection, shared)),
            Some(Err(error)) if is_stopping && error.kind() == ErrorKind::WouldBlock => break,
            // Errors such as too many open files pass.
            Some(Err(_)) | None => SystemClock.sleep(ACCEPT_INTERVAL),
        }
    }
    // From now on, connections are refused.
    drop(listener);
    for thread in threads {
        // A panic has ended only its connection.
        let _ = thread.join();
    }
}

/// Starts the thread of a connection. One that the system refuses closes the connection, which has failed then.
fn spawn(connection: TcpStream, shared: &Arc<Connections>) -> Option<JoinHandle<()>> {
    let own = shared.clone();
    own.open.fetch_add(1, Ordering::Relaxed);
    let serve = move || {
        if serve(connection, &own).is_err() {
            own.failed.fetch_add(1, Ordering::Relaxed);
        }
        own.open.fetch_sub(1, Ordering::Relaxed);
    };
    let thread = thread::Builder::new().name("hashfold-tcp".into()).spawn(serve);
    if thread.is_err() {
        shared.open.fetch_sub(1, Ordering::Relaxed);
        shared.failed.fetch_add(1, Ordering::Relaxed);
    }
    thread.ok()
}

fn serve(connection: TcpStream, shared: &Connections) -> Result<(), SummarizeError> {
    prepare(&connection).map_err(failed)?;
    let id = shared.input.open()?;
    let read = read(connection, id, shared);
    // From now on, no other connection waits for its events.
    shared.input.close(id)?;
    read
}

fn failed(source: io::Error) -> SummarizeError {
    SummarizeError::Io { place: PLACE.into(), action: "read", source }
}

/// Reads a connection until its end, or until the run is to stop.
fn read(
    mut connection: TcpStream,
    id: SourceId,
    shared: &Connections,
) -> Result<(), SummarizeError> {
    let source = Source::new(&shared.stream, &shared.input, &shared.stop);
    let mut source = source.connection(id).ending(Ending::CutShort);
    let mut read = || -> Result<(), SummarizeError> {
        if source.read(&mut connection, PLACE)? == End::Stopped {
            connection.set_nonblocking(true).map_err(failed)?;
            source.drain(&mut connection, PLACE, shared.drain_end())?;
        }
        Ok(())
    };
    let read = read();
    // After an error, too: the event that it broke off is counted.
    source.finish()?;
    read
}

/// Sets the options of a new connection.
pub(crate) fn prepare(connection: &TcpStream) -> io::Result<()> {
    connection.set_nonblocking(false)?;
    connection.set_read_timeout(Some(READ_TIMEOUT))?;
    // A sender that vanished does not keep its place.
    SockRef::from(connection).set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE_MAX))
}
