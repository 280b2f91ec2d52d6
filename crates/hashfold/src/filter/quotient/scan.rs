//! `Scan`: a filter as a run of fingerprints.

use super::{
    block::SlotBlocks,
    filter::{COPIES_MAX, QuotientFilter},
    kernel::{Kernel, KernelTask, Processor},
    layout::BLOCK_SLOTS,
    storage::Storage,
};
use crate::{
    error::{Error, Result},
    filter::Mode,
    fingerprints::{FingerprintBatch, Fingerprints, Universe},
    key::Seed,
};

/// Approximate number of fingerprints that a scan reads at a time.
const STRETCH: usize = 4096;

/// Reads all fingerprints in ascending order, with copies one after the other. Refuses fingerprints
/// that do not ascend or are outside the universe, which only damage causes.
#[derive(Debug)]
pub(super) struct Feed<'a> {
    place: SlotCursor<'a>,
    machine: Processor,
    universe: Universe,
    mode: Mode,
    last: Option<u64>,
}

/// The position up to which a filter has been read.
#[derive(Debug)]
struct SlotCursor<'a> {
    blocks: SlotBlocks<'a>,
    /// The first slot that has not been read.
    slot: usize,
    /// The block whose quotients come next; the next field has its remaining occupied quotients.
    quotients: usize,
    occupied: u64,
}

impl<'a> Feed<'a> {
    pub(super) fn new<S: Storage>(filter: &'a QuotientFilter<S>) -> Feed<'a> {
        let blocks = filter.blocks();
        let occupied = blocks.block(0).occupied();
        Feed {
            place: SlotCursor { blocks, slot: 0, quotients: 0, occupied },
            machine: filter.machine,
            universe: filter.universe,
            mode: filter.rules.mode,
            last: None,
        }
    }

    /// Appends the next stretch of fingerprints to `out`; appends nothing at the end.
    pub(super) fn read(&mut self, out: &mut Vec<u64>) -> Result<()> {
        let start = out.len();
        if !self.machine.run(ReadStretch { place: &mut self.place, out }) {
            return Err(Error::field("chains", "one per occupied quotient", "fewer"));
        }
        let fresh = &out[start..];
        let (Some(&first), Some(&last)) = (fresh.first(), fresh.last()) else { return Ok(()) };
        let ascend = match self.mode {
            Mode::Set => {
                fresh.windows(2).fold(true, |is, pair| is & (pair[0] < pair[1]))
                    && self.last.is_none_or(|before| before < first)
            }
            Mode::Multiset => {
                fresh.windows(2).fold(true, |is, pair| is & (pair[0] <= pair[1]))
                    && self.last.is_none_or(|before| before <= first)
            }
        };
        if !ascend {
            return Err(Error::field("order of the fingerprints", "ascending", "another one"));
        }
        if last > self.universe.last() {
            let expected = format!("at most {}", self.universe.last());
            return Err(Error::field("fingerprint", expected, last));
        }
        self.last = Some(last);
        Ok(())
    }
}

struct ReadStretch<'f, 'a> {
    place: &'f mut SlotCursor<'a>,
    out: &'f mut Vec<u64>,
}

impl KernelTask for ReadStretch<'_, '_> {
    /// `false` if the bytes are damaged: quotients are left after the last slot.
    type Output = bool;

    #[inline(always)]
    fn run<K: Kernel>(self) -> bool {
        let ReadStretch { place, out } = self;
        let (blocks, layout) = (place.blocks, place.blocks.layout);
        let enough = out.len() + STRETCH;
        let mut remainders = [0; BLOCK_SLOTS];
        let mut decoded = usize::MAX;
        while out.len() < enough {
            while place.occupied == 0 {
                if place.quotients + 1 >= layout.blocks {
                    return true;
                }
                place.quotients += 1;
                place.occupied = blocks.block(place.quotients).occupied();
            }
            let first = place.quotients * BLOCK_SLOTS;
            let slot = place.slot.max(first + place.occupied.trailing_zeros() as usize);
            let index = slot / BLOCK_SLOTS;
            if index >= layout.all_blocks() {
                return false;
            }
            let block = blocks.block(index);
            if index != decoded {
                block.remainders::<K>(&mut remainders);
                decoded = index;
            }
            let slots =
                Slots { remainders: &remainders, ends: block.ends(), bits: layout.remainder_bits };
            (place.occupied, place.slot) = slots.read(place.occupied, first, slot, out);
        }
        true
    }
}

/// The slots of one block.
struct Slots<'a> {
    remainders: &'a [u64; BLOCK_SLOTS],
    ends: u64,
    /// Number of bits in a remainder.
    bits: u32,
}

