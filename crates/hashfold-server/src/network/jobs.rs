//! Work that may wait for the device, done by other threads.

use super::{
    batch::{Answers, Group},
    event_loop::AskedJob,
    exec::Executed,
    on_map::MapJob,
};
use crate::command::JobReply;
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
