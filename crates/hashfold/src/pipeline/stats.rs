//! The figures of a pipeline: every event is counted.

use crate::{
    codec::{Decoder, put_varint},
    error::Result,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The figures of a pipeline: `frames = events + rejected`, and the events that are `ahead` or `unrouted` are in no
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
    /// Batches that wait for each worker: the imbalance between workers.
    pub worker_queues: Vec<usize>,
    /// Number of all batches: the bound of each queue.
    pub batches: usize,
}

/// Counts of all events of a pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames that came in.
    pub frames: u64,
    /// Size of the frames, in bytes.
    pub bytes: u64,
    /// Frames that were parsed.
    pub events: u64,
    /// Frames that are no events.
    pub rejected: u64,
    /// Events whose time is too far ahead of the clock.
    pub ahead: u64,
    /// Events that no summary and no chain takes.
    pub unrouted: u64,
}

/// Counts of one summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SummaryStats {
    /// Events that are summarised.
    pub events: u64,
    /// Events that came after the end of their window.
    pub late: u64,
    /// Events of groups beyond the maximum, or of a group that is too long.
    pub no_group: u64,
    /// Windows that ended.
    pub windows: u64,
    /// Groups in all windows that ended.
    pub groups: u64,
    /// Windows that are open.
    pub open_windows: u64,
    /// Groups in open windows.
    pub open_groups: u64,
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
        let Totals { frames, bytes, events, rejected, ahead, unrouted } = self;
        [frames, bytes, events, rejected, ahead, unrouted]
    }

    pub(super) fn put(mut self, out: &mut Vec<u8>) {
        self.numbers().into_iter().for_each(|number| put_varint(out, *number));
    }

    pub(super) fn take(fields: &mut Decoder<'_>) -> Result<Totals> {
        let mut totals = Totals::default();
        for number in totals.numbers() {
            *number = fields.varint()?;
        }
        Ok(totals)
    }
}

impl SummaryStats {
    fn numbers(&mut self) -> [&mut u64; 5] {
        let SummaryStats { events, late, no_group, windows, groups, .. } = self;
        [events, late, no_group, windows, groups]
    }

    pub(super) fn put(mut self, out: &mut Vec<u8>) {
        self.numbers().into_iter().for_each(|number| put_varint(out, *number));
    }

    pub(super) fn take(fields: &mut Decoder<'_>) -> Result<SummaryStats> {
        let mut stats = SummaryStats::default();
        for number in stats.numbers() {
            *number = fields.varint()?;
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
            *number = fields.varint()?;
        }
        Ok(stats)
    }
}

/// Counts that workers publish.
#[derive(Clone, Debug)]
pub(super) struct Published {
    pub(super) totals: Totals,
    pub(super) summaries: Vec<SummaryStats>,
    pub(super) chains: Vec<ChainsStats>,
}

/// Figures that workers publish after each batch.
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

    pub(super) fn publish_totals(&self, totals: Totals) {
        self.lock().totals = totals;
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
