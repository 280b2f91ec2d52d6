//! The error type of the library: what happened, where, what was expected, what was found, and what
//! to do.
//!
//! The lowest layer that knows the file and the offset adds them with [`Error::at`]; the layers
//! above do not replace them.

use crate::key::{KeyHash, Seed};
use std::{fmt, io, ops::RangeInclusive, path::Path, sync::Arc};

/// The result of a fallible call of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// The place of an error: a file, and an offset in the file if one is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path of the file or folder.
    pub file: Arc<Path>,
    /// Offset in bytes from the start of the file.
    pub offset: Option<u64>,
}

impl Place {
    /// Returns the place of a whole file or folder.
    pub fn file(path: &Path) -> Place {
        Place { file: path.into(), offset: None }
    }

    /// Returns a byte of the file as a place.
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

/// The cause of an [`Error`], with what was expected and what was found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused a call.
    Io {
        /// The attempted action, as a verb: "read", "rename".
        action: &'static str,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// A checksum does not match the bytes that it protects.
    Checksum {
        /// The checksum that is stored.
        expected: u32,
        /// The checksum of the bytes that were read.
        got: u32,
    },
    /// A file or a field ends too early.
    Truncated {
        /// Bytes that were needed.
        expected: u64,
        /// Bytes that were there.
        got: u64,
    },
    /// The file was not written by this library, or its first bytes are destroyed.
    Magic {
        /// The first bytes of every file of this library.
        expected: [u8; 8],
        /// The first bytes of this file.
        got: [u8; 8],
    },
    /// The file was written by this library, but is of another kind.
    FileKind {
        /// The kind of file that was expected.
        expected: &'static str,
        /// The kind of file that was found.
        got: String,
    },
    /// This library does not read the file's format version.
    Version {
        /// The format versions that this library reads.
        expected: RangeInclusive<u16>,
        /// The format version of the file.
        got: u16,
    },
    /// Two files that are read together do not belong together.
    Mismatch {
        /// The field that differs.
        what: &'static str,
        /// The value in the authoritative file, such as the manifest.
        expected: u64,
        /// The value in this file.
        got: u64,
    },
    /// A stored number or byte pattern is not legal.
    Field {
        /// The name of the field.
        what: &'static str,
        /// The legal values.
        expected: String,
        /// The value that was found.
        got: String,
    },
    /// Entries do not ascend by hash.
    Order {
        /// The hash of the entry before.
        previous: KeyHash,
        /// The hash of the entry that came after `previous`.
        got: KeyHash,
    },
    /// A key occurs twice where duplicates are refused.
    DuplicateKey {
        /// The repeated key.
        key: Box<[u8]>,
    },
    /// A given size or number exceeds a limit.
    Limit {
        /// The size or number that is limited.
        what: &'static str,
        /// The largest accepted value.
        limit: u64,
        /// The value that was given.
        got: u64,
    },
    /// An argument is outside its range.
    Argument {
        /// The name of the argument.
        what: &'static str,
        /// The accepted values.
        expected: String,
        /// The value that was given.
        got: String,
    },
    /// An earlier call failed, so the data that this call would finish are incomplete.
    FailedBefore {
        /// The attempted action, as a verb.
        action: &'static str,
    },
    /// A background job panicked: a mistake of this library.
    Panicked {
        /// The background job: "flush", "merge".
        job: &'static str,
    },
    /// A filter of a fixed size has no free slot for another key.
    Full {
        /// Slots that the filter may fill.
        slots_max: u64,
    },
    /// Memory that is needed would exceed the limit of the process.
    Memory {
        /// Bytes that are needed.
        needs: u64,
        /// Bytes that others have.
        reserved: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// A file is missing that the data set names or needs.
    Missing {
        /// The purpose of the file: "run of the filter", "version 3".
        what: String,
    },
    /// A copy of the data set's first folder has changed the other devices since.
    Superseded {
        /// The folder on one of these devices.
        device: Box<Path>,
    },
    /// The folder holds a data set of another kind.
    WrongKind {
        /// The kind of data set that was expected: "table", "store", "filter", "map".
        expected: &'static str,
        /// The kind of data set that was found.
        got: &'static str,
    },
    /// The value of a key cannot be used.
    Value {
        /// The key.
        key: Box<[u8]>,
        /// The reason.
        reason: Box<Error>,
    },
    /// Keys that are to be combined are hashed with different seeds.
    WrongSeed {
        /// The seed that was expected.
        expected: Seed,
        /// The seed that was found.
        got: Seed,
    },
    /// The target exists already.
    Exists,
    /// There is no such data set: the folder or its manifest is missing.
    Absent,
    /// No version of the store is current.
    Unpublished,
    /// Another writer, in this process or another one, has the data set open. A map is opened for
    /// writing by all, also by those that only read.
    Busy,
    /// A key that the transaction has read was changed before the transaction was committed.
    Conflict,
    /// The caller asked to stop.
    Stopped,
}

/// The classes of errors, each of which calls for a different action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The call was wrong: correct the call.
    Usage,
    /// The input was wrong: correct the data.
    Input,
    /// Stored bytes are damaged or of the wrong kind: restore or rebuild them.
    Damage,
    /// The operating system or the device failed: fix the cause and retry.
    Io,
    /// Another process has the lock, or another transaction was faster: retry.
    Busy,
    /// This library made a mistake: report it.
    Bug,
}

/// The error type of this library: a kind, and a place if it is known.
///
/// `Debug` writes the message, as `Display` does: a `main` that returns an error prints it.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    place: Option<Place>,
}

