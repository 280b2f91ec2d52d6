//! Spans in, full blocks out.

use super::{
    Fingerprints, Universe,
    block::{BLOCK_SIZE, Bytes, Encoder, ITEMS_MAX},
    merge::{SpanRef, ascends, for_ranks},
    span::Span,
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
        while self.take(|pending| fingerprints.append_span(pending))? {
            self.emit(ITEMS_MAX, sink)?;
        }
        self.finish(sink)
    }

    /// Takes the next fingerprints; full blocks go to `sink`.
    pub(super) fn push(&mut self, span: &Span, sink: &mut impl BlockSink) -> Result<()> {
        self.take(|pending| {
            pending.ones.extend_from_slice(&span.ones);
            pending.counted.extend_from_slice(&span.counted);
            Ok(true)
        })?;
        self.emit(ITEMS_MAX, sink)
    }

    /// Takes what `append` appends to the pending fingerprints, and checks it.
    fn take(&mut self, append: impl FnOnce(&mut Span) -> Result<bool>) -> Result<bool> {
        // What is left is moved to the front seldom enough.
        if self.done.ones + self.done.counted >= 2 * ITEMS_MAX {
            self.pending.ones.drain(..self.done.ones);
            self.pending.counted.drain(..self.done.counted);
            self.done = Done::default();
        }
        let (ones, counted) = (self.pending.ones.len(), self.pending.counted.len());
        let is_some = append(&mut self.pending)?;
        let (ones, counted) = (&self.pending.ones[ones..], &self.pending.counted[counted..]);
        self.len += (ones.len() + counted.len()) as u64;
        self.last = check_order(SpanRef { ones, counted }, self.last)?;
        match self.last {
            Some(last) if last > self.universe.last() => {
                let expected = format!("at most {:#x}", self.universe.last());
                Err(Error::field("fingerprint", expected, format!("{last:#x}")))
            }
            _ => Ok(is_some),
        }
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
}

/// Refuses a span that does not ascend, or not from `previous` on, or that has a fingerprint in
/// both of its parts, or a count that is none. Returns the largest fingerprint so far.
pub(super) fn check_order(span: SpanRef<'_>, previous: Option<u64>) -> Result<Option<u64>> {
    let SpanRef { ones, counted } = span;
    let [first, last] = [
        [ones.first().copied(), counted.first().map(|item| item.fingerprint)],
        [ones.last().copied(), counted.last().map(|item| item.fingerprint)],
    ];
    let first = first.into_iter().flatten().min();
    let follows = previous.is_none_or(|previous| first.is_none_or(|first| previous < first));
    let pairs = counted.windows(2);
    let ascend = pairs.fold(true, |ascend, it| ascend & (it[0].fingerprint < it[1].fingerprint));
    let are_apart = for_ranks(
        ones,
        counted,
        |item| item.fingerprint,
        |item, rank| ones.get(rank) != Some(&item.fingerprint),
    );
    if !(follows && ascend && are_apart && ascends(ones)) {
        return Err(Error::field("fingerprint", "above the one before", "another"));
    }
    if counted.iter().any(|item| matches!(item.count, 0 | 1)) {
        return Err(Error::field("count of a fingerprint", "neither 0 nor 1", "one of them"));
    }
    Ok(last.into_iter().flatten().max().or(previous))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Counted;

    fn blocks_of(spans: &[Span]) -> Vec<(u64, Bytes)> {
        let mut blocks = Vec::new();
        let mut sink = |first, block: &mut Bytes| {
            blocks.push((first, *block));
            Ok(())
        };
        let mut packer = Packer::new(Universe::EXACT, 32);
        for span in spans {
            packer.push(span, &mut sink).unwrap();
        }
        let len = packer.finish(&mut sink).unwrap();
        assert_eq!(len, spans.iter().map(Span::len).sum::<usize>() as u64);
        blocks
    }

    #[test]
    fn blocks_do_not_depend_on_the_spans_that_they_come_from() {
        let item = |i: u64| ((i * i) << 24) | i;
        let span_of = |range: std::ops::Range<u64>| {
            let (ones, counted): (Vec<u64>, Vec<u64>) = range.partition(|i| i % 11 != 5);
            let counted = counted.iter().map(|&i| Counted { fingerprint: item(i), count: -1 });
            Span { ones: ones.into_iter().map(item).collect(), counted: counted.collect() }
        };
        const LEN: u64 = 70_000;
        let whole = blocks_of(&[span_of(0..LEN)]);
        assert!(whole.len() > 20, "{}", whole.len());
        assert!(whole.is_sorted_by(|a, b| a.0 < b.0));
        for step in [100, 3001, 33_333] {
            let starts = (0..LEN).step_by(step);
            let spans: Vec<Span> =
                starts.map(|start| span_of(start..LEN.min(start + step as u64))).collect();
            assert!(blocks_of(&spans) == whole, "{step}");
        }
        assert!(blocks_of(&[]).is_empty());
    }
}
