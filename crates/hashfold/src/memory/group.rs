//! The descriptor of a group, a line of 64 bytes: the group's size, its place, and its chunks.
//!
//! | offset | size | field  |                                                                  |
//! |-------:|-----:|--------|------------------------------------------------------------------|
//! |      0 |    1 | chunks | number of chunks, 0 to 7                                         |
//! |      1 |    1 | depth  | bits of a hash, after those of the region, that its hashes share |
//! |      2 |    2 | count  | number of pairs                                                  |
//! |      4 |    4 | epoch  | the last snapshot that has a copy of the group                   |
//! |      8 |   28 | ids    | the chunks: 7 numbers of 4 bytes                                 |
//! |     36 |   28 |        | not in use                                                       |

use super::line::{LINE_BYTES, Line};

/// Maximum number of chunks in a group.
pub(super) const CHUNKS_MAX: usize = 7;
/// Number of lines in a chunk, a power of two.
pub(super) const CHUNK_LINES: usize = 32;
/// The lines of a chunk.
pub(super) type Chunk = [Line; CHUNK_LINES];
/// Size of a chunk in bytes.
pub(super) const CHUNK_BYTES: usize = CHUNK_LINES * LINE_BYTES;

/// Number of first bits of a hash that select a region.
pub(super) const REGION_BITS: u32 = 8;
/// Maximum depth of a group; a directory has at most 2^20 entries.
pub(super) const DEPTH_MAX: u32 = 20;

const COUNT: usize = 2;
const EPOCH: usize = 4;
const IDS: usize = 8;
const _: () = assert!(IDS + CHUNKS_MAX * 4 <= LINE_BYTES);

/// A descriptor with its fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) chunks: usize,
    pub(super) depth: u32,
    pub(super) count: usize,
    pub(super) epoch: u32,
    pub(super) ids: [u32; CHUNKS_MAX],
}

impl Group {
    pub(super) fn decode(line: &Line) -> Group {
        let ids = std::array::from_fn(|chunk| id(line, chunk));
        let epoch = epoch(line);
        Group { chunks: chunks(line), depth: depth(line), count: count(line), epoch, ids }
    }

    pub(super) fn encode(&self, line: &mut Line) {
        line[0] = self.chunks as u8;
        line[1] = self.depth as u8;
        set_count(line, self.count);
        set_epoch(line, self.epoch);
        for (bytes, id) in line[IDS..].chunks_exact_mut(4).zip(self.ids) {
            bytes.copy_from_slice(&id.to_le_bytes());
        }
    }

    /// Returns the numbers of its chunks.
    pub(super) fn ids(&self) -> &[u32] {
        &self.ids[..self.chunks]
    }
}

#[inline]
pub(super) fn chunks(line: &Line) -> usize {
    usize::from(line[0])
}

#[inline]
pub(super) fn depth(line: &Line) -> u32 {
    u32::from(line[1])
}

#[inline]
pub(super) fn count(line: &Line) -> usize {
    usize::from(u16::from_le_bytes([line[COUNT], line[COUNT + 1]]))
}

#[inline]
pub(super) fn set_count(line: &mut Line, count: usize) {
    line[COUNT..COUNT + 2].copy_from_slice(&(count as u16).to_le_bytes());
}

#[inline]
fn number(line: &Line, start: usize) -> u32 {
    u32::from_le_bytes(line[start..start + 4].try_into().expect("the slice has 4 bytes"))
}

#[inline]
pub(super) fn epoch(line: &Line) -> u32 {
    number(line, EPOCH)
}

pub(super) fn set_epoch(line: &mut Line, epoch: u32) {
    line[EPOCH..EPOCH + 4].copy_from_slice(&epoch.to_le_bytes());
}

/// Returns the number of a chunk of the group.
#[inline]
pub(super) fn id(line: &Line, chunk: usize) -> u32 {
    number(line, IDS + 4 * chunk)
}

/// Returns the first and the last hash of the group of a hash at this depth.
pub(super) fn range(hash: u64, depth: u32) -> (u64, u64) {
    let rest = u64::MAX >> (REGION_BITS + depth);
    (hash & !rest, hash | rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_has_its_fields() {
        let ids = std::array::from_fn(|i| u32::MAX - i as u32);
        let group = Group { chunks: 7, depth: 20, count: 1120, epoch: u32::MAX, ids };
        let mut line = [0; LINE_BYTES];
        group.encode(&mut line);
        assert_eq!(Group::decode(&line), group);
        set_count(&mut line, 3);
        set_epoch(&mut line, 4);
        assert_eq!(Group::decode(&line), Group { count: 3, epoch: 4, ..group });
    }
}
