//! The thread that reads all inputs, one after the other, into one queue.

use super::{
    ReadOptions, Reader,
    batch::{BATCHES_WAITING, Batch, BatchReceiver, queue},
    guard::guard,
    selection::Expected,
    sink::{BadRowPolicy, Sink},
    source::Meter,
};
use crate::{
    failure::{Failure, Result},
    schema::Schema,
    stop::Stop,
};
use std::{
    panic::resume_unwind,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between two checks of the stop flag while waiting for input.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Inputs, the first of which is open.
pub(crate) struct Inputs {
    rows: Rows,
    thread: IdleThread,
    /// Maximum number of batches that wait.
    waiting: usize,
    pub(crate) schema: Schema,
    pub(crate) meter: Meter,
}

/// The open reader of the first input, and the other inputs.
struct Rows {
    path: String,
    first: Box<dyn Reader>,
    others: Vec<String>,
    options: ReadOptions,
    meter: Meter,
}

/// Reads all inputs; returns the number of bad rows.
type Reading = Box<dyn FnOnce() -> Result<u64> + Send>;

/// A started thread that waits for its work; it ends if it gets none.
struct IdleThread {
    work: Sender<Reading>,
    thread: JoinHandle<Result<u64>>,
}

impl IdleThread {
    fn start() -> Result<IdleThread> {
        let (sender, work) = channel::<Reading>();
        let thread = thread::Builder::new()
            .name("hashfold-read".into())
            .spawn(move || work.recv().map_or(Ok(0), |read| read()))
            .map_err(|error| Failure::thread("reads the input", &error))?;
        Ok(IdleThread { work: sender, thread })
    }
}

impl Inputs {
    /// Opens the first of `paths`, which determines the columns.
    pub(crate) fn open(paths: &[String], mut options: ReadOptions) -> Result<Inputs> {
        options.selection.check_distinct()?;
        // Started before any pool of threads: the system may allow few threads, and a pool can work
        // with fewer.
        let thread = IdleThread::start()?;
        let meter = Meter::default();
        let (path, others) = paths.split_first().expect("there is at least one input");
        let first = guard(path, || options.open(path, &meter))?;
        let schema = first.schema().clone();
        let of_first = || Expected { schema: schema.clone(), whose: "the first input" };
        options.selection.expected.get_or_insert_with(of_first);
        let (path, others) = (path.clone(), others.to_vec());
        let rows = Rows { path, first, others, options, meter: meter.clone() };
        Ok(Inputs { rows, thread, waiting: BATCHES_WAITING, schema, meter })
    }

    /// Sets the maximum number of batches to read ahead.
    pub(crate) fn waiting(self, waiting: usize) -> Inputs {
        Inputs { waiting, ..self }
    }

    /// Starts reading.
    pub(crate) fn start(self, policy: BadRowPolicy) -> Result<Feed> {
        let (sender, batches) = queue(self.waiting);
        let sink = Sink::new(sender, policy)?;
        let Inputs { rows, thread: IdleThread { work, thread }, .. } = self;
        work.send(Box::new(move || rows.read(sink))).expect("the thread waits for work");
        Ok(Feed { batches, thread })
    }
}

impl Rows {
    /// Reads all inputs; returns the number of bad rows.
    fn read(self, mut sink: Sink) -> Result<u64> {
        guard(&self.path, || self.first.read(&mut sink))?;
        for path in &self.others {
            guard(path, || self.options.open(path, &self.meter)?.read(&mut sink))?;
        }
        sink.finish()
    }
}

/// Receives batches. Dropping it early does not wait for the reading thread, which may wait for
/// standard input forever.
pub(crate) struct Feed {
    batches: BatchReceiver,
    thread: JoinHandle<Result<u64>>,
}

impl Feed {
    /// Returns the next batch; `None` at the end of the input, or at a failure that `finish` returns.
    pub(crate) fn next(&mut self, stop: &Stop) -> Result<Option<Batch>> {
        self.next_or(stop, &mut || Ok(()))
    }

    /// Returns the next batch as [`Feed::next`] does. Calls `idle` about ten times a second while
    /// there is none.
    pub(crate) fn next_or(
        &mut self,
        stop: &Stop,
        idle: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<Batch>> {
        loop {
            stop.check()?;
            match self.batches.full.recv_timeout(STOP_CHECK) {
                Ok(batch) => return Ok(Some(batch)),
                Err(RecvTimeoutError::Timeout) => idle()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }

    /// Returns the next batch if it arrives within this time.
    pub(crate) fn next_within(&mut self, time: Duration) -> Option<Batch> {
        self.batches.full.recv_timeout(time).ok()
    }

    /// Returns an empty batch, to be filled again.
    pub(crate) fn give_back(&self, batch: Batch) {
        // Fails at the end of the input, when no reader takes it; then it is dropped.
        let _ = self.batches.empty.send(batch);
    }

    /// Ends reading; returns the number of bad rows.
    pub(crate) fn finish(self) -> Result<u64> {
        match self.thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => resume_unwind(panic),
        }
    }
}
