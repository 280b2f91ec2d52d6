//! Spans in, full blocks out.

use super::{
    Fingerprints, Universe,
    block::{BLOCK_SIZE, Bytes, Encoder, ITEMS_MAX},
    span::{Counted, Span},
};
use crate::error::{Error, Result};

/// Takes the blocks of a run, one after the other: with the first fingerprint, complete but for
/// the checksum.
pub(super) trait BlockSink {
    /// Takes the next block.
    fn take(&mut self, first: u64, block: &mut Bytes) -> Result<()>;
}

impl<F: FnMut(u64, &mut Bytes) -> Result<()>> BlockSink for F {
    fn take(&mut self, first: u64, block: &mut Bytes) -> Result<()> {
        self(first, block)
    }
}

/// Packs a run into blocks.
pub(super) struct Packer {
    universe: Universe,
    /// See [`super::index::BlockIndex::cut_shift`].
    cut_shift: u32,
    encoder: Encoder,
    block: Box<Bytes>,
    /// What is not in a block yet: less than [`ITEMS_MAX`], from `done` on.
    pending: Span,
    done: Done,
    /// The largest fingerprint so far.
    last: Option<u64>,
    len: u64,
}

/// Items at the front of the pending ones that are in blocks.
#[derive(Clone, Copy, Default)]
struct Done {
    ones: usize,
    counted: usize,
}

impl Packer {
    /// For fingerprints of this universe, with blocks that end where fingerprints differ from the
    /// bit `cut_shift` on.
    pub(super) fn new(universe: Universe, cut_shift: u32) -> Packer {
        Packer {
            universe,
            cut_shift,
            encoder: Encoder::new(),
            block: Box::new([0; BLOCK_SIZE]),
            pending: Span::default(),
            done: Done::default(),
            last: None,
            len: 0,
        }
    }

    /// Takes all of a run, to its end.
    pub(super) fn pack(
        mut self,
        fingerprints: &mut dyn Fingerprints,
        sink: &mut impl BlockSink,
    ) -> Result<u64> {
        let mut span = Span::default();
        while fingerprints.next_span(&mut span)? {
            self.push(&span, sink)?;
        }
        self.finish(sink)
    }

    /// Takes the next fingerprints; full blocks go to `sink`.
    pub(super) fn push(&mut self, span: &Span, sink: &mut impl BlockSink) -> Result<()> {
        self.check(span)?;
        self.pending.ones.extend_from_slice(&span.ones);
        self.pending.counted.extend_from_slice(&span.counted);
        self.len += span.len() as u64;
        self.emit(ITEMS_MAX, sink)?;
        self.pending.ones.drain(..self.done.ones);
        self.pending.counted.drain(..self.done.counted);
        self.done = Done::default();
        Ok(())
    }

    /// Gives out what is left, and how many fingerprints there were in all.
    pub(super) fn finish(mut self, sink: &mut impl BlockSink) -> Result<u64> {
        self.emit(0, sink)?;
        Ok(self.len)
    }

    /// Fills blocks until at most `rest` fingerprints are pending.
    ///
    /// With as many as a block can have, it is sure that the one behind a block is known, and that
    /// the block ends where it should.
    fn emit(&mut self, rest: usize, sink: &mut impl BlockSink) -> Result<()> {
        loop {
            let ones = &self.pending.ones[self.done.ones..];
            let counted = &self.pending.counted[self.done.counted..];
            if ones.len() + counted.len() <= rest {
                return Ok(());
            }
            let first = ones.first().copied().into_iter();
            let first = first.chain(counted.first().map(|item| item.fingerprint)).min();
            let taken = self.encoder.encode(ones, counted, self.cut_shift, &mut self.block);
            self.done.ones += taken.ones;
            self.done.counted += taken.counted;
            sink.take(first.unwrap_or_default(), &mut self.block)?;
        }
    }

    /// Refuses what does not ascend.
    fn check(&mut self, span: &Span) -> Result<()> {
        check_order(span, self.last)?;
        let Some(last) = span.last() else {
            return Ok(());
        };
        if last > self.universe.last() {
            let expected = format!("at most {:#x}", self.universe.last());
            return Err(Error::field("fingerprint", expected, format!("{last:#x}")));
        }
        self.last = Some(last);
        Ok(())
    }
}

/// Refuses a span that does not ascend, or not from `previous` on, or that has a fingerprint in
/// both of its parts, or a count that is none.
pub(super) fn check_order(span: &Span, previous: Option<u64>) -> Result<()> {
    let ones = span.ones.windows(2).fold(true, |ascend, pair| ascend & (pair[0] < pair[1]));
    let counted = span.counted.windows(2);
    let counted = counted.fold(true, |ascend, it| ascend & (it[0].fingerprint < it[1].fingerprint));
    let first = span.first();
    let follows = previous.is_none_or(|previous| first.is_none_or(|first| previous < first));
    if !(ones && counted && follows && are_apart(span)) {
        return Err(Error::field("fingerprint", "above the one before", "another"));
    }
    let is_count = |item: &Counted| !matches!(item.count, 0 | 1);
    if !span.counted.iter().all(is_count) {
        return Err(Error::field("count of a fingerprint", "neither 0 nor 1", "one of them"));
    }
    Ok(())
}

/// Whether no fingerprint is in both parts.
fn are_apart(span: &Span) -> bool {
    let mut rest = &span.ones[..];
    span.counted.iter().all(|item| {
        rest = &rest[super::merge::count_below(rest, item.fingerprint)..];
        rest.first() != Some(&item.fingerprint)
    })
}
