//! How a group divides its pairs among its chunks.
//!
//! ```text
//! last 48 bits of a hash, folded to 32 bits, × a factor → 8 bits: bucket → chunk
//! ```
//!
//! Hashes are divided into buckets, and a table has the chunk of each bucket for each number of chunks. A further chunk takes
//! its part of the pairs of all others, so that all are equally full; no other pair moves.
//!
//! Chunks 4 to 7 take only pairs of the upper half of the group: those whose next hash bit, by which the group splits, is 1. A
//! group of eight chunks has its lower half in the first four, and its upper half in the last four. To split it, the last
//! four are handed to a new group, and no pair moves. Part of the pairs in each chunk, by the number of chunks:
//!
//! | chunks | 0 to 3, each: lower half | upper half | 4 to 7, each: upper half |
//! |-------:|-------------------------:|-----------:|-------------------------:|
//! |      4 |                     1/8  |       1/8  |                          |
//! |      5 |                     1/8  |      3/40  |                     1/5  |
//! |      6 |                     1/8  |      1/24  |                     1/6  |
//! |      7 |                     1/8  |      1/56  |                     1/7  |
//! |      8 |                     1/8  |         0  |                     1/8  |
//!
//! The upper half has buckets by a factor of its own. By the same buckets, chunk 4 would take its pairs evenly from chunks 0 to
//! 3, but become chunk 0 of a new group, whose pairs are those of a single chunk.

use super::choice::{FACTOR, folded};
use std::hint::select_unpredictable;

/// Maximum number of chunks in a group.
pub(super) const CHUNKS_MAX: usize = 8;
/// Number of first bits of a hash that select a region.
pub(super) const REGION_BITS: u32 = 8;
/// Maximum depth of a group; a directory has at most 2^20 entries.
pub(super) const DEPTH_MAX: u32 = 20;

/// Number of the first bits of a mixed hash that select a bucket.
const BUCKET_BITS: u32 = 8;

/// Number of buckets: a set of them fits in a register of AVX2.
const BUCKETS: usize = 1 << BUCKET_BITS;

/// Number of chunks that each half of a group has when it splits.
pub(super) const HALF: usize = CHUNKS_MAX / 2;

const _: () = assert!(HALF * 2 == CHUNKS_MAX);

/// The chunk of each bucket.
type ChunkOfBucket = [u8; BUCKETS];

/// In place of the chunk of a bucket of the upper half: its pairs are in the first chunks, as if they were of the lower half.
const STAYS: u8 = 0;

/// The chunks of buckets, by the number of chunks and by the half of the group: those of the upper half are `HALF` and above, or
/// [`STAYS`]; those of the lower half are [`STAYS`]: to look them up costs less than a branch on the half, which is a random bit.
static UPPER: [[ChunkOfBucket; 2]; CHUNKS_MAX + 1] = {
    let mut all = [[[STAYS; BUCKETS]; 2]; CHUNKS_MAX + 1];
    let mut bucket = 0;
    while bucket < BUCKETS {
        all[CHUNKS_MAX][1][bucket] = (HALF + chunk_of_half(bucket)) as u8;
        bucket += 1;
    }
    let mut last = CHUNKS_MAX - 1;
    while last > HALF {
        // Of the pairs of the group, half are in the upper one: a chunk has its share of twice as many buckets.
        all[last][1] = without_chunk(&all[last + 1][1], last, HALF, 2 * BUCKETS / last);
        last -= 1;
    }
    all
};

/// The chunks of the buckets of all pairs, by the number of chunks up to `HALF`. With `HALF`, they are the chunks that these
/// buckets have in the upper half of a group of eight chunks.
static LOWER: [ChunkOfBucket; HALF + 1] = {
    let mut all = [[0; BUCKETS]; HALF + 1];
    let mut bucket = 0;
    while bucket < BUCKETS {
        all[HALF][bucket] = chunk_of_half(bucket) as u8;
        bucket += 1;
    }
    let mut last = HALF - 1;
    while last > 0 {
        all[last] = without_chunk(&all[last + 1], last, 0, BUCKETS / last);
        last -= 1;
    }
    all
};

/// Returns the chunk of a bucket, of `HALF` chunks.
#[inline(always)]
const fn chunk_of_half(bucket: usize) -> usize {
    bucket >> (BUCKET_BITS - HALF.ilog2())
}

