//! A connection: its socket, the bytes that were read and not used, and those to be sent.

use super::{batch::GroupId, transport::Transport};
use crate::{
    command::Arguments,
    data::Watch,
    metrics::{ThreadMetrics, add},
    protocol::Reply,
    session::Session,
};
use mio::net::TcpStream;
use socket2::{SockRef, TcpKeepalive};
use std::{
    io::{self, ErrorKind},
    sync::Arc,
    time::Duration,
};

/// Number of bytes that are read from a connection before others have their turn.
pub(super) const READ_BYTES: usize = 32 << 10;

/// From this number of bytes of replies on, no further request is answered until the client reads.
pub(super) const OUTPUT_BYTES_PAUSE: usize = 1 << 20;

/// A connection with more bytes of replies is closed: those of one request and of those before it.
const OUTPUT_BYTES_MAX: usize = 80 << 20;

/// A client that reads nothing for this long, while replies wait, is disconnected.
const STALL_MAX: Duration = Duration::from_secs(30);

/// Time within which an encrypted connection agrees on its keys.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);

/// Time within which a client gives its password, if it needs one: else strangers could take all places.
const LOGIN_MAX: Duration = Duration::from_secs(10);

/// After this long without a byte, the system asks whether the client is still there.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// Buffers larger than this are freed when they are empty.
const KEPT_BYTES: usize = 64 << 10;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) transport: Transport,
    pub(super) session: Session,
    pub(super) input: Vec<u8>,
    /// Bytes of the input that belong to requests that were taken.
    pub(super) taken: usize,
    /// Number of bytes of the input with which the next request may be whole.
    pub(super) needs: usize,
    pub(super) output: Vec<u8>,
    sent: usize,
    /// Whether all bytes that were sent were given to the system.
    is_flushed: bool,
    /// Whether the socket may have more to read.
    pub(super) is_readable: bool,
    /// Whether a job is to be finished before the next request is taken.
    pub(super) is_waiting: bool,
    /// Number of requests that may still be taken before other connections have their turn.
    pub(super) turn_requests: usize,
    /// Number of lookups and of commands on maps that were taken and not answered.
    pub(super) lookups: usize,
    /// The group of the batch that they are in, all of them: groups are answered in no order.
    pub(super) group: GroupId,
    /// Whether nothing more comes from the client.
    is_at_end: bool,
    is_broken: bool,
    /// Whether the connection is in the list of those to be worked on.
    pub(super) is_listed: bool,
    /// The time since which the client has read nothing while replies wait.
    stalled_since: Option<Duration>,
    /// The time since which the client has a password to give.
    stranger_since: Option<Duration>,
    /// Memory of the buffers when it was noted last, in bytes.
    noted_bytes: usize,
}

impl Connection {
    pub(super) fn new(transport: Transport, session: Session) -> Connection {
        Connection {
            transport,
            session,
            input: Vec::new(),
            taken: 0,
            needs: 1,
            output: Vec::new(),
            sent: 0,
            is_flushed: true,
            is_readable: true,
            is_waiting: false,
            turn_requests: 0,
            lookups: 0,
            group: GroupId::View(0),
            is_at_end: false,
            is_broken: false,
            is_listed: false,
            stalled_since: None,
            stranger_since: None,
            noted_bytes: 0,
        }
    }

    /// Reads what the client has sent, through a buffer that all connections of a thread share: an idle
    /// connection has none.
    pub(super) fn read(&mut self, buffer: &mut [u8; READ_BYTES], metrics: &ThreadMetrics) {
        match self.transport.read(buffer) {
            Ok((0, _)) => {
                self.is_at_end = true;
                self.is_readable = false;
            }
            Ok((count, may_have_more)) => {
                self.input.extend_from_slice(&buffer[..count]);
                self.is_readable = may_have_more;
                add(&metrics.input_bytes, count as u64);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.is_readable = false,
            Err(_) => self.break_off(),
        }
    }

    /// Whether the next request can be taken.
    #[inline]
    pub(super) fn may_take(&self) -> bool {
        !self.is_waiting
            && !self.is_broken
            && !self.session.is_closing
            && self.input.len() - self.taken >= self.needs
            && self.output.len() - self.sent < OUTPUT_BYTES_PAUSE
    }

    /// Whether more should be read now: not while there are many bytes of requests that were not taken.
    pub(super) fn may_read(&self) -> bool {
        self.is_readable
            && !self.is_waiting
            && !self.is_broken
            && self.input.len() < READ_BYTES.max(self.taken + self.needs)
            && self.output.len() - self.sent < OUTPUT_BYTES_PAUSE
    }

    /// Watches keys of a map. `written` is the size of the output before the reply.
    pub(super) fn watch(&mut self, written: usize, keys: &Arguments<'_>, watches: Vec<Arc<Watch>>) {
        let mut watched = std::mem::take(&mut self.session.watched);
        let names = keys.from(1).zip(watches.into_iter().map(Some));
        let added = watched.add(&self.session, names);
        self.session.watched = watched;
        self.session.show_transaction();
        if let Err(error) = added {
            self.output.truncate(written);
            Reply::new(&mut self.output, self.session.protocol).error(&error);
        }
    }

    /// Replaces the line at the front of the input by the array that has the same words.
    pub(super) fn replace_line(&mut self, size: usize, words: &[Vec<u8>]) {
        let mut array = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            array.extend(format!("${}\r\n", word.len()).into_bytes());
            array.extend(word);
            array.extend(b"\r\n");
        }
        self.input.splice(self.taken..self.taken + size, array);
        // It may be shorter than the part of the line that was not enough.
        self.needs = 1;
    }

