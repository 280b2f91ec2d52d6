//! A batch: frames on their way to parsers, then the events that were in them.

use super::{clock::Arrival, events::Events};

/// Memory above which the buffers of a batch are given back when it is empty again, in bytes: a large event must
/// not cost memory for ever.
const MEMORY_KEPT_MAX: usize = 1 << 20;

/// An event for a summary, or for chains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pick {
    /// Number of the event in the batch.
    pub(super) event: usize,
    /// Number of the summary, or of the chains, among all that its worker has.
    pub(super) taker: usize,
}

/// A batch of events, first as the bytes of frames. Batches are recycled: their number is the bound of
/// what is between a source and the summaries.
#[derive(Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    /// The ends of frames in `bytes`.
    ends: Vec<usize>,
    /// Frames that are not to be parsed, ascending.
    bad: Vec<(usize, &'static str)>,
    pub(super) events: Events,
    /// The events for each worker, in their order.
    pub(super) picks: Vec<Vec<Pick>>,
    /// Frames that are no events, and why.
    pub(super) rejected: Vec<(usize, &'static str)>,
    /// Events that no summary and no chain takes.
    pub(super) unrouted: u64,
    /// Bytes of frames that are too long which are not kept.
    pub(super) skipped: u64,
    /// Where the batch is from.
    pub(super) arrival: Arrival,
}

impl Batch {
    pub(super) fn new(fields: usize, workers: usize) -> Batch {
        Batch {
            bytes: Vec::new(),
            ends: Vec::new(),
            bad: Vec::new(),
            events: Events::new(fields),
            picks: vec![Vec::new(); workers],
            rejected: Vec::new(),
            unrouted: 0,
            skipped: 0,
            arrival: Arrival::default(),
        }
    }

    /// Appends a frame: the bytes of one event.
    #[inline]
    pub fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    /// Appends a frame that is no event, such as the beginning of one that is too long, and the reason.
    pub fn reject(&mut self, frame: &[u8], reason: &'static str) {
        self.bad.push((self.ends.len(), reason));
        self.push(frame);
    }

    /// Counts bytes of a frame that is too long, of which [`Batch::reject`] gets only the beginning.
    pub fn skip(&mut self, bytes: u64) {
        self.skipped += bytes;
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no frame.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Size of all frames, in bytes.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn frame(&self, i: usize) -> &[u8] {
        let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[i]]
    }

    /// Returns the number of the frame of an event.
    pub(super) fn frame_of(&self, event: usize) -> usize {
        let mut frame = event;
        for (rejected, _) in &self.rejected {
            if *rejected > frame {
                break;
            }
            frame += 1;
        }
        frame
    }

    /// Calls `parse` with each frame, its number and the events.
    pub(super) fn parse(
        &mut self,
        mut parse: impl FnMut(&[u8], &mut Events) -> Result<(), &'static str>,
    ) {
        let mut start = 0;
        let mut bad = self.bad.iter().peekable();
        for (i, end) in self.ends.iter().enumerate() {
            let before = self.events.len();
            let parsed = match bad.next_if(|(frame, _)| *frame == i) {
                Some((_, reason)) => Err(*reason),
                None => parse(&self.bytes[start..*end], &mut self.events),
            };
            start = *end;
            match parsed {
                Ok(()) => assert!(self.events.len() == before + 1, "a frame is one event"),
                Err(reason) => self.rejected.push((i, reason)),
            }
        }
    }

    /// Empties the batch for its next use.
    pub(super) fn clear(&mut self) {
        if self.bytes.capacity() + self.events.memory() > MEMORY_KEPT_MAX {
            *self = Batch::new(self.events.width(), self.picks.len());
            return;
        }
        self.bytes.clear();
        self.ends.clear();
        self.bad.clear();
        self.events.clear();
        self.picks.iter_mut().for_each(Vec::clear);
        self.rejected.clear();
        self.unrouted = 0;
        self.skipped = 0;
        self.arrival = Arrival::default();
    }
}
