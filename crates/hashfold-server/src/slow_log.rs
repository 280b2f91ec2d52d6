//! The slow log: commands that took long, with the time from their turn to their reply.

use crate::{
    command::{Arguments, Command, Flag},
    session::Client,
};
use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Maximum number of commands in the log.
pub(crate) const COMMANDS_MAX: usize = 128;

/// Commands that take at least this long are in the log, in microseconds.
const SLOW_US: u64 = 10_000;

/// Maximum number of arguments of a command, and size of each, that the log keeps.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;

/// The slow log of a server.
#[derive(Debug)]
pub(crate) struct SlowLog {
    entries: Mutex<Entries>,
    /// The least time of a command in the log, in microseconds.
    pub(crate) threshold_us: AtomicU64,
}

#[derive(Debug, Default)]
struct Entries {
    /// The newest command first.
    commands: VecDeque<SlowCommand>,
    next_id: u64,
}

/// A command that took long.
#[derive(Clone, Debug)]
pub(crate) struct SlowCommand {
    pub(crate) id: u64,
    /// Seconds since 1970.
    pub(crate) at: u64,
    pub(crate) took: Duration,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) peer: String,
    pub(crate) name: String,
}

impl Default for SlowLog {
    fn default() -> SlowLog {
        SlowLog { entries: Mutex::default(), threshold_us: AtomicU64::new(SLOW_US) }
    }
}

impl SlowLog {
    /// Whether any command belongs to the log.
    pub(crate) fn is_on(&self) -> bool {
        self.threshold_us.load(Relaxed) < u64::MAX
    }

    /// Whether a command that took this long belongs to the log.
    #[inline]
    pub(crate) fn takes(&self, took: Duration) -> bool {
        self.is_on() && took.as_micros() as u64 >= self.threshold_us.load(Relaxed)
    }

    /// Adds a command of a client, whose arguments were cut by [`shown`].
    pub(crate) fn add(
        &self,
        client: &Client,
        at: Duration,
        took: Duration,
        arguments: Vec<Vec<u8>>,
    ) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let id = entries.next_id;
        entries.next_id += 1;
        entries.commands.truncate(COMMANDS_MAX - 1);
        entries.commands.push_front(SlowCommand {
            id,
            at: at.as_secs(),
            took,
            arguments,
            peer: client.peer.to_string(),
            name: client.texts().name,
        });
    }

    /// Returns the newest commands, at most `count`.
    pub(crate) fn newest(&self, count: usize) -> Vec<SlowCommand> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.commands.iter().take(count).cloned().collect()
    }

    /// Returns the number of commands.
    pub(crate) fn count(&self) -> usize {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).commands.len()
    }

    /// Removes all commands.
    pub(crate) fn clear(&self) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).commands.clear();
    }
}

/// Returns the arguments of a call as the slow log shows them. Those of a login are secret.
pub(crate) fn shown(command: &Command, arguments: &Arguments<'_>) -> Vec<Vec<u8>> {
    match command.is(Flag::NoAuth) {
        true => vec![arguments.at(0).to_vec()],
        false => cut(arguments.from(0)),
    }
}

/// Returns the first arguments, and the first bytes of each, with the numbers of those that were left out.
pub(crate) fn cut<'a>(arguments: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let count = arguments.len();
    let kept = if count > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { count };
    let mut shown: Vec<Vec<u8>> = arguments.take(kept).map(cut_one).collect();
    if kept < count {
        shown.push(format!("... ({} more arguments)", count - kept).into_bytes());
    }
    shown
}

fn cut_one(argument: &[u8]) -> Vec<u8> {
    let kept = argument.len().min(ARGUMENT_BYTES_MAX);
    let mut shown = argument[..kept].to_vec();
    if kept < argument.len() {
        shown.extend(format!("... ({} more bytes)", argument.len() - kept).into_bytes());
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_calls_are_cut_as_in_redis() {
        let long = [b'x'; ARGUMENT_BYTES_MAX + 3];
        assert_eq!(cut_one(&long[..ARGUMENT_BYTES_MAX]), long[..ARGUMENT_BYTES_MAX]);
        assert!(cut_one(&long).ends_with(b"x... (3 more bytes)"));
        let many = vec![&b"a"[..]; 40];
        assert_eq!(cut(many[..32].iter().copied()).len(), 32);
        let shown = cut(many.iter().copied());
        assert_eq!((shown.len(), &shown[31][..]), (32, &b"... (9 more arguments)"[..]));
    }
}
