//! The part of a run file that stays in memory: all of its blocks, or a summary.
//!
//! A summary is the run without the last bits of its fingerprints, about one byte per key. A
//! fingerprint that is not in the summary is not in the run.

use crate::{
    error::Result,
    filter::{
        block::{BLOCK_SIZE, Block, Bytes},
        index::BlockIndex,
        pack::{BlockSink, Packer},
    },
    fingerprints::{FingerprintBatch, Universe},
    io::Buffer,
};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Size of the pieces in which blocks are kept, in bytes.
const PIECE_SIZE: usize = 256 << 10;
const PIECE_BLOCKS: usize = PIECE_SIZE / BLOCK_SIZE;
/// Number of bits that a summary keeps of each fingerprint beyond those that distinguish the run's
/// keys. The false-positive rate of the summary is about 2^-`SUMMARY_BITS`.
const SUMMARY_BITS: u32 = 6;

/// One part in N of the budget is reserved for later indexes; other claims do not get it.
const INDEX_RESERVE_PART: usize = 8;
/// Indexes are thinned out so that all of them take at most about one part in N of the budget.
const INDEX_PART: usize = 2;
/// Maximum number of blocks that an entry of a thin index covers: a lookup reads all of them.
const STRIDE_MAX: usize = 32;

/// The memory budget for run files. Indexes must fit; the rest holds as many blocks as possible.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    pub(super) bytes_max: usize,
    bytes: AtomicUsize,
    /// Memory of the indexes, in bytes.
    index_bytes: AtomicUsize,
}

/// A claimed part of a [`MemoryBudget`], which is returned on drop.
#[derive(Debug)]
pub(super) struct Claim {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryBudget {
    pub(super) fn new(bytes_max: usize) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget {
            bytes_max,
            bytes: AtomicUsize::new(0),
            index_bytes: AtomicUsize::new(0),
        })
    }

    /// Returns a budget without a limit.
    pub(super) fn unlimited() -> Arc<MemoryBudget> {
        MemoryBudget::new(usize::MAX)
    }

    /// Returns the bytes in use for blocks.
    pub(super) fn kept(&self) -> usize {
        self.bytes.load(Relaxed).saturating_sub(self.index_bytes.load(Relaxed))
    }

    /// Claims `bytes` bytes, if `spared` other bytes stay free.
    pub(super) fn claim(self: &Arc<Self>, bytes: usize, spared: usize) -> Option<Claim> {
        let reserve = self.bytes_max / INDEX_RESERVE_PART;
        let spared = spared.max(reserve.saturating_sub(self.index_bytes.load(Relaxed)));
        let more = |used: usize| {
            let wanted = used.checked_add(bytes)?;
            (wanted.checked_add(spared)? <= self.bytes_max).then_some(wanted)
        };
        self.bytes.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Claim { budget: self.clone(), bytes })
    }

    /// Claims the bytes of an index, even if they exceed the budget.
    pub(super) fn claim_index(self: &Arc<Self>, bytes: usize) -> IndexClaim {
        let mut claim = IndexClaim { budget: self.clone(), bytes: 0 };
        claim.set(bytes);
        claim
    }

    /// Returns the number of blocks per entry of an index whose full size is `bytes` bytes: 1 while
    /// much memory is free. An index takes at most half of the memory that is left for indexes, or
    /// one part in [`STRIDE_MAX`] of its full size.
    pub(super) fn index_stride(&self, bytes: usize) -> usize {
        let left = (self.bytes_max / INDEX_PART).saturating_sub(self.index_bytes.load(Relaxed)) / 2;
        let mut stride = 1;
        while stride < STRIDE_MAX && bytes / stride > left {
            stride *= 2;
        }
        stride
    }
}

