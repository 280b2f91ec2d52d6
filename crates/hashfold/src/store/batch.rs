//! A batch: puts and deletions for all chunks, in any order, sorted in parts.

use super::slot::{SLOTS, SlotMap, slot_of};
use crate::{
    error::Result,
    io::Disk,
    key::Seed,
    run::{MEMORY_BYTES_MIN, Run, SortOptions, Sorted, Sorter, SpillFiles},
    work::Executor,
};
use std::{ops::Range, path::Path, sync::Arc};

/// The name of spill files in the folder of tables, until they are unlinked.
pub(super) const SPILL: &str = "spill";

/// Maximum number of ranges of equal size that the chunks are divided into, each with a sorter.
const PARTS_MAX: u32 = 256;

/// A batch of puts and deletions in any order. The last change of a key counts.
///
/// The batch is sorted in parts, each of which has a range of chunks, so that tables of different
/// chunks are built in parallel.
#[derive(Debug)]
pub struct Batch {
    pub(super) slots: SlotMap,
    sorters: Sorters,
    parts: Vec<BatchPart>,
    /// The part of each slot.
    part_of_slot: Vec<u16>,
    /// Memory budget of all sorters together, in bytes.
    pub(super) memory_bytes: usize,
}

/// A range of chunks of a batch, and the sorter of its entries, if there are any.
#[derive(Debug)]
struct BatchPart {
    chunks: Range<u32>,
    sorter: Option<Box<Sorter>>,
}

/// The entries of a range of chunks, sorted.
pub(super) struct SortedPart {
    pub(super) chunks: Range<u32>,
    /// `None` if there are no entries.
    pub(super) run: Option<Sorted>,
}

/// The properties that all sorters of a batch have in common.
#[derive(Debug)]
struct Sorters {
    spill: Arc<SpillFiles>,
    seed: Seed,
    options: SortOptions,
}

impl Sorters {
    fn sorter(&self) -> Result<Sorter> {
        Sorter::sharing(self.spill.clone(), self.seed, self.options)
    }
}

impl Batch {
    /// Makes an empty batch. A part ends at each of the chunks `cuts`, and perhaps at others.
    pub(super) fn new(
        disk: &Arc<dyn Disk>,
        tables: &Path,
        seed: Seed,
        (slots, cuts): (SlotMap, &[u32]),
        options: SortOptions,
        executor: &Arc<dyn Executor>,
    ) -> Result<Batch> {
        let parts = parts(slots.chunks(), cuts);
        let memory_bytes = options.memory_bytes;
        let share = |bytes: usize| bytes / parts.len();
        let options = SortOptions {
            memory_bytes: share(memory_bytes).max(MEMORY_BYTES_MIN.min(memory_bytes)),
            cached_bytes: share(options.cached_bytes),
            ..options
        };
        let mut part_of_slot = vec![0; SLOTS as usize];
        for (number, chunks) in (0..).zip(&parts) {
            let range = slots.slots(chunks);
            part_of_slot[range.start as usize..range.end as usize].fill(number);
        }
        let (disk, path) = (disk.clone(), tables.join(SPILL));
        let spill = SpillFiles::new(disk, path, executor.clone(), parts.len() as u32);
        let sorters = Sorters { spill, seed, options };
        // An error of the options comes before the first entry.
        sorters.sorter()?;
        let parts = parts.into_iter().map(|chunks| BatchPart { chunks, sorter: None }).collect();
        Ok(Batch { slots, sorters, parts, part_of_slot, memory_bytes })
    }

    /// Adds a put, or a deletion if there is no value.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let number = match self.parts.len() {
            1 => 0,
            _ => usize::from(self.part_of_slot[slot_of(key) as usize]),
        };
        let part = &mut self.parts[number];
        match &mut part.sorter {
            Some(sorter) => sorter.push(key, value),
            none => none.insert(Box::new(self.sorters.sorter()?)).push(key, value),
        }
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
        let sorters = self.parts.iter().filter_map(|part| part.sorter.as_ref());
        sorters.map(|sorter| sorter.summary().entries_max).sum()
    }

    /// Returns the sorted entries of each part, in the order of chunks.
    pub(super) fn finish(self) -> Result<Vec<SortedPart>> {
        let finish = |part: BatchPart| {
            let run = part.sorter.map(|sorter| sorter.finish()).transpose()?;
            Ok(SortedPart { chunks: part.chunks, run })
        };
        self.parts.into_iter().map(finish).collect()
    }
}

/// Divides `chunks` chunks into ranges: at the chunks `cuts`, and into parts of equal size.
fn parts(chunks: u32, cuts: &[u32]) -> Vec<Range<u32>> {
    let equal = chunks.min(PARTS_MAX);
    let mut ends: Vec<u32> = (1..=equal).map(|i| i * chunks / equal).chain(cuts.to_vec()).collect();
    ends.sort_unstable();
    ends.dedup();
    let starts = [0].into_iter().chain(ends.clone());
    starts.zip(ends).map(|(start, end)| start..end).filter(|range| !range.is_empty()).collect()
}
