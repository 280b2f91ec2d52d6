//! A stream of a run: its pipeline, its checkpoint, and the threads that read its sources.

use crate::{
    checkpoint,
    config::{Config, OnSourceFailure, OutputKind, Stream},
    error::SummarizeError,
    framing::Ending,
    parse::FrameParser,
    rejected::RejectedFile,
    report::{Report, Reports},
    sinks::Place,
    source::{End, OpenFile, Source, is_pipe_at},
    tcp::{self, Connections},
};
use hashfold::{
    Env, Place as FilePlace,
    pipeline::{
        Checkpoint, Input, Parser, Pipeline, PipelineOptions, Position, RejectedSink, SourceId,
        Stats, Summary,
    },
    work::MemoryBudget,
};
use std::{
    mem,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

/// The figures of a stream.
#[derive(Clone, Debug)]
pub struct StreamStats {
    /// Name of the stream.
    pub name: String,
    /// Names of its summaries, in the order of their figures.
    pub summaries: Vec<String>,
    /// Names of its chains, in the order of their figures, each with the names of the summaries of its credits.
    pub chains: Vec<(String, Vec<String>)>,
    /// The figures of its pipeline.
    pub stats: Stats,
    /// Connections that are open.
    pub connections: usize,
    /// Connections that ended with an error.
    pub failed_connections: usize,
    /// Bytes at the ends of files that are left for the next run: of an event without its end, in a run with checkpoints.
    pub unread_bytes: u64,
    /// Checkpoints that could not be written. The run went on.
    pub failed_checkpoints: u64,
    /// Whether the last checkpoint could not be written: what came after the one before is not in it.
    pub is_unsaved: bool,
    /// What happened to it, in order.
    pub reports: Vec<Arc<Report>>,
}

impl StreamStats {
    /// Whether windows have ended and wait for a checkpoint.
    pub(crate) fn has_waiting(&self) -> bool {
        let of_chains = self.stats.chains.iter().flat_map(|chains| &chains.summaries);
        self.stats.summaries.iter().chain(of_chains).any(|counts| counts.waiting_windows > 0)
    }

    /// Returns the errors of sources, and that of the last checkpoint if it could not be written.
    pub fn failures(&self) -> impl Iterator<Item = &SummarizeError> {
        self.reports.iter().filter_map(|report| match &**report {
            Report::Failed(error) => Some(error),
            Report::Unsaved(error) if self.is_unsaved => Some(error),
            _ => None,
        })
    }
}

/// A stream that runs.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) stream: Stream,
    pipeline: Pipeline,
    connections: Arc<Connections>,
    /// The listeners, until their threads start.
    listeners: Vec<TcpListener>,
    pub(crate) addresses: Vec<SocketAddr>,
    checkpoint: Option<PathBuf>,
    /// Whether the stream continues from a checkpoint.
    pub(crate) continues: bool,
    /// Whether the checkpoint has the id of the run.
    pub(crate) has_id: bool,
    /// The positions in its files to start from.
    positions: Vec<Position>,
    /// The threads of addresses.
    accepting: Vec<JoinHandle<()>>,
    /// The thread of all files.
    reader: Option<JoinHandle<()>>,
    /// Threads of files that have not ended.
    reading: Arc<AtomicUsize>,
    /// Bytes at the ends of files that are left for the next run.
    unread_bytes: Arc<AtomicU64>,
    reports: Arc<Reports>,
    failed_checkpoints: AtomicU64,
    /// Whether the last checkpoint could not be written.
    is_unsaved: AtomicBool,
    on_failure: OnSourceFailure,
    /// The first failure of a source, if that ends the run.
    failure: Arc<Mutex<Option<SummarizeError>>>,
}

/// Why a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// All files are read.
    Done,
    /// The user wants it to stop.
    Stopped,
    /// A stream has failed, perhaps another one.
    Failed,
}

