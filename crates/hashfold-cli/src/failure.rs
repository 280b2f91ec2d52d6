//! Why a command ends early: its exit code and one line for a person.

use hashfold::{Error, ErrorClass, ErrorKind};
use rustix::io::Errno;
use std::{fmt, io};

/// What the caller of the command sees when it ends. The numbers are promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything was done.
    Done = 0,
    /// The answer is no: a key is absent, a table is not sound.
    No = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The input is wrong.
    Input = 3,
    /// Stored bytes are damaged.
    Damage = 4,
    /// The operating system or the device failed.
    Io = 5,
    /// Hashfold made a mistake.
    Bug = 101,
    /// Ctrl-C, as the shell reports it.
    Stopped = 130,
}

/// Ends the command.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Nothing is said if it is empty.
    pub(crate) message: String,
}

/// A result of the command.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// The command line is wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, message: message.into() }
    }

    /// The input is wrong: `place` is a file, perhaps with line and column.
    pub(crate) fn input(place: impl fmt::Display, what: impl fmt::Display) -> Failure {
        Failure { exit: Exit::Input, message: format!("{place}: {what}") }
    }

    /// The operating system refused to `action` the `file`.
    pub(crate) fn io(file: impl fmt::Display, action: &str, source: &io::Error) -> Failure {
        let hint = hint(source);
        Failure { exit: Exit::Io, message: format!("{file}: cannot {action}: {source}{hint}") }
    }

    /// The system refused to start a thread.
    pub(crate) fn thread(what: &str, source: &io::Error) -> Failure {
        let limits = "end other processes, or raise the limit that `ulimit -u` shows";
        let message = format!("the thread that {what}: cannot start: {source}; {limits}");
        Failure { exit: Exit::Io, message }
    }

    /// The user asked to stop.
    pub(crate) fn stopped() -> Failure {
        Failure { exit: Exit::Stopped, message: "stopped; nothing was changed".into() }
    }

    /// Standard output refused bytes. A reader that has seen enough (`| head`) is no failure.
    pub(crate) fn output(source: &io::Error) -> Failure {
        match source.kind() {
            io::ErrorKind::BrokenPipe => Failure { exit: Exit::Done, message: String::new() },
            _ => Failure::io("standard output", "write", source),
        }
    }
}

/// What to do about an error of the operating system, where its own words do not say it.
fn hint(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::FBIG) => "; raise the limit of file sizes, which `ulimit -f` shows",
        _ => "",
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match (error.kind(), error.class()) {
            (ErrorKind::Stopped, _) => return Failure::stopped(),
            (_, ErrorClass::Usage) => Exit::Usage,
            (_, ErrorClass::Input) => Exit::Input,
            (_, ErrorClass::Damage) => Exit::Damage,
            (_, ErrorClass::Io) => Exit::Io,
            (_, ErrorClass::Bug) => Exit::Bug,
        };
        let hint = match error.kind() {
            ErrorKind::Exists => "; --replace builds it anew",
            ErrorKind::DuplicateKey { .. } => "; without --unique the last one wins",
            ErrorKind::Missing { what } if what.starts_with("file of version") => {
                "; `hashfold verify --repair-from COPY` restores it, or `hashfold gc --lost` gives it up, \
                 after `hashfold publish` if another version has to be made current"
            }
            ErrorKind::Missing { what } if what.starts_with("CURRENT") => {
                "; `hashfold verify --repair-from COPY` makes it anew, or `--repair` without a copy"
            }
            ErrorKind::Io { source, .. } => hint(source),
            _ => "",
        };
        Failure { exit, message: format!("{error}{hint}") }
    }
}
