//! Worker threads: events to the summaries and chains that a worker owns.

use super::{
    attribution::OwnedChains,
    batch::Batch,
    checkpoint::Part,
    clock::StreamClock,
    owned::Owned,
    queue::{Delivery, Failure, Mark, Task},
    stats::{Board, Totals, WorkerStats},
    sync::{Receiver, Sender},
};
use crate::{
    error::{ErrorKind, Result},
    work::Clock,
};
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// A receiver of frames that are no events.
pub trait RejectedSink: Send {
    /// Takes a frame, and the reason why it is no event. Frames come in the order of the input.
    ///
    /// # Errors
    /// An error ends the pipeline.
    fn rejected(&mut self, frame: &[u8], reason: &'static str) -> Result<()>;
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
    pub(super) summaries: Vec<Owned>,
    pub(super) chains: Vec<OwnedChains>,
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
            Task::Mark(Mark::End) => {
                self.summaries.iter_mut().for_each(|owned| owned.windows.end());
                self.hand_over()?;
                let now_ms = self.clock.now_ms;
                self.chains.iter_mut().try_for_each(|chains| chains.end(now_ms))?;
            }
            Task::Mark(Mark::Checkpoint(parts)) => {
                // Without a caller that waits, the state is of no use.
                let _ = parts.send(self.part()?);
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
        let mut ahead = 0;
        for (event, time) in batch.events.times().iter().enumerate() {
            let before = self.clock.now_ms;
            let is_admitted = self.clock.admit(*time);
            if let Some(now) = self.clock.now_ms.filter(|_| self.clock.now_ms != before) {
                self.chains.iter_mut().try_for_each(|chains| chains.tick(now))?;
            }
            ahead += u64::from(!is_admitted);
            while let Some(pick) = picks.next_if(|pick| pick.event == event) {
                let Some(now) = self.clock.now_ms.filter(|_| is_admitted) else { continue };
                match pick.taker.checked_sub(self.summaries.len()) {
                    None => self.summaries[pick.taker].windows.add(now, &batch.events, event),
                    Some(chains) => self.chains[chains].take(now, &batch.events, event)?,
                }
            }
        }
        if let Some(now) = self.clock.now_ms {
            self.summaries.iter_mut().for_each(|owned| owned.windows.advance(now));
            self.chains.iter_mut().try_for_each(|chains| chains.advance(now))?;
        }
        self.count(batch, ahead)?;
        self.hand_over()
    }

    fn count(&mut self, batch: &Batch, ahead: u64) -> Result<()> {
        let Some(Tally { totals, rejected }) = &mut self.tally else { return Ok(()) };
        totals.frames += batch.len() as u64;
        totals.bytes += batch.byte_len() as u64 + batch.skipped;
        totals.events += batch.events.len() as u64;
        totals.rejected += batch.rejected.len() as u64;
        totals.ahead += ahead;
        totals.unrouted += batch.unrouted;
        let Some(sink) = rejected else { return Ok(()) };
        batch.rejected.iter().try_for_each(|(i, reason)| sink.rejected(batch.frame(*i), reason))
    }

    /// Gives windows that have ended to their sinks.
    fn hand_over(&mut self) -> Result<()> {
        self.summaries.iter_mut().try_for_each(Owned::hand_over)?;
        self.chains.iter_mut().try_for_each(OwnedChains::hand_over)
    }

    fn part(&self) -> Result<Part> {
        let head = self.tally.as_ref().map(|tally| {
            let mut out = Vec::new();
            self.clock.put(&mut out);
            tally.totals.put(&mut out);
            out
        });
        let summaries = self.summaries.iter().map(|owned| (owned.number, owned.state()));
        let chains = self.chains.iter().map(|chains| Ok((chains.number, chains.state()?)));
        Ok(Part { head, summaries: summaries.collect(), chains: chains.collect::<Result<_>>()? })
    }

    fn publish(&self) {
        if let Some(tally) = &self.tally {
            self.board.publish_totals(tally.totals);
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
