//! Events from TCP: a thread for each connection, and one for each address.

use crate::{config::Stream, error::SummarizeError, source::Source};
use hashfold::{
    pipeline::Input,
    work::{Clock as _, SystemClock},
};
use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

/// Time between two looks for a connection, and whether the run is to stop.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(20);
/// Time after which a connection that is silent looks whether the run is to stop.
const READ_TIMEOUT: Duration = Duration::from_millis(100);

/// State that the threads of all connections of a stream share.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) stream: Stream,
    pub(crate) input: Input,
    pub(crate) stop: Arc<AtomicBool>,
    /// Connections that are open.
    pub(crate) open: AtomicUsize,
    /// Connections that ended with an error.
    pub(crate) failed: AtomicUsize,
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

/// Accepts connections until the run is to stop, and waits for their ends. Beyond the maximum number of connections, new ones
/// wait.
pub(crate) fn accept(listener: &TcpListener, shared: &Arc<Connections>) {
    let mut threads = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        threads.retain(|thread: &thread::JoinHandle<()>| !thread.is_finished());
        let is_full = shared.open.load(Ordering::Relaxed) >= shared.stream.clients_max;
        // Errors such as too many open files pass.
        let accepted = if is_full { None } else { listener.accept().ok() };
        let Some((connection, _)) = accepted else {
            SystemClock.sleep(ACCEPT_INTERVAL);
            continue;
        };
        let own = shared.clone();
        own.open.fetch_add(1, Ordering::Relaxed);
        let serve = move || {
            if serve(connection, &own).is_err() {
                own.failed.fetch_add(1, Ordering::Relaxed);
            }
            own.open.fetch_sub(1, Ordering::Relaxed);
        };
        match thread::Builder::new().name("hashfold-tcp".into()).spawn(serve) {
            Ok(thread) => threads.push(thread),
            Err(_) => {
                shared.open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
    for thread in threads {
        // A panic has ended only its connection.
        let _ = thread.join();
    }
}

fn serve(mut connection: TcpStream, shared: &Connections) -> Result<(), SummarizeError> {
    let prepare = |connection: &TcpStream| -> io::Result<()> {
        connection.set_nonblocking(false)?;
        connection.set_read_timeout(Some(READ_TIMEOUT))
    };
    let failed =
        |source| SummarizeError::Io { place: "a connection".into(), action: "read", source };
    prepare(&connection).map_err(failed)?;
    let source = Source::new(&shared.stream, &shared.input, &shared.stop);
    source.without_header().read(&mut connection, "a connection")?;
    Ok(())
}
