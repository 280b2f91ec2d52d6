//! The most connections that browsers and programs have at a time.
//!
//! Nobody has to sign in before a connection counts. So that strangers cannot keep others out, the oldest
//! connection makes place for a new one.

use axum::serve::Listener;
use std::{
    collections::VecDeque,
    future::Future as _,
    io,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot::{Receiver, Sender, channel},
};

/// Maximum number of connections to one address.
const CONNECTIONS_MAX: usize = 64;

/// A listener whose connections are limited in number.
pub(super) struct Limited<L> {
    listener: L,
    /// What ends the connections that are open when it is dropped, the oldest first.
    open: VecDeque<Sender<()>>,
}

impl<L> Limited<L> {
    pub(super) fn new(listener: L) -> Limited<L> {
        Limited { listener, open: VecDeque::new() }
    }
}

impl<L: Listener> Listener for Limited<L> {
    type Io = Ending<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Ending<L::Io>, L::Addr) {
        let (stream, peer) = self.listener.accept().await;
        self.open.retain(|other| !other.is_closed());
        if self.open.len() >= CONNECTIONS_MAX {
            self.open.pop_front();
        }
        let (sender, end) = channel();
        self.open.push_back(sender);
        (Ending { stream, end: Some(end) }, peer)
    }

    fn local_addr(&self) -> io::Result<L::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that may be ended in favour of another.
pub(super) struct Ending<S> {
    stream: S,
    /// Comes when the connection ends; `None` after that.
    end: Option<Receiver<()>>,
}

impl<S> Ending<S> {
    /// # Errors
    /// `ConnectionAborted` if the connection has ended. If it has not, the task is woken when it does.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.end.as_mut().is_some_and(|end| Pin::new(end).poll(context).is_ready()) {
            self.end = None;
        }
        match self.end {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Ending<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Ending<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
