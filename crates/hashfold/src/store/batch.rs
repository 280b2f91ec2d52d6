//! A batch: puts and deletions for all chunks, in any order.

use super::slot::SlotMap;
use crate::{
    error::Result,
    io::Disk,
    key::Seed,
    run::{MEMORY_BYTES_MIN, SortOptions, Sorted, Sorter},
    work::Executor,
};
use std::{path::Path, sync::Arc};

/// Names of spills in the folder of tables begin so.
pub(super) const SPILL: &str = "spill-";

/// Takes puts and deletions in any order; of one key the last one counts.
#[derive(Debug)]
pub struct Batch {
    slots: SlotMap,
    sorters: Vec<Sorter>,
    /// The memory that all sorters share.
    memory_bytes: usize,
}

impl Batch {
    pub(super) fn new(
        disk: &Arc<dyn Disk>,
        tables: &Path,
        seed: Seed,
        slots: SlotMap,
        options: SortOptions,
        executor: &Arc<dyn Executor>,
    ) -> Result<Batch> {
        let chunks = slots.chunks() as usize;
        let memory_bytes = options.memory_bytes;
        let share = |bytes: usize| bytes / chunks;
        let options = SortOptions {
            memory_bytes: share(options.memory_bytes)
                .max(MEMORY_BYTES_MIN.min(options.memory_bytes)),
            cached_bytes: share(options.cached_bytes),
            ..options
        };
        // Each has a spill of its own: files of one name, made and unnamed by several threads at
        // once, would be mixed up.
        let sorter = |chunk| {
            let spill = tables.join(format!("{SPILL}{chunk}"));
            Sorter::new(disk.clone(), spill, seed, options, executor.clone())
        };
        let sorters: Result<Vec<Sorter>> = (0..chunks).map(sorter).collect();
        Ok(Batch { slots, sorters: sorters?, memory_bytes })
    }

    /// Puts a key, or deletes it if there is no value.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.sorters[self.slots.chunk_of(key) as usize].push(key, value)
    }

    /// How many puts and deletions there are so far.
    pub fn entries(&self) -> u64 {
        self.sorters.iter().map(|sorter| sorter.summary().entries_max).sum()
    }

    pub(super) fn slots(&self) -> SlotMap {
        self.slots
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The sorted entries of each chunk.
    pub(super) fn finish(self) -> Result<Vec<Sorted>> {
        self.sorters.into_iter().map(Sorter::finish).collect()
    }
}
