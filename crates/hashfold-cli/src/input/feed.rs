//! The thread that reads all inputs, one after the other, into one queue.

use super::{
    ReadOptions, Reader,
    bad_rows::BadRowPolicy,
    batch::{BATCHES_WAITING, Batch, BatchReceiver, queue},
    guard::guard,
    selection::{Expected, SchemaPolicy, Selection},
    sink::{Counts, KeyRules, Sink, never_filled},
    source::Meter,
};
use crate::{
    failure::{Failure, Result},
    stop::Stop,
};
use hashfold::run::KEY_BYTES_MAX;
use hashfold_rows::{Form, KeyType, Schema};
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
    thread: InputThread,
    /// Maximum number of batches that wait.
    waiting: usize,
    /// Maximum size of a key, in bytes.
    key_bytes_max: usize,
    /// The schema of the first input; later inputs may add columns, and the type of the keys is
    /// known at the end.
    pub(crate) schema: Schema,
    pub(crate) meter: Meter,
}

/// The result of reading all inputs.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) bad_rows: u64,
    /// The schema of all rows.
    pub(crate) schema: Schema,
}

/// The open reader of the first input, and the other inputs.
struct Rows {
    path: String,
    first: Box<dyn Reader>,
    others: Vec<String>,
    options: ReadOptions,
    /// Type of the keys, if the data set is there.
    key_type: Option<KeyType>,
    meter: Meter,
}

/// A task of the thread that reads.
enum Task {
    /// Open the first input.
    Open(Box<dyn FnOnce() + Send>),
    /// Read all inputs, and end.
    Read(Box<dyn FnOnce() -> Result<Taken> + Send>),
}

/// The thread that reads; it ends if it is dropped.
///
/// It is started before any pool of threads: the system may allow few threads, and a pool can work
/// with fewer.
pub(crate) struct InputThread {
    tasks: Sender<Task>,
    thread: JoinHandle<Result<Option<Taken>>>,
}

impl InputThread {
    pub(crate) fn start() -> Result<InputThread> {
        let (tasks, queue) = channel::<Task>();
        let run = move || {
            loop {
                match queue.recv() {
                    Ok(Task::Open(open)) => open(),
                    Ok(Task::Read(read)) => return read().map(Some),
                    Err(_) => return Ok(None),
                }
            }
        };
        let thread = thread::Builder::new()
            .name("hashfold-read".into())
            .spawn(run)
            .map_err(|error| Failure::thread("reads the input", &error))?;
        Ok(InputThread { tasks, thread })
    }

    /// Gives the thread a task. If it has ended, the caller notices that the result is missing.
    fn run(&self, task: Task) {
        let _ = self.tasks.send(task);
    }

