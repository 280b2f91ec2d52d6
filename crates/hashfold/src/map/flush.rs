//! Flushes: the changes of several groups become packets, in one write.

use super::{
    batch::{Batch, owners, sizes},
    block::{BlockKind, fitting},
    bloom::Bloom,
    core::Core,
    group::Group,
    list::List,
    read::read_lists,
    rental,
    space::Blocks,
    span::{Packet, Stored},
};
use crate::error::Result;
use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering::SeqCst},
};

/// The changes of a group that are being flushed.
struct Part {
    group: Arc<Group>,
    lists: Vec<Arc<List>>,
    /// The items of the batch that are the group's.
    items: Range<usize>,
}

/// Writes the changes in RAM of these groups, which are in order. The caller holds `moving`.
///
/// # Errors
/// After an error, the changes are still in RAM.
pub(super) fn flush(core: &Core, groups: &[Arc<Group>]) -> Result<()> {
    core.with_batch(|batch| flush_with(core, groups, batch))
}

/// Flushes groups through an empty batch.
fn flush_with(core: &Core, groups: &[Arc<Group>], batch: &mut Batch) -> Result<()> {
    let now = core.now();
    let mut parts = Vec::new();
    for group in groups {
        let lists = group.state().end_active(core.identity.seed).to_vec();
        if lists.is_empty() {
            continue;
        }
        let start = batch.items.len();
        read_lists(&lists, now, batch);
        parts.push(Part { group: group.clone(), lists, items: start..batch.items.len() });
    }
    let mut starts = Vec::new();
    let mut at = 0;
    while at < batch.items.len() {
        starts.push(at);
        at += fitting(&batch.items[at..]);
    }
    if starts.is_empty() {
        return Ok(());
    }
    let (blocks, write) =
        core.write_blocks(BlockKind::Packets, (&batch.items, &batch.bytes), &starts)?;
    let blocks: Vec<Arc<Blocks>> = blocks.split().into_iter().map(Arc::new).collect();
    for part in &parts {
        let packets = packets(batch, &starts, part, (&blocks, write))?;
        install(core, part, packets);
    }
    core.counters.flushes.fetch_add(1, SeqCst);
    Ok(())
}

/// Returns the packets of the items of one group: one for each block that has some of them.
fn packets(
    batch: &Batch,
    starts: &[usize],
    Part { items, lists, .. }: &Part,
    (blocks, write): (&[Arc<Blocks>], u64),
) -> Result<Vec<Arc<Packet>>> {
    let owner = |first: u64| lists.iter().find_map(|list| list.owners.get(first));
    let mut packets = Vec::new();
    let mut block = starts.partition_point(|start| *start <= items.start) - 1;
    let mut at = items.start;
    while at < items.end {
        let end = starts.get(block + 1).map_or(items.end, |start| items.end.min(*start));
        let items = &batch.items[at..end];
        packets.push(Arc::new(Packet {
            block: blocks[block].clone(),
            write,
            filter: Bloom::of(items.iter().map(|item| item.hash)),
            sizes: sizes(items),
            owners: owners((items, &batch.bytes), owner)?,
        }));
        (at, block) = (end, block + 1);
    }
    Ok(packets)
}

/// Lets lookups use the packets instead of the lists.
fn install(core: &Core, part: &Part, mut packets: Vec<Arc<Packet>>) {
    let added: u64 = packets.iter().map(|packet| packet.memory()).sum();
    core.counters.packet_bytes.fetch_add(added, SeqCst);
    let mut state = part.group.state();
    let old = state.stored.clone();
    packets.extend(old.packets.iter().cloned());
    let stored = Stored { prefix: old.prefix, span: old.span.clone(), packets };
    state.wear = match old.packets.is_empty() {
        true => rental::begin(&*core.options.env.random, &stored),
        false => rental::go_on(state.wear, &stored),
    };
    state.stored = Arc::new(stored);
    let freed = state.remove_lists(&part.lists);
    core.counters.buffered_bytes.fetch_sub(freed, SeqCst);
}

/// Whether the changes in RAM of a group should be merged instead of becoming packets, because the
/// group has many packets.
pub(super) fn is_crowded(core: &Core, group: &Group) -> bool {
    let shape = &core.options.shape;
    let state = group.state();
    let blocks_max = shape.packet_blocks_min.max(state.stored.span_blocks() / 2);
    state.change_blocks() > blocks_max || state.stored.packets.len() >= shape.packets_max
}
