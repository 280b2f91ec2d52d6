//! Copies of spans that are read often, on another device; lookups read the less busy one of the two.
//!
//! A copy has the same bytes, but for the numbers and the checksums of its blocks, which are those of its
//! own place. No catalog names it: its blocks are free after a crash. It goes when a merge replaces the
//! span, when other spans are hotter, or when the disk is full.

use super::{
    block::{BLOCK_SIZE, BlockId, BlockKind, renumber},
    core::Core,
    space::Blocks,
    span::{Span, Stored},
};
use crate::{
    error::Result,
    io::{Buffer, StripedFile},
};
use std::sync::Arc;

/// Number of reads in an epoch.
const EPOCH_READS: u64 = if cfg!(test) { 1 << 10 } else { 1 << 16 };
/// Number of reads of a span in an epoch from which on it may be hot.
const READS_MIN: u32 = 16;
/// A span is hot if its blocks are read this many times as often as the average block of the file.
const HOT_FACTOR: u64 = 4;

/// A block that a lookup is to read.
pub(super) struct Choice {
    pub(super) id: BlockId,
    /// The copy that has the block, if it is not the span itself.
    pub(super) copy: Option<Arc<Blocks>>,
}

/// Chooses where to read a block of a group: in the span, or in its copy if that device is less busy.
pub(super) fn choose(core: &Core, stored: &Stored, id: BlockId) -> Choice {
    let own = Choice { id, copy: None };
    let Some(striped) = core.space.striped() else { return own };
    let span = stored.span.as_ref().filter(|_| id.kind == BlockKind::Span);
    let Some((span, mirror)) = span.and_then(|span| Some((span, span.mirror.as_ref()?))) else {
        return own;
    };
    let reads = mirror.count(epoch(striped));
    let Some(copy) = mirror.copy() else {
        if reads >= READS_MIN && reads.is_power_of_two() {
            core.tasks.add_mirror(span);
        }
        return own;
    };
    let number = copy.first + (id.number - span.blocks.first);
    if load(striped, number) < load(striped, id.number) {
        return Choice { id: BlockId { number, ..id }, copy: Some(copy) };
    }
    own
}

/// Removes the copy of a group's span, which cannot be read.
pub(super) fn give_up(stored: &Stored) {
    let mirror = stored.span.as_ref().and_then(|span| span.mirror.as_ref());
    mirror.inspect(|mirror| _ = mirror.remove());
}

fn epoch(striped: &StripedFile) -> u32 {
    (striped.reads() / EPOCH_READS) as u32
}

/// Returns the reads in flight on the device of a block, and all of its reads so far.
fn load(striped: &StripedFile, number: u64) -> (u64, u64) {
    let device = &striped.devices()[striped.device_of(number * BLOCK_SIZE as u64)];
    (device.in_flight(), device.reads())
}

/// Copies a span to another device if it is hot, and if there is room.
///
/// # Errors
/// A block of the span cannot be read, or the device failed. A full disk is no error.
pub(super) fn copy(core: &Core, span: &Span) -> Result<()> {
    let (space, count) = (&core.space, span.blocks.count);
    let (Some(striped), Some(mirror)) = (space.striped(), &span.mirror) else { return Ok(()) };
    let epoch = epoch(striped);
    if mirror.copy().is_some() || !is_hot(core, striped, span) {
        return Ok(());
    }
    if !space.mirrors.make_room(count, space.mirrored_max, epoch) {
        return Ok(());
    }
    let Some(blocks) = space.take_apart(&span.blocks) else { return Ok(()) };
    let mut bytes = Buffer::zeroed(count as usize * BLOCK_SIZE);
    space.file.read_at(span.blocks.offset(), &mut bytes)?;
    for (i, block) in bytes.chunks_exact_mut(BLOCK_SIZE).enumerate() {
        let id = span.id(i, core.identity.id);
        renumber(block, id, blocks.first + i as u64)
            .map_err(|error| error.at(&space.file.place_at(id.number * BLOCK_SIZE as u64)))?;
    }
    match space.file.write_at(blocks.offset(), &bytes) {
        Err(error) if error.is_full() => return Ok(()),
        written => written?,
    }
    core.count_blocks(count);
    space.mirrors.add(mirror, Arc::new(blocks), count);
    Ok(())
}

/// Whether a span is read much more often than the average of the file.
fn is_hot(core: &Core, striped: &StripedFile, span: &Span) -> bool {
    let (reads, (free, blocks)) = (striped.reads(), core.space.counts());
    let own = span.mirror.as_ref().map_or(0, |mirror| mirror.reads(epoch(striped)));
    // Reads of this epoch, of all used blocks and of those of the span.
    let all = u128::from(reads % EPOCH_READS + 1) * u128::from(HOT_FACTOR * span.blocks.count);
    u128::from(own) * u128::from(blocks - free) >= all
}
