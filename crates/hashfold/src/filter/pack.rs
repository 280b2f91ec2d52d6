//! Items in, full blocks out.

use super::{
    Fingerprints, Universe,
    block::{BLOCK_SIZE, Bytes, Encoder, ITEMS_MAX},
    items::{Items, check_follows, disorder},
    merge::ascends,
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
    pending: Items,
    done: usize,
    /// The largest fingerprint so far.
    last: Option<u64>,
    len: u64,
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
            pending: Items::default(),
            done: 0,
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
        while self.take(|pending| fingerprints.append_items(pending))? {
            self.emit(ITEMS_MAX, sink)?;
        }
        self.finish(sink)
    }

    /// Takes the next items; full blocks go to `sink`.
    pub(super) fn push(&mut self, items: &Items, sink: &mut impl BlockSink) -> Result<()> {
        self.take(|pending| {
            pending.append(items.all());
            Ok(true)
        })?;
        self.emit(ITEMS_MAX, sink)
    }

    /// Takes what `append` appends to the pending items, and checks it.
    fn take(&mut self, append: impl FnOnce(&mut Items) -> Result<bool>) -> Result<bool> {
        // What is left is moved to the front seldom enough.
        if self.done >= 2 * ITEMS_MAX {
            self.pending.remove_first(self.done);
            self.done = 0;
        }
        let start = self.pending.len();
        let is_some = append(&mut self.pending)?;
        let new = &self.pending.fingerprints[start..];
        self.len += new.len() as u64;
        self.last = check_follows(new, self.last)?;
        if !ascends(new) {
            return Err(disorder());
        }
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
        while self.pending.len() - self.done > rest {
            let items = self.pending.from(self.done);
            let first = items.fingerprints[0];
            self.done += self.encoder.encode(items, self.cut_shift, &mut self.block);
            sink.take(first, &mut self.block)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{Counted, Span};

    fn blocks_of(spans: &[Span]) -> Vec<(u64, Bytes)> {
        let mut blocks = Vec::new();
        let mut sink = |first, block: &mut Bytes| {
            blocks.push((first, *block));
            Ok(())
        };
        let mut packer = Packer::new(Universe::EXACT, 32);
        for span in spans {
            let mut items = Items::default();
            items.append_span(span).unwrap();
            packer.push(&items, &mut sink).unwrap();
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
