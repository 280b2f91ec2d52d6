//! The figures of a pipeline: every event is counted.

use super::checkpoint::VERSION_OVERFLOWS;
use crate::{
    codec::{Decoder, put_varint},
    error::{Error, Result},
};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The figures of a pipeline: `frames = events + rejected`, and the events that are `ahead`, `unrouted` or `held` are in no
/// summary. All are as of one moment behind the last batch that was handled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Counts of all events.
    pub totals: Totals,
    /// Counts of each summary, in the order of the summaries.
    pub summaries: Vec<SummaryStats>,
    /// Counts of chains, in their order.
    pub chains: Vec<ChainsStats>,
    /// Batches that wait for a parser.
    pub parser_queue: usize,
    /// Batches that wait for each worker.
    pub worker_queues: Vec<usize>,
    /// Mean fill of the queue of the parsers.
    pub parser_fill: QueueFill,
    /// Figures of each worker.
    pub workers: Vec<WorkerStats>,
    /// Number of all batches: the bound of each queue.
    pub batches: usize,
}

/// The fill of a queue since the pipeline started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueFill {
    /// Number of times that a thread took a batch.
    pub taken: u64,
    /// Sum of the numbers of batches that were left in the queue each time.
    pub left: u64,
}

/// Figures of a worker since the pipeline started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Events for the summaries of the worker, once for each summary that takes them.
    pub events: u64,
    /// Time in which the worker summarised events and handed windows over to their sinks.
    pub busy: Duration,
    /// Mean fill of the queue of batches that wait for the worker.
    pub fill: QueueFill,
}

impl QueueFill {
    /// Counts a batch that was taken, behind which `left` others wait.
    pub(super) fn take(&mut self, left: usize) {
        self.taken += 1;
        self.left += left as u64;
    }

    /// Returns the mean number of batches that were left in the queue when a thread took one. Near 0 the threads wait
    /// for batches, near the number of all batches the batches wait for the threads.
    pub fn mean(&self) -> f64 {
        if self.taken == 0 { 0.0 } else { self.left as f64 / self.taken as f64 }
    }
}

impl Stats {
    /// Returns the events of the worker that has most over the mean of all workers: 1 if all have as many, and the number
    /// of workers if one has all.
    pub fn event_imbalance(&self) -> f64 {
        imbalance(self.workers.iter().map(|worker| worker.events as f64))
    }

    /// Returns the busy time of the busiest worker over the mean of all workers: 1 if all work as long, and the number of
    /// workers if one does all the work. No other worker can make a pipeline faster than its busiest one.
    pub fn busy_imbalance(&self) -> f64 {
        imbalance(self.workers.iter().map(|worker| worker.busy.as_secs_f64()))
    }
}

/// Returns the largest of some amounts over their mean; 1 if all are 0.
fn imbalance(amounts: impl ExactSizeIterator<Item = f64>) -> f64 {
    let workers = amounts.len() as f64;
    let (max, sum) = amounts.fold((0.0, 0.0), |(max, sum), one| (f64::max(max, one), sum + one));
    if sum > 0.0 { max * workers / sum } else { 1.0 }
}

/// Counts of all events of a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames that came in.
    pub frames: u64,
    /// Size of the frames, in bytes, with what was skipped of those that are too long.
    pub bytes: u64,
    /// Frames that were parsed.
    pub events: u64,
    /// Frames that are no events.
    pub rejected: u64,
    /// Events that were refused since their time is too far ahead.
    pub ahead: u64,
    /// Events that no summary and no chain takes.
    pub unrouted: u64,
    /// Events that are held now, until it is known whether their times are right.
    pub held: u64,
}

/// Counts of one summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SummaryStats {
    /// Events that are summarised.
    pub events: u64,
    /// Events that came after the end of their window.
    pub late: u64,
    /// Sums in windows that ended which are null since they are beyond 64 bits.
    pub overflows: u64,
    /// Events without room: of groups beyond the maximum, of a group that is too long, or with more memory than the budget
    /// has left.
    pub no_group: u64,
    /// Windows that ended.
    pub windows: u64,
    /// Groups in all windows that ended.
    pub groups: u64,
    /// Windows that are open.
    pub open_windows: u64,
    /// Groups in open windows.
    pub open_groups: u64,
    /// Windows that have ended and wait for a checkpoint ([`PipelineOptions::windows_wait`](super::PipelineOptions::windows_wait)).
    pub waiting_windows: u64,
    /// Memory of the groups in windows that are open, wait or are being handed over, in bytes, as the budget counts it.
    pub open_bytes: u64,
    /// Start of the earliest open window, in milliseconds since 1970.
    pub open_since_ms: Option<i64>,
}

/// Counts of chains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainsStats {
    /// Touches that were appended.
    pub touches: u64,
    /// Conversions that were shared out.
    pub conversions: u64,
    /// Conversions without a touch, among these.
    pub direct: u64,
    /// Touches that were too old, and conversions that came too late.
    pub late: u64,
    /// Events without a user.
    pub no_user: u64,
    /// Events whose user or channel is too long.
    pub too_long: u64,
    /// Dumps that were made.
    pub dumps: u64,
    /// Users that have a chain.
    pub users: u64,
    /// Memory of the chains, in bytes.
    pub bytes: u64,
    /// Counts of the summaries of credits, in their order.
    pub summaries: Vec<SummaryStats>,
}

