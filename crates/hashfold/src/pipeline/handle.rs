//! A running pipeline.

use super::{
    attribution::{Attribution, OwnedChains},
    batch::Batch,
    chain_dump::ChainDump,
    checkpoint::{Checkpoint, Origin, Position, VERSION_SOURCES},
    clock::{ClockLimits, StreamClock},
    definition::{Field, Summary},
    held::Held,
    identity::identity,
    owned::Owned,
    parse::{self, Parser, Routes, Taker},
    queue::{Delivery, Failure, Input, Mark},
    stats::{Board, Published, QueueFill, Stats, Totals, WorkerStats},
    sync::{
        Receiver, Sender, bounded,
        thread::{self, JoinHandle},
    },
    window::Sink,
    windows::Windows,
    worker::{RejectedSink, Tally, Worker},
};
use crate::{
    codec::Decoder,
    env::Env,
    error::{Error, Result},
    work::MemoryBudget,
};
use std::{fmt, sync::Arc};

/// Number of batches unless the options say otherwise.
const BATCHES: usize = 32;
/// Marks that can be in a queue beside all batches.
const MARKS: usize = 4;
/// Time without events after which a source is idle, unless the options say otherwise, in milliseconds.
const IDLE_MS: i64 = 60_000;
/// Largest number of parsers, and of workers.
pub const THREADS_MAX: usize = 1024;
/// Largest number of batches.
pub const BATCHES_MAX: usize = 1 << 16;

/// Options of a pipeline.
pub struct PipelineOptions {
    /// Number of workers. A worker owns several summaries or chains if there are more of these, in turn.
    pub workers: usize,
    /// Number of batches between the sources and the summaries: the bound of the memory.
    pub batches: usize,
    /// Maximum time by which an event can be ahead of the clock and of all sources, in milliseconds, so that one wrong time
    /// does not end all windows. Events that are further ahead are refused and counted if another source sends events that
    /// are not. Without one, they are held: after 100 in a row, time has really passed, and they are summarised; if an event
    /// that is not ahead comes before, they are refused.
    pub ahead_ms_max: i64,
    /// Maximum time by which an event of a live source can be after the [date](crate::work::Clock::unix_time) of the machine
    /// when its batch is pushed, in milliseconds. Later events are refused and counted as those that are ahead, and move
    /// nothing: so wrong times of a source that is alone make no event after them late. Batches with a position, such as
    /// those of files, have no such limit.
    pub future_ms_max: i64,
    /// Time without events after which a source that is [open](Input::open) holds the clock of the stream no longer, in
    /// milliseconds of the machine.
    pub idle_ms_max: i64,
    /// Chains of the touches of users, and the summaries of their credits.
    pub chains: Vec<Attribution>,
    /// Number of sources whose positions a checkpoint has.
    pub sources: usize,
    /// The id that checkpoints have, such as a random number. A pipeline that continues another one has the same
    /// ([`Checkpoint::id`]): sinks can put it beside their results, and so know which windows came before a crash.
    pub id: u64,
    /// The state to start with.
    pub checkpoint: Option<Checkpoint>,
    /// Whether windows that have ended wait until a checkpoint that has them is kept, and the caller says so
    /// ([`Pipeline::publish`]). What is read again after a crash then comes into no window that was published before, so each
    /// event of a source with positions is in the results once. Otherwise, sinks get windows as soon as they have ended. None waits
    /// if those of a worker take more memory than [`PipelineOptions::memory`] has left, nor if those of a summary have more than twice
    /// [`Summary::groups_max`] groups.
    pub windows_wait: bool,
    /// The receiver of frames that are no events; they are only counted without one.
    pub rejected: Option<Box<dyn RejectedSink>>,
    /// The budget of the memory of groups in windows that are open or being handed over, and of chains. An event that needs
    /// more than is left for a group is counted as one without a group: one of a new group, or one that lets the state of a
    /// column grow. If there is not enough for a chain when old chains are removed, the pipeline ends with an error.
    pub memory: MemoryBudget,
    /// The environment, for random numbers and for the time that workers are busy.
    pub env: Env,
}

impl Default for PipelineOptions {
    fn default() -> PipelineOptions {
        PipelineOptions {
            workers: 1,
            batches: BATCHES,
            ahead_ms_max: i64::MAX,
            future_ms_max: i64::MAX,
            idle_ms_max: IDLE_MS,
            chains: Vec::new(),
            sources: 0,
            id: 0,
            checkpoint: None,
            windows_wait: false,
            rejected: None,
            memory: MemoryBudget::unlimited(),
            env: Env::system(),
        }
    }
}

impl fmt::Debug for PipelineOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PipelineOptions({} workers, {} batches)", self.workers, self.batches)
    }
}

