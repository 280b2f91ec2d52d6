//! A connection's state: who it is, what it sees, and how it is answered.

use crate::{
    data::{Space, View},
    protocol::Protocol,
    user::User,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

/// The state of a connection that commands read and change.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Arc<Client>,
    user: Option<Arc<User>>,
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
}

/// Whether a connection gets replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    On,
    Off,
    /// The next command gets no reply.
    Skip,
}

impl Replies {
    /// Returns whether a command that was called in this state gets no reply, and sets the state of the
    /// next one. `after` is the state that the command left.
    pub(crate) fn silences(self, after: &mut Replies) -> bool {
        let is_silent = match (self, *after) {
            (Replies::On, Replies::On) | (Replies::Off, Replies::On) => false,
            (_, Replies::Off) | (Replies::Skip, _) => true,
            (Replies::On | Replies::Off, Replies::Skip) => return true,
        };
        if *after == Replies::Skip {
            *after = Replies::On;
        }
        is_silent
    }
}

impl Session {
    /// Returns the state of a new connection.
    pub(crate) fn new(client: Arc<Client>, user: Option<Arc<User>>) -> Session {
        let session = Session {
            client,
            user: None,
            fixed: None,
            protocol: Protocol::Resp2,
            replies: Replies::On,
            reads_replicas: false,
            is_asking: false,
            is_closing: false,
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
            None => self.space().map_or(Ok(None), |space| space.view()),
        }
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