/// The part of a [`MemoryBudget`] that an index takes, which is returned on drop.
#[derive(Debug)]
pub(super) struct IndexClaim {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl IndexClaim {
    /// Sets the size of the index, in bytes.
    pub(super) fn set(&mut self, bytes: usize) {
        for counter in [&self.budget.bytes, &self.budget.index_bytes] {
            counter.fetch_add(bytes, Relaxed);
            counter.fetch_sub(self.bytes, Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for IndexClaim {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Claim {
    /// Returns a part of the claim, down to `bytes`.
    fn shrink_to(&mut self, bytes: usize) {
        let spare = self.bytes.saturating_sub(bytes);
        self.budget.bytes.fetch_sub(spare, Relaxed);
        self.bytes -= spare;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// Blocks in memory.
#[derive(Debug, Default)]
struct Blocks {
    pieces: Vec<Buffer>,
    len: usize,
}

impl Blocks {
    fn push(&mut self, block: &Bytes) {
        if self.len.is_multiple_of(PIECE_BLOCKS) {
            self.pieces.push(Buffer::zeroed(PIECE_SIZE));
        }
        let start = self.len % PIECE_BLOCKS * BLOCK_SIZE;
        let piece = self.pieces.last_mut().expect("one was just made if there was none");
        piece[start..][..BLOCK_SIZE].copy_from_slice(block);
        self.len += 1;
    }

    fn get(&self, i: usize) -> Option<&Bytes> {
        let piece = self.pieces.get(i / PIECE_BLOCKS).filter(|_| i < self.len)?;
        piece[i % PIECE_BLOCKS * BLOCK_SIZE..].first_chunk()
    }

    fn bytes(&self) -> usize {
        self.pieces.len() * PIECE_SIZE
    }
}

/// The part of a run that is kept in memory.
pub(super) struct Resident {
    claim: Option<Claim>,
    blocks: Blocks,
    summary: Option<Box<SummaryBuilder>>,
}

/// A summary that is being built, and the index of its blocks.
struct SummaryBuilder {
    /// Number of low bits that the summary omits from each fingerprint.
    shift: u32,
    packer: Option<Packer>,
    sink: SummarySink,
    items: FingerprintBatch,
    /// The last fingerprint, if any.
    last: Option<u64>,
}

struct SummarySink {
    index: BlockIndex,
    blocks: Blocks,
}

impl BlockSink for SummarySink {
    fn take(&mut self, first: u64, block: &mut Bytes) -> Result<()> {
        self.index.push(first);
        self.blocks.push(block);
        Ok(())
    }
}

/// The answer of a resident part to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The fingerprint is not in the run.
    Absent,
    /// The fingerprint is in the run, with this count.
    Count(i64),
    /// The run must be read.
    Perhaps,
}

impl Resident {
    /// Returns the maximum number of bytes for the blocks of `items` fingerprints, if few have
    /// counts.
    pub(super) fn bytes_of(items: u64, universe: Universe) -> usize {
        let gap = universe.size() as f64 / items.max(1) as f64;
        let bits = gap.max(1.0).log2() + 2.2;
        (items as f64 * bits / 8.0 * 1.02) as usize + 2 * PIECE_SIZE
    }

    /// Plans what to keep of a run of `items` fingerprints: all blocks, a summary, or nothing.
    /// `spared` bytes of the budget stay free.
    pub(super) fn plan(
        budget: &Arc<MemoryBudget>,
        items: u64,
        universe: Universe,
        spared: usize,
    ) -> Option<Resident> {
        if let Some(claim) = budget.claim(Self::bytes_of(items, universe), spared) {
            return Some(Resident { claim: Some(claim), blocks: Blocks::default(), summary: None });
        }
        let gap_bits = (universe.size() / u128::from(items.max(1))).max(1).ilog2();
        let shift = gap_bits.saturating_sub(SUMMARY_BITS);
        let size = u128::from(universe.last() >> shift) + 1;
        let summarised = Universe::with_size(size).ok().filter(|_| shift > 1)?;
        let claim = budget.claim(Self::bytes_of(items, summarised), spared)?;
        let index = BlockIndex::new(summarised);
        let summary = SummaryBuilder {
            shift,
            packer: Some(Packer::new(summarised, index.cut_shift())),
            sink: SummarySink { index, blocks: Blocks::default() },
            items: FingerprintBatch::new(),
            last: None,
        };
        let summary = Some(Box::new(summary));
        Some(Resident { claim: Some(claim), blocks: Blocks::default(), summary })
    }

    /// Takes the next block of the run.
    pub(super) fn take_block(&mut self, _: u64, block: &Bytes) {
        if self.summary.is_none() && self.fits(self.blocks.bytes()) {
            self.blocks.push(block);
        }
    }

    /// Takes the next items of the run.
    pub(super) fn take_items(&mut self, items: &FingerprintBatch) -> Result<()> {
        let Some(summary) = &mut self.summary else { return Ok(()) };
        let bytes = summary.sink.blocks.bytes();
        summary.take(items)?;
        self.fits(bytes);
        Ok(())
    }

    /// Whether another piece fits in the budget; if not, nothing of the run is kept.
    fn fits(&mut self, bytes: usize) -> bool {
        let fits = self.claim.as_ref().is_some_and(|claim| bytes + PIECE_SIZE <= claim.bytes);
        if !fits {
            self.claim = None;
            self.blocks = Blocks::default();
        }
        fits
    }

    /// Finishes the resident part after all blocks and items. `None` if it did not fit.
    pub(super) fn finish(mut self) -> Result<Option<Resident>> {
        if let Some(summary) = &mut self.summary
            && let Some(packer) = summary.packer.take()
        {
            packer.finish(&mut summary.sink)?;
            summary.items = FingerprintBatch::new();
        }
        let Some(claim) = &mut self.claim else { return Ok(None) };
        let summary = self.summary.as_ref();
        let summary = summary.map_or(0, |it| it.sink.blocks.bytes() + it.sink.index.bytes());
        claim.shrink_to(self.blocks.bytes() + summary);
        Ok(Some(self))
    }

    /// Returns a block of the run, if the whole run is kept.
    #[inline]
    pub(super) fn block(&self, i: usize) -> Option<&Bytes> {
        self.blocks.get(i)
    }

    /// Whether the whole run is kept.
    pub(super) fn is_whole(&self) -> bool {
        self.summary.is_none()
    }

    /// Looks up a fingerprint. If it is in the run, it is in one of these blocks.
    pub(super) fn find(
        &self,
        fingerprint: u64,
        candidates: std::ops::Range<usize>,
    ) -> Result<Known> {
        let Some(summary) = &self.summary else {
            let count = find_in(&self.blocks, candidates, fingerprint)?;
            return Ok(count.map_or(Known::Absent, Known::Count));
        };
        let short = fingerprint >> summary.shift;
        let candidates = summary.sink.index.candidates(short);
        let count = find_in(&summary.sink.blocks, candidates, short)?;
        Ok(count.map_or(Known::Absent, |_| Known::Perhaps))
    }
}

fn find_in(
    blocks: &Blocks,
    candidates: std::ops::Range<usize>,
    fingerprint: u64,
) -> Result<Option<i64>> {
    for i in candidates {
        if let Some(block) = blocks.get(i)
            && let Some(count) = Block::new(block)?.find(fingerprint)?
        {
            return Ok(Some(count));
        }
    }
    Ok(None)
}

impl SummaryBuilder {
    fn take(&mut self, items: &FingerprintBatch) -> Result<()> {
        let short = &mut self.items.fingerprints;
        short.clear();
        short.extend(items.fingerprints.iter().map(|fingerprint| fingerprint >> self.shift));
        short.dedup();
        if !short.is_empty() && short.first() == self.last.as_ref() {
            short.remove(0);
        }
        self.last = short.last().copied().or(self.last);
        match &mut self.packer {
            Some(packer) => packer.push(&self.items, &mut self.sink),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Resident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_whole() { "whole" } else { "summary" };
        write!(f, "Resident({kind}, {} bytes)", self.claim.as_ref().map_or(0, |claim| claim.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 5 << 20;

    /// Checks that `count` indexes with a full size of `full_bytes` bytes fit in the budget.
    #[track_caller]
    fn check(full_bytes: usize, count: usize) {
        let budget = MemoryBudget::new(ROOM);
        let claims =
            (0..count).map(|_| budget.claim_index(full_bytes / budget.index_stride(full_bytes)));
        let claims: Vec<_> = claims.collect();
        assert!(budget.index_bytes.load(Relaxed) <= ROOM, "{full_bytes} {count}");
        drop(claims);
        assert_eq!((budget.bytes.load(Relaxed), budget.index_bytes.load(Relaxed)), (0, 0));
    }

    /// Issue 10: indexes were not counted.
    #[test]
    fn indexes_of_40_gb_of_runs_fit_in_the_budget() {
        for (full_bytes, count) in [(4, 1), (1 << 10, 40_000), (1 << 20, 40), (8 << 20, 5)] {
            check(full_bytes, count);
        }
        assert_eq!(MemoryBudget::new(ROOM).index_stride(ROOM / 4), 1);
        assert_eq!(MemoryBudget::new(ROOM).index_stride(ROOM / 4 + 2), 2);
        assert_eq!(MemoryBudget::new(0).index_stride(1 << 20), STRIDE_MAX);
        assert_eq!(MemoryBudget::unlimited().index_stride(1 << 40), 1);
    }

    #[test]
    fn kept_runs_leave_memory_for_indexes() {
        let budget = MemoryBudget::new(ROOM);
        let reserve = ROOM / INDEX_RESERVE_PART;
        assert!(budget.claim(ROOM - reserve + 1, 0).is_none());
        let kept = budget.claim(ROOM - reserve, 0).unwrap();
        let mut index = budget.claim_index(reserve);
        assert_eq!(budget.kept(), ROOM - reserve);
        drop(kept);
        // The index is counted once, so other claims lose nothing more.
        assert!(budget.claim(ROOM - reserve + 1, 0).is_none());
        index.set(2 * reserve);
        assert!(budget.claim(ROOM - 2 * reserve + 1, 0).is_none());
        assert!(budget.claim(ROOM - 2 * reserve, 0).is_some());
    }
}