impl Lane {
    /// Makes the pipeline of a stream, and binds its addresses. Nothing is read yet.
    pub(crate) fn prepare(
        (config, memory): (&Config, &MemoryBudget),
        stream: &Stream,
        env: &Env,
        stop: &Arc<AtomicBool>,
    ) -> Result<Lane, SummarizeError> {
        let path = config.checkpoints.as_ref().map(|folder| stream.checkpoint(folder));
        let state = match &path {
            Some(path) => checkpoint::read(env, path)?,
            None => None,
        };
        let continues = state.is_some();
        let positions = state.as_ref().map_or(&[][..], Checkpoint::positions).to_vec();
        let listeners = stream.listen.iter().map(|address| tcp::listen(*address));
        let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
        // A checkpoint of an older version has no id.
        let kept_id = state.as_ref().and_then(Checkpoint::id);
        let id = kept_id.unwrap_or_else(|| env.random.next_u64());
        let pipeline = pipeline((config, memory), stream, (env, id), state);
        let pipeline = pipeline.map_err(|error| match &path {
            Some(path) if continues => error.at(&FilePlace::file(path)),
            _ => error,
        })?;
        let connections = Arc::new(Connections::new(stream, pipeline.input(), stop));
        let address = |(listener, asked): (&TcpListener, &SocketAddr)| {
            listener.local_addr().unwrap_or(*asked)
        };
        let addresses = listeners.iter().zip(&stream.listen).map(address).collect();
        Ok(Lane {
            stream: stream.clone(),
            pipeline,
            connections,
            listeners,
            addresses,
            checkpoint: path,
            positions,
            continues,
            has_id: kept_id.is_some(),
            accepting: Vec::new(),
            reader: None,
            reading: Arc::default(),
            unread_bytes: Arc::default(),
            reports: Arc::default(),
            failed_checkpoints: AtomicU64::new(0),
            is_unsaved: AtomicBool::new(false),
            on_failure: config.on_source_failure,
            failure: Arc::default(),
        })
    }

    /// Publishes windows that had ended before the run, and starts the threads that read.
    pub(crate) fn begin(&mut self, stop: &Arc<AtomicBool>) -> Result<(), SummarizeError> {
        self.pipeline.publish()?;
        for listener in mem::take(&mut self.listeners) {
            let shared = self.connections.clone();
            self.accepting.push(self.spawn(move || tcp::accept(listener, &shared))?);
        }
        self.read_files(stop)
    }