    /// Frees the bytes of requests that were answered.
    pub(super) fn forget_taken(&mut self) {
        if self.taken == self.input.len() {
            self.input.clear();
            if self.input.capacity() > KEPT_BYTES {
                self.input = Vec::new();
            }
        } else if self.taken > 0 {
            self.input.drain(..self.taken);
        }
        self.taken = 0;
    }

    /// Sends what can be sent now.
    pub(super) fn write(&mut self, now: Duration, metrics: &ThreadMetrics) {
        let before = self.sent;
        while self.sent < self.output.len() && !self.is_broken {
            match self.transport.write(&self.output[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.break_off(),
            }
        }
        add(&metrics.output_bytes, (self.sent - before) as u64);
        if self.sent == self.output.len() {
            self.output.clear();
            if self.output.capacity() > KEPT_BYTES {
                self.output = Vec::new();
            }
            self.sent = 0;
            self.finish_sending(now);
        } else if self.sent > before || self.stalled_since.is_none() {
            self.stalled_since = Some(now);
        }
        self.break_off_if_full();
    }

    /// Gives the system what is still to be encrypted, and says goodbye if the connection is closed then.
    fn finish_sending(&mut self, now: Duration) {
        if self.session.is_closing && self.lookups == 0 && !self.is_waiting {
            self.transport.end();
        }
        match self.transport.flush() {
            Ok(is_flushed) => self.is_flushed = is_flushed,
            Err(_) => self.break_off(),
        }
        self.stalled_since = match self.is_flushed {
            true => None,
            false => Some(self.stalled_since.unwrap_or(now)),
        };
    }

    /// Closes the connection if too many bytes of replies wait for the client.
    pub(super) fn break_off_if_full(&mut self) {
        if self.unsent() > OUTPUT_BYTES_MAX {
            self.drop_buffers();
        }
    }

    /// Closes the connection, and frees its buffers at once.
    pub(super) fn drop_buffers(&mut self) {
        (self.input, self.taken) = (Vec::new(), 0);
        (self.output, self.sent) = (Vec::new(), 0);
        self.session.end_transaction();
        self.break_off();
    }

    /// Gives back the memory of buffers that are empty, of a connection that nobody uses now.
    pub(super) fn rest(&mut self) {
        if self.input.is_empty() {
            self.input = Vec::new();
        }
        if self.output.is_empty() {
            self.output = Vec::new();
        }
    }

    /// Returns the memory of the buffers, in bytes.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.input.capacity() + self.output.capacity() + self.session.transaction_bytes()
    }

    /// Brings the memory of the buffers of all connections up to date with that of this one.
    pub(super) fn note_buffers(&mut self, sum: &mut usize) {
        let now = self.buffer_bytes();
        *sum = *sum + now - self.noted_bytes;
        self.noted_bytes = now;
    }

    /// Returns the bytes of replies that were not sent.
    pub(super) fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Closes the connection without sending the rest.
    pub(super) fn break_off(&mut self) {
        self.is_broken = true;
        self.is_readable = false;
    }

    /// Notes whether the client has a password to give; not while one is checked.
    pub(super) fn note_stranger(&mut self, now: Duration) {
        self.stranger_since = match self.session.user().is_none() && !self.is_waiting {
            true => Some(self.stranger_since.unwrap_or(now)),
            false => None,
        };
    }

    /// Whether the client has read nothing for too long, or has not agreed on keys or given its password in time.
    pub(super) fn is_stalled(&self, now: Duration) -> bool {
        let age = now.saturating_sub(self.session.client.since);
        if age > HANDSHAKE_MAX && self.transport.is_handshaking() {
            return true;
        }
        let lasts = |since: Option<Duration>, max| {
            since.is_some_and(|since| now.saturating_sub(since) > max)
        };
        lasts(self.stalled_since, STALL_MAX) || lasts(self.stranger_since, LOGIN_MAX)
    }

    /// Whether the system has all bytes of replies.
    pub(super) fn has_sent_all(&self) -> bool {
        self.unsent() == 0 && self.is_flushed
    }

    /// Whether the connection is to be closed now.
    pub(super) fn is_done(&self) -> bool {
        let has_answered_all = self.has_sent_all() && !self.is_waiting && self.lookups == 0;
        self.is_broken
            || (has_answered_all
                && (self.session.is_closing || (self.is_at_end && !self.may_take())))
    }
}

/// Sets the options of a new connection.
pub(super) fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    SockRef::from(socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE_MAX))
}