/// Returns the chunk of each bucket without the last chunk: its buckets go to the others from `first` on, until each has
/// `share` of them, and what is left to chunk 0, which is [`STAYS`] in the upper half.
const fn without_chunk(
    chunks: &ChunkOfBucket,
    last: usize,
    first: usize,
    share: usize,
) -> ChunkOfBucket {
    let (mut fewer, mut counts) = (*chunks, [0; CHUNKS_MAX]);
    let mut bucket = 0;
    while bucket < BUCKETS {
        counts[chunks[bucket] as usize] += 1;
        bucket += 1;
    }
    let (mut bucket, mut next) = (0, first);
    while bucket < BUCKETS {
        if chunks[bucket] as usize == last {
            while next < last && counts[next] >= share {
                next += 1;
            }
            fewer[bucket] = if next < last { next as u8 } else { STAYS };
            counts[next] += 1;
        }
        bucket += 1;
    }
    fewer
}

/// A set of buckets: a bit for each.
pub(super) type Buckets = [u32; BUCKETS / 32];

/// The buckets of the last chunk, by the number of chunks.
static LAST: [Buckets; CHUNKS_MAX + 1] = {
    let mut all = [[0; BUCKETS / 32]; CHUNKS_MAX + 1];
    let mut count = 1;
    while count <= CHUNKS_MAX {
        let chunks = if count <= HALF { &LOWER[count] } else { &UPPER[count][1] };
        let mut bucket = 0;
        while bucket < BUCKETS {
            if chunks[bucket] as usize == count - 1 {
                all[count][bucket / 32] |= 1 << (bucket % 32);
            }
            bucket += 1;
        }
        count += 1;
    }
    all
};

/// The factors that mix folded hashes for the buckets of the upper halves of groups, by the depth of the groups: powers of
/// [`FACTOR`], which is that of lines. The last one is for the buckets of groups of depth 0.
static FACTORS: [u32; DEPTH_MAX as usize + 2] = {
    let mut factors = [FACTOR; DEPTH_MAX as usize + 2];
    let mut depth = 0;
    while depth < factors.len() {
        factors[depth] = FACTOR.wrapping_pow(depth as u32 + 2);
        depth += 1;
    }
    factors
};

/// How a group divides its pairs among its chunks: by two factors that mix folded hashes for buckets. When it splits, the
/// buckets of its halves must be those that they had, so the upper half takes `upper` as its `lower`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// For pairs in the first `HALF` chunks.
    pub(super) lower: u32,
    /// For pairs of the upper half in the others.
    pub(super) upper: u32,
    /// The depth of the group, and thus the bit by which it splits.
    pub(super) depth: u32,
}

impl Default for Division {
    /// Makes the division of the first group of a region.
    fn default() -> Division {
        Division { lower: FACTORS[FACTORS.len() - 1], upper: FACTORS[0], depth: 0 }
    }
}

impl Division {
    /// Returns the divisions of the lower and the upper half of the group.
    pub(super) fn halves(self) -> [Division; 2] {
        let depth = self.depth + 1;
        let upper = FACTORS[depth as usize];
        [self.lower, self.upper].map(|lower| Division { lower, upper, depth })
    }

    /// Returns the division of the group of which this one is the lower half.
    pub(super) fn whole(self) -> Division {
        let depth = self.depth - 1;
        Division { upper: FACTORS[depth as usize], depth, ..self }
    }

    /// Returns the place of the bit by which the group splits.
    #[inline(always)]
    pub(super) fn next_bit(self) -> u32 {
        u64::BITS - REGION_BITS - 1 - self.depth
    }

    /// Returns the chunk of a hash of the group, of which the last 56 bits are enough, if it has `count` chunks.
    #[inline(always)]
    pub(super) fn chunk(self, count: usize, hash: u64) -> usize {
        let folded = folded(hash);
        let lower = LOWER[count.min(HALF)][bucket(folded, self.lower)];
        let half = (hash >> self.next_bit() & 1) as usize;
        let upper = UPPER[count][half][bucket(folded, self.upper)];
        usize::from(select_unpredictable(upper == STAYS, lower, upper))
    }

    /// Returns the pairs of the last chunk of a group of `count` chunks, which it takes from the others when it is added.
    pub(super) fn of_last(self, count: usize) -> Part {
        let (factor, bit) = match count {
            ..=HALF => (self.lower, None),
            _ => (self.upper, Some(self.next_bit())),
        };
        Part { buckets: &LAST[count], factor, bit }
    }
}

/// The pairs of a group that are in one of its chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) buckets: &'static Buckets,
    /// The factor that mixes folded hashes.
    pub(super) factor: u32,
    /// The place of a bit that is 1 in their hashes.
    pub(super) bit: Option<u32>,
}

