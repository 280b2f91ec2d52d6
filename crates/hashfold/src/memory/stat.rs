//! Figures of tables in RAM.

use super::index::Index;

/// Figures of a [`GroupTable`](super::GroupTable).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Number of keys.
    pub keys: u64,
    /// Memory of the table in bytes: resident, or being populated ahead of its use. Copies for snapshots are included.
    pub bytes: u64,
    /// Bytes of chunks that no group uses.
    pub free_bytes: u64,
    /// Bytes of copies of groups for snapshots.
    pub snapshot_bytes: u64,
    /// Number of groups.
    pub groups: u64,
    /// Number of times that a group was built anew, to grow, to split or to shrink.
    pub rebuilds: u64,
    /// Number of keys that moved when groups were built anew.
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
