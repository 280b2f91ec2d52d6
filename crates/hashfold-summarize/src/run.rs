//! A run: all streams of a configuration, from their start to their end.

use crate::{
    checkpoint,
    config::{Config, OnSourceFailure, OutputKind, Stream},
    error::SummarizeError,
    framing::Ending,
    parse::FrameParser,
    publisher::Publisher,
    rejected::RejectedFile,
    report::{Reports, SourceReport},
    sinks::Place,
    source::{End, OpenFile, Source},
    tcp::{self, Connections},
};
use hashfold::{
    Env,
    pipeline::{
        Checkpoint, Input, Parser, Pipeline, PipelineOptions, Position, RejectedSink, SourceId,
        Stats, Summary,
    },
    work::MemoryBudget,
};
use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between two looks at the sources.
const TICK: Duration = Duration::from_millis(20);

/// Time between two moments when idle senders are looked for.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

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
    /// What happened to its sources, in order.
    pub reports: Vec<Arc<SourceReport>>,
}

/// A run of all streams. [`Run::wait`] returns when it ends.
#[derive(Debug)]
pub struct Run {
    lanes: Vec<Lane>,
    env: Env,
    /// Whether the user wants the run to stop.
    stop: Arc<AtomicBool>,
    /// Whether sources are to stop.
    halt: Arc<AtomicBool>,
    checkpoint_ms: u64,
    publisher: Publisher,
    /// Whether the run goes on when all files are read, until it is to stop.
    follows: bool,
}

/// A stream that runs.
#[derive(Debug)]
struct Lane {
    stream: Stream,
    pipeline: Pipeline,
    connections: Arc<Connections>,
    addresses: Vec<SocketAddr>,
    checkpoint: Option<PathBuf>,
    /// Whether the stream continues from a checkpoint.
    continues: bool,
    threads: Vec<JoinHandle<()>>,
    /// Threads of files that have not ended.
    reading: Arc<AtomicUsize>,
    /// Bytes at the ends of files that are left for the next run.
    unread_bytes: Arc<AtomicU64>,
    reports: Arc<Reports>,
    on_failure: OnSourceFailure,
    /// The first failure of a source, if that ends the run.
    failure: Arc<Mutex<Option<SummarizeError>>>,
}

impl Run {
    /// Starts all streams. The run stops when `stop` is set.
    ///
    /// # Errors
    /// A folder, an address or a checkpoint cannot be used.
    pub fn start(config: &Config, env: &Env, stop: Arc<AtomicBool>) -> Result<Run, SummarizeError> {
        if let Some(folder) = &config.checkpoints {
            env.disk.create_folder(folder)?;
        }
        let (mut lanes, halt) = (Vec::new(), Arc::<AtomicBool>::default());
        let memory = config.memory.map_or_else(MemoryBudget::unlimited, MemoryBudget::new);
        // Before the first event, so that a run that cannot publish has no results.
        let mut publisher = Publisher::start(config, env, &memory)?;
        for stream in &config.streams {
            let lane = Lane::start((config, &memory), stream, env, &halt);
            lanes.push(lane.inspect_err(|_| halt.store(true, Ordering::Relaxed))?);
        }
        let stats: Vec<StreamStats> = lanes.iter().map(Lane::stats).collect();
        publisher.publish_now(&stats);
        Ok(Run {
            lanes,
            env: env.clone(),
            stop,
            halt,
            checkpoint_ms: config.checkpoint_ms,
            publisher,
            follows: false,
        })
    }

    /// Sets whether the run goes on when all files are read, until it is to stop.
    #[cfg(test)]
    pub(crate) fn set_follows(&mut self, follows: bool) {
        self.follows = follows;
    }

    /// Returns the addresses that streams listen on, with the names of the streams.
    pub fn addresses(&self) -> Vec<(String, SocketAddr)> {
        let of = |lane: &Lane| {
            let name = lane.stream.name.clone();
            lane.addresses.iter().map(move |address| (name.clone(), *address)).collect::<Vec<_>>()
        };
        self.lanes.iter().flat_map(of).collect()
    }