impl Error {
    /// Makes an error whose place is not known yet; [`Error::at`] adds the place.
    pub fn new(kind: ErrorKind) -> Error {
        Error(Box::new(Inner { kind, place: None }))
    }

    /// Makes an error of the operating system. `action` is a verb: "read", "rename".
    pub fn io(action: &'static str, source: io::Error) -> Error {
        Error::new(ErrorKind::Io { action, source: Arc::new(source) })
    }

    /// Makes an error for the argument `what`, which is outside its range.
    pub fn argument(
        what: &'static str,
        expected: impl Into<String>,
        got: impl fmt::Display,
    ) -> Error {
        Error::new(ErrorKind::Argument { what, expected: expected.into(), got: got.to_string() })
    }

    /// Makes an error for the stored field `what`, which is outside its range.
    pub fn field(what: &'static str, expected: impl Into<String>, got: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Field { what, expected: expected.into(), got: got.to_string() })
    }

    /// Makes an error for a file that must exist and does not. `what` is the purpose of the file.
    pub fn missing(what: impl Into<String>, path: &Path) -> Error {
        Error::new(ErrorKind::Missing { what: what.into() }).at(&Place::file(path))
    }

    /// Whether the data set that was to be opened does not exist, or has no current version.
    pub fn is_absent(&self) -> bool {
        matches!(self.kind(), ErrorKind::Absent | ErrorKind::Unpublished)
    }

    /// Whether another process or handle holds the lock of the data set.
    pub fn is_busy(&self) -> bool {
        matches!(self.kind(), ErrorKind::Busy)
    }

    /// Whether the operating system found no file of that name.
    pub fn is_not_found(&self) -> bool {
        self.has_io_kind(io::ErrorKind::NotFound)
    }

    /// Converts "no such file" and "not a file" to an error about a lost file. Returns other errors
    /// unchanged. `what` is the purpose of the file.
    pub(crate) fn if_lost(self, what: &str) -> Error {
        let no_file = [io::ErrorKind::IsADirectory, io::ErrorKind::InvalidInput];
        let Some(place) = self.place().cloned() else { return self };
        if self.is_not_found() {
            return Error::missing(what, &place.file);
        }
        if no_file.into_iter().any(|kind| self.has_io_kind(kind)) {
            let got = "a folder, a pipe or a device";
            return Error::field("type of the file", format!("the {what}"), got).at(&place);
        }
        self
    }

    /// Converts the error that a folder cannot be opened or created because it is a file or below one. Returns
    /// other errors unchanged.
    pub(crate) fn if_no_folder(self, folder: &Path) -> Error {
        let is_file = self.has_io_kind(io::ErrorKind::AlreadyExists)
            && self.place().is_some_and(|place| &*place.file == folder);
        match is_file || self.has_io_kind(io::ErrorKind::NotADirectory) {
            true => Error::argument("path", "a folder", "that of a file, or below a file")
                .at(&Place::file(folder)),
            false => self,
        }
    }

    /// Whether the operating system refused a call for lack of permission.
    pub fn is_denied(&self) -> bool {
        self.has_io_kind(io::ErrorKind::PermissionDenied)
    }

