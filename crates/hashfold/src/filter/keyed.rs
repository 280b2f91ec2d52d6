//! Filters of keys: a cascade filter that hashes the keys itself.

use super::{
    FilterOptions, Mode,
    cascade::{CascadeFilter, CascadeSettings, CascadeStats, Snapshot},
};
use crate::{
    error::{Error, Result},
    fingerprints::{Fingerprints, Universe},
    key::KeyHash,
    options::ReadOptions,
};
use std::{path::Path, thread};

/// A filter of keys on flash: was this key seen before? For more keys than fit in RAM.
///
/// A key that was inserted is always found. A key that was not inserted is found at the
/// false-positive rate that the user chooses: see [`FilterOptions`]. Changes are durable after
/// [`flush`](Filter::flush), [`sync`](Filter::sync) or [`close`](Filter::close). Dropping a filter
/// flushes it too, ignoring errors, unless the thread panics. Keys in batches are much faster than single keys.
///
/// One filter can be open in a folder at a time; any number of [`FilterReader`]s read it beside the
/// writer. [`CascadeFilter`] is the same filter with hashes in place of keys.
///
/// ```
/// # std::env::set_current_dir(std::env::temp_dir())?;
/// # let _ = std::fs::remove_dir_all("hashfold-seen");
/// use hashfold::{Filter, FilterOptions};
///
/// let mut seen = Filter::open_or_create("hashfold-seen", FilterOptions::exact())?;
/// assert!(seen.insert_unique("https://example.org/")?);
/// assert!(!seen.insert_unique("https://example.org/")?);
/// assert_eq!(seen.insert_unique_many(&["a", "b", "a"])?, [true, true, false]);
/// assert!(seen.contains("b")? && !seen.contains("c")?);
/// seen.close()?;
/// # std::fs::remove_dir_all("hashfold-seen")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Filter {
    cascade: CascadeFilter,
    /// Hashes of the keys of a batch.
    hashes: Vec<KeyHash>,
    /// Whether changes that are not durable may be lost.
    is_abandoned: bool,
}

impl Filter {
    /// Opens the filter in a folder, or creates one.
    ///
    /// # Errors
    /// `Argument` if the options ask for another kind of filter than the one that exists, `Busy` if
    /// it is open already, `WrongKind` if the folder has a data set of another kind.
    pub fn open_or_create(folder: impl AsRef<Path>, options: FilterOptions) -> Result<Filter> {
        let folder = folder.as_ref();
        let cascade = match CascadeFilter::open(folder, options.clone().into_settings()) {
            Ok(cascade) => cascade,
            Err(error) if error.is_absent() => return Filter::create(folder, options),
            Err(error) => return Err(error),
        };
        check_kind(&cascade, options.kind()?)?;
        Ok(Filter::from(cascade))
    }

    /// Creates a filter in a folder, which is created if it does not exist.
    ///
    /// # Errors
    /// `Exists` if there is a data set in the folder, `Busy` if another process writes there.
    pub fn create(folder: impl AsRef<Path>, options: FilterOptions) -> Result<Filter> {
        let new = options.cascade()?;
        CascadeFilter::create(folder.as_ref(), &new, options.into_settings()).map(Filter::from)
    }

    /// Opens the filter in a folder, with 256 MiB of memory and no log.
    ///
    /// # Errors
    /// `Absent` if there is none, `Busy` if it is open already.
    pub fn open(folder: impl AsRef<Path>) -> Result<Filter> {
        CascadeFilter::open(folder.as_ref(), CascadeSettings::default()).map(Filter::from)
    }

    /// Opens the filter in a folder, whatever kind it is, with the memory, the log and the environment of
    /// these options.
    ///
    /// # Errors
    /// The errors of [`Filter::open`].
    pub fn open_with(folder: impl AsRef<Path>, options: FilterOptions) -> Result<Filter> {
        CascadeFilter::open(folder.as_ref(), options.into_settings()).map(Filter::from)
    }

    /// Inserts a key.
    pub fn insert(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.cascade.insert(self.cascade.hash(key.as_ref()))
    }

    /// Inserts a batch of keys.
    pub fn insert_many<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Result<()> {
        self.hash_all(keys);
        self.cascade.insert_batch(&self.hashes)
    }

    /// Inserts a key unless it may be present. Returns whether it was inserted.
    pub fn insert_unique(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.cascade.insert_unique(self.cascade.hash(key.as_ref()))
    }

