//! What all simulated indexes do.

use super::device::Counts;

/// A simulated index of records of 16 bytes. Keys are known by their hashes only, and buckets by their
/// numbers of records: which record of a bucket a request means is drawn at random.
pub trait Index {
    /// Inserts a new key.
    fn insert(&mut self, hash: u64);
    /// Changes the value of a present key.
    fn update(&mut self, hash: u64);
    /// Looks up a present key.
    fn search(&mut self, hash: u64);
    /// Looks up an absent key.
    fn miss(&mut self, hash: u64);
    /// Merges everything that waits to be merged.
    fn settle(&mut self) {}
    fn counts(&self) -> Counts;
    /// Returns a copy that can go on alone.
    fn fork(&self) -> Box<dyn Index>;
}