impl Part {
    /// Whether it has a hash of the group, of which the last 56 bits are enough.
    #[inline(always)]
    pub(super) fn has(&self, hash: u64) -> bool {
        let bucket = bucket(folded(hash), self.factor);
        let is_of_half = self.bit.is_none_or(|bit| hash >> bit & 1 == 1);
        // Not `&&`: a branch on a random bit is mispredicted every other time.
        is_of_half & (self.buckets[bucket / 32] >> (bucket % 32) & 1 == 1)
    }
}

/// Number of bits after those of a bucket in a mixed hash.
pub(super) const AFTER_BUCKET: u32 = u32::BITS - BUCKET_BITS;

/// Returns the bucket of a folded hash. It depends on all of its bits, and lines on most, so that hashes which have most bits
/// in common have several places, too.
#[inline(always)]
fn bucket(folded: u32, factor: u32) -> usize {
    (folded.wrapping_mul(factor) >> AFTER_BUCKET) as usize
}

#[cfg(test)]
mod tests {
    use super::{super::mix::mix, *};
    use crate::key::Seed;

    /// Returns hashes of the group of a hash at this depth.
    fn hashes(of: u64, depth: u32, count: usize) -> impl Iterator<Item = u64> {
        let shared = REGION_BITS + depth;
        (0..count as u64).map(move |i| of & !(u64::MAX >> shared) | mix(i, Seed(5)) >> shared)
    }

    /// Returns the division of the group of a hash at this depth.
    fn division(of: u64, depth: u32) -> Division {
        (0..depth).fold(Division::default(), |group, _| {
            group.halves()[(of >> group.next_bit() & 1) as usize]
        })
    }

    /// Returns groups of each depth: some that were never the upper half, and some that were, at various depths.
    fn groups() -> impl Iterator<Item = (u64, Division)> {
        let hashes = [0, u64::MAX, 0x5A31_4159_2653_5897, 7 << 56, 1 << 47];
        hashes
            .into_iter()
            .flat_map(|of| (0..=DEPTH_MAX).map(move |depth| (of, division(of, depth))))
    }

    /// A chunk that is added gets pairs from all others, so that each has its part, and no pair moves between these.
    #[test]
    fn a_further_chunk_takes_its_part_of_all_others() {
        const HASHES: usize = 20_000;
        for (of, group) in groups() {
            for count in 1..=CHUNKS_MAX {
                let mut counts = [0; CHUNKS_MAX];
                for hash in hashes(of, group.depth, HASHES) {
                    let (chunk, last) = (group.chunk(count, hash), count - 1);
                    counts[chunk] += 1;
                    assert_eq!(group.of_last(count).has(hash), chunk == last);
                    if count > 1 && chunk != last {
                        assert_eq!(chunk, group.chunk(count - 1, hash));
                    }
                }
                let part = HASHES / count;
                let is_part = |count: &usize| (part * 9 / 10..=part * 11 / 10).contains(count);
                assert!(counts[..count].iter().all(is_part), "{of:x} {group:?} {count} {counts:?}");
            }
        }
    }

    /// When a full group splits, the chunks of its halves are those that they were, in their order.
    #[test]
    fn the_halves_of_a_full_group_have_its_chunks() {
        for (of, group) in groups().filter(|(_, group)| group.depth < DEPTH_MAX) {
            for hash in hashes(of, group.depth, 2000) {
                let half = (hash >> group.next_bit() & 1) as usize;
                let chunk = group.halves()[half].chunk(HALF, hash);
                assert_eq!(group.chunk(CHUNKS_MAX, hash), half * HALF + chunk, "{of:x} {group:?}");
            }
            assert_eq!(group.halves()[0].whole(), group);
        }
    }

    /// Buckets by one factor say nothing about the buckets by another one, or about lines: all pairs of 16 parts of
    /// them are as frequent.
    #[test]
    fn buckets_by_different_factors_are_independent() {
        const HASHES: usize = 16 * 16 * 100;
        let factors: Vec<u32> = FACTORS.into_iter().chain([FACTOR]).collect();
        let folded: Vec<u32> = (0..HASHES as u64).map(|i| folded(mix(i, Seed(9)))).collect();
        for (i, one) in factors.iter().enumerate() {
            for other in &factors[..i] {
                let mut counts = [[0_usize; 16]; 16];
                for hash in &folded {
                    let [a, b] = [one, other].map(|factor| bucket(*hash, *factor) / (BUCKETS / 16));
                    counts[a][b] += 1;
                }
                let all = counts.as_flattened();
                assert!(all.iter().all(|count| (50..=150).contains(count)), "{one:x} {other:x}");
            }
        }
    }
}
