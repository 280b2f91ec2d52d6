//! The way of batches: the input of a pipeline, and what its queues hold.
//!
//! There is a fixed number of batches. A source that wants one waits until a batch has passed all workers;
//! that is the back-pressure. So no queue ever holds more, and no thread waits to put a batch into one.

use super::{
    batch::Batch,
    chain_dump::ChainDump,
    checkpoint::{Checkpoint, Origin, Part, Position},
    clock::{Arrival, MAIN_SOURCE},
    sync::{AtomicBool, Mutex, MutexGuard, Receiver, Sender, bounded},
};
use crate::{
    error::{Error, ErrorKind, Result},
    work::Clock,
};
use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

/// A task for threads, in the order of the input.
#[derive(Clone, Debug)]
pub(super) enum Task<B> {
    Batch(B),
    Mark(Mark),
}

impl<B> Task<B> {
    pub(super) fn map<C>(self, change: impl FnOnce(B) -> C) -> Task<C> {
        match self {
            Task::Batch(batch) => Task::Batch(change(batch)),
            Task::Mark(mark) => Task::Mark(mark),
        }
    }
}

/// A mark behind all batches that were pushed before.
#[derive(Clone, Debug)]
pub(super) enum Mark {
    /// Each worker sends the state of its summaries.
    Checkpoint(Sender<Part>),
    /// Each worker sends its chains, with their numbers.
    Chains(Sender<(usize, ChainDump)>),
    /// All windows end.
    End,
    /// Windows that have ended are given to their sinks: all of them, or those that the last checkpoint has.
    Publish { all: bool },
    /// Windows that wait are given to their sinks if they take more memory than is left.
    Relieve,
    /// Time passes on the machine until this moment, in milliseconds.
    Time(i64),
}

/// A task for parsers, and its place in the order.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) sequence: u64,
    pub(super) task: Task<Batch>,
}

/// A task for a worker, and its place in the order.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) sequence: u64,
    pub(super) task: Task<Arc<Batch>>,
}

/// The first error of a worker, which ends the pipeline.
#[derive(Debug, Default)]
pub(super) struct Failure {
    is_set: AtomicBool,
    error: Mutex<Option<Error>>,
}

