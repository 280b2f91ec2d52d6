//! The bytes of a connection: as they are, or encrypted with TLS.

use mio::net::TcpStream;
use rustls::{ServerConfig, ServerConnection};
use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    sync::Arc,
};

/// Maximum number of bytes that are encrypted before the client reads them.
const ENCRYPTED_BYTES_MAX: usize = 64 << 10;

/// A socket, and what encrypts its bytes.
#[derive(Debug)]
pub(super) struct Transport {
    pub(super) socket: TcpStream,
    tls: Option<Box<ServerConnection>>,
    has_ended: bool,
}

impl Transport {
    /// Makes the transport of a new connection. With a configuration, it is encrypted.
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub(super) fn new(
        socket: TcpStream,
        config: Option<Arc<ServerConfig>>,
    ) -> Result<Transport, rustls::Error> {
        let mut tls = config.map(ServerConnection::new).transpose()?.map(Box::new);
        if let Some(tls) = &mut tls {
            tls.set_buffer_limit(Some(ENCRYPTED_BYTES_MAX));
        }
        Ok(Transport { socket, tls, has_ended: false })
    }

    /// Whether the client and the server have not agreed on keys yet.
    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Reads bytes of the client. Returns 0 at the end, and whether there may be more now.
    ///
    /// # Errors
    /// `WouldBlock` if there are none now.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<(usize, bool)> {
        let Transport { socket, tls: Some(tls), .. } = self else {
            let count = self.socket.read(buffer)?;
            return Ok((count, count == buffer.len()));
        };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return Ok((read?, true)),
            }
            if tls.read_tls(socket)? == 0 {
                return Ok((0, false));
            }
            let processed = tls.process_new_packets();
            // After an error, the client is told why.
            send(tls, socket)?;
            processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }

    /// Sends bytes, or takes them over to encrypt them. Returns their number.
    ///
    /// # Errors
    /// `WouldBlock` if the client must read first.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Transport { socket, tls: Some(tls), .. } = self else {
            return self.socket.write(bytes);
        };
        send(tls, socket)?;
        let count = tls.writer().write(bytes)?;
        send(tls, socket)?;
        match count {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    /// Says that nothing more is sent, before an encrypted connection is closed.
    pub(super) fn end(&mut self) {
        if let Some(tls) = &mut self.tls
            && !self.has_ended
        {
            tls.send_close_notify();
            self.has_ended = true;
        }
    }

    /// Sends what was taken over. Returns whether nothing is left.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        let Transport { socket, tls: Some(tls), .. } = self else { return Ok(true) };
        send(tls, socket)?;
        Ok(!tls.wants_write())
    }
}

/// Sends encrypted bytes, as many as the system takes.
fn send(tls: &mut ServerConnection, socket: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        match tls.write_tls(socket) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            sent => drop(sent?),
        }
    }
    Ok(())
}