impl Totals {
    fn numbers(&mut self) -> [&mut u64; 6] {
        // Those that are held are in a checkpoint themselves.
        let Totals { frames, bytes, events, rejected, ahead, unrouted, held: _ } = self;
        [frames, bytes, events, rejected, ahead, unrouted]
    }

    pub(super) fn put(mut self, out: &mut Vec<u8>) {
        self.numbers().into_iter().for_each(|number| put_varint(out, *number));
    }

    pub(super) fn take(fields: &mut Decoder<'_>) -> Result<Totals> {
        let mut totals = Totals::default();
        for number in totals.numbers() {
            *number = take_count(fields)?;
        }
        Ok(totals)
    }
}

impl SummaryStats {
    /// Returns the numbers that a checkpoint has. The last one is in its newest version only.
    fn numbers(&mut self) -> [&mut u64; 6] {
        let SummaryStats { events, late, no_group, windows, groups, overflows, .. } = self;
        [events, late, no_group, windows, groups, overflows]
    }

    pub(super) fn put(mut self, out: &mut Vec<u8>) {
        self.numbers().into_iter().for_each(|number| put_varint(out, *number));
    }

    pub(super) fn take(fields: &mut Decoder<'_>, version: u8) -> Result<SummaryStats> {
        let mut stats = SummaryStats::default();
        let numbers = stats.numbers();
        let count = numbers.len() - usize::from(version < VERSION_OVERFLOWS);
        for number in numbers.into_iter().take(count) {
            *number = take_count(fields)?;
        }
        Ok(stats)
    }
}

impl ChainsStats {
    fn numbers(&mut self) -> [&mut u64; 7] {
        let ChainsStats { touches, conversions, direct, late, no_user, too_long, dumps, .. } = self;
        [touches, conversions, direct, late, no_user, too_long, dumps]
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let mut counts = ChainsStats { summaries: Vec::new(), ..self.clone() };
        counts.numbers().into_iter().for_each(|number| put_varint(out, *number));
    }

    pub(super) fn take(fields: &mut Decoder<'_>) -> Result<ChainsStats> {
        let mut stats = ChainsStats::default();
        for number in stats.numbers() {
            *number = take_count(fields)?;
        }
        Ok(stats)
    }
}

/// Takes a count off a checkpoint, so small that no event lets it overflow.
pub(super) fn take_count(fields: &mut Decoder<'_>) -> Result<u64> {
    match fields.varint()? {
        count @ ..=0x7fff_ffff_ffff_ffff => Ok(count),
        count => Err(Error::field("count in a checkpoint", "less than 2^63", count)),
    }
}

/// Figures that threads publish.
#[derive(Clone, Debug)]
pub(super) struct Published {
    pub(super) totals: Totals,
    pub(super) summaries: Vec<SummaryStats>,
    pub(super) chains: Vec<ChainsStats>,
    pub(super) workers: Vec<WorkerStats>,
    pub(super) parser_fill: QueueFill,
}

/// Figures that threads publish after each batch.
#[derive(Debug)]
pub(super) struct Board(Mutex<Published>);

impl Board {
    pub(super) fn new(published: Published) -> Board {
        Board(Mutex::new(published))
    }

    fn lock(&self) -> MutexGuard<'_, Published> {
        // Figures are copied whole, so they are right even after a panic elsewhere.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a batch that a parser took, behind which `left` others wait.
    pub(super) fn parser_took(&self, left: usize) {
        self.lock().parser_fill.take(left);
    }

    pub(super) fn publish_totals(&self, totals: Totals) {
        self.lock().totals = totals;
    }

    pub(super) fn publish_worker(&self, worker: usize, figures: WorkerStats) {
        self.lock().workers[worker] = figures;
    }

    pub(super) fn publish(&self, summaries: impl Iterator<Item = (usize, SummaryStats)>) {
        let mut board = self.lock();
        for (i, stats) in summaries {
            board.summaries[i] = stats;
        }
    }

    pub(super) fn publish_chains(&self, chains: impl Iterator<Item = (usize, ChainsStats)>) {
        let mut board = self.lock();
        for (i, stats) in chains {
            board.chains[i] = stats;
        }
    }

    pub(super) fn read(&self) -> Published {
        self.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imbalance_is_the_busiest_over_the_mean() {
        for (amounts, expected) in [
            (&[][..], 1.0),
            (&[0.0, 0.0], 1.0),
            (&[5.0], 1.0),
            (&[2.0, 2.0], 1.0),
            (&[3.0, 1.0], 1.5),
            (&[4.0, 0.0, 0.0, 0.0], 4.0),
        ] {
            assert_eq!(imbalance(amounts.iter().copied()), expected, "{amounts:?}");
        }
    }

    #[test]
    fn the_mean_of_a_queue_is_of_the_moments_when_batches_are_taken() {
        let mut queue = QueueFill::default();
        assert_eq!(queue.mean(), 0.0);
        [3, 0, 0, 1].into_iter().for_each(|left| queue.take(left));
        assert_eq!((queue.taken, queue.mean()), (4, 1.0));
    }
}
