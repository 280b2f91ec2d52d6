//! The two lines of its chunk that a hash may be in.
//!
//! ```text
//! last 48 bits of a hash, folded to 32 bits, × a factor → 5 + 12 bits: two lines of the chunk │ …
//! ```
//!
//! Both lines are in one chunk, and so is all that a pair may displace: on one page, also where the system or a hypervisor
//! has pages of 4 KiB.

use super::line::CHUNK_LINES;

/// Number of the first bits of a mixed hash that select the first line, and of those after them that select the second one.
const FIRST_BITS: u32 = CHUNK_LINES.ilog2();
const SECOND_BITS: u32 = 12;

const _: () = assert!(CHUNK_LINES.is_power_of_two());

/// The factor that mixes folded hashes for lines: odd, so that all of their bits count.
pub(super) const FACTOR: u32 = 0x9E37_79B1;

/// Folds the last 48 bits of a hash to 32.
#[inline(always)]
pub(super) fn folded(hash: u64) -> u32 {
    hash as u32 ^ (hash >> 16) as u32
}

/// Returns the two lines of its chunk that may have a hash, of which the last 48 bits are enough. They are distinct.
#[inline(always)]
pub(super) fn lines(hash: u64) -> [usize; 2] {
    const LINES: u32 = CHUNK_LINES as u32;
    let bits = folded(hash).wrapping_mul(FACTOR);
    let first = bits >> (u32::BITS - FIRST_BITS);
    let bits = bits << FIRST_BITS >> (u32::BITS - SECOND_BITS);
    let second = first + 1 + ((bits * (LINES - 1)) >> SECOND_BITS);
    [first as usize, (second % LINES) as usize]
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            division::{CHUNKS_MAX, DEPTH_MAX, Division},
            mix::mix,
        },
        *,
    };
    use crate::key::Seed;

    /// Each pair of lines is as frequent as the others, whatever the chunk, also in the deepest group.
    #[test]
    fn all_lines_are_as_frequent() {
        const HASHES: usize = 400_000;
        let mut group = Division::default();
        while group.depth < DEPTH_MAX {
            group = group.halves()[group.depth as usize % 2];
        }
        let mut pairs = [[0_usize; CHUNK_LINES]; CHUNK_LINES];
        let mut chunks = [[0_usize; CHUNK_LINES]; CHUNKS_MAX];
        for hash in (0..HASHES as u64).map(|i| 7 << 60 | mix(i, Seed(5)) << 20 >> 28) {
            let [first, second] = lines(hash);
            assert!(first != second && first < CHUNK_LINES && second < CHUNK_LINES);
            pairs[first][second] += 1;
            chunks[group.chunk(CHUNKS_MAX, hash)][first] += 1;
        }
        let between = |mean: usize| move |count: &usize| (mean / 2..mean * 2).contains(count);
        let mean = HASHES / (CHUNK_LINES * (CHUNK_LINES - 1));
        for (first, counts) in pairs.iter().enumerate() {
            let others = counts.iter().enumerate().filter(|(second, _)| *second != first);
            assert!(others.map(|(_, count)| count).all(between(mean)));
        }
        let mean = HASHES / (CHUNKS_MAX * CHUNK_LINES);
        assert!(chunks.as_flattened().iter().all(between(mean)));
    }
}
