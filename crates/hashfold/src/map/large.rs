//! Large values: each has blocks of its own, and entries have a pointer in place of the value.
//!
//! The blocks of a large value are consecutive. They are written and synced before a change in the
//! log points to them, and never change. Lists, packets, spans and the log own them together
//! ([`Owner`]); they become free when none of these needs them. `docs/formats/map.md` has the same
//! tables. A block:
//!
//! | offset | size | field    |                                                                  |
//! |-------:|-----:|----------|------------------------------------------------------------------|
//! |      0 |    4 | checksum | seal (frame.md) of the block, with `write` as the epoch          |
//! |      4 |    1 | kind     | 3                                                                |
//! |      5 |    3 | zero     |                                                                  |
//! |      8 |    8 | number   | of the block: its offset in the file, divided by 4096            |
//! |     16 |    8 | write    | number of the write that wrote the value                         |
//! |     24 |    4 | size     | of the value, in bytes                                           |
//! |     28 |    4 | index    | of the block in the value                                        |
//! |     32 | 4064 | part     | of the value, from byte 4064 · index on; then zeros              |

use super::{
    block::{BLOCK_SIZE, BlockId, BlockKind},
    pointer::Pointer,
    space::{Blocks, Space},
};
use crate::{
    codec::{Decoder, within},
    error::{Error, Result, check_same},
    io::{BlockFile, Buffer, frame::check_zeros},
};
use std::{collections::HashMap, ops::Range, sync::Arc};

const HEAD_SIZE: usize = 32;
/// Number of bytes of a value in a block.
const PART_SIZE: usize = BLOCK_SIZE - HEAD_SIZE;
/// Number of blocks that are written or read at once.
const BLOCKS_AT_ONCE: usize = if cfg!(test) { 2 } else { 64 };

/// The owner of the blocks of a large value.
pub(super) type Owner = Arc<Blocks>;

/// Memory of an owner in [`Owners`], in bytes, with what an allocator takes.
pub(super) const OWNER_BYTES: usize = size_of::<Blocks>() + 2 * size_of::<(u64, Owner)>() + 32;

/// Returns the number of blocks of a large value.
pub(super) fn blocks(pointer: Pointer) -> u64 {
    (pointer.size as usize).div_ceil(PART_SIZE) as u64
}

/// Checks that these blocks are those of the value.
pub(super) fn check_owner(pointer: Pointer, owner: Option<&Owner>) -> Result<&Owner> {
    match owner {
        Some(owner) if owner.first == pointer.first && owner.count == blocks(pointer) => Ok(owner),
        _ => {
            let got = format!("{} from {} on", blocks(pointer), pointer.first);
            Err(Error::field("blocks of a large value", "blocks that the catalog names", got))
        }
    }
}

/// Returns the identity of a block of a large value.
fn id(pointer: Pointer, index: usize, file_id: u64) -> BlockId {
    let number = pointer.first + index as u64;
    BlockId { kind: BlockKind::Large, number, file_id, write: pointer.write }
}

/// Writes a large value. It is durable after a sync of the data file.
pub(super) fn write(
    space: &Arc<Space>,
    (file_id, write): (u64, u64),
    value: &[u8],
) -> Result<(Pointer, Owner)> {
    let mut pointer = Pointer { first: 0, write, size: value.len() as u32 };
    let blocks = space.take(blocks(pointer))?;
    pointer.first = blocks.first;
    for (i, parts) in value.chunks(BLOCKS_AT_ONCE * PART_SIZE).enumerate() {
        let count = parts.len().div_ceil(PART_SIZE);
        let mut out = Buffer::zeroed(count * BLOCK_SIZE);
        let first = i * BLOCKS_AT_ONCE;
        for (j, part) in parts.chunks(PART_SIZE).enumerate() {
            let block = &mut out[j * BLOCK_SIZE..][..BLOCK_SIZE];
            encode(pointer, first + j, file_id, part, block);
        }
        space.write_at(blocks.offset() + (first * BLOCK_SIZE) as u64, &out)?;
    }
    Ok((pointer, Arc::new(blocks)))
}

fn encode(pointer: Pointer, index: usize, file_id: u64, part: &[u8], out: &mut [u8]) {
    let id = id(pointer, index, file_id);
    out[4] = id.kind as u8;
    out[8..16].copy_from_slice(&id.number.to_le_bytes());
    out[16..24].copy_from_slice(&id.write.to_le_bytes());
    out[24..28].copy_from_slice(&pointer.size.to_le_bytes());
    out[28..32].copy_from_slice(&(index as u32).to_le_bytes());
    out[HEAD_SIZE..][..part.len()].copy_from_slice(part);
    id.seal().put(out);
}

