//! A connection's state: who it is, what it sees, and how it is answered.

use crate::{
    data::{Space, View},
    protocol::{Limits, Protocol},
    transaction::{Pins, Transaction, Watched},
    user::User,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// The state of a connection that commands read and change.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) client: Arc<Client>,
    user: Option<Arc<User>>,
    /// The limits of requests.
    pub(crate) limits: &'static Limits,
    /// The version that the connection uses, if it does not follow the current one.
    pub(crate) fixed: Option<Arc<View>>,
    pub(crate) protocol: Protocol,
    pub(crate) replies: Replies,
    /// Whether the client reads from replicas (`READONLY`).
    pub(crate) reads_replicas: bool,
    /// Whether another server of the group has sent the client here for its next lookup (`ASKING`).
    pub(crate) is_asking: bool,
    /// Whether the connection is closed after the reply.
    pub(crate) is_closing: bool,
    /// The commands since `MULTI`.
    pub(crate) transaction: Option<Transaction>,
    pub(crate) watched: Watched,
    /// The views that lookups read while `EXEC` runs.
    pub(crate) pins: Option<Pins>,
}

/// Whether a connection gets replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    On,
    Off,
    /// This command gets no reply, as the client has said before it.
    Skip,
    /// The client has just said that the next command gets no reply; this one gets none either.
    SkipNext,
}

impl Replies {
    /// Returns whether the command that has left this state gets no reply, and sets the state for the next one.
    pub(crate) fn silences(&mut self) -> bool {
        let is_silent = *self != Replies::On;
        *self = match self {
            Replies::On | Replies::Skip => Replies::On,
            Replies::Off => Replies::Off,
            Replies::SkipNext => Replies::Skip,
        };
        is_silent
    }
}

impl Session {
    /// Returns the state of a new connection.
    pub(crate) fn new(client: Arc<Client>, user: Option<Arc<User>>) -> Session {
        let session = Session {
            client,
            user: None,
            limits: &Limits::STRANGER,
            fixed: None,
            protocol: Protocol::Resp2,
            replies: Replies::On,
            reads_replicas: false,
            is_asking: false,
            is_closing: false,
            transaction: None,
            watched: Watched::default(),
            pins: None,
        };
        session.with_user(user)
    }

    fn with_user(mut self, user: Option<Arc<User>>) -> Session {
        self.set_user(user);
        self
    }

    /// Returns the user, once the client has given its password if there is one.
    #[inline]
    pub(crate) fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// Returns the space of the user.
    #[inline]
    pub(crate) fn space(&self) -> Option<&Arc<Space>> {
        self.user.as_ref().map(|user| &user.space)
    }

    /// Changes the user. The connection then follows the current version.
    pub(crate) fn set_user(&mut self, user: Option<Arc<User>>) {
        self.fixed = None;
        self.limits = match &user {
            None => &Limits::STRANGER,
            Some(user) if user.all_spaces().any(|space| space.takes_values()) => &Limits::MAP,
            Some(_) => &Limits::CLIENT,
        };
        if let Some(user) = &user {
            self.client.set_text(|texts| texts.user.clone_from(&user.name));
        }
        self.user = user;
    }

    /// Returns the data that lookups of this connection read now; `None` if the user sees only filters.
    ///
    /// # Errors
    /// The error reply if the store has no version yet, or is not served any more.
    #[inline]
    pub(crate) fn view(&self) -> Result<Option<Arc<View>>, String> {
        match &self.fixed {
            Some(view) => {
                let data = self.space().and_then(|space| space.data());
                match data.filter(|data| data.is_gone()) {
                    Some(data) => Err(data.refusal()),
                    None => Ok(Some(view.clone())),
                }
            }
            None => self.space().map_or(Ok(None), |space| self.view_of(space)),
        }
    }

    /// Returns the reply to a lookup of a key that is no filter, if the client has to choose a data set first.
    #[inline]
    pub(crate) fn choice(&self) -> Option<&str> {
        self.user.as_ref()?.choice.as_deref()
    }

