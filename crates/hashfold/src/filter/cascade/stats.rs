//! The statistics of a cascade filter. Reading them reads no run.

use super::{
    catalog::{Identity, View},
    window::Window,
};
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
    /// How long keys are kept, if the filter forgets them by time.
    pub window: Option<Window>,
    /// The growth beyond the capacity that was allowed when the filter was made.
    pub expansion: Option<u32>,
    /// Number of fingerprints in all runs and in memory, with tombstones. A fingerprint in several
    /// of them counts several times, until they are [merged](super::CascadeFilter::merge).
    pub fingerprints: u64,
    /// Number of tombstones among the fingerprints in run files: removals, until they are merged
    /// with the insertions that they cancel.
    pub tombstones: u64,
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
    /// Number of fingerprints in the epoch's runs, with tombstones.
    pub fingerprints: u64,
    /// Size of the epoch's runs, in bytes.
    pub file_bytes: u64,
}

impl CascadeStats {
    pub(super) fn new(identity: &Identity, view: &View, pending: u64, memory: u64) -> CascadeStats {
        let epochs = view.epochs.iter().rev().map(|epoch| EpochStats {
            number: epoch.number,
            fingerprints: epoch.runs().map(|run| run.facts.items).sum(),
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
            window: identity.window,
            expansion: identity.expansion,
            fingerprints: pending + epochs.iter().map(|epoch| epoch.fingerprints).sum::<u64>(),
            tombstones: view.runs().map(|run| run.facts.negative).sum(),
            pending,
            durable_seq: view.seq,
            upper_runs: view.epochs.iter().map(|epoch| epoch.uppers.len() as u64).sum(),
            shards: shards.filter(|shard| shard.run.is_some()).count() as u64,
            file_bytes: epochs.iter().map(|epoch| epoch.file_bytes).sum(),
            memory_bytes: memory + indexes as u64,
            epochs,
        }
    }

    /// Returns the maximum number of keys that the filter may hold: its fingerprints without the
    /// tombstones. A key in several runs counts several times; keys that share a fingerprint count
    /// once.
    pub fn keys_max(&self) -> u64 {
        self.fingerprints - self.tombstones
    }

    /// Whether [`keys_max`](CascadeStats::keys_max) is the number of keys, because all runs of all
    /// epochs are merged. Keys that share a fingerprint count once.
    pub fn is_merged(&self) -> bool {
        self.upper_runs == 0 && self.pending == 0 && self.epochs.len() == 1
    }

    /// Returns the maximum fill: [`keys_max`](CascadeStats::keys_max) divided by the capacity. Above
    /// 1, the false-positive rate is above the promised one by the same factor.
    pub fn fill(&self) -> f64 {
        self.keys_max() as f64 / self.capacity as f64
    }

    /// Returns the maximum false-positive rate at present: the fraction of all possible
    /// fingerprints that are in the filter.
    pub fn false_positive_rate(&self) -> f64 {
        (self.keys_max() as f64 / self.universe.size() as f64).min(1.0)
    }

    /// Returns the false-positive rate that was chosen when the filter was made: the rate with as
    /// many fingerprints as its capacity.
    pub fn false_positive_rate_promised(&self) -> f64 {
        (self.capacity as f64 / self.universe.size() as f64).min(1.0)
    }

    /// Returns the bits on the device per fingerprint in runs.
    pub fn bits_per_fingerprint(&self) -> f64 {
        let in_runs = self.fingerprints - self.pending;
        if in_runs == 0 { 0.0 } else { self.file_bytes as f64 * 8.0 / in_runs as f64 }
    }
}
