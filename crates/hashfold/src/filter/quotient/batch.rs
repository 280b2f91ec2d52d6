//! Batches of keys: the blocks of later keys are prefetched during the lookup of earlier ones.

use super::{
    block::SlotBlocks,
    filter::{Full, QuotientFilter},
    kernel::{ForLayout, Kernel, KernelTask, LayoutTask},
    layout::{BLOCK_SLOTS, SlotLayout},
    storage::Storage,
};
use crate::{
    error::Result,
    key::KeyHash,
    run::prefetch::{CACHE_LINE_BYTES, prefetch},
};

/// Number of keys by which blocks are prefetched: operations on that many keys take longer than a
/// read from memory.
const AHEAD: usize = 32;

impl QuotientFilter {
    /// Inserts keys. `new[i]` is set to whether the fingerprint of `hashes[i]` was absent.
    ///
    /// After an error, the keys before the failed key are inserted. The others are not, and their
    /// `new[i]` is `false`.
    ///
    /// # Panics
    /// If `new` is not as long as `hashes`.
    pub fn insert_batch(&mut self, hashes: &[KeyHash], new: &mut [bool]) -> Result<()> {
        assert_eq!(hashes.len(), new.len());
        new.fill(false);
        let (machine, mut done) = (self.machine, 0);
        while done < hashes.len() {
            let (hashes, new) = (&hashes[done..], &mut new[done..]);
            let insert = InsertBatch { filter: &mut *self, hashes, new };
            let (inserted, full) = machine.run(ForLayout(insert));
            done += inserted;
            if let Some(full) = full {
                self.make_room(full)?;
            }
        }
        Ok(())
    }

    /// Removes keys. `removed[i]` is set to whether the fingerprint of `hashes[i]` was present.
    ///
    /// # Panics
    /// If `removed` is not as long as `hashes`.
    pub fn remove_batch(&mut self, hashes: &[KeyHash], removed: &mut [bool]) {
        assert_eq!(hashes.len(), removed.len());
        self.machine.run(RemoveBatch { filter: self, hashes, removed });
    }
}

impl<S: Storage> QuotientFilter<S> {
    /// Looks up keys. `found[i]` is set to whether `hashes[i]` may be present.
    ///
    /// # Panics
    /// If `found` is not as long as `hashes`.
    pub fn contains_batch(&self, hashes: &[KeyHash], found: &mut [bool]) {
        assert_eq!(hashes.len(), found.len());
        self.machine.run(ForLayout(ContainsBatch { filter: self, hashes, found }));
    }

    /// Counts keys. `counts[i]` is set to the count of `hashes[i]`.
    ///
    /// # Panics
    /// If `counts` is not as long as `hashes`.
    pub fn count_batch(&self, hashes: &[KeyHash], counts: &mut [u64]) {
        assert_eq!(hashes.len(), counts.len());
        self.machine.run(CountBatch { filter: self, hashes, counts });
    }

    /// Prefetches the block of a fingerprint's quotient and the next block, into which a full
    /// filter shifts chains.
    ///
    /// The number of cache lines differs from block to block, and a branch on it would be
    /// mispredicted. So the maximum number is fetched; if a block has fewer lines, the last one is
    /// fetched twice.
    #[inline(always)]
    pub(super) fn fetch(&self, layout: SlotLayout, fingerprint: u64) {
        let size = layout.block_bytes();
        let start = layout.quotient(fingerprint) / BLOCK_SLOTS * size;
        let blocks = self.storage.blocks();
        for at in (0..2 * size).step_by(CACHE_LINE_BYTES) {
            prefetch(blocks, start + at);
        }
        prefetch(blocks, start + 2 * size - 1);
    }

    /// Prefetches the first blocks of a batch.
    #[inline(always)]
    fn fetch_first(&self, layout: SlotLayout, hashes: &[KeyHash]) {
        for &hash in hashes.iter().take(AHEAD) {
            self.fetch(layout, self.universe.fingerprint(hash));
        }
    }

    /// Prefetches the block of a key [`AHEAD`] keys after this one.
    #[inline(always)]
    fn fetch_after(&self, layout: SlotLayout, hashes: &[KeyHash], i: usize) {
        if let Some(&hash) = hashes.get(i + AHEAD) {
            self.fetch(layout, self.universe.fingerprint(hash));
        }
    }
}

struct InsertBatch<'a> {
    filter: &'a mut QuotientFilter,
    hashes: &'a [KeyHash],
    new: &'a mut [bool],
}

impl LayoutTask for InsertBatch<'_> {
    /// The number of inserted keys, and the reason why the next key was not inserted.
    type Output = (usize, Option<Full>);

    #[inline(always)]
    fn layout(&self) -> SlotLayout {
        self.filter.layout
    }

    #[inline(always)]
    fn run<K: Kernel>(self, layout: SlotLayout) -> Self::Output {
        let InsertBatch { filter, hashes, new } = self;
        filter.fetch_first(layout, hashes);
        for (i, (&hash, new)) in hashes.iter().zip(new).enumerate() {
            filter.fetch_after(layout, hashes, i);
            match filter.insert_with::<K>(layout, filter.universe.fingerprint(hash)) {
                Ok(is_new) => *new = is_new,
                Err(full) => return (i, Some(full)),
            }
        }
        (hashes.len(), None)
    }
}

struct RemoveBatch<'a> {
    filter: &'a mut QuotientFilter,
    hashes: &'a [KeyHash],
    removed: &'a mut [bool],
}

impl KernelTask for RemoveBatch<'_> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self) {
        let RemoveBatch { filter, hashes, removed } = self;
        filter.fetch_first(filter.layout, hashes);
        for (i, (&hash, removed)) in hashes.iter().zip(removed).enumerate() {
            filter.fetch_after(filter.layout, hashes, i);
            *removed = filter.remove_with::<K>(filter.universe.fingerprint(hash));
        }
    }
}

struct ContainsBatch<'a, S> {
    filter: &'a QuotientFilter<S>,
    hashes: &'a [KeyHash],
    found: &'a mut [bool],
}

impl<S: Storage> LayoutTask for ContainsBatch<'_, S> {
    type Output = ();

    #[inline(always)]
    fn layout(&self) -> SlotLayout {
        self.filter.layout
    }

    #[inline(always)]
    fn run<K: Kernel>(self, layout: SlotLayout) {
        let ContainsBatch { filter, hashes, found } = self;
        let blocks = SlotBlocks { layout, ..filter.blocks() };
        filter.fetch_first(layout, hashes);
        for (i, (&hash, found)) in hashes.iter().zip(found).enumerate() {
            filter.fetch_after(layout, hashes, i);
            *found = blocks.contains::<K>(filter.universe.fingerprint(hash));
        }
    }
}

struct CountBatch<'a, S> {
    filter: &'a QuotientFilter<S>,
    hashes: &'a [KeyHash],
    counts: &'a mut [u64],
}

impl<S: Storage> KernelTask for CountBatch<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run<K: Kernel>(self) {
        let CountBatch { filter, hashes, counts } = self;
        filter.fetch_first(filter.layout, hashes);
        for (i, (&hash, count)) in hashes.iter().zip(counts).enumerate() {
            filter.fetch_after(filter.layout, hashes, i);
            *count = filter.count_with::<K>(filter.universe.fingerprint(hash));
        }
    }
}
