//! Contraction, the inverse of a split: neighbouring groups that have become small are joined, so
//! that groups, catalog and memory shrink with the entries.
//!
//! Groups are joined if their entries and changes together take at most half of the blocks that a
//! group may have. So a group that was split or joined just now is far from both limits.

use super::{
    block::{BLOCK_SIZE, ENTRY_EXTRA_MAX},
    core::Core,
    group::Group,
    merge::join,
    sizes::Sizes,
};
use std::sync::Arc;

/// Joins a group with its neighbours, if they are small enough together: all groups of the largest
/// key range for which that holds. The caller holds `moving`. After an error, which is noted, the
/// groups are as they were: a neighbour that cannot be read must not stop changes to this group.
pub(super) fn contract(core: &Core, group: &Arc<Group>) {
    if group.state().is_replaced {
        return;
    }
    let shape = &core.options.shape;
    let is_valid = |depth| depth >= shape.first_depth;
    let mut found = None;
    let mut range = group.prefix;
    while let Some(parent) = range.parent().filter(|parent| is_valid(parent.depth)) {
        let groups = core.directory.within(parent);
        if bytes(&groups) > shape.span_blocks_max / 2 * BLOCK_SIZE as u64 {
            break;
        }
        found = Some((parent, groups));
        range = parent;
    }
    if let Some((range, groups)) = found {
        core.tasks.note(join(core, range, &groups));
    }
}

/// Returns the size that the entries and changes of groups may have in blocks, in bytes.
fn bytes(groups: &[Arc<Group>]) -> u64 {
    let of = |sizes: Sizes| sizes.bytes + sizes.entries * ENTRY_EXTRA_MAX as u64;
    let bytes = |group: &Arc<Group>| -> u64 {
        let state = group.state();
        let immutable = state.immutable.iter().map(|list| list.sizes());
        let lists = immutable.chain([state.active.sizes()]);
        let packets = state.stored.packets.iter().map(|packet| packet.sizes);
        let span = state.stored.span.iter().map(|span| span.sizes);
        lists.chain(packets).chain(span).map(of).sum()
    };
    groups.iter().map(bytes).sum()
}
