//! A batch: puts and deletions for all chunks, in any order.

use super::slot::SlotMap;
use crate::{
    error::Result,
    io::Disk,
    key::Seed,
    run::{MEMORY_BYTES_MIN, Run, SortOptions, Sorted, Sorter},
    work::Executor,
};
use std::{path::Path, sync::Arc};

/// The prefix of the names of spill files in the folder of tables.
pub(super) const SPILL: &str = "spill-";

/// A batch of puts and deletions in any order. The last change of a key counts.
#[derive(Debug)]
pub struct Batch {
    pub(super) slots: SlotMap,
    sorters: Vec<Sorter>,
    /// Memory budget of all sorters together, in bytes.
    pub(super) memory_bytes: usize,
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
        // Each sorter has a spill name of its own: several threads create and unlink spill files at
        // once.
        let sorter = |chunk| {
            let spill = tables.join(format!("{SPILL}{chunk}"));
            Sorter::new(disk.clone(), spill, seed, options, executor.clone())
        };
        let sorters: Result<Vec<Sorter>> = (0..chunks).map(sorter).collect();
        Ok(Batch { slots, sorters: sorters?, memory_bytes })
    }

    /// Adds a put, or a deletion if there is no value.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.sorters[self.slots.chunk_of(key) as usize].push(key, value)
    }

    /// Adds all entries of a run: those with a value are puts, tombstones are deletions. The keys
    /// are hashed with the store's seed, whatever the seed of the run is.
    pub fn push_run(&mut self, run: &mut dyn Run) -> Result<()> {
        while run.advance()? {
            let entry = run.entry();
            self.push(entry.key, entry.value)?;
        }
        Ok(())
    }

    /// Returns the number of puts and deletions so far.
    pub fn entries(&self) -> u64 {
        self.sorters.iter().map(|sorter| sorter.summary().entries_max).sum()
    }

    /// Returns the sorted entries of each chunk.
    pub(super) fn finish(self) -> Result<Vec<Sorted>> {
        self.sorters.into_iter().map(Sorter::finish).collect()
    }
}
