//! A group: the entries of a key range, in RAM and on the device.

use super::{
    block::BLOCK_SIZE,
    item::Content,
    large::Owner,
    list::List,
    prefix::Prefix,
    sizes::EntryBounds,
    span::Stored,
    sync::{Mutex, MutexGuard},
};
use crate::key::{KeyHash, Seed};
use std::sync::Arc;

/// A group of a map. Its lock is never held during I/O.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) prefix: Prefix,
    state: Mutex<GroupState>,
}

/// The state of a group. Newer changes are looked up first: those of `active`, then of `immutable`,
/// then of `stored`.
#[derive(Debug)]
pub(super) struct GroupState {
    /// The newest changes.
    pub(super) active: List,
    /// Changes that are being flushed or that a snapshot sees, newest first.
    pub(super) immutable: Vec<Arc<List>>,
    pub(super) stored: Arc<Stored>,
    pub(super) wear: Wear,
    /// Whether other groups have taken over the key range.
    pub(super) is_replaced: bool,
}

/// The cost that the packets of a group have caused, for the decision when to merge it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wear {
    /// Number of lookups since the group got its first packet.
    pub(super) lookups: u32,
    /// Number of lookups at which the group is merged.
    pub(super) lookups_max: u32,
    /// A random number from 0 to 1 that was drawn with the first packet.
    pub(super) draw: f64,
}

impl Wear {
    pub(super) const NONE: Wear = Wear { lookups: 0, lookups_max: u32::MAX, draw: 0.0 };
}

impl Group {
    /// Makes a group with this content on the device.
    pub(super) fn new(stored: Stored, seed: Seed) -> Arc<Group> {
        let prefix = stored.prefix;
        let state = GroupState {
            active: List::new(seed),
            immutable: Vec::new(),
            stored: Arc::new(stored),
            wear: Wear::NONE,
            is_replaced: false,
        };
        Arc::new(Group { prefix, state: Mutex::new(state) })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, GroupState> {
        self.state.lock().expect("nothing panics under this lock")
    }
}

impl GroupState {
    /// Finds a key among the changes in RAM. Returns its value, and the owner of a large value.
    pub(super) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<(Content<'_>, Option<&Owner>)> {
        let older = || self.immutable.iter().find_map(|list| list.find_owned(hash, key));
        self.active.find_owned(hash, key).or_else(older)
    }

    /// Ends the active list, and returns all lists, newest first.
    pub(super) fn end_active(&mut self, seed: Seed) -> &[Arc<List>] {
        if !self.active.is_empty() {
            let ended = std::mem::replace(&mut self.active, List::new(seed));
            self.immutable.insert(0, Arc::new(ended));
        }
        &self.immutable
    }

    /// Removes lists that the device has now. Returns the memory that they took, in bytes.
    pub(super) fn remove_lists(&mut self, lists: &[Arc<List>]) -> usize {
        let is_gone = |list: &Arc<List>| lists.iter().any(|gone| Arc::ptr_eq(gone, list));
        self.immutable.retain(|list| !is_gone(list));
        lists.iter().map(|list| list.memory()).sum()
    }

    /// Returns the number of changes in the lists, which only RAM and the log have.
    pub(super) fn listed(&self) -> u64 {
        let immutable: u64 = self.immutable.iter().map(|list| list.sizes().entries).sum();
        self.active.sizes().entries + immutable
    }

    /// Whether the group has no entries and no changes.
    pub(super) fn is_empty(&self) -> bool {
        let Stored { span, packets, .. } = &*self.stored;
        let has_lists = !self.active.is_empty() || !self.immutable.is_empty();
        span.is_none() && packets.is_empty() && !has_lists
    }

    /// Returns bounds on the number of entries. Those that have expired count until they are merged.
    pub(super) fn entries(&self) -> EntryBounds {
        let Stored { span, packets, .. } = &*self.stored;
        let lists = || [&self.active].into_iter().chain(self.immutable.iter().map(|list| &**list));
        let in_span = span.as_ref().map_or(0, |span| span.sizes.entries);
        let in_packets: u64 = packets.iter().map(|packet| packet.sizes.entries).sum();
        let changed = in_packets + self.listed();
        // Values in the newest list are newer than all others.
        let newest = lists().find(|list| !list.is_empty()).map_or(0, List::values);
        let put = in_packets + lists().map(List::values).sum::<u64>();
        EntryBounds { min: in_span.saturating_sub(changed) + newest, max: in_span + put }
    }

    /// Ends the group without a successor of its content.
    pub(super) fn replace_by_nothing(&mut self, seed: Seed) {
        self.active = List::new(seed);
        self.immutable.clear();
        self.stored = Arc::new(Stored::empty(self.stored.prefix));
        self.is_replaced = true;
    }

    /// Returns the memory of the lists, in bytes.
    pub(super) fn memory(&self) -> usize {
        let immutable: usize = self.immutable.iter().map(|list| list.memory()).sum();
        // An empty list has no memory.
        self.active.memory() + immutable
    }

    /// Returns the size of the keys and values in RAM, in bytes.
    pub(super) fn buffered_bytes(&self) -> u64 {
        let immutable: u64 = self.immutable.iter().map(|list| list.sizes().bytes).sum();
        self.active.sizes().bytes + immutable
    }

    /// Returns the size of the changes in RAM and in packets, as a number of blocks.
    pub(super) fn change_blocks(&self) -> u64 {
        self.stored.packet_blocks() + self.buffered_bytes().div_ceil(BLOCK_SIZE as u64)
    }

    /// Returns the sequence number of the oldest change in RAM; `u64::MAX` if there is none.
    pub(super) fn first_seq(&self) -> u64 {
        let immutable = self.immutable.iter().map(|list| list.first_seq);
        immutable.chain([self.active.first_seq]).min().expect("there is one at least")
    }
}