    /// Returns the data that lookups of this connection in a space read now, whatever version it uses of its
    /// own space.
    ///
    /// # Errors
    /// The errors of [`Session::view`].
    #[inline]
    pub(crate) fn view_of(&self, space: &Space) -> Result<Option<Arc<View>>, String> {
        match &self.pins {
            None => space.view(),
            Some(pins) => pins.view_of(space),
        }
    }

    /// Returns the space that a key such as `people:{4711}` names, and the key there; `None` if the key is
    /// one of the user's own space.
    pub(crate) fn other_space<'k>(&self, key: &'k [u8]) -> Option<(&Arc<Space>, &'k [u8])> {
        let spaces = &self.user.as_ref().filter(|user| !user.spaces.is_empty())?.spaces;
        let colon = memchr::memchr(b':', key)?;
        let inside = key[colon + 1..].strip_prefix(b"{")?.strip_suffix(b"}")?;
        Some((spaces.get(std::str::from_utf8(&key[..colon]).ok()?)?, inside))
    }

    /// Forgets the commands since `MULTI`, and the keys that are watched.
    pub(crate) fn end_transaction(&mut self) {
        self.transaction = None;
        self.watched = Watched::default();
        self.show_transaction();
    }

    /// Returns the memory of the commands since `MULTI` and of the keys that are watched, in bytes.
    pub(crate) fn transaction_bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, Transaction::bytes) + self.watched.bytes()
    }

    /// Shows the state of the transaction to other connections.
    pub(crate) fn show_transaction(&self) {
        let queued = self.transaction.as_ref().map_or(-1, |it| it.count() as i64);
        self.client.queued.store(queued, Relaxed);
        self.client.queued_bytes.store(self.transaction_bytes(), Relaxed);
        self.client.watched.store(self.watched.count(), Relaxed);
    }
}

/// What other connections see of a connection, in `CLIENT LIST`.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) own: SocketAddr,
    pub(crate) is_encrypted: bool,
    /// The time of connecting, by the server's clock.
    pub(crate) since: Duration,
    /// Milliseconds of the server's clock at the last request.
    pub(crate) active_ms: AtomicU64,
    /// The number of the last command.
    pub(crate) command: AtomicUsize,
    pub(crate) commands: AtomicU64,
    pub(crate) output_bytes: AtomicUsize,
    pub(crate) is_resp3: AtomicBool,
    /// Number of commands since `MULTI`; −1 outside a transaction.
    pub(crate) queued: AtomicI64,
    /// Memory of these commands and of the keys that are watched, in bytes.
    pub(crate) queued_bytes: AtomicUsize,
    /// Number of keys that are watched.
    pub(crate) watched: AtomicUsize,
    /// Whether another connection asked to close this one.
    pub(crate) is_killed: AtomicBool,
    texts: Mutex<ClientTexts>,
}

/// What a client says about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientTexts {
    pub(crate) user: String,
    pub(crate) name: String,
    pub(crate) lib_name: String,
    pub(crate) lib_version: String,
}

impl Client {
    /// Returns a new connection's description.
    pub(crate) fn new(
        id: u64,
        (peer, own): (SocketAddr, SocketAddr),
        is_encrypted: bool,
        since: Duration,
    ) -> Client {
        Client {
            id,
            peer,
            own,
            is_encrypted,
            since,
            active_ms: AtomicU64::new(since.as_millis() as u64),
            command: AtomicUsize::new(usize::MAX),
            commands: AtomicU64::new(0),
            output_bytes: AtomicUsize::new(0),
            is_resp3: AtomicBool::new(false),
            queued: AtomicI64::new(-1),
            queued_bytes: AtomicUsize::new(0),
            watched: AtomicUsize::new(0),
            is_killed: AtomicBool::new(false),
            texts: Mutex::default(),
        }
    }

    /// Returns what the client says about itself.
    pub(crate) fn texts(&self) -> ClientTexts {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what the client says about itself.
    pub(crate) fn set_text(&self, change: impl FnOnce(&mut ClientTexts)) {
        change(&mut self.texts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Notes a request.
    #[inline]
    pub(crate) fn note(&self, now: Duration, command: usize) {
        self.active_ms.store(now.as_millis() as u64, Relaxed);
        self.command.store(command, Relaxed);
        self.commands.store(self.commands.load(Relaxed) + 1, Relaxed);
    }
}
