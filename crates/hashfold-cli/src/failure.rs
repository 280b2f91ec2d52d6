//! Failures that end a command: an exit code and a one-line message.

use crate::device;
use hashfold::{Error, ErrorClass, ErrorKind, folder::Contents, manifest::Kind};
use rustix::io::Errno;
use std::{fmt, io};

/// The name of the data file of a map.
const MAP_DATA: &str = "map-data";

/// Exit codes of the command. The numbers are part of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything was done.
    Done = 0,
    /// The answer is no: a key is absent, a gate failed, problems were found.
    No = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The input is wrong.
    Input = 3,
    /// Stored bytes are damaged.
    Damage = 4,
    /// The operating system or the device failed.
    Io = 5,
    /// Another process has the lock of the data set.
    Busy = 6,
    /// A bug of Hashfold.
    Bug = 101,
    /// Stopped with Ctrl-C, as the shell reports it.
    Stopped = 130,
}

/// The table of exit codes, for `hashfold help exit-codes`. The guide has the same table.
pub(crate) const EXIT_CODES: &str = "\
The exit code says what to do:

  0    done
  1    the answer is no: a key is absent, a gate failed, verify found problems, there is no version
       to roll back to
  2    wrong usage: an option, or a file or folder on the command line that is not there or of the
       wrong kind; correct the call
  3    bad input: a row, a column or a file that cannot be used; the message names file and line
  4    damaged data: the message names file and offset; restore or rebuild the data set
  5    I/O failed: disk full, no permission, too many open files; fix the cause and repeat the call
  6    busy: another process writes to the data set, or has the map open; repeat the call later, or
       use --wait TIME where there is this option
  130  stopped with Ctrl-C, kill or a closed terminal; the data set is as before the call, or has
       what the message says";

/// The reason why a command ends early.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Message for standard error; nothing is printed if it is empty.
    pub(crate) message: String,
}

/// The result type of the command.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// Makes a failure for a wrong command line.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Usage, message: message.into() }
    }

    /// Makes a failure for wrong input; `place` is a file, perhaps with line and column.
    pub(crate) fn input(place: impl fmt::Display, what: impl fmt::Display) -> Failure {
        Failure { exit: Exit::Input, message: format!("{place}: {what}") }
    }

    /// Makes a failure for a system call that failed.
    pub(crate) fn io(file: impl fmt::Display, action: &str, source: &io::Error) -> Failure {
        let hint = hint(source);
        Failure { exit: Exit::Io, message: format!("{file}: cannot {action}: {source}{hint}") }
    }

    /// Makes a failure for a thread that the operating system did not start.
    pub(crate) fn thread(what: &str, source: &io::Error) -> Failure {
        let limits = "end other processes, or raise the limit that `ulimit -u` shows";
        let message = format!("the thread that {what}: cannot start: {source}; {limits}");
        Failure { exit: Exit::Io, message }
    }

    /// Makes a failure for Ctrl-C.
    pub(crate) fn stopped() -> Failure {
        Failure { exit: Exit::Stopped, message: "stopped; nothing was changed".into() }
    }

    /// Makes a failure for a write to standard output. A closed pipe (`| head`) is not a failure.
    pub(crate) fn output(source: &io::Error) -> Failure {
        match source.kind() {
            io::ErrorKind::BrokenPipe => Failure { exit: Exit::Done, message: String::new() },
            _ => Failure::io("standard output", "write", source),
        }
    }
}

/// Returns advice for an error of the operating system whose message does not contain any.
fn hint(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::MFILE) => "; raise the limit of open files, which `ulimit -n` shows",
        Some(Errno::ADDRINUSE) => {
            "; another program listens there: stop it, or choose another port"
        }
        Some(Errno::FBIG) => "; raise the limit of file sizes, which `ulimit -f` shows",
        _ => "",
    }
}

/// Whether `CURRENT` of a store is missing or damaged.
fn is_of_pointer(error: &Error) -> bool {
    let file = error.place().and_then(|place| place.file.file_name());
    error.class() == ErrorClass::Damage && file.is_some_and(|name| name == hashfold::store::NAME)
}