/// A running pipeline: its threads, which end when it is finished or dropped. See [the module](crate::pipeline).
#[derive(Debug)]
pub struct Pipeline {
    input: Input,
    threads: Vec<JoinHandle<()>>,
    queues: Vec<Receiver<Delivery>>,
    board: Arc<Board>,
    failure: Arc<Failure>,
    batches: usize,
}

impl Pipeline {
    /// Starts the threads: one for each parser, and the workers.
    ///
    /// # Errors
    /// `Argument` if a definition or an option is out of its range, or if the checkpoint is of other definitions; damage
    /// of the checkpoint; or the system refuses a thread.
    pub fn start(
        fields: &[Field],
        parsers: Vec<Box<dyn Parser>>,
        summaries: Vec<(Summary, Box<dyn Sink>)>,
        mut options: PipelineOptions,
    ) -> Result<Pipeline> {
        check(fields, parsers.len(), &summaries, &options)?;
        let workers = options.workers.min((summaries.len() + options.chains.len()).max(1));
        let batches = options.batches;
        let routes = routes(&summaries, &options.chains, workers);
        let definition = number_of(fields, &summaries, &options.chains);
        let failure = Arc::<Failure>::default();
        let (items, tasks) = bounded(batches + MARKS);
        let (pool, empty) = bounded(batches);
        for _ in 0..batches {
            pool.send(Batch::new(fields.len(), workers)).expect("there is a receiver");
        }
        let positions = positions(&options);
        if options.checkpoint.as_ref().is_some_and(|read| read.origin.definition != definition) {
            let expected = "the one of this pipeline; begin without a checkpoint to change it";
            let got = "one of other fields, summaries or chains";
            return Err(Error::argument("definition of the checkpoint", expected, got));
        }
        let chains = std::mem::take(&mut options.chains);
        let owned = (build(fields, summaries, &options)?, build_chains(fields, chains, &options)?);
        let origin = Origin { definition, id: options.id };
        let clock = options.env.clock.clone();
        let (states, board) = states(owned, options, (fields.len(), workers), &failure, &pool)?;
        // Workers alone give batches back, so that sources notice their end.
        drop(pool);
        let input = Input::new(items, empty, failure.clone(), positions, (origin, clock));
        let (threads, queues) = (Vec::new(), Vec::new());
        let mut pipeline = Pipeline { input, threads, queues, board, failure, batches };
        // After the pipeline, so that they are dropped before it: if a thread is refused, workers then end.
        let (senders, queues): (Vec<Sender<Delivery>>, Vec<_>) =
            (0..workers).map(|_| bounded(batches + MARKS)).unzip();
        pipeline.queues.clone_from(&queues);
        for (worker, queue) in states.into_iter().zip(queues) {
            pipeline.spawn("summary", move || worker.run(&queue))?;
        }
        let routes = Arc::new(routes);
        for parser in parsers {
            let (failure, board) = (pipeline.failure.clone(), pipeline.board.clone());
            let (routes, tasks, senders) = (routes.clone(), tasks.clone(), senders.clone());
            let work = move || parse::run(parser, &routes, (&failure, &board), &tasks, &senders);
            pipeline.spawn("parser", work)?;
        }
        Ok(pipeline)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let builder = thread::Builder::new().name(format!("hashfold-{name}"));
        let thread = builder.spawn(work).map_err(|error| Error::io("start a thread", error))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Returns the input, for sources.
    pub fn input(&self) -> Input {
        self.input.clone()
    }

    /// Returns the state behind all batches that were pushed before. Waits until they are handled; sources can
    /// push others meanwhile.
    ///
    /// # Errors
    /// The error that ended the pipeline.
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        self.input.checkpoint()
    }

    /// Returns all chains behind all batches that were pushed before, in the order of their definitions. Waits until
    /// these are handled; sources can push others meanwhile, and while the dumps are read.
    ///
    /// # Errors
    /// The error that ended the pipeline.
    pub fn chains(&self) -> Result<Vec<ChainDump>> {
        self.input.chains()
    }

    /// Returns the error that ended the pipeline, if there was one.
    ///
    /// # Errors
    /// That of a sink, or `Panicked`.
    pub fn check(&self) -> Result<()> {
        self.failure.check()
    }

    /// Returns the figures so far.
    pub fn stats(&self) -> Stats {
        let Published { totals, summaries, chains, workers, parser_fill } = self.board.read();
        Stats {
            totals,
            summaries,
            chains,
            parser_queue: self.input.queued(),
            worker_queues: self.queues.iter().map(Receiver::len).collect(),
            parser_fill,
            workers,
            batches: self.batches,
        }
    }

