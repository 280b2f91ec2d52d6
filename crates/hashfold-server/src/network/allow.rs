//! What a connection may not call, and errors that are counted.

use super::redirect::moved;
use crate::{
    command::{Arguments, Flag, Found, Refusal, describe, refusal},
    session::Session,
    shared::Shared,
};

/// What keeps a connection from making a call.
pub(super) enum Rejection {
    /// The reply.
    Error(String),
    /// The user's rules.
    Rules(Refusal),
}

impl From<String> for Rejection {
    fn from(error: String) -> Rejection {
        Rejection::Error(error)
    }
}

impl Rejection {
    /// Returns the reply. What rules have refused is noted in `ACL LOG`.
    pub(super) fn note(self, shared: &Shared, session: &Session) -> String {
        let refusal = match self {
            Rejection::Error(error) => return error,
            Rejection::Rules(refusal) => refusal,
        };
        let user = session.user().map_or("", |user| &user.name);
        let error = refusal.error(user);
        let denial = refusal.denial(user, session.transaction.is_some());
        let client = describe(shared, &session.client);
        shared.acl_log.add(denial, client, shared.env.clock.unix_time());
        error
    }
}

/// Refuses a call that the connection may not make.
pub(super) fn allow(
    shared: &Shared,
    session: &Session,
    found: Found,
    arguments: &Arguments<'_>,
) -> Result<(), Rejection> {
    let Some(user) = session.user() else {
        return match found.command.is(Flag::NoAuth) {
            true => Ok(()),
            false => Err(Rejection::Error("NOAUTH Authentication required.".into())),
        };
    };
    if session.transaction.is_some() && found.command.is(Flag::NoMulti) {
        return Err(Rejection::Error("ERR Command not allowed inside a transaction".into()));
    }
    if let Some(refusal) = refusal(user, found.number, arguments) {
        return Err(Rejection::Rules(refusal));
    }
    let keys = found.command.keys.places(arguments.len());
    let mut longest = keys.map(|at| arguments.at(at).len()).max().unwrap_or(0);
    if longest > hashfold::run::KEY_BYTES_MAX {
        longest = hashfold::run::KEY_BYTES_MAX;
        return Err(format!("ERR a key has at most {longest} bytes").into());
    }
    match shared.cluster.is_on() {
        true => Ok(moved(shared, &session.client, found, arguments)?),
        false => Ok(()),
    }
}

/// Counts a reply if it is an error. Returns whether it is one.
pub(super) fn note_error(shared: &Shared, reply: &[u8]) -> bool {
    let Some(error) = reply.strip_prefix(b"-") else { return false };
    let end = memchr::memchr(b'\r', error).unwrap_or(error.len());
    shared.metrics.note_error(&String::from_utf8_lossy(&error[..end]));
    true
}
