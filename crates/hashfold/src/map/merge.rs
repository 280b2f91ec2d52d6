//! Merges: the span, the packets and the changes in RAM of a group become a new span, or several if
//! the group is split.

use super::{
    batch::{Batch, cut, expiries, owners, sizes},
    block::BlockKind,
    core::Core,
    group::{Group, Wear},
    item::Item,
    large::Owner,
    list::List,
    prefix::{DEPTH_MAX, Prefix},
    read::{Part, group_run},
    span::{Span, Stored},
};
use crate::error::Result;
use std::sync::{Arc, atomic::Ordering::SeqCst};

/// Merges a group. The new spans are in free blocks; readers of the old ones go on. The caller
/// holds `moving`.
///
/// # Errors
/// After an error, the group is as it was.
pub(super) fn merge(core: &Core, group: &Arc<Group>) -> Result<()> {
    let (stored, lists) = {
        let mut state = group.state();
        if state.is_replaced {
            return Ok(());
        }
        let lists = state.end_active(core.identity.seed).to_vec();
        (state.stored.clone(), lists)
    };
    let now = core.now();
    if stored.packets.is_empty() && lists.is_empty() && !stored.expiries().has_expired(now) {
        return Ok(());
    }
    let part = Part { stored: &stored, lists: &lists, hashes: &stored.prefix.hashes(), now };
    let mut run = group_run(&*core.space.file, core.identity, part)?;
    let mut batch = Batch::default();
    while run.advance()? {
        batch.push(run.change()?);
    }
    let mut new = Vec::new();
    let owner = |first: u64| {
        let in_lists = lists.iter().find_map(|list| list.owners.get(first));
        in_lists.or_else(|| stored.owner(first))
    };
    write_spans(core, group.prefix, (&batch.items, &batch.bytes), &owner, &mut new)?;
    let freed = stored.filter_bytes();
    install(core, group, &lists, new);
    core.counters.filter_bytes.fetch_sub(freed, SeqCst);
    core.counters.merges.fetch_add(1, SeqCst);
    Ok(())
}

/// Writes the span of a key range, in halves while it has more blocks than a group may have.
pub(super) fn write_spans<'a>(
    core: &Core,
    prefix: Prefix,
    (items, bytes): (&[Item], &[u8]),
    owner: &dyn Fn(u64) -> Option<&'a Owner>,
    new: &mut Vec<Stored>,
) -> Result<()> {
    let starts = cut(items, |hash| prefix.fence(hash));
    let blocks_max = core.options.shape.span_blocks_max;
    if starts.len() as u64 > blocks_max && prefix.depth < DEPTH_MAX {
        return prefix.halves().into_iter().try_for_each(|half| {
            let part = &items[half.part(items, |item| item.hash)];
            write_spans(core, half, (part, bytes), owner, new)
        });
    }
    if items.is_empty() {
        new.push(Stored::empty(prefix));
        return Ok(());
    }
    let owners = owners((items, bytes), owner)?;
    let (blocks, write) = core.write_blocks(BlockKind::Span, (items, bytes), &starts)?;
    let fences = starts.iter().map(|start| prefix.fence(items[*start].hash)).collect();
    let (sizes, expiries) = (sizes(items), expiries((items, bytes)));
    let span = Arc::new(Span { blocks, write, fences, sizes, owners, expiries });
    new.push(Stored { prefix, span: Some(span), packets: Vec::new() });
    Ok(())
}

/// Lets lookups use the new spans instead of the old one and the lists.
fn install(core: &Core, group: &Arc<Group>, lists: &[Arc<List>], mut new: Vec<Stored>) {
    let freed = if new.len() == 1 {
        let mut state = group.state();
        state.stored = Arc::new(new.remove(0));
        state.wear = Wear::NONE;
        state.remove_lists(lists)
    } else {
        split(core, group, lists, new)
    };
    core.counters.buffered_bytes.fetch_sub(freed, SeqCst);
}

/// Replaces a group by several. Returns the memory of the lists that are gone, in bytes.
fn split(core: &Core, group: &Group, lists: &[Arc<List>], new: Vec<Stored>) -> usize {
    let seed = core.identity.seed;
    let groups: Vec<Arc<Group>> = new.into_iter().map(|stored| Group::new(stored, seed)).collect();
    let mut freed = 0;
    core.directory.replace(group.prefix, &groups, || {
        let mut state = group.state();
        freed = state.remove_lists(lists);
        let before = state.memory();
        // Lists that came since the merge began; oldest first, so that newer changes replace older
        // ones.
        let active = std::mem::replace(&mut state.active, core.new_list());
        let immutable = std::mem::take(&mut state.immutable);
        for list in immutable.iter().rev().map(|list| &**list).chain([&active]) {
            list.for_each(|change| {
                let at =
                    groups.partition_point(|group| group.prefix.start <= change.hash.high()) - 1;
                let owner = list.owner(change.content.value);
                groups[at].state().active.apply(change, list.first_seq, owner);
            });
        }
        state.is_replaced = true;
        let after: usize = groups.iter().map(|group| group.state().memory()).sum();
        core.counters.buffered_bytes.fetch_add(after, SeqCst);
        freed += before;
    });
    freed
}
