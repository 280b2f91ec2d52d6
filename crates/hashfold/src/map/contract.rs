//! Contraction, the inverse of a split: neighbouring groups that have become small are joined, so
//! that groups, catalog and memory shrink with the entries.
//!
//! Groups are joined if their entries and changes together take at most half of the blocks that a
//! group may have. So a group that was split or joined just now is far from both limits.

use super::{core::Core, group::Group, merge::join};
use crate::error::{ErrorClass, Result};
use std::sync::Arc;

/// Joins a group with its neighbours, if they are small enough together: all groups of the largest
/// key range for which that holds. The caller holds `moving`.
///
/// # Errors
/// After an error, the groups are as they were. Damage is noted, and not returned.
pub(super) fn contract(core: &Core, group: &Arc<Group>) -> Result<()> {
    if group.state().is_replaced {
        return Ok(());
    }
    let shape = &core.options.shape;
    let is_valid = |depth| depth >= shape.first_depth;
    let mut found = None;
    let mut range = group.prefix;
    while let Some(parent) = range.parent().filter(|parent| is_valid(parent.depth)) {
        let groups = core.directory.within(parent);
        if blocks(&groups) > shape.span_blocks_max / 2 {
            break;
        }
        found = Some((parent, groups));
        range = parent;
    }
    match found.map_or(Ok(()), |(range, groups)| join(core, range, &groups)) {
        // Damage of a neighbour must not stop changes to this group.
        Err(error) if error.class() == ErrorClass::Damage => {
            core.tasks.note(Err(error));
            Ok(())
        }
        joined => joined,
    }
}

/// Returns the size of the entries and changes of groups, as a number of blocks.
fn blocks(groups: &[Arc<Group>]) -> u64 {
    let blocks = |group: &Arc<Group>| {
        let state = group.state();
        state.stored.span_blocks() + state.change_blocks()
    };
    groups.iter().map(blocks).sum()
}