    /// Lets time pass while no event comes: sources that are idle hold the clock of the stream no longer, so that windows end. To
    /// be called now and then if sources are [opened](Input::open). Does nothing while batches wait.
    ///
    /// # Errors
    /// The error that ended the pipeline.
    pub fn pass_time(&self) -> Result<()> {
        let is_busy = self.input.queued() > 0 || self.queues.iter().any(|queue| !queue.is_empty());
        if is_busy { Ok(()) } else { self.input.pass_time() }
    }

    /// Gives the windows that had ended at the last [checkpoint](Pipeline::checkpoint) to their sinks, which is to be kept
    /// durably before; with [`PipelineOptions::windows_wait`]. Those of the checkpoint that the pipeline started with are among
    /// them. The sinks get them behind all batches that were pushed before; the next checkpoint does not have them any more.
    ///
    /// # Errors
    /// The error that ended the pipeline.
    pub fn publish(&self) -> Result<()> {
        self.input.mark(Mark::Publish { all: false })
    }

    /// Gives all windows that have ended to their sinks, also those that no checkpoint has: if none can be kept, and what is lost
    /// with them does not come again.
    ///
    /// # Errors
    /// The error that ended the pipeline.
    pub fn publish_all(&self) -> Result<()> {
        self.input.mark(Mark::Publish { all: true })
    }

    /// Gives windows that wait to their sinks if they take more memory than is left, as each batch does: for a pipeline without
    /// batches, whose windows cannot be kept in a checkpoint, and which shares its memory with others.
    ///
    /// # Errors
    /// The error that ended the pipeline.
    pub fn relieve(&self) -> Result<()> {
        self.input.mark(Mark::Relieve)
    }

    /// Ends all windows, behind all batches that were pushed before; later events of these windows are late. Chains that
    /// have dumps are dumped, and stay. The pipeline goes on.
    ///
    /// # Errors
    /// The error that ended the pipeline.
    pub fn end_windows(&self) -> Result<()> {
        self.input.mark(Mark::End)
    }

    /// Handles all batches that were pushed, ends all windows, gives all to their sinks, and ends the threads. Sources get an
    /// error from then on.
    ///
    /// # Errors
    /// The error that ended the pipeline before.
    pub fn finish(mut self) -> Result<Stats> {
        let ended = self.end_windows().and_then(|()| self.publish_all());
        self.input.end();
        self.join().and(ended)?;
        Ok(self.stats())
    }

    /// Handles all batches that were pushed, and ends the threads. Windows that no sink got are lost unless there is a
    /// checkpoint.
    ///
    /// # Errors
    /// The error that ended the pipeline before.
    pub fn stop(mut self) -> Result<Stats> {
        self.input.end();
        self.join()?;
        Ok(self.stats())
    }

    fn join(&mut self) -> Result<()> {
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| self.failure.get())?;
        }
        self.failure.check()
    }
}

impl Drop for Pipeline {
    /// Ends the threads. Open windows are lost.
    fn drop(&mut self) {
        // An error was returned before, or nobody asks for it.
        self.input.end();
        let _ = self.join();
    }
}

fn check(
    fields: &[Field],
    parsers: usize,
    summaries: &[(Summary, Box<dyn Sink>)],
    options: &PipelineOptions,
) -> Result<()> {
    let number = |what, got: usize, max: usize| match (1..=max).contains(&got) {
        true => Ok(()),
        false => Err(Error::argument(what, format!("1 to {max}"), got)),
    };
    number("number of parsers", parsers, THREADS_MAX)?;
    number("number of workers", options.workers, THREADS_MAX)?;
    if options.idle_ms_max < 0 {
        return Err(Error::argument("idle time in ms", "0 or more", options.idle_ms_max));
    }
    number("number of batches", options.batches, BATCHES_MAX)?;
    summaries.iter().try_for_each(|(summary, _)| summary.check(fields))?;
    options.chains.iter().try_for_each(|chains| chains.check(fields))
}

/// Gives each summary, and all chains, to a worker, in turn.
fn routes(
    summaries: &[(Summary, Box<dyn Sink>)],
    chains: &[Attribution],
    workers: usize,
) -> Routes {
    let summaries = without_sinks(summaries).into_iter().map(Taker::Summary);
    let chains = chains.iter().map(|one| Taker::Chains(one.chains.clone()));
    Routes { takers: summaries.chain(chains).collect(), workers }
}

/// Returns the number of all definitions.
fn number_of(
    fields: &[Field],
    summaries: &[(Summary, Box<dyn Sink>)],
    chains: &[Attribution],
) -> u64 {
    let chains = chains.iter().map(|one| (one.chains.clone(), without_sinks(&one.summaries)));
    identity(fields, &without_sinks(summaries), &chains.collect::<Vec<_>>())
}

fn without_sinks(summaries: &[(Summary, Box<dyn Sink>)]) -> Vec<Summary> {
    summaries.iter().map(|(summary, _)| summary.clone()).collect()
}

