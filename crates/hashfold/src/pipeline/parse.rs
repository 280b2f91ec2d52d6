//! Parser threads: from frames to events, and from events to summaries.

use super::{
    batch::{Batch, Pick},
    chains::Chains,
    definition::Summary,
    events::Events,
    queue::{Delivery, Failure, Item, Task},
    stats::Board,
    sync::{Receiver, Sender},
};
use crate::error::ErrorKind;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// A parser of frames. Each parser thread has its own.
pub trait Parser: Send {
    /// Parses a frame, and adds one event with [`Events::begin`], [`Events::set`] and [`Events::end`].
    ///
    /// # Errors
    /// The reason why the frame is no event; it is rejected then.
    fn parse(&mut self, frame: &[u8], events: &mut Events) -> Result<(), &'static str>;
}

/// A part of the pipeline that takes events.
#[derive(Debug)]
pub(super) enum Taker {
    Summary(Summary),
    Chains(Chains),
}

impl Taker {
    fn takes(&self, events: &Events, event: usize) -> bool {
        match self {
            Taker::Summary(summary) => summary.takes(events, event),
            Taker::Chains(chains) => {
                chains.is_touch(events, event) || chains.is_conversion(events, event)
            }
        }
    }
}

/// All summaries, then all chains, in turn for each worker; shared by parser threads.
#[derive(Debug)]
pub(super) struct Routes {
    pub(super) takers: Vec<Taker>,
    pub(super) workers: usize,
}

impl Routes {
    /// Decides which summaries and chains take the events of a batch.
    fn route(&self, batch: &mut Batch) {
        for event in 0..batch.events.len() {
            let mut is_taken = false;
            for (number, taker) in self.takers.iter().enumerate() {
                if taker.takes(&batch.events, event) {
                    let (worker, taker) = (number % self.workers, number / self.workers);
                    batch.picks[worker].push(Pick { event, taker });
                    is_taken = true;
                }
            }
            batch.unrouted += u64::from(!is_taken);
        }
    }
}

/// Parses batches until there will be no more. A panic ends the pipeline, and batches pass on.
pub(super) fn run(
    mut parser: Box<dyn Parser>,
    routes: &Routes,
    (failure, board): (&Failure, &Board),
    items: &Receiver<Item>,
    workers: &[Sender<Delivery>],
) {
    for Item { sequence, task } in items {
        let task = match task {
            Task::Mark(mark) => Task::Mark(mark),
            Task::Batch(mut batch) => {
                board.parser_took(items.len());
                let work = AssertUnwindSafe(|| {
                    batch.parse(|frame, events| parser.parse(frame, events));
                    routes.route(&mut batch);
                });
                if catch_unwind(work).is_err() {
                    failure.set(ErrorKind::Panicked { job: "parser" }.into());
                }
                Task::Batch(batch)
            }
        };
        let task = task.map(Arc::new);
        let Some((last, others)) = workers.split_last() else { return };
        let deliver =
            |worker: &Sender<Delivery>, task| worker.send(Delivery { sequence, task }).is_ok();
        // The parser keeps no share of a batch: the last worker that has handled it gives it back.
        let is_sent = others.iter().all(|it| deliver(it, task.clone())) && deliver(last, task);
        if !is_sent {
            return;
        }
    }
}
