//! What can be said of a filter without reading it.

use super::catalog::{Identity, View};
use crate::{filter::Mode, fingerprints::Universe, key::Seed};

/// Sizes and counts of a cascade filter.
#[derive(Clone, Debug)]
pub struct CascadeStats {
    /// Of the hashes.
    pub seed: Seed,
    /// A set or a multiset.
    pub mode: Mode,
    /// The keys that it was made for.
    pub capacity: u64,
    /// Its fingerprints.
    pub universe: Universe,
    /// Fingerprints in all runs and in memory. One that is in several of them counts several
    /// times, and so do tombstones: it is exact after [`compact`](super::CascadeFilter::compact).
    pub items: u64,
    /// Of these, in memory only.
    pub pending: u64,
    /// Changes told, from the beginning, that runs hold.
    pub durable_seq: u64,
    /// Runs above the last level.
    pub upper_runs: u64,
    /// Runs of the last level: parts of one run.
    pub shards: u64,
    /// Of all runs, in bytes.
    pub file_bytes: u64,
    /// In use for tables, indexes and what is kept of runs, in bytes.
    pub memory_bytes: u64,
    /// The epochs that are there, the oldest first.
    pub epochs: Vec<EpochStats>,
}

/// Sizes of one epoch.
#[derive(Clone, Copy, Debug)]
pub struct EpochStats {
    /// Its number.
    pub number: u64,
    /// Fingerprints in its runs.
    pub items: u64,
    /// Of its runs, in bytes.
    pub file_bytes: u64,
}

impl CascadeStats {
    pub(super) fn new(identity: &Identity, view: &View, pending: u64, memory: u64) -> CascadeStats {
        let epochs = view.epochs.iter().rev().map(|epoch| EpochStats {
            number: epoch.number,
            items: epoch.runs().map(|run| run.facts().items).sum(),
            file_bytes: epoch.runs().map(|run| run.file_size()).sum(),
        });
        let epochs: Vec<EpochStats> = epochs.collect();
        let shards = view.epochs.iter().flat_map(|epoch| &epoch.shards);
        let indexes: usize = view.runs().map(|run| run.index().bytes()).sum();
        CascadeStats {
            seed: identity.seed,
            mode: identity.mode,
            capacity: identity.capacity,
            universe: identity.universe,
            items: pending + epochs.iter().map(|epoch| epoch.items).sum::<u64>(),
            pending,
            durable_seq: view.seq,
            upper_runs: view.epochs.iter().map(|epoch| epoch.uppers.len() as u64).sum(),
            shards: shards.filter(|shard| shard.run.is_some()).count() as u64,
            file_bytes: epochs.iter().map(|epoch| epoch.file_bytes).sum(),
            memory_bytes: memory + indexes as u64,
            epochs,
        }
    }

    /// How often a key that is not in seems to be, as full as the filter is now: the part of all
    /// fingerprints that are in. More than that while some count several times.
    pub fn false_positive_rate(&self) -> f64 {
        (self.items as f64 / self.universe.size() as f64).min(1.0)
    }

    /// Bits on the device for each fingerprint in runs.
    pub fn bits_per_item(&self) -> f64 {
        let items = self.items - self.pending;
        if items == 0 { 0.0 } else { self.file_bytes as f64 * 8.0 / items as f64 }
    }
}