    /// Returns the address that answers with the figures of the run, if there is one.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.publisher.address()
    }

    /// Returns the figures of the streams that continue from a checkpoint.
    pub fn continued(&self) -> Vec<StreamStats> {
        self.lanes.iter().filter(|lane| lane.continues).map(Lane::stats).collect()
    }

    /// Waits until all files are read and, if the configuration has addresses, until the run is to stop. Calls `tick` with
    /// figures meanwhile. Then all windows end. With checkpoints, a run that is stopped, and a stream with a source that has
    /// failed, leave their open windows in them instead.
    ///
    /// # Errors
    /// The first error of a pipeline. Those of sources are in the figures, unless the configuration says that they end the run.
    pub fn wait(
        mut self,
        tick: &mut dyn FnMut(&[StreamStats]),
    ) -> Result<Vec<StreamStats>, SummarizeError> {
        let mut last = Vec::new();
        let ended: Result<Vec<_>, _> = self.watch(tick, &mut last).and_then(|()| {
            let is_stopped = self.stop.load(Ordering::Relaxed);
            self.halt.store(true, Ordering::Relaxed);
            let lanes = std::mem::take(&mut self.lanes);
            lanes.into_iter().map(|lane| lane.end(&self.env, is_stopped)).collect()
        });
        // After an error, those before it.
        self.publisher.publish_now(ended.as_ref().unwrap_or(&last));
        ended
    }

    /// Waits until the sources have ended or are to stop; `last` gets the last figures.
    fn watch(
        &mut self,
        tick: &mut dyn FnMut(&[StreamStats]),
        last: &mut Vec<StreamStats>,
    ) -> Result<(), SummarizeError> {
        let interval = Duration::from_millis(self.checkpoint_ms);
        let mut next = self.env.clock.now() + interval;
        let mut next_idle = self.env.clock.now() + IDLE_INTERVAL;
        loop {
            *last = self.lanes.iter().map(Lane::stats).collect();
            self.publisher.publish(last);
            tick(last);
            self.lanes.iter().try_for_each(Lane::check)?;
            if self.stop.load(Ordering::Relaxed)
                || (!self.follows && self.lanes.iter().all(Lane::is_done))
            {
                return Ok(());
            }
            if self.env.clock.now() >= next {
                self.lanes.iter().try_for_each(|lane| lane.save(&self.env))?;
                next = self.env.clock.now() + interval;
            }
            if self.env.clock.now() >= next_idle {
                self.lanes.iter().try_for_each(Lane::pass_time)?;
                next_idle = self.env.clock.now() + IDLE_INTERVAL;
            }
            self.env.clock.sleep(TICK);
        }
    }
}

impl Drop for Run {
    /// Stops the threads.
    fn drop(&mut self) {
        self.halt.store(true, Ordering::Relaxed);
    }
}

impl Lane {
    fn start(
        (config, memory): (&Config, &MemoryBudget),
        stream: &Stream,
        env: &Env,
        stop: &Arc<AtomicBool>,
    ) -> Result<Lane, SummarizeError> {
        let path = config
            .checkpoints
            .as_ref()
            .map(|folder| folder.join(format!("{}.checkpoint", stream.name)));
        let state = match &path {
            Some(path) => checkpoint::read(env, path)?,
            None => None,
        };
        let continues = state.is_some();
        let positions = state.as_ref().map_or(&[][..], Checkpoint::positions).to_vec();
        let pipeline = pipeline((config, memory), stream, env, state)?;
        let connections = Arc::new(Connections::new(stream, pipeline.input(), stop));
        let mut lane = Lane {
            stream: stream.clone(),
            pipeline,
            connections,
            addresses: Vec::new(),
            checkpoint: path,
            continues,
            threads: Vec::new(),
            reading: Arc::default(),
            unread_bytes: Arc::default(),
            reports: Arc::default(),
            on_failure: config.on_source_failure,
            failure: Arc::default(),
        };
        if !continues {
            // A run that is killed before its next checkpoint knows then what it has published.
            lane.save(env)?;
        }
        lane.listen()?;
        lane.read_files(positions, stop)?;
        Ok(lane)
    }

    fn listen(&mut self) -> Result<(), SummarizeError> {
        for address in self.stream.listen.clone() {
            let listener = tcp::listen(address)?;
            self.addresses.push(listener.local_addr().unwrap_or(address));
            let shared = self.connections.clone();
            self.spawn(move || tcp::accept(listener, &shared))?;
        }
        Ok(())
    }

