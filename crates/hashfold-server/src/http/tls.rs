//! Encrypted connections of browsers and programs.

use crate::{shared::Shared, tls::Certificates};
use axum::serve::Listener;
use std::{future::pending, io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{
        Semaphore,
        mpsc::{Receiver, Sender, channel},
    },
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Time within which a connection agrees on its keys.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Maximum number of connections that agree on their keys at a time.
const HANDSHAKES_MAX: usize = 64;

/// Time to wait when the system accepts no connection: too many files are open.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(100);

type Accepted = (TlsStream<TcpStream>, SocketAddr);

/// A listener that returns connections when they have agreed on their keys. A slow one keeps no other one waiting.
#[derive(Debug)]
pub(super) struct TlsListener {
    accepted: Receiver<Accepted>,
    address: SocketAddr,
}

impl TlsListener {
    /// Begins to accept connections, with the certificates that are current then.
    ///
    /// # Errors
    /// The listener has no address.
    pub(super) fn new(listener: TcpListener, shared: Arc<Shared>) -> io::Result<TlsListener> {
        let address = listener.local_addr()?;
        let (sender, accepted) = channel(HANDSHAKES_MAX);
        tokio::spawn(accept_all(listener, shared, sender));
        Ok(TlsListener { accepted, address })
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> Accepted {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            None => pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

/// Accepts connections until the runtime ends.
async fn accept_all(listener: TcpListener, shared: Arc<Shared>, sender: Sender<Accepted>) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    while let Ok(permit) = handshakes.clone().acquire_owned().await {
        let Ok((socket, peer)) = listener.accept().await else {
            sleep(ACCEPT_INTERVAL).await;
            continue;
        };
        let Some(config) = shared.certificates.as_ref().map(Certificates::current) else { return };
        let sender = sender.clone();
        tokio::spawn(async move {
            let shaken = timeout(HANDSHAKE_MAX, TlsAcceptor::from(config).accept(socket)).await;
            if let Ok(Ok(stream)) = shaken {
                // The receiver lives as long as the runtime.
                let _ = sender.send((stream, peer)).await;
            }
            drop(permit);
        });
    }
}
