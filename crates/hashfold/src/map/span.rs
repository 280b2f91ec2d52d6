//! The blocks of a group on the device: a span of entries, and packets of changes to it.

use super::{
    block::{BLOCK_SIZE, BlockId, BlockKind},
    bloom::Bloom,
    expiries::Expiries,
    large::{self, Owner},
    mirror::Mirror,
    prefix::Prefix,
    sizes::Sizes,
    space::Blocks,
};
use crate::key::KeyHash;
use std::{
    ops::{Range, RangeInclusive},
    sync::Arc,
};

/// The entries of a group in consecutive blocks, in order of (hash, key).
#[derive(Debug)]
pub(super) struct Span {
    pub(super) blocks: Blocks,
    /// Number of the write that wrote the blocks.
    pub(super) write: u64,
    /// The fence of the first hash in each block ([`Prefix::fence`]).
    pub(super) fences: Box<[u32]>,
    pub(super) sizes: Sizes,
    /// Owners of the large values, ascending by their first blocks.
    pub(super) owners: Box<[Owner]>,
    pub(super) expiries: Expiries,
    /// The copy on another device; absent if the map has none.
    pub(super) mirror: Option<Arc<Mirror<Blocks>>>,
}

/// Changes of a group in a block, which may have packets of other groups, too.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) block: Arc<Blocks>,
    /// Number of the write that wrote the block.
    pub(super) write: u64,
    pub(super) filter: Bloom,
    pub(super) sizes: Sizes,
    /// Owners of the large values, ascending by their first blocks.
    pub(super) owners: Box<[Owner]>,
}

/// Memory of a packet's allocations and of the references to it, in bytes, about.
const ALLOCATIONS_SIZE: usize = 64;

/// All that a group has on the device. Never changes; the blocks stay as long as it is referenced.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) prefix: Prefix,
    /// `None` if the span has no entries.
    pub(super) span: Option<Arc<Span>>,
    /// Changes to the span, newest first.
    pub(super) packets: Vec<Arc<Packet>>,
}

/// Returns the blocks that may have a hash with this fence: one, unless more hashes with this fence
/// than fit in a block were inserted.
pub(super) fn candidates(fences: &[u32], fence: u32) -> Range<usize> {
    let below = fences.partition_point(|first| *first < fence);
    let end = below + fences[below..].partition_point(|first| *first == fence);
    if end > below { below..end } else { below.saturating_sub(1)..below }
}

impl Span {
    /// Returns the identity of a block of the span.
    pub(super) fn id(&self, i: usize, file_id: u64) -> BlockId {
        let number = self.blocks.first + i as u64;
        BlockId { kind: BlockKind::Span, number, file_id, write: self.write }
    }
}

impl Packet {
    /// Returns the memory of the packet, in bytes: that of its filter, and about that of its addresses.
    pub(super) fn memory(&self) -> u64 {
        (self.filter.bytes().len() + size_of::<Packet>() + ALLOCATIONS_SIZE) as u64
    }

    /// Returns the identity of the packet's block.
    pub(super) fn id(&self, file_id: u64) -> BlockId {
        let number = self.block.first;
        BlockId { kind: BlockKind::Packets, number, file_id, write: self.write }
    }
}

impl Stored {
    /// Returns a group without entries.
    pub(super) fn empty(prefix: Prefix) -> Stored {
        Stored { prefix, span: None, packets: Vec::new() }
    }

    /// Returns the blocks that may have a key with this hash, newest first.
    pub(super) fn places(&self, hash: KeyHash, file_id: u64) -> impl Iterator<Item = BlockId> {
        let packets = self.packets.iter().filter(move |packet| packet.filter.contains(hash));
        let fence = self.prefix.fence(hash);
        let spans = self.span.iter().flat_map(move |span| {
            candidates(&span.fences, fence).map(move |i| span.id(i, file_id))
        });
        packets.map(move |packet| packet.id(file_id)).chain(spans)
    }

    /// Returns the blocks of the span that may have these hashes, which are in the group's key range.
    pub(super) fn span_part(&self, hashes: &RangeInclusive<KeyHash>) -> Range<usize> {
        let Some(span) = &self.span else { return 0..0 };
        let blocks = |hash: KeyHash| candidates(&span.fences, self.prefix.fence(hash));
        blocks(*hashes.start()).start..blocks(*hashes.end()).end
    }

    /// Returns the owner of a large value.
    pub(super) fn owner(&self, first: u64) -> Option<&Owner> {
        self.owners().find_map(|owners| large::find(owners, first))
    }

    /// Returns the owners of all large values: of each packet, and of the span.
    pub(super) fn owners(&self) -> impl Iterator<Item = &[Owner]> {
        let packets = self.packets.iter().map(|packet| &*packet.owners);
        packets.chain(self.span.iter().map(|span| &*span.owners))
    }

    /// Returns when the entries of the span expire.
    pub(super) fn expiries(&self) -> Expiries {
        self.span.as_ref().map_or(Expiries::default(), |span| span.expiries)
    }

    /// Whether at least a quarter of the span has expired.
    pub(super) fn is_stale(&self, now: u64) -> bool {
        let is_stale = |span: &Arc<Span>| span.expiries.are_many(now, span.sizes.entries);
        self.span.as_ref().is_some_and(is_stale)
    }

    /// Returns the number of blocks in the span.
    pub(super) fn span_blocks(&self) -> u64 {
        self.span.as_ref().map_or(0, |span| span.blocks.count)
    }

    /// Returns the size of the packets' entries, as a number of blocks.
    pub(super) fn packet_blocks(&self) -> u64 {
        let bytes: u64 = self.packets.iter().map(|packet| packet.sizes.bytes).sum();
        bytes.div_ceil(BLOCK_SIZE as u64)
    }

    /// Returns the memory of the packets, in bytes.
    pub(super) fn packet_bytes(&self) -> u64 {
        self.packets.iter().map(|packet| packet.memory()).sum()
    }
}