    fn read_files(
        &mut self,
        positions: Vec<Position>,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), SummarizeError> {
        if self.stream.files.is_empty() {
            return Ok(());
        }
        let files = Files {
            stream: self.stream.clone(),
            // The next run reads the rest of an event, if there is one.
            ending: if self.checkpoint.is_some() { Ending::Left } else { Ending::Event },
            input: self.pipeline.input(),
            positions,
            stop: stop.clone(),
            reports: self.reports.clone(),
            on_failure: self.on_failure,
        };
        let (reading, failure) = (self.reading.clone(), self.failure.clone());
        let unread_bytes = self.unread_bytes.clone();
        reading.fetch_add(1, Ordering::SeqCst);
        self.spawn(move || {
            match files.read() {
                Ok(unread) => unread_bytes.store(unread, Ordering::Relaxed),
                Err(error) => {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
            reading.fetch_sub(1, Ordering::SeqCst);
        })
    }

    fn spawn(&mut self, work: impl FnOnce() + Send + 'static) -> Result<(), SummarizeError> {
        let thread = thread::Builder::new().name("hashfold-source".into()).spawn(work);
        let failed = |source| SummarizeError::Io {
            place: format!("stream \"{}\"", self.stream.name),
            action: "start a thread",
            source,
        };
        self.threads.push(thread.map_err(failed)?);
        Ok(())
    }

    fn check(&self) -> Result<(), SummarizeError> {
        // First that of a sink, which sources see too.
        self.pipeline.check()?;
        match self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Whether all files are read and nothing else will come.
    fn is_done(&self) -> bool {
        self.stream.listen.is_empty() && self.reading.load(Ordering::SeqCst) == 0
    }

    fn stats(&self) -> StreamStats {
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
            reports: self.reports.all(),
        }
    }

    /// Lets windows end that wait for senders who are silent.
    fn pass_time(&self) -> Result<(), SummarizeError> {
        if !self.stream.listen.is_empty() {
            self.pipeline.pass_time()?;
        }
        Ok(())
    }

    /// Writes a checkpoint, if there is a folder for them.
    fn save(&self, env: &Env) -> Result<(), SummarizeError> {
        if let Some(path) = &self.checkpoint {
            checkpoint::write(env, path, &self.pipeline.checkpoint()?)?;
        }
        Ok(())
    }

    fn end(mut self, env: &Env, is_stopped: bool) -> Result<StreamStats, SummarizeError> {
        let is_waiting = self.stream.files.iter().any(Option::is_none) && is_stopped;
        for thread in self.threads.drain(..) {
            // A thread that waits for standard input ends with the process.
            if !is_waiting {
                let _ = thread.join();
            }
        }
        self.check()?;
        let is_failed = |report: &Arc<SourceReport>| matches!(**report, SourceReport::Failed(_));
        let goes_on = is_stopped || self.reports.all().iter().any(is_failed);
        if !goes_on || self.checkpoint.is_none() {
            self.pipeline.end_windows()?;
        }
        self.save(env)?;
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
    env: &Env,
    checkpoint: Option<Checkpoint>,
) -> Result<Pipeline, SummarizeError> {
    let parser = FrameParser::new(stream);
    let parsers = (0..stream.parsers).map(|_| -> Box<dyn Parser> { Box::new(parser.clone()) });
    let place = Place { out: &config.out, env, continues: checkpoint.is_some() };
    place.check(stream)?;
    let rejected = match &config.rejected {
        None => None,
        Some(folder) => {
            let file = RejectedFile::open(folder.join(format!("{}.jsonl", stream.name)))?;
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
        checkpoint,
        rejected,
        memory: memory.clone(),
        env: env.clone(),
    };
    let sinks = place.sinks(&stream.summaries, &stream.fields);
    Ok(Pipeline::start(&stream.fields, parsers.collect(), sinks, options)?)
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
                Err(error) => self.reports.add(SourceReport::Failed(error)),
            }
        }
        if has_others {
            self.input.close(SourceId::MAIN)?;
        }
        Ok(unread)
    }

    fn read_one(&self, number: usize) -> Result<End, SummarizeError> {
        let mut source = Source::new(&self.stream, &self.input, &self.stop).ending(self.ending);
        let Some(path) = &self.stream.files[number] else {
            return source.read(&mut io::stdin().lock(), "standard input");
        };
        let from = self.positions.get(number).copied().unwrap_or_default();
        let file = OpenFile::open(path, from)?;
        if file.is_replaced {
            let (file, offset) = (path.clone(), from.offset);
            self.reports.add(SourceReport::Replaced { file, offset });
            // For the next run, also if there is no event yet.
            self.input.push(self.input.batch()?, Some((number, Position::default())))?;
        }
        source.file(file, number)
    }
}