    /// Whether the operating system has no space left on the device, or none for this user.
    pub(crate) fn is_full(&self) -> bool {
        self.has_io_kind(io::ErrorKind::StorageFull)
            || self.has_io_kind(io::ErrorKind::QuotaExceeded)
    }

    fn has_io_kind(&self, kind: io::ErrorKind) -> bool {
        matches!(self.kind(), ErrorKind::Io { source, .. } if source.kind() == kind)
    }

    /// Adds the place, unless a lower layer has named a place already.
    #[must_use]
    pub fn at(mut self, place: &Place) -> Error {
        self.0.place.get_or_insert_with(|| place.clone());
        self
    }

    /// Returns the cause of the error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns the file, and the offset in it, if they are known.
    pub fn place(&self) -> Option<&Place> {
        self.0.place.as_ref()
    }

    /// Returns the class of the error, which says what to do about it.
    pub fn class(&self) -> ErrorClass {
        self.0.kind.class()
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

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Io { action, source } => write!(f, "cannot {action}: {source}"),
            ErrorKind::DuplicateKey { key } => {
                write!(f, "key \"{}\" occurs more than once", preview(key))
            }
            ErrorKind::Limit { what, limit, got } => {
                write!(f, "{what} is {got}, the largest accepted is {limit}")
            }
            ErrorKind::Argument { what, expected, got } => {
                write!(f, "{what} is {got}, expected {expected}")
            }
            ErrorKind::FailedBefore { action } => {
                write!(f, "cannot {action} after an earlier failure; open the data set again")
            }
            ErrorKind::Panicked { job } => {
                write!(f, "the {job} panicked; this is a bug in Hashfold, please report it")
            }
            ErrorKind::Full { slots_max } => write!(
                f,
                "the filter is full: all {slots_max} slots that it may fill are taken; make a larger \
                 one, or one that grows"
            ),
            ErrorKind::Memory { needs, reserved, limit } => write!(
                f,
                "needs {needs} bytes of memory, and {reserved} of {limit} are taken; close other data \
                 sets or raise the limit"
            ),
            ErrorKind::WrongKind { expected, got } => write!(
                f,
                "is a {got}, expected a {expected}; open it as a {got} or choose another folder"
            ),
            ErrorKind::WrongSeed { expected, got } => write!(
                f,
                "keys are hashed with seed {got}, expected {expected}; choose the seed {got}, or hash the \
                 keys again with the seed {expected}"
            ),
            ErrorKind::Value { key, reason } => {
                write!(f, "the value of the key \"{}\": {reason}", preview(key))
            }
            ErrorKind::Exists => f.write_str("already exists"),
            ErrorKind::Absent => f.write_str("there is no data set here"),
            ErrorKind::Unpublished => {
                f.write_str("no version of the store is current; publish one first")
            }
            ErrorKind::Busy => f.write_str("another writer has it open; wait for it to end"),
            ErrorKind::Conflict => f.write_str(
                "a key that the transaction has read was changed meanwhile; run the transaction again",
            ),
            ErrorKind::Stopped => f.write_str("stopped on request"),
            ErrorKind::Checksum { .. }
            | ErrorKind::Truncated { .. }
            | ErrorKind::Magic { .. }
            | ErrorKind::FileKind { .. }
            | ErrorKind::Version { .. }
            | ErrorKind::Mismatch { .. }
            | ErrorKind::Field { .. }
            | ErrorKind::Missing { .. }
            | ErrorKind::Superseded { .. }
            | ErrorKind::Order { .. } => self.fmt_damage(f),
        }
    }
}

impl ErrorKind {
    /// Returns the class of an error of this kind.
    fn class(&self) -> ErrorClass {
        match self {
            ErrorKind::Io { .. } | ErrorKind::FailedBefore { .. } | ErrorKind::Memory { .. } => {
                ErrorClass::Io
            }
            ErrorKind::Busy | ErrorKind::Conflict => ErrorClass::Busy,
            ErrorKind::Panicked { .. } => ErrorClass::Bug,
            ErrorKind::Checksum { .. }
            | ErrorKind::Truncated { .. }
            | ErrorKind::Magic { .. }
            | ErrorKind::FileKind { .. }
            | ErrorKind::Version { .. }
            | ErrorKind::Mismatch { .. }
            | ErrorKind::Field { .. }
            | ErrorKind::Missing { .. }
            | ErrorKind::Superseded { .. }
            | ErrorKind::Order { .. } => ErrorClass::Damage,
            ErrorKind::DuplicateKey { .. } | ErrorKind::Limit { .. } => ErrorClass::Input,
            ErrorKind::Value { reason, .. } => reason.class(),
            ErrorKind::Argument { .. }
            | ErrorKind::WrongKind { .. }
            | ErrorKind::WrongSeed { .. }
            | ErrorKind::Full { .. }
            | ErrorKind::Exists
            | ErrorKind::Absent
            | ErrorKind::Unpublished
            | ErrorKind::Stopped => ErrorClass::Usage,
        }
    }

