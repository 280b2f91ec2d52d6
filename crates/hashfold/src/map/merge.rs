//! Merges: the span, the packets and the changes in RAM of a group, or of several that are joined,
//! become a new span, or several if a group is split.

use super::{
    batch::{Batch, cut, expiries, owners, sizes},
    block::BlockKind,
    core::Core,
    group::{Group, Wear},
    item::Item,
    large::Owner,
    mirroring,
    prefix::{DEPTH_MAX, Prefix},
    read::{Part, read_group},
    space::Blocks,
    span::{Span, Stored},
    view::View,
};
use crate::error::Result;
use std::sync::{Arc, atomic::Ordering::SeqCst};

/// A group that is being merged, in its state when the merge began.
struct Source {
    group: Arc<Group>,
    view: View,
}

impl Source {
    /// Ends the active list of a group; `None` if other groups have replaced it.
    fn begin(core: &Core, group: &Arc<Group>) -> Option<Source> {
        let mut state = group.state();
        if state.is_replaced {
            return None;
        }
        let view = View::of(&mut state, core.identity.seed);
        Some(Source { group: group.clone(), view })
    }

    /// Whether a merge would change the span.
    fn is_due(&self, core: &Core) -> bool {
        let View { stored, lists } = &self.view;
        !stored.packets.is_empty() || !lists.is_empty() || stored.expiries().has_expired(core.now())
    }

    /// Returns the number of entries and their size in bytes: upper bounds.
    fn sizes(&self) -> (usize, usize) {
        self.view.sizes().fold((0, 0), |(entries, bytes), sizes| {
            (entries + sizes.entries as usize, bytes + sizes.bytes as usize)
        })
    }
}

/// Merges a group. The new spans are in free blocks; readers of the old ones go on. The caller
/// holds `moving`.
///
/// # Errors
/// After an error, the group is as it was.
pub(super) fn merge(core: &Core, group: &Arc<Group>) -> Result<()> {
    match Source::begin(core, group) {
        Some(source) if source.is_due(core) => merge_all_of(core, group.prefix, &[source]),
        _ => Ok(()),
    }
}

/// Joins the groups that divide a key range, in order, to one. The caller holds `moving`.
///
/// # Errors
/// After an error, the groups are as they were.
pub(super) fn join(core: &Core, range: Prefix, groups: &[Arc<Group>]) -> Result<()> {
    let sources: Vec<Source> =
        groups.iter().filter_map(|group| Source::begin(core, group)).collect();
    assert_eq!(sources.len(), groups.len());
    merge_all_of(core, range, &sources)
}

/// Merges groups that divide a key range to one group, or to several if it is too large.
fn merge_all_of(core: &Core, range: Prefix, sources: &[Source]) -> Result<()> {
    let new = core.with_batch(|batch| write_merged(core, range, sources, batch))?;
    install(core, range, sources, new);
    // The last checkpoint keeps the old spans.
    sources.iter().for_each(|source| mirroring::give_up(&source.view.stored));
    let freed: u64 = sources.iter().map(|source| source.view.stored.packet_bytes()).sum();
    core.counters.packet_bytes.fetch_sub(freed, SeqCst);
    core.counters.merges.fetch_add(1, SeqCst);
    Ok(())
}

/// Reads groups that divide a key range to a batch, and writes what they are together.
fn write_merged(
    core: &Core,
    range: Prefix,
    sources: &[Source],
    batch: &mut Batch,
) -> Result<Vec<Stored>> {
    let now = core.now();
    let sizes = sources.iter().map(Source::sizes);
    let sizes = sizes.fold((0, 0), |sum, sizes| (sum.0 + sizes.0, sum.1 + sizes.1));
    batch.reserve(sizes.0, sizes.1);
    for Source { view: View { stored, lists }, .. } in sources {
        let part = Part { stored, lists, hashes: &stored.prefix.hashes(), now };
        read_group(&*core.space.file, core.identity, part, batch)?;
    }
    let mut new = Vec::new();
    let owner = |first: u64| sources.iter().find_map(|source| source.view.owner(first));
    let items = (&batch.items[..], &batch.bytes[..]);
    write_spans(core, &mut Core::write_blocks, range, items, &owner, &mut new)?;
    Ok(new)
}

