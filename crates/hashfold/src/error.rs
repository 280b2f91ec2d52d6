//! One error type: what happened, where, what was expected, what was found, and what to do.
//!
//! The lowest layer that knows the file and the offset adds them with [`Error::at`]; the layers
//! above leave them alone.

use crate::key::KeyHash;
use std::{fmt, io, ops::RangeInclusive, path::Path, sync::Arc};

/// A result of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// Where something happened: a file, and an offset in it if one is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file or folder.
    pub file: Arc<Path>,
    /// In bytes, from the start of the file.
    pub offset: Option<u64>,
}

impl Place {
    /// A file as a whole.
    pub fn file(path: &Path) -> Place {
        Place { file: path.into(), offset: None }
    }

    /// A byte of the same file.
    #[must_use]
    pub fn offset(&self, offset: u64) -> Place {
        Place { file: self.file.clone(), offset: Some(offset) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        match self.offset {
            Some(offset) => write!(f, " at byte {offset}"),
            None => Ok(()),
        }
    }
}

/// What went wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused a call.
    Io {
        /// What was attempted, as a verb: "read", "rename".
        action: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// A checksum does not match the bytes under it.
    Checksum {
        /// As stored.
        expected: u32,
        /// As computed from the bytes.
        got: u32,
    },
    /// There are fewer bytes than there must be.
    Truncated {
        /// Bytes that were needed.
        expected: u64,
        /// Bytes that were there.
        got: u64,
    },
    /// The file was not written by this library, or its first bytes are destroyed.
    Magic {
        /// The bytes that every file starts with.
        expected: [u8; 8],
        /// The bytes found.
        got: [u8; 8],
    },
    /// The file is one of ours, of another kind.
    FileKind {
        /// The kind that was asked for.
        expected: &'static str,
        /// The kind found.
        got: String,
    },
    /// The file's format version is not one that this library reads.
    Version {
        /// The versions that can be read.
        expected: RangeInclusive<u16>,
        /// The version found.
        got: u16,
    },
    /// Two files that are read together do not belong together.
    Mismatch {
        /// The field that differs.
        what: &'static str,
        /// Its value in the file that decides.
        expected: u64,
        /// Its value in this file.
        got: u64,
    },
    /// A stored number or byte pattern is not a legal one.
    Field {
        /// The field.
        what: &'static str,
        /// What would have been legal.
        expected: String,
        /// What was found.
        got: String,
    },
    /// Entries do not ascend.
    Order {
        /// The hash before.
        previous: KeyHash,
        /// The hash that came after it.
        got: KeyHash,
    },
    /// A key came twice, and that was not allowed.
    DuplicateKey {
        /// The key.
        key: Box<[u8]>,
    },
    /// Something is larger than it may be.
    Limit {
        /// What.
        what: &'static str,
        /// The largest that is accepted.
        limit: u64,
        /// What was given.
        got: u64,
    },
    /// An argument is outside its range.
    Argument {
        /// The argument.
        what: &'static str,
        /// What would be accepted.
        expected: String,
        /// What was given.
        got: String,
    },
    /// An earlier call failed, so that something is missing from what this one would end.
    FailedBefore {
        /// What was attempted now, as a verb.
        action: &'static str,
    },
    /// A background job panicked: a mistake of this library.
    Panicked {
        /// The job: "flush", "merge".
        job: &'static str,
    },
    /// A filter of a fixed size has no room for another key.
    Full {
        /// Slots of the filter that may be taken.
        slots_max: u64,
    },
    /// A file that the data set names, or cannot do without, is not there.
    Missing {
        /// What the file is for: "run of the filter", "version 3".
        what: String,
    },
    /// The folder holds a data set of another kind.
    WrongKind {
        /// The kind that was asked for: "table", "store", "filter".
        expected: &'static str,
        /// The kind that is there.
        got: &'static str,
    },
    /// The target is already there.
    Exists,
    /// There is no such data set: the folder or its manifest is missing.
    Absent,
    /// Another process is writing here.
    Busy,
    /// The caller asked to stop.
    Stopped,
}

/// The families of errors that call for different actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The call was wrong; correct it.
    Usage,
    /// The input was wrong; correct the data.
    Input,
    /// Stored bytes are damaged, or not what they should be; restore or rebuild.
    Damage,
    /// The operating system or the device failed; retry when it is mended.
    Io,
    /// This library made a mistake; report it.
    Bug,
}

