//! The error type of deploying: what happened, where, what was expected, what was found, what to do.

use hashfold::{ErrorClass, ErrorKind as StoreErrorKind};
use std::{fmt, io, iter, sync::Arc};

/// The address at which a machine of a cloud answers for its own credentials. The object store asks there if
/// the environment has none, which fails everywhere else.
const METADATA_SERVICE: &str = "169.254.169.254";

/// The result of a fallible call of this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error type of this library: a kind, and the place in the remote if there is one.
///
/// `Debug` writes the message, as `Display` does.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    place: Option<String>,
}

/// The cause of an [`Error`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The local store failed, or was used wrongly.
    Store(hashfold::Error),
    /// The object store refused a request, or could not be reached.
    Remote {
        /// The attempted action, as a verb: "read", "write", "list".
        action: &'static str,
        /// The error of the object store.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// An object that is needed does not exist.
    Absent {
        /// The purpose of the object: "version 41 of store people".
        what: String,
    },
    /// The bytes of an object are not those that the version names.
    Damaged {
        /// Offset of the wrong bytes in the object.
        offset: u64,
        /// The bytes that were expected: a hash, a field.
        expected: String,
        /// The value that was found.
        got: String,
    },
    /// An object exists with other content; objects are written once.
    Exists {
        /// The content that was to be written.
        expected: String,
        /// The content that is there.
        got: String,
    },
    /// The object store takes conditions of writes and does not keep them.
    Unconditional {
        /// The condition, as a sentence part: "of 16 writers that create one object, 1 succeeds".
        expected: String,
        /// The behaviour that was found.
        got: String,
    },
    /// The remote can only be read.
    ReadOnly,
    /// A limit of the caller is exceeded.
    Limit {
        /// The size or number that is limited.
        what: &'static str,
        /// The largest accepted value.
        limit: u64,
        /// The value that was found.
        got: u64,
    },
    /// The device has no space for the version.
    Space {
        /// The bytes that the version needs.
        expected: u64,
        /// The bytes that are free.
        got: u64,
    },
    /// The version is on the list of bad versions.
    Bad {
        /// The version, with its store.
        what: String,
    },
    /// No trusted key has signed the version. It is refused; the same request again has the same result.
    Untrusted {
        /// The version, with its store.
        what: String,
        /// The accepted signatures.
        expected: String,
        /// The signature that was found.
        got: String,
    },
    /// A version does not pass a gate.
    Gate {
        /// The version, with its store.
        what: String,
        /// The accepted values, with their unit: "at least 100 entries".
        expected: String,
        /// The value of the version.
        got: String,
    },
    /// The servers of a zone that had versions before the others were not healthy with them, or could not
    /// be watched.
    Trial {
        /// The zone.
        zone: String,
        /// The servers and their states, the gate, or the error.
        got: String,
        /// The reason why they could not be taken back to the versions before; `None` if they were.
        left: Option<String>,
    },
    /// Another controller has changed the pointer.
    Overtaken {
        /// The pointer that was expected: its sequence number.
        expected: u64,
        /// The pointer that is there: sequence number, author and reason.
        got: String,
    },
    /// Too few nodes have the version ready.
    NotReady {
        /// Number of nodes that must be ready.
        expected: usize,
        /// The nodes and their states.
        got: String,
    },
    /// Another process has changed the remote at the same time.
    Conflict {
        /// What was changed and is incomplete now.
        what: String,
    },
    /// A document that a person has written makes no sense.
    Document {
        /// The field, or line and column.
        at: String,
        /// The accepted values.
        expected: String,
        /// The value that was found.
        got: String,
    },
    /// The epoch of a topology is not larger than that of the topology that is there.
    Epoch {
        /// The epoch of the topology that is there.
        before: u64,
        /// The epoch of the topology that was to replace it.
        got: u64,
    },
    /// There is no version that a rollback could make current.
    NoEarlier,
    /// An argument is outside its range.
    Argument {
        /// The name of the argument.
        what: &'static str,
        /// The accepted values.
        expected: String,
        /// The value that was given.
        got: String,
    },
}

impl Error {
    /// Makes an error whose place is not known yet; [`Error::at`] adds the place.
    pub fn new(kind: ErrorKind) -> Error {
        Error(Box::new(Inner { kind, place: None }))
    }

    /// Makes an error of the object store. `action` is a verb: "read", "write", "list".
    pub fn remote(
        action: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::new(ErrorKind::Remote { action, source: Arc::from(source.into()) })
    }