/// Decodes a block of a large value. Returns its part of the value.
fn decode(bytes: &[u8], pointer: Pointer, index: usize, file_id: u64) -> Result<&[u8]> {
    let id = id(pointer, index, file_id);
    id.seal().check(bytes)?;
    let mut fields = Decoder::new(&bytes[4..HEAD_SIZE]);
    check_same("kind of block", id.kind as u64, u64::from(fields.u8()?))?;
    check_zeros(fields.bytes(3)?)?;
    check_same("number of the block", id.number, fields.u64()?)?;
    check_same("write of the block", id.write, fields.u64()?)?;
    check_same("size of a large value", pointer.size.into(), u64::from(fields.u32()?))?;
    check_same("index of a block in a large value", index as u64, u64::from(fields.u32()?))?;
    let size = (pointer.size as usize - index * PART_SIZE).min(PART_SIZE);
    let (part, padding) = bytes[HEAD_SIZE..].split_at(size);
    check_zeros(padding)?;
    Ok(part)
}

/// Reads a large value, whose blocks `owner` keeps.
///
/// # Errors
/// The device failed, or a block is damaged; damage also if these are not the blocks of the value.
pub(super) fn read(
    file: &dyn BlockFile,
    file_id: u64,
    pointer: Pointer,
    owner: Option<&Owner>,
) -> Result<Vec<u8>> {
    read_range(file, file_id, (pointer, owner), 0..pointer.size as usize)
}

/// Reads some bytes of a large value, whose blocks `owner` keeps: only the blocks that have these bytes.
///
/// # Errors
/// The errors of [`read`].
pub(super) fn read_range(
    file: &dyn BlockFile,
    file_id: u64,
    (pointer, owner): (Pointer, Option<&Owner>),
    range: Range<usize>,
) -> Result<Vec<u8>> {
    check_owner(pointer, owner).map_err(|error| error.at(file.place()))?;
    let first = range.start / PART_SIZE;
    let mut bytes = read_blocks(file, file_id, pointer, first..range.end.div_ceil(PART_SIZE))?;
    bytes.truncate(range.end - first * PART_SIZE);
    bytes.drain(..range.start - first * PART_SIZE);
    Ok(bytes)
}

/// Reads a large value whose blocks may be used for something else by now.
///
/// # Errors
/// The device failed; damage if these are not the blocks of the value any more.
pub(super) fn read_unowned(
    file: &dyn BlockFile,
    file_id: u64,
    pointer: Pointer,
) -> Result<Vec<u8>> {
    let end = pointer.first.saturating_add(blocks(pointer));
    within("end of a large value", 0..=file.size()? / BLOCK_SIZE as u64, end)
        .map_err(|error| error.at(file.place()))?;
    // The first block tells whether these are the blocks of the value, which may be long.
    read_blocks(file, file_id, pointer, 0..1)?;
    read_blocks(file, file_id, pointer, 0..blocks(pointer) as usize)
}

/// Reads the parts of a large value that are in these of its blocks.
fn read_blocks(
    file: &dyn BlockFile,
    file_id: u64,
    pointer: Pointer,
    blocks: Range<usize>,
) -> Result<Vec<u8>> {
    let mut value = Vec::with_capacity(blocks.len() * PART_SIZE);
    let mut bytes = Buffer::zeroed(blocks.len().min(BLOCKS_AT_ONCE) * BLOCK_SIZE);
    for first in blocks.clone().step_by(BLOCKS_AT_ONCE) {
        let bytes = &mut bytes[..(blocks.end - first).min(BLOCKS_AT_ONCE) * BLOCK_SIZE];
        let offset = pointer.first * BLOCK_SIZE as u64 + (first * BLOCK_SIZE) as u64;
        file.read_at(offset, bytes)?;
        for (i, block) in bytes.chunks_exact(BLOCK_SIZE).enumerate() {
            let part = decode(block, pointer, first + i, file_id)
                .map_err(|error| error.at(&file.place_at(offset + (i * BLOCK_SIZE) as u64)))?;
            value.extend_from_slice(part);
        }
    }
    Ok(value)
}

/// Owners of large values by their first blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners(HashMap<u64, Owner>);

impl Owners {
    pub(super) fn insert(&mut self, owner: &Owner) {
        self.0.insert(owner.first, owner.clone());
    }

    pub(super) fn remove(&mut self, first: u64) {
        self.0.remove(&first);
    }

    pub(super) fn get(&self, first: u64) -> Option<&Owner> {
        self.0.get(&first)
    }

    /// Returns the owner of a value, and claims its blocks if they have none.
    pub(super) fn claim(&mut self, space: &Arc<Space>, pointer: Pointer) -> Result<Owner> {
        self.claim_blocks(space, pointer.first, blocks(pointer))
    }

    /// Returns the owner of blocks of a large value, and claims them if they have none.
    pub(super) fn claim_blocks(
        &mut self,
        space: &Arc<Space>,
        first: u64,
        count: u64,
    ) -> Result<Owner> {
        if let Some(owner) = self.0.get(&first).filter(|owner| owner.count == count) {
            return Ok(owner.clone());
        }
        let owner = Arc::new(space.claim(first, count)?);
        self.insert(&owner);
        Ok(owner)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Owner> {
        self.0.values()
    }
}

/// Finds the owner of a large value in a list of owners that ascends by their first blocks.
pub(super) fn find(owners: &[Owner], first: u64) -> Option<&Owner> {
    let at = owners.binary_search_by_key(&first, |owner| owner.first);
    at.ok().map(|at| &owners[at])
}