    fn read_files(&mut self, stop: &Arc<AtomicBool>) -> Result<(), SummarizeError> {
        if self.stream.files.is_empty() {
            return Ok(());
        }
        let files = Files {
            stream: self.stream.clone(),
            // The next run reads the rest of an event, if there is one.
            ending: if self.checkpoint.is_some() { Ending::Left } else { Ending::Event },
            input: self.pipeline.input(),
            positions: mem::take(&mut self.positions),
            stop: stop.clone(),
            reports: self.reports.clone(),
            on_failure: self.on_failure,
        };
        let (reading, failure) = (self.reading.clone(), self.failure.clone());
        let unread_bytes = self.unread_bytes.clone();
        reading.fetch_add(1, Ordering::SeqCst);
        let reader = self.spawn(move || {
            match files.read() {
                Ok(unread) => unread_bytes.store(unread, Ordering::Relaxed),
                Err(error) => {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
            reading.fetch_sub(1, Ordering::SeqCst);
        });
        self.reader = Some(reader?);
        Ok(())
    }

    fn spawn(
        &self,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<JoinHandle<()>, SummarizeError> {
        let thread = thread::Builder::new().name("hashfold-source".into()).spawn(work);
        let failed = |source| SummarizeError::Io {
            place: format!("stream \"{}\"", self.stream.name),
            action: "start a thread",
            source,
        };
        thread.map_err(failed)
    }

    pub(crate) fn check(&self) -> Result<(), SummarizeError> {
        // First that of a sink, which sources see too.
        self.pipeline.check()?;
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Returns how those events come that cannot be read again, if there are such.
    pub(crate) fn passing(&self) -> Option<&'static str> {
        let is_pipe = |file: &Option<PathBuf>| file.as_deref().is_none_or(is_pipe_at);
        match (self.stream.listen.is_empty(), self.stream.files.iter().any(is_pipe)) {
            (true, true) => Some("through a pipe"),
            (false, true) => Some("by TCP or through a pipe"),
            (false, false) => Some("by TCP"),
            (true, false) => None,
        }
    }

    /// Whether all files are read and nothing else will come.
    pub(crate) fn is_done(&self) -> bool {
        self.stream.listen.is_empty() && self.reading.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn stats(&self) -> StreamStats {
        StreamStats {
            name: self.stream.name.clone(),
            summaries: names(&self.stream.summaries),
            chains: self
                .stream
                .chains
                .iter()
                .map(|(chains, summaries)| (chains.name.clone(), names(summaries)))
                .collect(),
            stats: self.pipeline.stats(),
            connections: self.connections.open.load(Ordering::Relaxed),
            failed_connections: self.connections.failed.load(Ordering::Relaxed),
            unread_bytes: self.unread_bytes.load(Ordering::Relaxed),
            failed_checkpoints: self.failed_checkpoints.load(Ordering::Relaxed),
            is_unsaved: self.is_unsaved.load(Ordering::Relaxed),
            reports: self.reports.all(),
        }
    }

    /// Lets windows end that wait for senders who are silent, and publishes some that wait for a checkpoint that cannot be written,
    /// if other streams need their memory.
    pub(crate) fn pass_time(&self) -> Result<(), SummarizeError> {
        if !self.stream.listen.is_empty() {
            self.pipeline.pass_time()?;
        }
        if self.is_unsaved.load(Ordering::Relaxed) {
            self.pipeline.relieve()?;
        }
        Ok(())
    }

    /// Writes a checkpoint, if there is a folder for them.
    pub(crate) fn save(&self, env: &Env) -> Result<(), SummarizeError> {
        if let Some(path) = &self.checkpoint {
            checkpoint::write(env, path, &self.pipeline.checkpoint()?)?;
        }
        Ok(())
    }

    /// Writes a checkpoint during the run or at its end, and then publishes the windows that have ended; returns whether there are
    /// some. A checkpoint that cannot be written is counted, and reported if the one before was written. Windows wait for the next
    /// one then, unless their events cannot be read again.
    pub(crate) fn try_to_save(&self, env: &Env) -> Result<bool, SummarizeError> {
        let Some(path) = &self.checkpoint else { return Ok(false) };
        let checkpoint = self.pipeline.checkpoint()?;
        let has_waiting = self.stats().has_waiting();
        let Err(error) = checkpoint::write(env, path, &checkpoint) else {
            self.is_unsaved.store(false, Ordering::Relaxed);
            self.pipeline.publish()?;
            return Ok(has_waiting);
        };
        self.failed_checkpoints.fetch_add(1, Ordering::Relaxed);
        if !self.is_unsaved.swap(true, Ordering::Relaxed) {
            self.reports.add(Report::Unsaved(error.into()));
        }
        if self.passing().is_some() {
            self.pipeline.publish_all()?;
        }
        Ok(false)
    }

    /// Writes the last checkpoint, and once more without the windows that were published with it.
    fn save_last(&self, env: &Env) -> Result<(), SummarizeError> {
        let has_published = self.try_to_save(env)?;
        if let Some(path) = self.checkpoint.as_ref().filter(|_| has_published) {
            // If it cannot be written, the next run finds that they are published.
            let _ = checkpoint::write(env, path, &self.pipeline.checkpoint()?);
        }
        Ok(())
    }

    pub(crate) fn end(mut self, env: &Env, cause: Cause) -> Result<StreamStats, SummarizeError> {
        for thread in self.accepting.drain(..) {
            // A panic has ended only the connections of its address.
            let _ = thread.join();
        }
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.check()?;
        let is_failed = |report: &Arc<Report>| matches!(**report, Report::Failed(_));
        let goes_on = cause != Cause::Done || self.reports.all().iter().any(is_failed);
        // Without checkpoints, a run that has failed is run again as a whole, and its results must not be in the way.
        let is_useful = self.checkpoint.is_some() || cause != Cause::Failed;
        if is_useful && (!goes_on || self.checkpoint.is_none()) {
            self.pipeline.end_windows()?;
        }
        self.save_last(env)?;
        let mut stats = self.stats();
        stats.stats = self.pipeline.stop()?;
        Ok(stats)
    }
}

fn names(summaries: &[(Summary, OutputKind)]) -> Vec<String> {
    summaries.iter().map(|(summary, _)| summary.name.clone()).collect()
}

fn pipeline(
    (config, memory): (&Config, &MemoryBudget),
    stream: &Stream,
    (env, id): (&Env, u64),
    checkpoint: Option<Checkpoint>,
) -> hashfold::Result<Pipeline> {
    let parser = FrameParser::new(stream);
    let parsers = (0..stream.parsers).map(|_| -> Box<dyn Parser> { Box::new(parser.clone()) });
    let place = Place { out: &config.out, env, run: id };
    place.prepare(stream)?;
    if checkpoint.is_none() {
        place.check_new(stream)?;
    }
    let rejected = match &config.rejected {
        None => None,
        Some(folder) => {
            let file = RejectedFile::open(stream.rejected(folder))?;
            Some(Box::new(file) as Box<dyn RejectedSink>)
        }
    };
    let options = PipelineOptions {
        workers: stream.workers,
        batches: stream.batches,
        ahead_ms_max: stream.ahead_ms_max,
        future_ms_max: stream.future_ms_max,
        idle_ms_max: stream.idle_ms_max,
        chains: place.chains(stream),
        sources: stream.files.len(),
        id,
        checkpoint,
        windows_wait: config.checkpoints.is_some(),
        rejected,
        memory: memory.clone(),
        env: env.clone(),
    };
    let sinks = place.sinks(&stream.summaries, &stream.fields);
    Pipeline::start(&stream.fields, parsers.collect(), sinks, options)
}

/// The files of a stream, and what reading them needs.
struct Files {
    stream: Stream,
    ending: Ending,
    input: Input,
    positions: Vec<Position>,
    stop: Arc<AtomicBool>,
    reports: Arc<Reports>,
    on_failure: OnSourceFailure,
}

impl Files {
    /// Reads all files, one after the other; one that cannot be read is reported. Returns the number of bytes that are left.
    fn read(&self) -> Result<u64, SummarizeError> {
        let has_others = !self.stream.listen.is_empty();
        if has_others {
            // Connections wait for the first event.
            self.input.push(self.input.batch()?, None)?;
        }
        let mut unread = 0;
        for number in 0..self.stream.files.len() {
            match self.read_one(number) {
                Ok(End::Whole { unread_bytes }) => unread += unread_bytes,
                Ok(End::Stopped) => break,
                // All sources see the failure of a pipeline.
                Err(error @ SummarizeError::Data(_)) => return Err(error),
                Err(error) if self.on_failure == OnSourceFailure::Stop => return Err(error),
                Err(error) => self.reports.add(Report::Failed(error)),
            }
        }
        if has_others {
            self.input.close(SourceId::MAIN)?;
        }
        Ok(unread)
    }

    fn read_one(&self, number: usize) -> Result<End, SummarizeError> {
        let source = Source::new(&self.stream, &self.input, &self.stop).ending(self.ending);
        let Some(path) = &self.stream.files[number] else {
            return source.file(OpenFile::standard_input()?, None);
        };
        let from = self.positions.get(number).copied().unwrap_or_default();
        let file = OpenFile::open(path, from)?;
        if file.is_replaced {
            let (file, offset) = (path.clone(), from.offset);
            self.reports.add(Report::Replaced { file, offset });
            // For the next run, also if there is no event yet.
            self.input.push(self.input.batch()?, Some((number, Position::default())))?;
        }
        source.file(file, Some(number))
    }
}