    /// Inserts the keys of a batch that are not present, and returns whether each was inserted: of
    /// several equal keys, only the first.
    pub fn insert_unique_many<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Result<Vec<bool>> {
        self.hash_all(keys);
        let mut is_new = vec![false; keys.len()];
        self.cascade.insert_unique_batch(&self.hashes, &mut is_new)?;
        Ok(is_new)
    }

    /// Removes a key that was inserted. The removal of a key that was never inserted has no effect,
    /// unless it is a false positive: then it removes the other key.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.cascade.remove(self.cascade.hash(key.as_ref()))
    }

    /// Removes a batch of keys.
    pub fn remove_many<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Result<()> {
        self.hash_all(keys);
        self.cascade.remove_batch(&self.hashes)
    }

    /// Whether a key may have been inserted. Takes about one device read.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.cascade.contains(self.cascade.hash(key.as_ref()))
    }

    /// Looks up many keys, with many device reads in flight. The result says for each whether it may
    /// have been inserted.
    pub fn contains_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<bool>> {
        let hashes: Vec<_> = keys.iter().map(|key| self.cascade.hash(key.as_ref())).collect();
        let mut found = vec![false; keys.len()];
        self.cascade.contains_batch(&hashes, &mut found)?;
        Ok(found)
    }

    /// Returns the number of insertions of a key without its removals: 0 or 1 in a set.
    pub fn count(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        self.cascade.count(self.cascade.hash(key.as_ref()))
    }

    /// Waits until all changes are durable in runs. Readers that open the filter then see them.
    ///
    /// # Errors
    /// Errors of writing, such as a full disk. No change is lost, and the next call tries again.
    pub fn flush(&mut self) -> Result<()> {
        self.cascade.flush()
    }

    /// Waits until all changes are durable: in the log, if there is one, or else in runs.
    ///
    /// # Errors
    /// The errors of [`Filter::flush`].
    pub fn sync(&mut self) -> Result<()> {
        self.cascade.sync()
    }

    /// Merges all runs into one level, where each lookup takes one device read. Waits until that is
    /// done. Without it, merges run in the background when they are due.
    pub fn merge(&mut self) -> Result<()> {
        self.cascade.merge()
    }

    /// Returns the filter's statistics. Reads nothing.
    pub fn stats(&self) -> CascadeStats {
        self.cascade.stats()
    }

    /// Makes all changes durable, and returns a reader of them, which other threads can use during
    /// further changes.
    pub fn reader(&mut self) -> Result<FilterReader> {
        self.cascade.snapshot().map(FilterReader)
    }

    /// Returns the filter that takes hashes in place of keys.
    pub fn cascade(&mut self) -> &mut CascadeFilter {
        &mut self.cascade
    }

    /// Makes all changes durable, and closes the filter.
    pub fn close(mut self) -> Result<()> {
        self.flush()
    }

    /// Closes the filter without making changes durable: before its folder is removed.
    pub fn abandon(mut self) {
        self.is_abandoned = true;
    }

    fn hash_all<K: AsRef<[u8]>>(&mut self, keys: &[K]) {
        let cascade = &self.cascade;
        self.hashes.clear();
        self.hashes.extend(keys.iter().map(|key| cascade.hash(key.as_ref())));
    }
}

impl From<CascadeFilter> for Filter {
    fn from(cascade: CascadeFilter) -> Filter {
        Filter { cascade, hashes: Vec::new(), is_abandoned: false }
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        // Errors cannot be returned from here; `close` returns them.
        if !self.is_abandoned && !thread::panicking() {
            let _ = self.flush();
        }
    }
}

/// Refuses a filter that is not what the options ask for.
fn check_kind(cascade: &CascadeFilter, expected: (Mode, Universe)) -> Result<()> {
    let got = (cascade.mode(), cascade.universe());
    if got == expected {
        return Ok(());
    }
    let name = |(mode, universe): (Mode, Universe)| {
        let mode = if mode == Mode::Set { "set" } else { "multiset" };
        format!("a {mode} with {} fingerprints", universe.size())
    };
    let folder = format!("{}, which is in the folder", name(got));
    Err(Error::argument("filter options", folder, name(expected)))
}

/// A reader of a filter at one moment, also while another process writes to it. Threads can share
/// it; clones read the same state.
#[derive(Clone, Debug)]
pub struct FilterReader(Snapshot);