impl Failure {
    pub(super) fn set(&self, error: Error) {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.is_set.store(true, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    pub(super) fn check(&self) -> Result<()> {
        match self.is_set() {
            false => Ok(()),
            true => Err(self.get()),
        }
    }

    /// Returns the error; without one, a thread has panicked.
    pub(super) fn get(&self) -> Error {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        error.unwrap_or_else(|| ErrorKind::Panicked { job: "summarizer" }.into())
    }
}

/// A source with a watermark of its own, such as a connection: see [`Input::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceId(u64);

impl SourceId {
    /// The source of all batches that are pushed with [`Input::push`].
    pub const MAIN: SourceId = SourceId(MAIN_SOURCE);
}

/// The input of a [`Pipeline`](super::Pipeline). Clones are the same input; each source has one.
#[derive(Clone, Debug)]
pub struct Input(Arc<Feed>);

#[derive(Debug)]
struct Feed {
    order: Mutex<Order>,
    pool: Receiver<Batch>,
    failure: Arc<Failure>,
    origin: Origin,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct Order {
    next: u64,
    /// Number of sources that were opened.
    opened: u64,
    /// Positions of the sources behind the batches that were pushed.
    positions: Vec<Position>,
    /// The queue of the parsers; `None` when the pipeline has ended.
    items: Option<Sender<Item>>,
}

impl Input {
    pub(super) fn new(
        items: Sender<Item>,
        pool: Receiver<Batch>,
        failure: Arc<Failure>,
        positions: Vec<Position>,
        (origin, clock): (Origin, Arc<dyn Clock>),
    ) -> Input {
        let order = Mutex::new(Order { next: 0, opened: 0, positions, items: Some(items) });
        Input(Arc::new(Feed { order, pool, failure, origin, clock }))
    }

    fn lock(&self) -> MutexGuard<'_, Order> {
        self.0.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an empty batch. Waits while all batches are in use: that is the back-pressure. Each batch must be
    /// pushed, even if it stays empty; one that is dropped is lost to the pipeline.
    ///
    /// # Errors
    /// The error that ended the pipeline.
    pub fn batch(&self) -> Result<Batch> {
        self.0.failure.check()?;
        let batch = self.0.pool.recv().map_err(|_| self.0.failure.get())?;
        let Err(error) = self.0.failure.check() else { return Ok(batch) };
        // The batch goes on, so that the next source that waits for one sees the failure, too.
        let _ = self.send(&mut self.lock(), Task::Batch(batch));
        Err(error)
    }

    /// Pushes a batch of the main source. `position` is the number of what is read and its position behind the batch, for
    /// checkpoints. All that has positions is one source for the clock of the stream. Batches without a position are events
    /// that come while they happen.
    ///
    /// # Errors
    /// The error that ended the pipeline, or `Stopped` if it has ended.
    ///
    /// # Panics
    /// If there is no such position.
    pub fn push(&self, mut batch: Batch, position: Option<(usize, Position)>) -> Result<()> {
        let mut order = self.lock();
        if let Some((number, position)) = position {
            order.positions[number] = position;
        }
        batch.arrival = self.arrival(SourceId::MAIN);
        batch.arrival.is_live = position.is_none();
        self.push_in(&mut order, batch)
    }

    /// Opens a source with a watermark of its own, such as a connection. From its first event on, and until it is closed or
    /// idle, it holds the clock of the stream; at the beginning of the stream already from now on. Waits for a batch.
    ///
    /// # Errors
    /// As for [`Input::push`].
    pub fn open(&self) -> Result<SourceId> {
        let mut batch = self.batch()?;
        let mut order = self.lock();
        order.opened += 1;
        let source = SourceId(order.opened);
        batch.arrival = self.arrival(source);
        self.push_in(&mut order, batch)?;
        Ok(source)
    }

    /// Pushes a batch of a source that is open.
    ///
    /// # Errors
    /// As for [`Input::push`].
    pub fn push_from(&self, source: SourceId, mut batch: Batch) -> Result<()> {
        let mut order = self.lock();
        batch.arrival = self.arrival(source);
        self.push_in(&mut order, batch)
    }

    /// Ends a source: it holds the clock of the stream no longer. The main source goes on with its next batch. Waits for a
    /// batch.
    ///
    /// # Errors
    /// As for [`Input::push`].
    pub fn close(&self, source: SourceId) -> Result<()> {
        let mut batch = self.batch()?;
        let mut order = self.lock();
        batch.arrival = Arrival { is_last: true, ..self.arrival(source) };
        self.push_in(&mut order, batch)
    }

    /// Returns whose batch is pushed now. To be called with the lock, so that time does not go back in the order of the input.
    fn arrival(&self, source: SourceId) -> Arrival {
        let date_ms = milliseconds(self.0.clock.unix_time());
        let (source, at_ms) = (source.0, self.now_ms());
        Arrival { source, at_ms, date_ms, is_last: false, is_live: true }
    }

    fn now_ms(&self) -> i64 {
        milliseconds(self.0.clock.now())
    }

    fn push_in(&self, order: &mut Order, batch: Batch) -> Result<()> {
        // After a failure, too: other sources may wait for a batch.
        self.send(order, Task::Batch(batch))?;
        self.0.failure.check()
    }

    /// Lets the workers know what time it is.
    pub(super) fn pass_time(&self) -> Result<()> {
        self.0.failure.check()?;
        let mut order = self.lock();
        let now_ms = self.now_ms();
        self.send(&mut order, Task::Mark(Mark::Time(now_ms)))
    }

    fn send(&self, order: &mut Order, task: Task<Batch>) -> Result<()> {
        let Some(items) = &order.items else { return Err(ErrorKind::Stopped.into()) };
        let sequence = order.next;
        items.send(Item { sequence, task }).map_err(|_| self.0.failure.get())?;
        order.next += 1;
        Ok(())
    }

    /// Returns the state behind all batches that were pushed. Waits until they are handled.
    pub(super) fn checkpoint(&self) -> Result<Checkpoint> {
        let (sender, parts) = bounded(1);
        let mut order = self.lock();
        let positions = order.positions.clone();
        self.send(&mut order, Task::Mark(Mark::Checkpoint(sender)))?;
        drop(order);
        let parts: Vec<Part> = parts.into_iter().collect();
        self.0.failure.check()?;
        Checkpoint::of_parts(self.0.origin, positions, parts).ok_or_else(|| self.0.failure.get())
    }

    /// Returns all chains behind all batches that were pushed, in their order. Waits until these are handled.
    pub(super) fn chains(&self) -> Result<Vec<ChainDump>> {
        let (sender, dumps) = bounded(1);
        self.mark(Mark::Chains(sender))?;
        let mut dumps: Vec<(usize, ChainDump)> = dumps.into_iter().collect();
        self.0.failure.check()?;
        dumps.sort_unstable_by_key(|(number, _)| *number);
        Ok(dumps.into_iter().map(|(_, dump)| dump).collect())
    }

    /// Pushes a mark behind all batches that were pushed before.
    pub(super) fn mark(&self, mark: Mark) -> Result<()> {
        self.0.failure.check()?;
        self.send(&mut self.lock(), Task::Mark(mark))
    }

    /// Ends the input.
    pub(super) fn end(&self) {
        self.lock().items = None;
    }

    /// Number of batches that wait for a parser.
    pub(super) fn queued(&self) -> usize {
        self.lock().items.as_ref().map_or(0, Sender::len)
    }
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
