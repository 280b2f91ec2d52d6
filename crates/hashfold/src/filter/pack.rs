//! Packing fingerprints into blocks.

use super::block::{BLOCK_SIZE, Bytes, Encoder, ITEMS_MAX};
use crate::{
    error::Result,
    fingerprints::{Ascent, Checked, FingerprintBatch, Fingerprints, Universe},
};

/// A receiver of the blocks of a run, in order. Blocks are complete except for the checksum.
pub(super) trait BlockSink {
    /// Takes the next block, whose first fingerprint is `first`.
    fn take(&mut self, first: u64, block: &mut Bytes) -> Result<()>;
}

impl<F: FnMut(u64, &mut Bytes) -> Result<()>> BlockSink for F {
    fn take(&mut self, first: u64, block: &mut Bytes) -> Result<()> {
        self(first, block)
    }
}

/// Packs a run into blocks.
pub(super) struct Packer {
    /// See [`super::index::BlockIndex::cut_shift`].
    cut_shift: u32,
    encoder: Encoder,
    block: Box<Bytes>,
    /// Fingerprints that are not in a block yet, from `done` on: fewer than [`ITEMS_MAX`].
    pending: FingerprintBatch,
    done: usize,
    ascent: Ascent,
    len: u64,
}

impl Packer {
    /// Returns a packer whose blocks end where fingerprints differ in the bits from `cut_shift` on.
    pub(super) fn new(universe: Universe, cut_shift: u32) -> Packer {
        Packer {
            cut_shift,
            encoder: Encoder::new(),
            block: Box::new([0; BLOCK_SIZE]),
            pending: FingerprintBatch::new(),
            done: 0,
            ascent: Ascent::new(universe),
            len: 0,
        }
    }

    /// Packs a whole run. Returns the number of its fingerprints.
    pub(super) fn pack(
        mut self,
        fingerprints: &mut dyn Fingerprints,
        sink: &mut impl BlockSink,
    ) -> Result<u64> {
        let mut fingerprints = Checked::new(fingerprints);
        while self.take(|pending| fingerprints.append_to(pending))? {
            self.emit(ITEMS_MAX, sink)?;
        }
        self.finish(sink)
    }

    /// Packs the next fingerprints. Passes full blocks to `sink`.
    pub(super) fn push(
        &mut self,
        batch: &FingerprintBatch,
        sink: &mut impl BlockSink,
    ) -> Result<()> {
        self.take(|pending| {
            pending.append(batch.all());
            Ok(true)
        })?;
        self.emit(ITEMS_MAX, sink)
    }

    /// Takes the fingerprints that `append` appends to the pending ones.
    fn take(&mut self, append: impl FnOnce(&mut FingerprintBatch) -> Result<bool>) -> Result<bool> {
        // Moving the rest to the front is rare.
        if self.done >= 2 * ITEMS_MAX {
            self.pending.remove_first(self.done);
            self.done = 0;
        }
        let start = self.pending.len();
        let is_some = append(&mut self.pending)?;
        let new = &self.pending.fingerprints[start..];
        self.len += new.len() as u64;
        self.ascent.check(new)?;
        Ok(is_some)
    }

    /// Packs the pending fingerprints. Returns the total number of fingerprints.
    pub(super) fn finish(mut self, sink: &mut impl BlockSink) -> Result<u64> {
        self.emit(0, sink)?;
        Ok(self.len)
    }

    /// Fills blocks until at most `rest` fingerprints are pending.
    ///
    /// While at least [`ITEMS_MAX`] fingerprints are pending, the fingerprint after each block is
    /// known, so the block ends at the right place.
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

    fn blocks_of(batches: &[FingerprintBatch]) -> Vec<(u64, Bytes)> {
        let mut blocks = Vec::new();
        let mut sink = |first, block: &mut Bytes| {
            blocks.push((first, *block));
            Ok(())
        };
        let mut packer = Packer::new(Universe::EXACT, 32);
        batches.iter().for_each(|batch| packer.push(batch, &mut sink).unwrap());
        let len = packer.finish(&mut sink).unwrap();
        assert_eq!(len, batches.iter().map(FingerprintBatch::len).sum::<usize>() as u64);
        blocks
    }

    #[test]
    fn blocks_do_not_depend_on_the_batches_that_they_come_from() {
        let batch_of = |range: std::ops::Range<u64>| {
            let mut batch = FingerprintBatch::new();
            range.for_each(|i| {
                batch.push(((i * i) << 24) | i, if i % 11 == 5 { -1 } else { 1 }).unwrap();
            });
            batch
        };
        const LEN: u64 = 70_000;
        let whole = blocks_of(&[batch_of(0..LEN)]);
        assert!(whole.len() > 20, "{}", whole.len());
        assert!(whole.is_sorted_by(|a, b| a.0 < b.0));
        for step in [100, 3001, 33_333] {
            let starts = (0..LEN).step_by(step);
            let batches: Vec<_> =
                starts.map(|start| batch_of(start..LEN.min(start + step as u64))).collect();
            assert!(blocks_of(&batches) == whole, "{step}");
        }
        assert!(blocks_of(&[]).is_empty());
    }
}