    /// Makes an error for wrong bytes at an offset of an object.
    pub(crate) fn damaged(
        offset: u64,
        expected: impl Into<String>,
        got: impl fmt::Display,
    ) -> Error {
        Error::new(ErrorKind::Damaged { offset, expected: expected.into(), got: got.to_string() })
    }

    /// Makes an error for the argument `what`, which is outside its range.
    pub(crate) fn argument(
        what: &'static str,
        expected: impl Into<String>,
        got: impl fmt::Display,
    ) -> Error {
        Error::new(ErrorKind::Argument { what, expected: expected.into(), got: got.to_string() })
    }

    /// Adds the place in the remote, unless a lower layer has named one already.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Error {
        self.0.place.get_or_insert_with(|| place.into());
        self
    }

    /// Returns the cause of the error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the object or the remote, if it is known.
    pub fn place(&self) -> Option<&str> {
        self.0.place.as_deref()
    }

    /// Returns the error of the local store, if that is the cause.
    pub fn of_store(&self) -> Option<&hashfold::Error> {
        match self.kind() {
            ErrorKind::Store(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the class of the error, which says what to do about it.
    pub fn class(&self) -> ErrorClass {
        match self.kind() {
            ErrorKind::Store(error) => error.class(),
            ErrorKind::Remote { .. }
            | ErrorKind::Space { .. }
            | ErrorKind::Trial { left: Some(_), .. } => ErrorClass::Io,
            ErrorKind::Damaged { .. } => ErrorClass::Damage,
            ErrorKind::Limit { .. } | ErrorKind::Untrusted { .. } | ErrorKind::Document { .. } => {
                ErrorClass::Input
            }
            _ => ErrorClass::Usage,
        }
    }

    /// Whether the answer is no, and the call was right: a version is bad or does not pass a gate,
    /// another controller was faster, too few nodes are ready, a zone was taken back, a topology is older than
    /// the one that is there, there is nothing to roll back to.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Bad { .. }
                | ErrorKind::Gate { .. }
                | ErrorKind::Overtaken { .. }
                | ErrorKind::NotReady { .. }
                | ErrorKind::Trial { left: None, .. }
                | ErrorKind::Epoch { .. }
                | ErrorKind::NoEarlier
        )
    }

    /// Whether a version is refused because no trusted key has signed it.
    pub fn is_untrusted(&self) -> bool {
        matches!(self.kind(), ErrorKind::Untrusted { .. })
    }

    /// Whether the device has no space.
    pub(crate) fn is_full(&self) -> bool {
        let is_full = |error: &hashfold::Error| match error.kind() {
            StoreErrorKind::Io { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            _ => false,
        };
        matches!(self.kind(), ErrorKind::Space { .. }) || self.of_store().is_some_and(is_full)
    }

    /// Whether the memory budget has no room.
    pub(crate) fn is_of_memory(&self) -> bool {
        self.of_store().is_some_and(|error| matches!(error.kind(), StoreErrorKind::Memory { .. }))
    }

    /// Whether the caller asked to stop.
    pub fn is_stop(&self) -> bool {
        self.of_store().is_some_and(|error| matches!(error.kind(), StoreErrorKind::Stopped))
    }
}

impl From<hashfold::Error> for Error {
    fn from(error: hashfold::Error) -> Error {
        Error::new(ErrorKind::Store(error))
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        Error::new(kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The local store names its own file.
        if let (Some(place), None) = (&self.0.place, self.of_store()) {
            write!(f, "{place}: ")?;
        }
        fmt::Display::fmt(&self.0.kind, f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Store(error) => fmt::Display::fmt(error, f),
            ErrorKind::Remote { action, source } => {
                write!(f, "cannot {action}: {}", with_cause(source.as_ref()))
            }
            ErrorKind::Absent { what } => {
                write!(f, "there is no {what}; push it, or check the URL and the names")
            }
            ErrorKind::Damaged { offset, expected, got } => write!(
                f,
                "at byte {offset}: expected {expected}, got {got}; the object is damaged, remove it \
                 and push the version again"
            ),
            ErrorKind::Exists { expected, got } => write!(
                f,
                "is {got}, expected {expected}; objects are written once, so push to another store \
                 name or remove the objects of the old one"
            ),
            ErrorKind::Unconditional { expected, got } => write!(
                f,
                "the object store does not keep the conditions of writes: expected that {expected}, \
                 got {got}; two controllers could overwrite each other, use another object store"
            ),
            ErrorKind::ReadOnly => f.write_str("this remote can only be read; push to its source"),
            ErrorKind::Limit { what, limit, got } => {
                write!(f, "{what} is {got}, the largest accepted is {limit}")
            }
            ErrorKind::Space { expected, got } => write!(
                f,
                "{expected} bytes are needed and {got} are free; remove old versions with `hashfold \
                 gc`"
            ),
            ErrorKind::Bad { what } => write!(
                f,
                "{what} is marked bad: it was rolled back, or marked by hand; make a new version"
            ),
            ErrorKind::Untrusted { what, expected, got } => write!(
                f,
                "{what} is refused: expected {expected}, got {got}; find out who has pushed it, or sign it \
                 with `hashfold deploy push --sign-with`"
            ),
            ErrorKind::Gate { what, expected, got } => write!(
                f,
                "{what} does not pass the gate: expected {expected}, got {got}; nothing was published; \
                 publish it with other limits, or withdraw it with `hashfold deploy cancel`"
            ),
            ErrorKind::Trial { zone, got, left: None } => write!(
                f,
                "zone {zone} was taken back to the versions before: {got}; nothing was published in \
                 other zones"
            ),
            ErrorKind::Trial { zone, got, left: Some(left) } => write!(
                f,
                "zone {zone} should go back to the versions before: {got}; but it may still have the \
                 new ones: {left}; run `hashfold deploy cancel`"
            ),
            ErrorKind::Overtaken { expected, got } => write!(
                f,
                "another controller was faster: expected change {expected} of the pointer, got {got}; \
                 look at `hashfold deploy status`, then repeat the call if it is still right"
            ),
            ErrorKind::NotReady { expected, got } => write!(
                f,
                "expected {expected} ready servers, got {got}; no server has switched: run it again to go \
                 on, or withdraw the versions with `hashfold deploy cancel`"
            ),
            ErrorKind::Conflict { what } => write!(
                f,
                "another process has changed the remote at the same time: {what}; push the newest versions \
                 again, which uploads what is missing"
            ),
            ErrorKind::Document { at, expected, got } => {
                write!(f, "{at}: expected {expected}, got {got}")
            }
            ErrorKind::Epoch { before, got } => write!(
                f,
                "expected an epoch larger than {before}, which is that of the topology that is there, got {got}; \
                 look at that topology, then set yours again with a larger epoch, or without one for the next"
            ),
            ErrorKind::NoEarlier => f.write_str(
                "there is no version to roll back to: nothing was current before, or all of it is \
                 marked bad or was removed from the remote",
            ),
            ErrorKind::Argument { what, expected, got } => {
                write!(f, "{what} is {got}, expected {expected}")
            }
        }
    }
}

/// Returns the message of an error of the object store, with the cause at the bottom, which it often leaves out:
/// a refused connection, an unknown name, a certificate that is not trusted.
fn with_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let cause = iter::successors(Some(error), |error| error.source()).last();
    let cause = cause.map(ToString::to_string).filter(|cause| !text.contains(cause));
    if let Some(cause) = cause {
        text.push_str(": ");
        text.push_str(&cause);
    }
    if text.contains(METADATA_SERVICE) {
        text.push_str(
            "; there are no credentials in the environment: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        );
    }
    text
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.kind() {
            ErrorKind::Store(error) => Some(error),
            ErrorKind::Remote { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_failed_request_is_named_once() {
        let cause = || io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
        let request = io::Error::other(Error::remote("send", cause()));
        let cases: [(io::Error, &str); 3] = [
            (cause(), "cannot read: connection refused"),
            (request, "cannot read: cannot send: connection refused"),
            (io::Error::other(Outer(cause())), "cannot read: a request failed: connection refused"),
        ];
        for (source, expected) in cases {
            assert_eq!(Error::remote("read", source).to_string(), expected);
        }
    }

    #[test]
    fn missing_credentials_are_named() {
        let source = format!("a request to http://{METADATA_SERVICE}/latest failed");
        let error = Error::remote("list", source).to_string();
        assert!(error.ends_with("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"), "{error}");
    }

    /// An error whose message leaves out its cause.
    #[derive(Debug)]
    struct Outer(io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a request failed")
        }
    }

    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
}
