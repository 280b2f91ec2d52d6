//! The descriptor of a group, a line of 64 bytes: the group's size, its chunks, and how they share its pairs.
//!
//! | offset | size | field  |                                                                  |
//! |-------:|-----:|--------|------------------------------------------------------------------|
//! |      0 |    1 | chunks | number of chunks, 0 to 8                                         |
//! |      1 |    1 | depth  | bits of a hash, after those of the region, that its hashes share |
//! |      2 |    2 | count  | number of pairs                                                  |
//! |      4 |    4 | epoch  | the last snapshot that has a copy of the group                   |
//! |      8 |   32 | ids    | the chunks: 8 numbers of 4 bytes                                 |
//! |     40 |    4 | lower  | a factor that divides its pairs among chunks                     |
//! |     44 |    4 | upper  | the factor for its upper half                                    |
//! |     48 |   16 |        | not in use                                                       |

use super::{
    division::{CHUNKS_MAX, Division, REGION_BITS},
    line::{LINE_BYTES, Line},
};

const COUNT: usize = 2;
const EPOCH: usize = 4;
const IDS: usize = 8;
const LOWER: usize = IDS + CHUNKS_MAX * 4;
const UPPER: usize = LOWER + 4;
const _: () = assert!(UPPER + 4 <= LINE_BYTES);

/// A descriptor with its fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) chunks: usize,
    /// How its pairs are divided among them, and its depth.
    pub(super) division: Division,
    pub(super) count: usize,
    pub(super) epoch: u32,
    pub(super) ids: [u32; CHUNKS_MAX],
}

impl Group {
    pub(super) fn decode(line: &Line) -> Group {
        let ids = std::array::from_fn(|chunk| id(line, chunk));
        let epoch = epoch(line);
        Group { chunks: chunks(line), division: division(line), count: count(line), epoch, ids }
    }

    pub(super) fn encode(&self, line: &mut Line) {
        debug_assert_ne!(self.division.lower, self.division.upper);
        line[0] = self.chunks as u8;
        line[1] = self.division.depth as u8;
        set_count(line, self.count);
        set_epoch(line, self.epoch);
        let numbers = self.ids.into_iter().chain([self.division.lower, self.division.upper]);
        for (bytes, number) in line[IDS..].chunks_exact_mut(4).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
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
pub(super) fn division(line: &Line) -> Division {
    Division { lower: number(line, LOWER), upper: number(line, UPPER), depth: depth(line) }
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
    use super::{super::division::DEPTH_MAX, *};

    #[test]
    fn a_descriptor_has_its_fields() {
        let ids = std::array::from_fn(|i| u32::MAX - i as u32);
        let division = Division { lower: 1 << 31, upper: u32::MAX, depth: DEPTH_MAX };
        let group = Group { chunks: 8, division, count: 1280, epoch: u32::MAX, ids };
        let mut line = [0; LINE_BYTES];
        group.encode(&mut line);
        assert_eq!(Group::decode(&line), group);
        set_count(&mut line, 3);
        set_epoch(&mut line, 4);
        assert_eq!(Group::decode(&line), Group { count: 3, epoch: 4, ..group });
    }
}
