//! Sockets that accept connections. Each network thread has its own, and the system spreads connections
//! over them.

use mio::net::TcpListener;
use socket2::{Domain, Protocol, Socket, Type};
use std::{io, net::SocketAddr};

/// Number of connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Fails if another process listens on an address. Sockets of [`listen`] do not notice that, if it does so
/// like them.
pub(crate) fn check_free(address: SocketAddr) -> io::Result<()> {
    socket(address)?.bind(&address.into())
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

/// Listens on an address, beside other sockets of this process. With port 0, the system chooses one.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(address)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}