impl Slots<'_> {
    /// Reads fingerprints from `slot` on, until the slots or the `occupied` quotients end. `first`
    /// is the quotient of the lowest bit. Returns the remaining quotients and the next slot.
    #[inline(always)]
    fn read(
        &self,
        mut occupied: u64,
        first: usize,
        slot: usize,
        out: &mut Vec<u64>,
    ) -> (u64, usize) {
        let start = slot / BLOCK_SLOTS * BLOCK_SLOTS;
        // Negative for the quotients of an earlier block.
        let own = first as isize - start as isize;
        let mut i = slot % BLOCK_SLOTS;
        let mut found = [0; BLOCK_SLOTS];
        let mut count = 0;
        let mut quotient = occupied.trailing_zeros() as usize;
        while occupied != 0 && i < BLOCK_SLOTS {
            found[count % BLOCK_SLOTS] =
                ((first + quotient) as u64) << self.bits | self.remainders[i];
            count += 1;
            // If a chain ends in this slot, its quotient, the lowest one, is finished.
            occupied &= occupied.wrapping_sub(self.ends >> i & 1);
            quotient = occupied.trailing_zeros() as usize;
            i = (i + 1).max((own + quotient as isize).max(0) as usize);
        }
        out.extend_from_slice(&found[..count]);
        (occupied, start + i)
    }
}

/// The fingerprints of a filter as a run: see [`QuotientFilter::scan`].
#[derive(Debug)]
pub struct Scan<'a, S> {
    filter: &'a QuotientFilter<S>,
    feed: Feed<'a>,
    stretch: Vec<u64>,
    /// The copies of the last fingerprint; the next stretch may have more.
    held: Vec<u64>,
}

impl<S: Storage> QuotientFilter<S> {
    /// Returns all fingerprints in ascending order, each with the number of its copies.
    pub fn scan(&self) -> Scan<'_, S> {
        Scan { filter: self, feed: Feed::new(self), stretch: Vec::new(), held: Vec::new() }
    }
}

impl<S: Storage> Scan<'_, S> {
    /// Reads the next fingerprints, with all of their copies.
    fn read_whole(&mut self) -> Result<()> {
        self.stretch.clear();
        self.stretch.append(&mut self.held);
        let held = self.stretch.len();
        self.feed.read(&mut self.stretch)?;
        let Some(&last) = self.stretch.last().filter(|_| self.stretch.len() > held) else {
            return Ok(());
        };
        let whole = self.stretch.partition_point(|&fingerprint| fingerprint < last);
        self.held.extend(self.stretch.drain(whole..));
        if self.held.len() as u64 > COPIES_MAX {
            return Err(too_many(self.held.len() as u64));
        }
        // The stretch has only copies of one fingerprint, which may continue.
        if self.stretch.is_empty() { self.read_whole() } else { Ok(()) }
    }

    /// Appends each fingerprint once, with the number of its copies.
    fn count(&self, batch: &mut FingerprintBatch) -> Result<()> {
        let mut rest = &self.stretch[..];
        while let Some(&fingerprint) = rest.first() {
            let copies = rest.iter().take_while(|&&next| next == fingerprint).count();
            rest = &rest[copies..];
            let copies = copies as u64;
            if copies > COPIES_MAX {
                return Err(too_many(copies));
            }
            let more = if copies == COPIES_MAX { self.filter.storage.more(fingerprint) } else { 0 };
            let count = i64::try_from(copies.saturating_add(more)).unwrap_or(i64::MAX);
            batch.push_next(fingerprint, count);
        }
        Ok(())
    }
}

fn too_many(copies: u64) -> Error {
    Error::field("copies of a fingerprint", format!("at most {COPIES_MAX}"), copies)
}

impl<S: Storage> Fingerprints for Scan<'_, S> {
    fn seed(&self) -> Seed {
        self.filter.rules.seed
    }

    fn universe(&self) -> Universe {
        self.filter.universe
    }

    fn append_to(&mut self, batch: &mut FingerprintBatch) -> Result<bool> {
        let before = batch.len();
        match self.filter.rules.mode {
            Mode::Set => self.feed.read(&mut batch.fingerprints)?,
            Mode::Multiset => {
                self.read_whole()?;
                self.count(batch)?;
            }
        }
        Ok(batch.len() > before)
    }
}
