//! Worker threads: events to the summaries and chains that a worker owns.

use super::{
    attribution::OwnedChains,
    batch::Batch,
    checkpoint::Part,
    clock::{Arrival, StreamClock, Verdict},
    held::Held,
    owned::Owned,
    queue::{Delivery, Failure, Mark, Task},
    stats::{Board, Totals, WorkerStats},
    sync::{Receiver, Sender},
    windows::Windows,
};
use crate::{
    error::{ErrorKind, Result},
    work::{Clock, MemoryBudget},
};
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// Why an event is refused whose time is wrong.
const AHEAD: &str = "the time is too far ahead";

/// A receiver of frames that are no events, or whose times are too far ahead.
pub trait RejectedSink: Send {
    /// Takes a frame, and the reason. Frames come in the order of the input, but for those that were held until it was known
    /// that their times are wrong.
    ///
    /// # Errors
    /// An error ends the pipeline.
    fn rejected(&mut self, frame: &[u8], reason: &'static str) -> Result<()>;

    /// Makes all frames durable that it has. Called before a checkpoint is made behind them, after which they do not come again.
    ///
    /// # Errors
    /// An error ends the pipeline.
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The counts of all events, in the first worker.
pub(super) struct Tally {
    pub(super) totals: Totals,
    pub(super) rejected: Option<Box<dyn RejectedSink>>,
}

/// A worker and its state.
pub(super) struct Worker {
    /// Number of the worker.
    pub(super) number: usize,
    pub(super) clock: StreamClock,
    /// Events that are ahead, until it is known whether their times are right.
    pub(super) held: Held,
    pub(super) summaries: Vec<Owned>,
    pub(super) chains: Vec<OwnedChains>,
    /// Whether windows that have ended wait for a checkpoint.
    pub(super) windows_wait: bool,
    pub(super) memory: MemoryBudget,
    pub(super) tally: Option<Tally>,
    pub(super) figures: WorkerStats,
    /// The clock of the machine, for the time that the worker is busy.
    pub(super) time: Arc<dyn Clock>,
    pub(super) board: Arc<Board>,
    pub(super) failure: Arc<Failure>,
    /// Takes batches that all workers have handled.
    pub(super) pool: Sender<Batch>,
}

impl Worker {
    /// Handles tasks in the order of the input until there will be no more. After a failure, batches only pass.
    pub(super) fn run(mut self, deliveries: &Receiver<Delivery>) {
        // Several parsers overtake each other. There are never more batches here than the pipeline has.
        let mut early = BTreeMap::new();
        let mut next = 0;
        for Delivery { sequence, task } in deliveries {
            if let Task::Batch(_) = task {
                self.figures.fill.take(deliveries.len());
            }
            early.insert(sequence, task);
            while let Some(task) = early.remove(&next) {
                next += 1;
                self.try_to_handle(&task);
                if let Task::Batch(batch) = task {
                    self.give_back(batch);
                }
            }
        }
    }

    /// Handles a task unless there was a failure. A panic of a sink is one too: other threads need the batches.
    fn try_to_handle(&mut self, task: &Task<Arc<Batch>>) {
        if self.failure.is_set() {
            return;
        }
        let handled = catch_unwind(AssertUnwindSafe(|| self.handle(task)));
        if let Err(error) = handled.unwrap_or(Err(ErrorKind::Panicked { job: "summary" }.into())) {
            self.failure.set(error);
        }
    }

    fn give_back(&self, batch: Arc<Batch>) {
        if let Some(mut batch) = Arc::into_inner(batch) {
            batch.clear();
            // Without a source, no batch is needed.
            let _ = self.pool.send(batch);
        }
    }

    fn handle(&mut self, task: &Task<Arc<Batch>>) -> Result<()> {
        let start = self.time.now();
        match task {
            Task::Batch(batch) => self.take(batch)?,
            Task::Mark(Mark::Time(at_ms)) => {
                let before = self.clock.now_ms;
                self.clock.pass(*at_ms);
                self.advance(before)?;
                self.hand_over()?;
            }
            Task::Mark(Mark::End) => {
                self.end_held()?;
                self.all_summaries().for_each(|owned| owned.windows.end());
                self.hand_over()?;
                let now_ms = self.clock.now_ms;
                self.chains.iter_mut().try_for_each(|chains| chains.dump_at_end(now_ms))?;
            }
            Task::Mark(Mark::Relieve) => self.hand_over()?,
            Task::Mark(Mark::Publish { all: true }) => self.hand_over_all()?,
            Task::Mark(Mark::Publish { all: false }) => {
                self.all_summaries().try_for_each(|owned| owned.hand_over(Windows::pop_noted))?;
            }
            Task::Mark(Mark::Checkpoint(parts)) => {
                if let Some(Tally { rejected: Some(rejected), .. }) = &mut self.tally {
                    rejected.sync()?;
                }
                // Without a caller that waits, the state is of no use.
                let _ = parts.send(self.part()?);
                self.all_summaries().for_each(|owned| owned.windows.note());
            }
            Task::Mark(Mark::Chains(dumps)) => {
                for chains in &self.chains {
                    let _ = dumps.send((chains.number, chains.dump(self.clock.now_ms)?));
                }
            }
        }
        self.figures.busy += self.time.now().saturating_sub(start);
        self.publish();
        Ok(())
    }

    fn take(&mut self, batch: &Batch) -> Result<()> {
        self.figures.events += batch.picks[self.number].len() as u64;
        let mut picks = batch.picks[self.number].iter().peekable();
        let mut refused = Vec::new();
        self.clock.begin(batch.arrival);
        for (event, time) in batch.events.times().iter().enumerate() {
            let before = self.clock.now_ms;
            let verdict = self.clock.admit(*time);
            self.tick(before)?;
            if verdict == Verdict::Taken {
                self.refuse_held()?;
                let now = self.clock.now();
                while let Some(pick) = picks.next_if(|pick| pick.event == event) {
                    match pick.taker.checked_sub(self.summaries.len()) {
                        None => self.summaries[pick.taker].windows.add(now, &batch.events, event),
                        Some(chains) => self.chains[chains].take(now, &batch.events, event)?,
                    }
                }
                continue;
            }
            while picks.next_if(|pick| pick.event == event).is_some() {}
            if verdict == Verdict::Refused || !self.held.hold(batch, event) {
                refused.push(batch.frame_of(event));
            }
            if verdict == Verdict::Confirmed {
                self.release(batch.arrival)?;
            }
        }
        let before = self.clock.now_ms;
        self.clock.end();
        self.advance(before)?;
        self.count(batch, &refused)?;
        self.hand_over()
    }

    /// Tells chains that the clock has moved, if it has.
    #[inline]
    fn tick(&mut self, before: Option<i64>) -> Result<()> {
        match self.clock.now_ms {
            Some(now) if self.clock.now_ms != before => {
                self.chains.iter_mut().try_for_each(|chains| chains.tick(now))
            }
            _ => Ok(()),
        }
    }

    /// Lets windows end behind a batch; `before` is the clock before its end.
    fn advance(&mut self, before: Option<i64>) -> Result<()> {
        self.tick(before)?;
        let Some(now) = self.clock.now_ms else { return Ok(()) };
        self.summaries.iter_mut().for_each(|owned| owned.windows.advance(now));
        self.chains.iter_mut().try_for_each(|chains| chains.advance(now))
    }

    /// Admits the events that are held again, now that time has really passed, within a batch that arrived so.
    fn release(&mut self, arrival: Arrival) -> Result<()> {
        self.clock.confirm();
        let held = self.held.take_all();
        for event in 0..held.len() {
            let source = held.origins[event].source;
            let is_last = !self.clock.is_open(source);
            self.clock.begin(Arrival { source, is_last, ..arrival });
            let before = self.clock.now_ms;
            let verdict = self.clock.admit(held.events.times()[event]);
            self.clock.end();
            self.tick(before)?;
            match verdict {
                Verdict::Taken => {
                    self.refuse_held()?;
                    self.take_held(&held, event)?;
                }
                Verdict::Held if self.held.hold_again(&held, event) => {}
                _ => self.refuse(&held, event)?,
            }
        }
        self.clock.begin(arrival);
        Ok(())
    }

    /// Handles the events that are held, since nothing will come that could show whether their times are right.
    fn end_held(&mut self) -> Result<()> {
        let held = self.held.take_all();
        self.clock.forget_streak();
        (0..held.len()).try_for_each(|event| self.take_held(&held, event))
    }

    /// Refuses the events that are held, since their times are wrong.
    #[inline]
    fn refuse_held(&mut self) -> Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let held = self.held.take_all();
        (0..held.len()).try_for_each(|event| self.refuse(&held, event))
    }

    fn refuse(&mut self, held: &Held, event: usize) -> Result<()> {
        let Some(Tally { totals, rejected }) = &mut self.tally else { return Ok(()) };
        totals.ahead += 1;
        let Some(sink) = rejected else { return Ok(()) };
        sink.rejected(&held.origins[event].frame, AHEAD)
    }

    /// Gives an event that was held to the summaries and chains that take it.
    fn take_held(&mut self, Held { events, .. }: &Held, event: usize) -> Result<()> {
        let now = self.clock.now();
        for Owned { windows, .. } in &mut self.summaries {
            if windows.summary.takes(events, event) {
                windows.add(now, events, event);
            }
        }
        for chains in self.chains.iter_mut().filter(|chains| chains.takes(events, event)) {
            chains.take(now, events, event)?;
        }
        Ok(())
    }

    /// Counts a batch; `refused` are the numbers of the frames of events that are ahead.
    fn count(&mut self, batch: &Batch, refused: &[usize]) -> Result<()> {
        let Some(Tally { totals, rejected }) = &mut self.tally else { return Ok(()) };
        totals.frames += batch.len() as u64;
        totals.bytes += batch.byte_len() as u64 + batch.skipped;
        totals.events += batch.events.len() as u64;
        totals.rejected += batch.rejected.len() as u64;
        totals.ahead += refused.len() as u64;
        totals.unrouted += batch.unrouted;
        let Some(sink) = rejected else { return Ok(()) };
        let mut refused = refused.iter().peekable();
        for (frame, reason) in &batch.rejected {
            while let Some(before) = refused.next_if(|before| *before < frame) {
                sink.rejected(batch.frame(*before), AHEAD)?;
            }
            sink.rejected(batch.frame(*frame), reason)?;
        }
        refused.try_for_each(|frame| sink.rejected(batch.frame(*frame), AHEAD))
    }

    /// Gives windows that have ended to their sinks, unless they wait for a checkpoint. None waits if they take more memory than is
    /// left for events, and none of a summary whose windows have too many groups.
    fn hand_over(&mut self) -> Result<()> {
        let left = self.memory.left();
        let ended_bytes = |owned: &mut Owned| owned.windows.ended_bytes();
        if !self.windows_wait || self.all_summaries().map(ended_bytes).sum::<u64>() > left {
            return self.hand_over_all();
        }
        let mut long = self.all_summaries().filter(|owned| owned.windows.has_too_many_ended());
        long.try_for_each(|owned| owned.hand_over(Windows::pop))
    }

    fn hand_over_all(&mut self) -> Result<()> {
        self.all_summaries().try_for_each(|owned| owned.hand_over(Windows::pop))
    }

    /// Returns the summaries, and those of the credits of chains.
    fn all_summaries(&mut self) -> impl Iterator<Item = &mut Owned> {
        self.summaries.iter_mut().chain(self.chains.iter_mut().flat_map(OwnedChains::summaries))
    }

    fn part(&self) -> Result<Part> {
        let head = self.tally.as_ref().map(|tally| {
            let mut out = Vec::new();
            self.clock.put(&mut out);
            tally.totals.put(&mut out);
            self.held.put(&mut out);
            out
        });
        let summaries = self.summaries.iter().map(|owned| (owned.number, owned.state()));
        let chains = self.chains.iter().map(|chains| Ok((chains.number, chains.state()?)));
        Ok(Part { head, summaries: summaries.collect(), chains: chains.collect::<Result<_>>()? })
    }

    fn publish(&self) {
        if let Some(tally) = &self.tally {
            let held = self.held.len() as u64;
            self.board.publish_totals(Totals { held, ..tally.totals });
        }
        self.board
            .publish(self.summaries.iter().map(|owned| (owned.number, owned.windows.stats())));
        if !self.chains.is_empty() {
            let chains = self.chains.iter().map(|chains| (chains.number, chains.stats()));
            self.board.publish_chains(chains);
        }
        self.board.publish_worker(self.number, self.figures);
    }
}
