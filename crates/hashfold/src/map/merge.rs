//! Merges: the span, the packets and the changes in RAM of a group become a new span, or several if
//! the group is split.

use super::{
    batch::{Batch, cut, sizes},
    block::BlockKind,
    core::Core,
    group::{Group, Wear},
    item::Item,
    list::List,
    prefix::{DEPTH_MAX, Prefix},
    read::group_run,
    span::{Span, Stored},
};
use crate::{error::Result, run::Run};
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
    if stored.packets.is_empty() && lists.is_empty() {
        return Ok(());
    }
    let mut run = group_run(&*core.space.file, core.identity, &stored, &lists)?;
    let mut batch = Batch::default();
    while run.advance()? {
        batch.push(run.entry());
    }
    let mut new = Vec::new();
    write_spans(core, group.prefix, (&batch.items, &batch.bytes), &mut new)?;
    let freed = stored.filter_bytes();
    install(core, group, &lists, new);
    core.counters.filter_bytes.fetch_sub(freed, SeqCst);
    core.counters.merges.fetch_add(1, SeqCst);
    Ok(())
}

/// Writes the span of a key range, in halves while it has more blocks than a group may have.
fn write_spans(
    core: &Core,
    prefix: Prefix,
    (items, bytes): (&[Item], &[u8]),
    new: &mut Vec<Stored>,
) -> Result<()> {
    let starts = cut(items, |hash| prefix.fence(hash));
    let blocks_max = core.options.shape.span_blocks_max;
    if starts.len() as u64 > blocks_max && prefix.depth < DEPTH_MAX {
        return prefix.halves().into_iter().try_for_each(|half| {
            let part = &items[half.part(items, |item| item.hash)];
            write_spans(core, half, (part, bytes), new)
        });
    }
    if items.is_empty() {
        new.push(Stored::empty(prefix));
        return Ok(());
    }
    let (blocks, write) = core.write_blocks(BlockKind::Span, (items, bytes), &starts)?;
    let fences = starts.iter().map(|start| prefix.fence(items[*start].hash)).collect();
    let span = Arc::new(Span { blocks, write, fences, sizes: sizes(items) });
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
            list.for_each(|entry| {
                let at =
                    groups.partition_point(|group| group.prefix.start <= entry.hash.high()) - 1;
                groups[at].state().active.apply(entry, list.first_seq);
            });
        }
        state.is_replaced = true;
        let after: usize = groups.iter().map(|group| group.state().memory()).sum();
        core.counters.buffered_bytes.fetch_add(after, SeqCst);
        freed += before;
    });
    freed
}
