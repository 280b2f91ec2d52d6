//! Figures of tables in RAM.

use super::index::Index;

/// Figures of a [`GroupTable`](super::GroupTable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Number of keys.
    pub keys: u64,
    /// Memory of the table in bytes: resident, or being populated ahead of its use. Copies for snapshots are included.
    pub bytes: u64,
    /// Bytes of chunks that no group uses and that were not given back to the system.
    pub free_bytes: u64,
    /// Bytes of copies of groups for snapshots.
    pub snapshot_bytes: u64,
    /// Number of groups.
    pub groups: u64,
    /// Number of times that a group was rebuilt: it grew, split, or shrank, or one of two groups that merged.
    pub rebuilds: u64,
    /// Number of keys that moved when groups were rebuilt.
    pub moved_keys: u64,
}

impl GroupStats {
    /// Adds the figures of a shard.
    pub(super) fn add(&mut self, index: &Index) {
        self.keys += index.count;
        self.bytes += index.bytes();
        self.free_bytes += index.chunks.free_bytes();
        self.snapshot_bytes += index.snapshots.bytes();
        self.groups += index.groups.units();
        self.rebuilds += index.rebuilds;
        self.moved_keys += index.moved;
    }
}

/// Figures of an [`AppendTable`](super::AppendTable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppendStats {
    /// Number of keys.
    pub keys: u64,
    /// Total size of all keys and values, in bytes.
    pub data_bytes: u64,
    /// Memory of the table in bytes: resident, or being populated ahead of its use. Copies for snapshots are included.
    pub bytes: u64,
    /// Memory of the index in bytes.
    pub index_bytes: u64,
    /// Total size of the blocks in use, in bytes.
    pub block_bytes: u64,
    /// Total size of the pages with blocks in use, in bytes.
    pub page_bytes: u64,
    /// Number of blocks that are freed when snapshots end.
    pub deferred_blocks: u64,
    /// Bytes of copies of groups for snapshots.
    pub snapshot_bytes: u64,
    /// Number of groups.
    pub groups: u64,
    /// Number of times that a group was rebuilt: it grew, split, or shrank, or one of two groups that merged.
    pub rebuilds: u64,
}

impl AppendStats {
    /// Returns the memory beside keys and values, in bytes per key; 0 without keys.
    pub fn overhead_per_key(&self) -> f64 {
        (self.bytes.saturating_sub(self.data_bytes)) as f64 / self.keys.max(1) as f64
    }
}
