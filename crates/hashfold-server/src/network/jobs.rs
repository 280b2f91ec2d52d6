//! Work that may wait for the device, done by other threads.

use super::{
    batch::{Answers, Group},
    exec::Executed,
    on_map::MapJob,
};
use crate::{
    command::{Arguments, Found, JobReply},
    shared::Shared,
    slow_log::shown,
};
use mio::Waker;
use std::{
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

/// The result of a job.
pub(super) enum Finished {
    /// The values of a group's keys, and the time at which they were asked for.
    Lookups { group: Group, answers: Answers, start: Duration },
    /// The reply of a command, for a connection at a place.
    Reply { place: usize, id: u64, reply: JobReply, asked: AskedJob },
    /// The replies of commands on a map.
    Map(Box<MapJob>),
    /// The replies of a transaction.
    Transaction { place: usize, id: u64, executed: Box<Executed> },
}

/// Where jobs of one event loop leave their results.
#[derive(Clone, Debug)]
pub(super) struct Results {
    sender: Sender<Finished>,
    waker: Arc<Waker>,
}

impl Results {
    /// Makes a place for results, and the end at which the event loop takes them.
    pub(super) fn new(waker: Arc<Waker>) -> (Results, Receiver<Finished>) {
        let (sender, receiver) = channel();
        (Results { sender, waker }, receiver)
    }

    /// Leaves a result, and wakes the event loop.
    pub(super) fn put(&self, finished: Finished) {
        // The event loop has ended if nobody takes it; then nothing waits for the result either.
        if self.sender.send(finished).is_ok() {
            let _ = self.waker.wake();
        }
    }
}

/// What the end of a job needs to know about its command.
pub(super) struct AskedJob {
    pub(super) number: usize,
    /// The time of its turn.
    pub(super) start: Duration,
    /// The arguments as the slow log shows them.
    pub(super) arguments: Vec<Vec<u8>>,
    /// Whether the client wants no reply.
    pub(super) is_silent: bool,
}

impl AskedJob {
    pub(super) fn new(
        shared: &Shared,
        found: Found,
        arguments: &Arguments<'_>,
        start: Duration,
        is_silent: bool,
    ) -> AskedJob {
        let arguments = match shared.slow_log.is_on() {
            true => shown(found.command, arguments),
            false => Vec::new(),
        };
        AskedJob { number: found.number, start, arguments, is_silent }
    }
}
