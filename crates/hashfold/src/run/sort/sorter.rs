//! [`Sorter`]: sorts entries in any order into a run.

use super::{
    distribute::Distributor,
    encode::Hasher,
    options::{MemoryPlan, SortOptions},
    sorted::Sorted,
    spill::{Spill, SpillFiles},
};
use crate::{
    error::Result,
    io::Disk,
    key::Seed,
    run::{Duplicates, Summary, check_sizes},
    work::Executor,
};
use std::{path::PathBuf, sync::Arc};

/// An external sort: takes entries in any order and returns them as a run, in bounded memory.
///
/// ```
/// use hashfold::{Seed, io::MemoryDisk, run::{Run, SortOptions, Sorter}, work::Inline};
/// use std::sync::Arc;
/// let (disk, executor) = (Arc::new(MemoryDisk::default()), Arc::new(Inline));
/// let mut sorter = Sorter::new(disk, "spill".into(), Seed(7), SortOptions::default(), executor)?;
/// sorter.push(b"key", Some(b"old"))?;
/// sorter.push(b"key", Some(b"new"))?;
/// sorter.push(b"gone", None)?;
/// let mut run = sorter.finish()?;
/// let mut values = Vec::new();
/// while run.advance()? {
///     values.push(run.entry().value.map(<[u8]>::to_vec));
/// }
/// values.sort();
/// assert_eq!(values, [None, Some(b"new".to_vec())]);
/// # Ok::<(), hashfold::Error>(())
/// ```
#[derive(Debug)]
pub struct Sorter {
    buckets: Distributor,
    summary: Summary,
    duplicates: Duplicates,
}

impl Sorter {
    /// Makes a sorter. If the entries exceed the memory budget, the sorter spills to files on
    /// `disk` that it creates under the name `spill` and unlinks at once. `executor` runs writing,
    /// loading and sorting.
    ///
    /// # Errors
    /// `Argument` if the memory budget is below [`MEMORY_BYTES_MIN`](super::MEMORY_BYTES_MIN).
    pub fn new(
        disk: Arc<dyn Disk>,
        spill: PathBuf,
        seed: Seed,
        options: SortOptions,
        executor: Arc<dyn Executor>,
    ) -> Result<Sorter> {
        Sorter::sharing(SpillFiles::new(disk, spill, executor, 1), seed, options)
    }

    /// Makes a sorter whose spill files belong to several sorters.
    ///
    /// # Errors
    /// The errors of [`Sorter::new`].
    pub(crate) fn sharing(
        files: Arc<SpillFiles>,
        seed: Seed,
        options: SortOptions,
    ) -> Result<Sorter> {
        let plan = MemoryPlan::new(&options)?;
        let spill = Spill::new(files, plan);
        Ok(Sorter {
            buckets: Distributor::new(spill, Hasher::new(seed), plan),
            summary: Summary::EMPTY,
            duplicates: options.duplicates,
        })
    }

    /// Adds an entry; `None` is a tombstone. If a key is added several times,
    /// [`SortOptions::duplicates`] decides.
    ///
    /// # Errors
    /// `Limit` if the key or the value is too long; I/O errors of the spill.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        check_sizes(key, value)?;
        self.buckets.push(key, value)?;
        self.summary.add(key, value);
        Ok(())
    }

    /// Returns the summary of the entries pushed so far; duplicates count as entries.
    pub fn summary(&self) -> Summary {
        self.summary
    }

    /// Ends the input and returns the run. The entries are sorted while the run is read.
    pub fn finish(mut self) -> Result<Sorted> {
        self.buckets.close()?;
        Ok(Sorted::new(self.buckets, self.summary, self.duplicates))
    }
}

#[cfg(test)]
pub(in crate::run) mod testing {
    //! Hooks for tests, which choose the hashes.
    use super::*;
    use crate::key::KeyHash;

    pub(in crate::run) fn sorter_with_hash(
        disk: Arc<dyn Disk>,
        hash: fn(&[u8]) -> KeyHash,
        options: SortOptions,
        executor: Arc<dyn Executor>,
    ) -> Sorter {
        let mut sorter = Sorter::new(disk, "spill".into(), Seed(0), options, executor).unwrap();
        sorter.buckets.hasher = Hasher::forged(hash);
        sorter
    }

    /// Returns the memory that a sorter has allocated for entries, in bytes.
    pub(in crate::run) fn allocated_bytes(sorter: &Sorter) -> usize {
        sorter.buckets.spill.memory_bytes()
    }
}
