//! Writes in the background, a bounded number at once.

use super::Buffer;
use crate::{
    error::{Error, ErrorKind, Place, Result},
    work::{Executor, Pending},
};
use std::{collections::VecDeque, sync::Arc};

/// Runs writes on an executor, and lends their buffers back when they are done.
///
/// The first error comes out of the call that waits for its write; every later call fails too.
/// Dropping a queue waits for its writes.
#[derive(Debug)]
pub struct WriteQueue {
    executor: Arc<dyn Executor>,
    /// Number of writes that may run at once.
    in_flight_max: usize,
    in_flight: VecDeque<Pending<(Buffer, Result<()>)>>,
    /// Writes that were started and waited for.
    done: u64,
    /// Buffers of writes that are done.
    spare: Vec<Buffer>,
    failed: bool,
}

impl WriteQueue {
    /// Makes a queue that runs up to `in_flight_max` writes at once.
    pub fn new(executor: Arc<dyn Executor>, in_flight_max: usize) -> WriteQueue {
        // An executor that works in the caller is done at once: so its errors come at once too, and
        // one buffer is enough.
        let in_flight_max = if executor.width() == 0 { 0 } else { in_flight_max };
        let in_flight = VecDeque::with_capacity(in_flight_max + 1);
        WriteQueue { executor, in_flight_max, in_flight, done: 0, spare: Vec::new(), failed: false }
    }

    /// The executor that writes run on.
    pub fn executor(&self) -> &Arc<dyn Executor> {
        &self.executor
    }

    /// Starts `write` with its buffer, and waits until there are no more writes than may run at
    /// once. Returns the number of the write, for [`WriteQueue::wait_for`]; numbers start at 1.
    pub fn start(
        &mut self,
        mut buffer: Buffer,
        write: impl FnOnce(&mut [u8]) -> Result<()> + Send + 'static,
    ) -> Result<u64> {
        self.in_flight.push_back(Pending::start(&*self.executor, move || {
            let result = write(&mut buffer);
            (buffer, result)
        }));
        let number = self.done + self.in_flight.len() as u64;
        self.wait_until(self.in_flight_max)?;
        Ok(number)
    }

    /// Waits for all writes up to this number.
    pub fn wait_for(&mut self, number: u64) -> Result<()> {
        let started = self.done + self.in_flight.len() as u64;
        self.wait_until(started.saturating_sub(number) as usize)
    }

    /// Waits for the oldest writes, until no more than `count` are running.
    pub fn wait_until(&mut self, count: usize) -> Result<()> {
        let mut first_error = Ok(());
        while self.in_flight.len() > count
            && let Some(oldest) = self.in_flight.pop_front()
        {
            let (buffer, result) = oldest.wait();
            self.spare.push(buffer);
            self.done += 1;
            self.failed |= result.is_err();
            first_error = first_error.and(result);
        }
        first_error
    }

    /// Number of writes that may be running.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Takes a buffer of a write that is done, if there is one.
    pub fn take_buffer(&mut self) -> Option<Buffer> {
        self.spare.pop()
    }

    /// Keeps a buffer to be lent again.
    pub fn give_buffer(&mut self, buffer: Buffer) {
        self.spare.push(buffer);
    }

    /// Records that something else went wrong with what is written: the queue has failed too.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// Whether a write has failed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Checks that no write has failed; `action` and `place` are for the error.
    pub fn check(&self, action: &'static str, place: &Place) -> Result<()> {
        if !self.failed {
            return Ok(());
        }
        Err(Error::new(ErrorKind::FailedBefore { action }).at(place))
    }
}

impl Drop for WriteQueue {
    fn drop(&mut self) {
        // Nobody is left who could be told of an error.
        let _ = self.wait_until(0);
    }
}