/// An error of this library, with its place.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    place: Option<Place>,
}

impl Error {
    /// An error whose place is not known here.
    pub fn new(kind: ErrorKind) -> Error {
        Error(Box::new(Inner { kind, place: None }))
    }

    /// An error of the operating system.
    pub fn io(action: &'static str, source: io::Error) -> Error {
        Error::new(ErrorKind::Io { action, source })
    }

    /// An argument outside its range.
    pub fn argument(
        what: &'static str,
        expected: impl Into<String>,
        got: impl fmt::Display,
    ) -> Error {
        Error::new(ErrorKind::Argument { what, expected: expected.into(), got: got.to_string() })
    }

    /// A stored field outside its range.
    pub fn field(what: &'static str, expected: impl Into<String>, got: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Field { what, expected: expected.into(), got: got.to_string() })
    }

    /// A file that must be there and is not.
    pub fn missing(what: impl Into<String>, path: &Path) -> Error {
        Error::new(ErrorKind::Missing { what: what.into() }).at(&Place::file(path))
    }

    /// Whether there is no data set where one was looked for.
    pub fn is_absent(&self) -> bool {
        matches!(self.kind(), ErrorKind::Absent)
    }

    /// Whether another process or handle holds the lock.
    pub fn is_busy(&self) -> bool {
        matches!(self.kind(), ErrorKind::Busy)
    }

    /// Whether the system found no file of that name.
    pub fn is_not_found(&self) -> bool {
        self.has_io_kind(io::ErrorKind::NotFound)
    }

    /// A file that must be there and is not, if the system found none or something else than a
    /// file in its place; other errors stay as they are. `what` it is for.
    pub(crate) fn if_lost(self, what: &str) -> Error {
        let no_file = [io::ErrorKind::IsADirectory, io::ErrorKind::InvalidInput];
        let Some(place) = self.place().cloned() else { return self };
        if self.is_not_found() {
            return Error::missing(what, &place.file);
        }
        if no_file.into_iter().any(|kind| self.has_io_kind(kind)) {
            let got = "a folder, a pipe or a device";
            return Error::field("what is in its place", format!("the {what}"), got).at(&place);
        }
        self
    }

    /// Whether the system refused a call for lack of permission.
    pub fn is_denied(&self) -> bool {
        self.has_io_kind(io::ErrorKind::PermissionDenied)
    }

    fn has_io_kind(&self, kind: io::ErrorKind) -> bool {
        matches!(self.kind(), ErrorKind::Io { source, .. } if source.kind() == kind)
    }

    /// Adds the place, unless a lower layer, which knows better, has named one.
    #[must_use]
    pub fn at(mut self, place: &Place) -> Error {
        self.0.place.get_or_insert_with(|| place.clone());
        self
    }

    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Where, if it is known.
    pub fn place(&self) -> Option<&Place> {
        self.0.place.as_ref()
    }