impl FilterReader {
    /// Opens the durable state of the filter in a folder.
    ///
    /// # Errors
    /// `Absent` if there is no filter; `Busy` if another process changed it during each of 100
    /// attempts.
    pub fn open(folder: impl AsRef<Path>) -> Result<FilterReader> {
        FilterReader::open_with(folder, &ReadOptions::new())
    }

    /// Opens the durable state of the filter in a folder.
    ///
    /// # Errors
    /// The errors of [`FilterReader::open`].
    pub fn open_with(folder: impl AsRef<Path>, options: &ReadOptions) -> Result<FilterReader> {
        Snapshot::open(&options.env, folder.as_ref(), options.access()).map(FilterReader)
    }

    /// Whether a key may have been inserted. Takes about one device read.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.0.contains(self.0.hash(key.as_ref()))
    }

    /// Looks up many keys, with many device reads in flight. The result says for each whether it may
    /// have been inserted.
    pub fn contains_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<bool>> {
        let hashes: Vec<_> = keys.iter().map(|key| self.0.hash(key.as_ref())).collect();
        let mut found = vec![false; keys.len()];
        self.0.contains_batch(&hashes, &mut found)?;
        Ok(found)
    }

    /// Returns the number of insertions of a key without its removals: 0 or 1 in a set.
    pub fn count(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        let mut counts = [0];
        self.0.count_batch(&[self.0.hash(key.as_ref())], &mut counts)?;
        Ok(counts[0])
    }

    /// Returns all fingerprints in ascending order, with their counts.
    pub fn fingerprints(&self) -> Result<impl Fingerprints + use<>> {
        self.0.scan()
    }

    /// Returns all fingerprints in ascending order, with their counts, in small reads: for callers that
    /// stop early, such as samples.
    pub fn fingerprints_prefix(&self) -> Result<impl Fingerprints + use<>> {
        self.0.scan_prefix()
    }

    /// Returns the statistics of the filter at that moment.
    pub fn stats(&self) -> CascadeStats {
        self.0.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{env::Env, error::ErrorKind};

    fn options(env: &Env) -> FilterOptions {
        FilterOptions::exact().env(env.clone())
    }

    #[test]
    fn a_filter_that_is_dropped_is_durable_and_readers_see_it() {
        let env = Env::simulated(1);
        for wal in [false, true] {
            let folder = format!("filter-{wal}");
            let open = || Filter::open_or_create(&folder, options(&env).wal(wal)).unwrap();
            let mut filter = open();
            filter.insert("a").unwrap();
            filter.insert_many(&["b", "c"]).unwrap();
            filter.remove("c").unwrap();
            drop(filter);
            let mut filter = open();
            let keys = ["a", "b", "c", "d"];
            assert_eq!(filter.contains_many(&keys).unwrap(), [true, true, false, false]);
            assert_eq!(filter.insert_unique_many(&["d", "d"]).unwrap(), [true, false]);
            let reader = filter.reader().unwrap();
            filter.remove_many(&["a", "b"]).unwrap();
            filter.close().unwrap();
            assert_eq!(reader.contains_many(&keys).unwrap(), [true, true, false, true]);
            let reader = FilterReader::open_with(&folder, &ReadOptions::new().env(env.clone()));
            assert_eq!(reader.unwrap().contains_many(&keys).unwrap(), [false, false, false, true]);
        }
    }

    #[test]
    fn a_filter_that_is_abandoned_writes_nothing_more() {
        let env = Env::simulated(1);
        let mut filter = Filter::create("filter", options(&env)).unwrap();
        filter.insert("a").unwrap();
        filter.flush().unwrap();
        filter.insert("b").unwrap();
        filter.abandon();
        let filter = Filter::open_or_create("filter", options(&env)).unwrap();
        assert_eq!(filter.contains_many(&["a", "b"]).unwrap(), [true, false]);
    }

    #[test]
    fn a_multiset_counts_and_a_filter_of_another_kind_is_refused() {
        let env = Env::simulated(1);
        let folder = "filter";
        let mut filter = Filter::create(folder, options(&env).multiset()).unwrap();
        filter.insert_many(&["a", "b", "a"]).unwrap();
        assert_eq!((filter.count("a").unwrap(), filter.count("c").unwrap()), (2, 0));
        filter.close().unwrap();
        let error = Filter::open_or_create(folder, options(&env)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
        let error = Filter::create(folder, options(&env)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Exists), "{error}");
        let reader = FilterReader::open_with(folder, &ReadOptions::new().env(env)).unwrap();
        assert_eq!(reader.count("a").unwrap(), 2);
    }
}
