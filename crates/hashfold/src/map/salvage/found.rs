//! The entries in all intact blocks of a data file, if no catalog says which ones are current.

use super::{
    collect::{ALL_HASHES, BLOCKS_AT_ONCE, Collector},
    cover::{Cover, Stretch},
    loss::Lost,
};
use crate::{
    codec::Decoder,
    error::{Error, Result},
    map::block::{BLOCK_SIZE, Block, BlockId, BlockKind},
};

/// An intact block with entries. Ordered by the write, then by the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    write: u64,
    number: u64,
    is_span: bool,
}

/// The intact blocks with entries of a data file, in the order of their writes. Take 24 bytes of memory each.
pub(super) struct FoundBlocks {
    found: Vec<Found>,
    /// The older entries that newer spans replace.
    cover: Cover,
    /// Number of blocks whose entries were collected.
    collected: usize,
}

impl FoundBlocks {
    /// Finds the blocks of the data file.
    pub(super) fn find(out: &mut Collector<'_>) -> Result<FoundBlocks> {
        let (mut found, cover) = find(out)?;
        found.sort_unstable();
        Ok(FoundBlocks { found, cover, collected: 0 })
    }

    /// Whether there are blocks of later writes than this one.
    pub(super) fn has_after(&self, write: u64) -> bool {
        self.found.last().is_some_and(|last| last.write > write)
    }

    /// Collects the entries of all blocks up to this write that were not collected yet, without those that newer
    /// spans replace.
    pub(super) fn collect_up_to(&mut self, write: u64, out: &mut Collector<'_>) -> Result<()> {
        let rest = &self.found[self.collected..];
        let blocks = &rest[..rest.partition_point(|block| block.write <= write)];
        let is_next = |a: &Found, b: &Found| a.write == b.write && a.number + 1 == b.number;
        for run in blocks.chunk_by(is_next).flat_map(|run| run.chunks(BLOCKS_AT_ONCE)) {
            let bytes = out.read(run[0].number, run.len())?;
            for (block, bytes) in run.iter().zip(bytes.chunks_exact(BLOCK_SIZE)) {
                let kind = if block.is_span { BlockKind::Span } else { BlockKind::Packets };
                let Found { write, number, .. } = *block;
                let id = BlockId { kind, number, file_id: out.identity.id, write };
                let is_wanted = |hash| !self.cover.is_old(hash, write);
                out.push_block(bytes, id, &is_wanted, || Lost::Entries(ALL_HASHES))?;
            }
        }
        self.collected += blocks.len();
        Ok(())
    }
}

/// Finds all intact blocks with entries, and what their spans replace.
fn find(out: &mut Collector<'_>) -> Result<(Vec<Found>, Cover)> {
    let Some(file) = out.file.clone() else { return Ok(Default::default()) };
    let end = file.size()? / BLOCK_SIZE as u64;
    let mut found = Vec::new();
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut damaged = Vec::new();
    for first in (1..end).step_by(BLOCKS_AT_ONCE) {
        let count = (end - first).min(BLOCKS_AT_ONCE as u64);
        let bytes = out.read(first, count as usize)?;
        for (number, bytes) in (first..).zip(bytes.chunks_exact(BLOCK_SIZE)) {
            let id = id_of(bytes, number, out.identity.id);
            let Some(id) = id.filter(|id| id.seal().check(bytes).is_ok()) else {
                damaged.extend(bytes.iter().any(|byte| *byte != 0).then_some(number));
                continue;
            };
            let Ok(block) = Block::decode(bytes, id) else { continue };
            let is_span = id.kind == BlockKind::Span;
            if is_span {
                let hash = |i| block.entry(i, out.identity.seed).map(|entry| entry.hash);
                let (Ok(first), Ok(last)) = (hash(0), hash(block.count - 1)) else { continue };
                let follows = found.last().is_some_and(|last: &Found| {
                    last.is_span && (last.write, last.number + 1) == (id.write, number)
                });
                match stretches.last_mut() {
                    Some(stretch) if follows && stretch.last <= first => stretch.last = last,
                    _ => stretches.push(Stretch { first, last, write: id.write }),
                }
            }
            found.push(Found { write: id.write, number, is_span });
        }
    }
    if let Some(first) = damaged.first() {
        let what = "number of damaged blocks in the data file";
        let error = Error::field(what, "0", damaged.len());
        let place = file.place_at(first * BLOCK_SIZE as u64);
        out.lose(error.at(&place), Lost::Entries(ALL_HASHES));
    }
    Ok((found, Cover::of(&stretches)))
}

/// Returns the identity of a block, as far as the block says it itself.
pub(super) fn id_of(bytes: &[u8], number: u64, file_id: u64) -> Option<BlockId> {
    let mut fields = Decoder::new(bytes.get(4..)?);
    let kind = match fields.u8().ok()? {
        1 => BlockKind::Span,
        2 => BlockKind::Packets,
        3 => BlockKind::Large,
        _ => return None,
    };
    fields.bytes(11).ok()?;
    Some(BlockId { kind, number, file_id, write: fields.u64().ok()? })
}
