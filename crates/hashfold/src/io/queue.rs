//! A queue of background writes with a bounded number in flight.

use super::Buffer;
use crate::{
    error::{Error, ErrorKind, Place, Result},
    work::{Executor, Pending},
};
use std::{collections::VecDeque, sync::Arc};

/// A queue that runs writes on an executor, and reuses their buffers.
///
/// The call that waits for a failed write returns its error; every later call fails, too. Dropping
/// a queue waits for its writes.
#[derive(Debug)]
pub struct WriteQueue {
    executor: Arc<dyn Executor>,
    /// Maximum number of writes in flight.
    in_flight_max: usize,
    in_flight: VecDeque<Pending<(Buffer, Result<()>)>>,
    /// Number of the last write that has been waited for.
    done: u64,
    /// Buffers of finished writes.
    spare: Vec<Buffer>,
    failed: bool,
}

impl WriteQueue {
    /// Makes a queue with up to `in_flight_max` writes in flight.
    pub fn new(executor: Arc<dyn Executor>, in_flight_max: usize) -> WriteQueue {
        // An executor that runs jobs in the caller's thread returns errors at once, and one buffer
        // suffices.
        let in_flight_max = if executor.width() == 0 { 0 } else { in_flight_max };
        let in_flight = VecDeque::with_capacity(in_flight_max + 1);
        WriteQueue { executor, in_flight_max, in_flight, done: 0, spare: Vec::new(), failed: false }
    }

    /// Returns the executor that runs the writes.
    pub fn executor(&self) -> &Arc<dyn Executor> {
        &self.executor
    }

    /// Starts `write` with its buffer, then waits until at most the maximum number of writes are in
    /// flight. Returns the number of the write, for [`WriteQueue::wait_for`]. The first write has
    /// number 1.
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

    /// Waits for the oldest writes until at most `count` are in flight.
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

    /// Returns the number of writes in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Takes the buffer of a finished write, if there is one.
    pub fn take_buffer(&mut self) -> Option<Buffer> {
        self.spare.pop()
    }

    /// Keeps a buffer for later writes.
    pub fn give_buffer(&mut self, buffer: Buffer) {
        self.spare.push(buffer);
    }

    /// Makes the queue fail because of an error outside of it.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// Whether a write has failed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Checks that no write has failed; `action` and `place` are for the error.
    pub fn check(&self, action: &'static str, place: impl FnOnce() -> Place) -> Result<()> {
        if !self.failed {
            return Ok(());
        }
        Err(Error::new(ErrorKind::FailedBefore { action }).at(&place()))
    }
}

impl Drop for WriteQueue {
    fn drop(&mut self) {
        // Errors cannot be returned from here.
        let _ = self.wait_until(0);
    }
}