    /// Returns the failure of a thread that has ended without its work.
    fn failure(self) -> Failure {
        drop(self.tasks);
        match self.thread.join() {
            Ok(outcome) => outcome.err().unwrap_or_else(Failure::stopped),
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl Inputs {
    /// Opens the first of `paths`, which determines the columns, in a new thread. Opening it and reading
    /// its head may wait forever for the writer of a pipe, unless the user asks to stop.
    pub(crate) fn open(paths: &[String], options: ReadOptions, stop: &Stop) -> Result<Inputs> {
        Inputs::open_in(InputThread::start()?, paths, options, stop)
    }

    /// Opens the first of `paths` in a thread that was started before.
    pub(crate) fn open_in(
        thread: InputThread,
        paths: &[String],
        mut options: ReadOptions,
        stop: &Stop,
    ) -> Result<Inputs> {
        options.selection.check_distinct()?;
        let meter = Meter::default();
        let (path, others) = paths.split_first().expect("there is at least one input");
        let (file, how, count) = (path.clone(), options.clone(), meter.clone());
        let (result, opened) = channel();
        thread.run(Task::Open(Box::new(move || {
            // Fails if the user has asked to stop.
            let _ = result.send(guard(&file, || how.open(&file, &count)));
        })));
        let first = loop {
            match opened.recv_timeout(STOP_CHECK) {
                Ok(first) => break first?,
                Err(RecvTimeoutError::Timeout) => stop.check()?,
                Err(RecvTimeoutError::Disconnected) => return Err(thread.failure()),
            }
        };
        let schema = first.schema().clone();
        let key_type = options.selection.expected.as_ref().map(|it| it.schema.key_type);
        let whose = options.selection.expected.map_or("the first input", |it| it.whose);
        options.selection.expected = Some(Expected { schema: schema.clone(), whose });
        let (path, others) = (path.clone(), others.to_vec());
        let rows = Rows { path, first, others, options, key_type, meter: meter.clone() };
        let (waiting, key_bytes_max) = (BATCHES_WAITING, KEY_BYTES_MAX);
        Ok(Inputs { rows, thread, waiting, key_bytes_max, schema, meter })
    }

    /// Sets the maximum number of batches to read ahead.
    pub(crate) fn waiting(self, waiting: usize) -> Inputs {
        Inputs { waiting, ..self }
    }

    /// Sets the maximum size of a key, in bytes, if the data set has a smaller one than others. A row with
    /// a longer key is a bad row.
    pub(crate) fn key_bytes_max(self, key_bytes_max: usize) -> Inputs {
        Inputs { key_bytes_max, ..self }
    }

    /// Starts reading.
    pub(crate) fn start(self, policy: BadRowPolicy) -> Result<Feed> {
        policy.check([&self.rows.path].into_iter().chain(&self.rows.others))?;
        let (sender, batches) = queue(self.waiting);
        let key_type = self.rows.key_type.unwrap_or_default();
        let rules = KeyRules { key_type, bytes_max: self.key_bytes_max };
        let sink = Sink::new(sender, policy, rules)?;
        let Inputs { rows, thread, .. } = self;
        thread.run(Task::Read(Box::new(move || rows.read(sink))));
        Ok(Feed { batches, thread: thread.thread })
    }
}

impl Rows {
    fn read(mut self, mut sink: Sink) -> Result<Taken> {
        let mut schema = self.first.schema().clone();
        sink.begin(self.first.head(), &self.path)?;
        guard(&self.path, || self.first.read(&mut sink))?;
        for path in &self.others {
            guard(path, || {
                let reader = self.options.open(path, &self.meter)?;
                let is_of_keys = self.options.selection.is_of_keys;
                if !is_of_keys && reader.schema().form != schema.form {
                    let what =
                        "adds a column to values that have a single one; update with it first";
                    return Err(Failure::input(path, what));
                }
                schema = reader.schema().clone();
                let expected = self.options.selection.expected.as_mut();
                expected.expect("it was set").schema = schema.clone();
                sink.begin(reader.head(), path)?;
                reader.read(&mut sink)
            })?;
        }
        let Counts { puts, bad_rows, keys, filled } = sink.finish()?;
        let Selection { policy, is_of_keys, .. } = self.options.selection;
        if puts > 0 && policy == SchemaPolicy::Strict && !is_of_keys {
            check_filled(&self.path, &schema, &filled)?;
        }
        schema.key_type = self.key_type.unwrap_or(keys.key_type());
        Ok(Taken { bad_rows, schema })
    }
}

/// Refuses a column that no row has: its name may be wrong.
fn check_filled(file: &str, schema: &Schema, filled: &[bool]) -> Result<()> {
    let is_filled = |i: usize| filled.get(i) == Some(&true);
    match schema.columns.iter().enumerate().find(|(i, _)| !is_filled(*i)) {
        Some((_, column)) if schema.form != Form::Object => Err(never_filled(file, &column.name)),
        _ => Ok(()),
    }
}

/// Receives batches. Dropping it early does not wait for the reading thread, which may wait for
/// standard input forever.
pub(crate) struct Feed {
    batches: BatchReceiver,
    thread: JoinHandle<Result<Option<Taken>>>,
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

    /// Ends reading.
    pub(crate) fn finish(self) -> Result<Taken> {
        match self.thread.join() {
            Ok(outcome) => Ok(outcome?.expect("the thread had work")),
            Err(panic) => resume_unwind(panic),
        }
    }
}