    /// The family of the error.
    pub fn class(&self) -> ErrorClass {
        match &self.0.kind {
            ErrorKind::Io { .. } | ErrorKind::FailedBefore { .. } | ErrorKind::Busy => {
                ErrorClass::Io
            }
            ErrorKind::Panicked { .. } => ErrorClass::Bug,
            ErrorKind::Checksum { .. }
            | ErrorKind::Truncated { .. }
            | ErrorKind::Magic { .. }
            | ErrorKind::FileKind { .. }
            | ErrorKind::Version { .. }
            | ErrorKind::Mismatch { .. }
            | ErrorKind::Field { .. }
            | ErrorKind::Missing { .. }
            | ErrorKind::Order { .. } => ErrorClass::Damage,
            ErrorKind::DuplicateKey { .. } | ErrorKind::Limit { .. } => ErrorClass::Input,
            ErrorKind::Argument { .. }
            | ErrorKind::WrongKind { .. }
            | ErrorKind::Full { .. }
            | ErrorKind::Exists
            | ErrorKind::Absent
            | ErrorKind::Stopped => ErrorClass::Usage,
        }
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Error {
        Error::new(kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.0.place {
            write!(f, "{place}: ")?;
        }
        fmt::Display::fmt(&self.0.kind, f)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Io { action, source } => write!(f, "cannot {action}: {source}"),
            ErrorKind::Checksum { expected, got } => write!(
                f,
                "checksum is {got:#010x}, expected {expected:#010x}; the bytes are damaged, \
                 restore the file from a copy or rebuild it"
            ),
            ErrorKind::Truncated { expected, got } => {
                write!(
                    f,
                    "{got} bytes are left where {expected} are needed; the file was cut short"
                )
            }
            ErrorKind::Magic { expected, got } => write!(
                f,
                "starts with \"{}\", expected \"{}\"; this is not a Hashfold file",
                got.escape_ascii(),
                expected.escape_ascii()
            ),
            ErrorKind::FileKind { expected, got } => {
                write!(f, "is a {got} file, expected a {expected} file")
            }
            ErrorKind::Version { expected, got } => write!(
                f,
                "format version is {got}, this library reads {} to {}; \
                 use a newer Hashfold or rebuild the file",
                expected.start(),
                expected.end()
            ),
            ErrorKind::Mismatch { what, expected, got } => write!(
                f,
                "{what} is {got:#x}, expected {expected:#x}; the file belongs to another data set"
            ),
            ErrorKind::Field { what, expected, got } => {
                write!(
                    f,
                    "{what} is {got}, expected {expected}; the bytes are damaged, restore the file \
                     from a copy or rebuild it"
                )
            }
            ErrorKind::Order { previous, got } => {
                write!(f, "hash {got} comes after {previous}; entries must ascend")
            }
            ErrorKind::DuplicateKey { key } => {
                write!(f, "key \"{}\" comes more than once", preview(key))
            }
            ErrorKind::Limit { what, limit, got } => {
                write!(f, "{what} is {got}, the largest accepted is {limit}")
            }
            ErrorKind::Argument { what, expected, got } => {
                write!(f, "{what} is {got}, expected {expected}")
            }
            ErrorKind::FailedBefore { action } => {
                write!(
                    f,
                    "cannot {action} after an earlier failure; begin anew from what is durable"
                )
            }
            ErrorKind::Panicked { job } => {
                write!(f, "the {job} panicked; this is a mistake of Hashfold, please report it")
            }
            ErrorKind::Full { slots_max } => write!(
                f,
                "the filter is full: all {slots_max} slots that it may fill are taken; make a larger \
                 one, or one that grows"
            ),
            ErrorKind::Missing { what } => {
                write!(f, "the {what} is missing; restore it from a copy or rebuild the data set")
            }
            ErrorKind::WrongKind { expected, got } => {
                write!(
                    f,
                    "is a {got}, expected a {expected}; open it as a {got} or choose another folder"
                )
            }
            ErrorKind::Exists => f.write_str("already exists"),
            ErrorKind::Absent => f.write_str("there is no data set here"),
            ErrorKind::Busy => f.write_str("another process is writing here; wait for it to end"),
            ErrorKind::Stopped => f.write_str("stopped on request"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.kind {
            ErrorKind::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The first bytes of a key, printable.
fn preview(key: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 80;
    let shown = &key[..key.len().min(SHOWN_BYTES_MAX)];
    let dots = if shown.len() < key.len() { "..." } else { "" };
    match std::str::from_utf8(shown) {
        Ok(text) => format!("{}{dots}", text.escape_debug()),
        Err(_) => format!("{}{dots}", shown.escape_ascii()),
    }
}
