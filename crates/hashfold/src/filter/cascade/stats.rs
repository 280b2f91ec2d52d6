//! The statistics of a cascade filter. Reading them reads no run.

use super::catalog::{Identity, View};
use crate::{filter::Mode, fingerprints::Universe, key::Seed};

/// Sizes and counts of a cascade filter.
#[derive(Clone, Debug)]
pub struct CascadeStats {
    /// Seed that keys are hashed with.
    pub seed: Seed,
    /// Set or multiset.
    pub mode: Mode,
    /// Number of keys that the filter was made for.
    pub capacity: u64,
    /// Universe of the fingerprints.
    pub universe: Universe,
    /// Number of fingerprints in all runs and in memory. A fingerprint in several of them counts
    /// several times, and so do tombstones; after [`merge`](super::CascadeFilter::merge) the number
    /// is exact.
    pub items: u64,
    /// Number of fingerprints in memory only.
    pub pending: u64,
    /// Sequence number of the last change in runs.
    pub durable_seq: u64,
    /// Number of runs above the last level.
    pub upper_runs: u64,
    /// Number of runs in the last level, each of which holds a shard.
    pub shards: u64,
    /// Size of all runs, in bytes.
    pub file_bytes: u64,
    /// Memory of memtables, indexes and kept blocks of runs, in bytes.
    pub memory_bytes: u64,
    /// The existing epochs, oldest first.
    pub epochs: Vec<EpochStats>,
}

/// Sizes of one epoch.
#[derive(Clone, Copy, Debug)]
pub struct EpochStats {
    /// Number of the epoch.
    pub number: u64,
    /// Number of fingerprints in the epoch's runs.
    pub items: u64,
    /// Size of the epoch's runs, in bytes.
    pub file_bytes: u64,
}

impl CascadeStats {
    pub(super) fn new(identity: &Identity, view: &View, pending: u64, memory: u64) -> CascadeStats {
        let epochs = view.epochs.iter().rev().map(|epoch| EpochStats {
            number: epoch.number,
            items: epoch.runs().map(|run| run.facts.items).sum(),
            file_bytes: epoch.runs().map(|run| run.file_size).sum(),
        });
        let epochs: Vec<EpochStats> = epochs.collect();
        let shards = view.epochs.iter().flat_map(|epoch| &epoch.shards);
        let indexes: usize = view.runs().map(|run| run.index.bytes()).sum();
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

    /// Returns the current false-positive rate: the fraction of possible fingerprints that are in
    /// the filter. It is overestimated while some fingerprints count several times.
    pub fn false_positive_rate(&self) -> f64 {
        (self.items as f64 / self.universe.size() as f64).min(1.0)
    }

    /// Returns the bits on the device per fingerprint in runs.
    pub fn bits_per_item(&self) -> f64 {
        let items = self.items - self.pending;
        if items == 0 { 0.0 } else { self.file_bytes as f64 * 8.0 / items as f64 }
    }
}