/// Whether the place of the error is the folder of a map, or a file in one.
fn is_of_map(error: &Error) -> bool {
    let Some(place) = error.place() else { return false };
    let disk = device::disk();
    let mut folders = [Some(&*place.file), place.file.parent()].into_iter().flatten();
    folders.any(|folder| {
        let kind = Contents::of(disk.as_ref(), folder).ok().and_then(Contents::kind);
        kind == Some(Kind::Map)
    })
}

/// Whether a map cannot be opened because the user may not write to it, or nobody may.
fn is_of_read_only_map(error: &Error, source: &io::Error) -> bool {
    let file = error.place().and_then(|place| place.file.file_name());
    let refusals = [Errno::ROFS, Errno::ACCESS, Errno::PERM];
    file.is_some_and(|name| name == MAP_DATA)
        && Errno::from_io_error(source).is_some_and(|errno| refusals.contains(&errno))
}

impl From<ErrorClass> for Exit {
    fn from(class: ErrorClass) -> Exit {
        match class {
            ErrorClass::Usage => Exit::Usage,
            ErrorClass::Input => Exit::Input,
            ErrorClass::Damage => Exit::Damage,
            ErrorClass::Io => Exit::Io,
            ErrorClass::Busy => Exit::Busy,
            ErrorClass::Bug => Exit::Bug,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        if matches!(error.kind(), ErrorKind::Stopped) {
            return Failure::stopped();
        }
        let exit = error.class().into();
        if let (ErrorKind::Busy, Some(place)) = (error.kind(), error.place())
            && is_of_map(&error)
        {
            let message = format!(
                "{place}: another process, perhaps a server, has the map open; one process has a map open at \
                 a time, also for reading"
            );
            return Failure { exit, message };
        }
        let hint = match error.kind() {
            ErrorKind::DuplicateKey { .. } => "; without --unique the last row wins",
            ErrorKind::Missing { what } if what.starts_with("file of version") => {
                "; restore it with `hashfold verify --repair-from COPY`, or give it up with `hashfold gc \
                 --lost`, after making another version current with `hashfold publish`"
            }
            ErrorKind::Missing { what } if what.starts_with("folder of device") => {
                "; if the devices have moved, `hashfold map put` and other verbs that change the map say \
                 once where all of them are: `--device DIR` for each but the first"
            }
            _ if is_of_pointer(&error) => {
                "; `hashfold verify --repair-from COPY` repairs it, or --repair if there is no copy"
            }
            ErrorKind::Io { source, .. } if is_of_read_only_map(&error, source) => {
                "; a map is opened for reading and writing, also by commands that only read: run them as a \
                 user who may write to it, or copy its entries to a new map with `hashfold map salvage`"
            }
            ErrorKind::Io { source, .. } => hint(source),
            ErrorKind::Superseded { .. } => "",
            _ if error.class() == ErrorClass::Damage && is_of_map(&error) => {
                "; `hashfold map salvage` writes what is left of the map to a new one"
            }
            _ => "",
        };
        Failure { exit, message: format!("{error}{hint}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashfold::Place;
    use std::path::Path;

    /// A test that runs as root cannot be refused.
    #[test]
    fn a_map_that_cannot_be_written_to_names_the_verb_that_reads_it() {
        let failure = |file: &str, errno: Errno| {
            let error = Error::io("open", errno.into());
            Failure::from(error.at(&Place::file(Path::new(file))))
        };
        for errno in [Errno::ROFS, Errno::ACCESS, Errno::PERM] {
            let Failure { exit, message } = failure("m/map-data", errno);
            assert_eq!(exit, Exit::Io);
            assert!(message.contains("`hashfold map salvage`"), "{message}");
            assert!(!failure("t/data", errno).message.contains("salvage"));
        }
        assert!(!failure("m/map-data", Errno::IO).message.contains("salvage"));
    }
}
