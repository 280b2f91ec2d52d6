//! The entries in the blocks that a catalog names.

use super::{
    collect::{BLOCKS_AT_ONCE, Collector},
    loss::Lost,
};
use crate::{
    error::Result,
    io::ALIGNMENT,
    key::KeyHash,
    map::span::{Packet, Span, Stored},
};
use std::ops::RangeInclusive;

/// Collects the entries of all groups.
pub(super) fn collect(groups: &[Stored], out: &mut Collector<'_>) -> Result<()> {
    for stored in groups {
        stored.span.iter().try_for_each(|span| take_span(stored, span, out))?;
        // Packets are newest first.
        stored.packets.iter().rev().try_for_each(|packet| take_packet(stored, packet, out))?;
    }
    Ok(())
}

fn take_span(stored: &Stored, span: &Span, out: &mut Collector<'_>) -> Result<()> {
    let count = span.fences.len();
    for first in (0..count).step_by(BLOCKS_AT_ONCE) {
        let bytes =
            out.read(span.blocks.first + first as u64, (count - first).min(BLOCKS_AT_ONCE))?;
        for (i, block) in bytes.chunks_exact(ALIGNMENT).enumerate() {
            let id = span.id(first + i, out.identity.id);
            let is_wanted = |hash| stored.prefix.contains(hash);
            let lost = || Lost::Entries(hashes(stored, span, first + i));
            out.push_block(block, id, &is_wanted, lost)?;
        }
    }
    Ok(())
}

fn take_packet(stored: &Stored, packet: &Packet, out: &mut Collector<'_>) -> Result<()> {
    let bytes = out.read(packet.block.first, 1)?;
    let is_wanted = |hash| stored.prefix.contains(hash);
    let lost = || Lost::Changes(stored.prefix.hashes());
    out.push_block(&bytes, packet.id(out.identity.id), &is_wanted, lost)
}

/// Returns the range of the hashes that a block of a span may have.
fn hashes(stored: &Stored, span: &Span, i: usize) -> RangeInclusive<KeyHash> {
    let first = |fence| stored.prefix.first_with(fence).bits();
    let end = match span.fences.get(i + 1) {
        // A block has all hashes with a fence, or more than one block begins with it.
        Some(next) if *next > span.fences[i] => first(*next) - 1,
        _ => stored.prefix.hashes().end().bits(),
    };
    KeyHash::from_bits(first(span.fences[i]))..=KeyHash::from_bits(end)
}