/// A function that writes blocks which begin at some of the items, as [`Core::write_blocks`] does.
pub(super) type WriteBlocks<'a> =
    dyn FnMut(&Core, BlockKind, (&[Item], &[u8]), &[usize]) -> Result<(Blocks, u64)> + 'a;

/// Writes the span of a key range, in halves while it has more blocks than a group may have.
pub(super) fn write_spans<'a>(
    core: &Core,
    write: &mut WriteBlocks<'_>,
    prefix: Prefix,
    (items, bytes): (&[Item], &[u8]),
    owner: &dyn Fn(u64) -> Option<&'a Owner>,
    new: &mut Vec<Stored>,
) -> Result<()> {
    let starts = cut(items, |hash| prefix.fence(hash));
    let blocks_max = core.options.shape.span_blocks_max;
    if starts.len() as u64 > blocks_max && prefix.depth < DEPTH_MAX {
        return prefix.halves().into_iter().try_for_each(|half| {
            let items = &items[half.part(items, |item| item.hash)];
            write_spans(core, write, half, (items, bytes), owner, new)
        });
    }
    if items.is_empty() {
        new.push(Stored::empty(prefix));
        return Ok(());
    }
    let owners = owners((items, bytes), owner)?;
    let (blocks, write) = write(core, BlockKind::Span, (items, bytes), &starts)?;
    let fences = starts.iter().map(|start| prefix.fence(items[*start].hash)).collect();
    let (sizes, expiries) = (sizes(items), expiries((items, bytes)));
    let mirror = core.space.new_mirror();
    let span = Arc::new(Span { blocks, write, fences, sizes, owners, expiries, mirror });
    new.push(Stored { prefix, span: Some(span), packets: Vec::new() });
    Ok(())
}

/// Lets lookups use the new spans instead of the old ones and the lists.
fn install(core: &Core, range: Prefix, sources: &[Source], mut new: Vec<Stored>) {
    let freed = match sources {
        [source] if new.len() == 1 => {
            let mut state = source.group.state();
            state.stored = Arc::new(new.remove(0));
            state.wear = Wear::NONE;
            state.remove_lists(&source.view.lists)
        }
        _ => replace(core, range, sources, new),
    };
    core.counters.buffered_bytes.fetch_sub(freed, SeqCst);
}

/// Replaces groups by others. Returns the memory of the lists that are gone, in bytes.
fn replace(core: &Core, range: Prefix, sources: &[Source], new: Vec<Stored>) -> usize {
    let seed = core.identity.seed;
    let groups: Vec<Arc<Group>> = new.into_iter().map(|stored| Group::new(stored, seed)).collect();
    let mut freed = 0;
    core.directory.replace(range, &groups, || {
        freed = sources.iter().map(|source| hand_over(core, source, &groups)).sum();
        let after: usize = groups.iter().map(|group| group.state().memory()).sum();
        core.counters.buffered_bytes.fetch_add(after, SeqCst);
    });
    freed
}

/// Moves the changes that came since the merge began to the groups that replace a group. Returns
/// the memory of its lists, in bytes.
fn hand_over(core: &Core, source: &Source, groups: &[Arc<Group>]) -> usize {
    let mut state = source.group.state();
    let freed = state.remove_lists(&source.view.lists) + state.memory();
    let active = std::mem::replace(&mut state.active, core.new_list());
    let immutable = std::mem::take(&mut state.immutable);
    // Oldest first, so that newer changes replace older ones.
    for list in immutable.iter().rev().map(|list| &**list).chain([&active]) {
        list.for_each(|change| {
            let at = groups.partition_point(|group| group.prefix.start <= change.hash.high()) - 1;
            let owner = list.owner(change.content.value);
            groups[at].state().active.apply(change, list.first_seq, owner);
        });
    }
    state.is_replaced = true;
    freed
}