    /// Writes the message of damage.
    fn fmt_damage(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Checksum { expected, got } => write!(
                f,
                "checksum is {got:#010x}, expected {expected:#010x}; the bytes are damaged, \
                 restore the file from a copy or rebuild it"
            ),
            ErrorKind::Truncated { expected, got } => write!(
                f,
                "{got} bytes are left where {expected} are needed; the file was cut short, \
                 restore it from a copy or rebuild it"
            ),
            ErrorKind::Magic { expected, got } => write!(
                f,
                "starts with \"{}\", expected \"{}\"; this is not a Hashfold file",
                got.escape_ascii(),
                expected.escape_ascii()
            ),
            ErrorKind::FileKind { expected, got } => {
                write!(f, "is a {got} file, expected a {expected} file; check the path")
            }
            ErrorKind::Version { expected, got } => write!(
                f,
                "format version is {got}, this library reads {}; \
                 use a newer Hashfold or rebuild the file",
                range_text(expected)
            ),
            ErrorKind::Mismatch { what, expected, got } => write!(
                f,
                "{what} is {got:#x}, expected {expected:#x}; the file belongs to another data set"
            ),
            ErrorKind::Field { what, expected, got } => write!(
                f,
                "{what} is {got}, expected {expected}; the bytes are damaged, restore the file \
                 from a copy or rebuild it"
            ),
            ErrorKind::Missing { what } => {
                write!(f, "the {what} is missing; restore it from a copy or rebuild the data set")
            }
            ErrorKind::Superseded { device } => write!(
                f,
                "this folder and its device {} are of different times: one of them is an older copy; bring back the newer one, \
                 or salvage what is left",
                device.display()
            ),
            ErrorKind::Order { previous, got } => {
                write!(f, "hash {got} comes after {previous}; entries must ascend")
            }
            _ => unreachable!("no other kind is damage"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.kind {
            ErrorKind::Io { source, .. } => Some(source.as_ref()),
            ErrorKind::Value { reason, .. } => Some(reason.as_ref()),
            _ => None,
        }
    }
}

/// Refuses keys that are hashed with another seed than the expected one.
pub(crate) fn check_seed(expected: Seed, got: Seed) -> Result<()> {
    match expected == got {
        true => Ok(()),
        false => Err(ErrorKind::WrongSeed { expected, got }.into()),
    }
}

/// Refuses a number that says that bytes belong to another data set: a seed, an id.
pub(crate) fn check_same(what: &'static str, expected: u64, got: u64) -> Result<()> {
    match expected == got {
        true => Ok(()),
        false => Err(ErrorKind::Mismatch { what, expected, got }.into()),
    }
}

/// Refuses bytes whose checksum is not the expected one.
#[inline]
pub(crate) fn check_sum(expected: u32, got: u32) -> Result<()> {
    match expected == got {
        true => Ok(()),
        false => Err(ErrorKind::Checksum { expected, got }.into()),
    }
}

/// Returns a range for messages: `4 to 18`, or `1` if it has one number.
pub(crate) fn range_text<T: fmt::Display + PartialEq>(range: &RangeInclusive<T>) -> String {
    match range.start() == range.end() {
        true => range.start().to_string(),
        false => format!("{} to {}", range.start(), range.end()),
    }
}

/// Returns the first bytes of a key as printable text.
fn preview(key: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 80;
    let shown = &key[..key.len().min(SHOWN_BYTES_MAX)];
    let dots = if shown.len() < key.len() { "..." } else { "" };
    match std::str::from_utf8(shown) {
        Ok(text) => format!("{}{dots}", text.escape_debug()),
        Err(_) => format!("{}{dots}", shown.escape_ascii()),
    }
}