fn positions(options: &PipelineOptions) -> Vec<Position> {
    let read = options.checkpoint.as_ref().map_or(&[][..], Checkpoint::positions);
    let mut positions = read.to_vec();
    positions.resize(options.sources.max(read.len()), Position::default());
    positions
}

/// Makes all summaries, with their state in the checkpoint.
fn build(
    fields: &[Field],
    summaries: Vec<(Summary, Box<dyn Sink>)>,
    options: &PipelineOptions,
) -> Result<Vec<Owned>> {
    let seed = options.env.random.next_u64();
    let windows = |(number, (summary, sink))| Owned {
        number,
        windows: Windows::new(summary, fields, seed, &options.memory),
        sink,
    };
    let mut owned: Vec<Owned> = summaries.into_iter().enumerate().map(windows).collect();
    if let Some(checkpoint) = &options.checkpoint {
        check_count("summaries of a checkpoint", owned.len(), checkpoint.summaries.len())?;
        for (one, state) in owned.iter_mut().zip(&checkpoint.summaries) {
            one.windows.restore(&mut Decoder::new(state), checkpoint.version)?;
        }
    }
    Ok(owned)
}

/// Makes all chains, with their state in the checkpoint.
fn build_chains(
    fields: &[Field],
    chains: Vec<Attribution>,
    options: &PipelineOptions,
) -> Result<Vec<OwnedChains>> {
    let seed = options.env.random.next_u64();
    let chains = chains.into_iter().enumerate();
    let owned =
        chains.map(|(number, one)| OwnedChains::new(number, one, fields, (seed, &options.memory)));
    let mut owned = owned.collect::<Result<Vec<_>>>()?;
    if let Some(checkpoint) = &options.checkpoint {
        check_count("chains of a checkpoint", owned.len(), checkpoint.chains.len())?;
        for (one, state) in owned.iter_mut().zip(&checkpoint.chains) {
            one.restore(state, checkpoint.version)?;
        }
    }
    Ok(owned)
}

fn check_count(what: &'static str, expected: usize, got: usize) -> Result<()> {
    if got == expected { Ok(()) } else { Err(Error::field(what, expected.to_string(), got)) }
}

/// Makes the clock, the counts of all events and those that are held, as in the checkpoint.
fn head(options: &PipelineOptions, width: usize) -> Result<(StreamClock, Totals, Held)> {
    let limits = ClockLimits {
        ahead_ms: options.ahead_ms_max,
        future_ms: options.future_ms_max,
        idle_ms: options.idle_ms_max,
    };
    let Some(Checkpoint { version, head, .. }) = &options.checkpoint else {
        return Ok((StreamClock::new(limits), Totals::default(), Held::new(width)));
    };
    let mut fields = Decoder::new(head);
    let clock = StreamClock::take(limits, *version, &mut fields)?;
    let totals = Totals::take(&mut fields)?;
    let held = match *version >= VERSION_SOURCES {
        true => Held::take(width, &mut fields)?,
        false => Held::new(width),
    };
    fields.end()?;
    Ok((clock, totals, held))
}

/// Makes the workers. `width` is the number of fields of events.
fn states(
    (summaries, chains): (Vec<Owned>, Vec<OwnedChains>),
    options: PipelineOptions,
    (width, workers): (usize, usize),
    failure: &Arc<Failure>,
    pool: &Sender<Batch>,
) -> Result<(Vec<Worker>, Arc<Board>)> {
    let (clock, totals, held) = head(&options, width)?;
    let board = Arc::new(Board::new(Published {
        totals: Totals { held: held.len() as u64, ..totals },
        summaries: summaries.iter().map(|owned| owned.windows.stats()).collect(),
        chains: chains.iter().map(OwnedChains::stats).collect(),
        workers: vec![WorkerStats::default(); workers],
        parser_fill: QueueFill::default(),
    }));
    let worker = |number| Worker {
        number,
        clock: clock.clone(),
        held: held.clone().without_frames(),
        summaries: Vec::new(),
        chains: Vec::new(),
        windows_wait: options.windows_wait,
        memory: options.memory.clone(),
        tally: None,
        figures: WorkerStats::default(),
        time: options.env.clock.clone(),
        board: board.clone(),
        failure: failure.clone(),
        pool: pool.clone(),
    };
    let mut states: Vec<Worker> = (0..workers).map(worker).collect();
    states[0].held = held;
    states[0].tally = Some(Tally { totals, rejected: options.rejected });
    let first = summaries.len();
    for one in summaries {
        states[one.number % workers].summaries.push(one);
    }
    for one in chains {
        states[(first + one.number) % workers].chains.push(one);
    }
    Ok((states, board))
}
