//! A group at one moment: what is on the device, and the changes in RAM.

use super::{group::GroupState, large::Owner, list::List, sizes::Sizes, span::Stored};
use crate::key::Seed;
use std::sync::Arc;

/// A group at one moment.
pub(super) struct View {
    pub(super) stored: Arc<Stored>,
    /// The changes in RAM, newest first.
    pub(super) lists: Vec<Arc<List>>,
}

impl View {
    /// Returns all of a group, whose active list ends.
    pub(super) fn of(state: &mut GroupState, seed: Seed) -> View {
        let lists = state.end_active(seed).to_vec();
        View { stored: state.stored.clone(), lists }
    }

    /// Returns the owner of a large value.
    pub(super) fn owner(&self, first: u64) -> Option<&Owner> {
        let in_lists = self.lists.iter().find_map(|list| list.owners.get(first));
        in_lists.or_else(|| self.stored.owner(first))
    }

    /// Returns the sizes of all lists, of the packets and of the span. A key may be in several.
    pub(super) fn sizes(&self) -> impl Iterator<Item = Sizes> {
        let lists = self.lists.iter().map(|list| list.sizes());
        let packets = self.stored.packets.iter().map(|packet| packet.sizes);
        lists.chain(packets).chain(self.stored.span.iter().map(|span| span.sizes))
    }
}
