//! The places that a hash may have in a group: a chunk, and two lines of it.
//!
//! ```text
//! last 48 bits of a hash × an odd number →   18 bits: bucket → chunk │ 5 + 12 bits: two lines of the chunk │ …
//! ```
//!
//! Hashes are divided into buckets, and a table has the chunk of each bucket for each number of chunks. A further chunk takes
//! its part of the buckets from all others: no other bucket moves. Both lines are in one chunk, and so is all that
//! a pair may displace: on one page, also where the system or a hypervisor has pages of 4 KiB.

use super::{
    group::{CHUNK_LINES, CHUNKS_MAX},
    line::LOW_BITS,
};

/// Number of buckets: each number of chunks divides it.
const BUCKETS: usize = 420;

/// Number of the first bits of a mixed hash that select a bucket, of those after them that select the first line, and of those
/// after these that select the second one.
const BUCKET_BITS: u32 = 18;
const FIRST_BITS: u32 = CHUNK_LINES.ilog2();
const SECOND_BITS: u32 = 12;

const _: () = assert!(CHUNK_LINES.is_power_of_two());

/// The chunk of each bucket, by the number of chunks.
pub(super) type ChunkOfBucket = [u8; BUCKETS];

static CHUNKS: [ChunkOfBucket; CHUNKS_MAX + 1] = {
    let mut all = [[0; BUCKETS]; CHUNKS_MAX + 1];
    let mut count = 2;
    while count <= CHUNKS_MAX {
        all[count] = with_further_chunk(&all[count - 1], count - 1);
        count += 1;
    }
    all
};

/// Returns the chunk of each bucket after the chunk with this number has taken buckets from all chunks before it.
const fn with_further_chunk(chunks: &ChunkOfBucket, further: usize) -> ChunkOfBucket {
    assert!(BUCKETS.is_multiple_of(further * (further + 1)));
    let (mut grown, mut taken) = (*chunks, [0; CHUNKS_MAX]);
    let mut bucket = 0;
    while bucket < BUCKETS {
        let chunk = chunks[bucket] as usize;
        if taken[chunk] < BUCKETS / further / (further + 1) {
            taken[chunk] += 1;
            grown[bucket] = further as u8;
        }
        bucket += 1;
    }
    grown
}

/// Returns the chunk of each bucket in a group of `count` chunks.
#[inline(always)]
pub(super) fn chunk_of_bucket(count: usize) -> &'static ChunkOfBucket {
    &CHUNKS[count]
}

/// Mixes the last 48 bits of a hash. The bits that select a bucket depend on all of them, and those that select lines on the last
/// 30, so that hashes which have most bits in common have several places, too.
#[inline(always)]
fn mixed(hash: u64) -> u64 {
    (hash << (u64::BITS - LOW_BITS)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns the bucket of a hash, of which the last 48 bits are enough.
#[inline(always)]
pub(super) fn bucket(hash: u64) -> usize {
    let bits = mixed(hash) >> (u64::BITS - BUCKET_BITS);
    ((bits * BUCKETS as u64) >> BUCKET_BITS) as usize
}

/// Returns the two lines of its chunk that may have a hash, of which the last 48 bits are enough. They are distinct.
#[inline(always)]
pub(super) fn lines(hash: u64) -> [usize; 2] {
    const LINES: u64 = CHUNK_LINES as u64;
    let bits = mixed(hash) << BUCKET_BITS;
    let first = bits >> (u64::BITS - FIRST_BITS);
    let bits = bits << FIRST_BITS >> (u64::BITS - SECOND_BITS);
    let second = first + 1 + ((bits * (LINES - 1)) >> SECOND_BITS);
    [first as usize, (second % LINES) as usize]
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            group::{DEPTH_MAX, REGION_BITS},
            mix::mix,
        },
        *,
    };
    use crate::key::Seed;

    /// A chunk that is added has as many buckets as each of the others, and no bucket moves between these.
    #[test]
    fn a_further_chunk_takes_its_part_of_all_others() {
        for count in 1..=CHUNKS_MAX {
            let of = |chunk: usize| {
                chunk_of_bucket(count).iter().filter(|of| usize::from(**of) == chunk).count()
            };
            assert!((0..count).all(|chunk| of(chunk) == BUCKETS / count), "{count}");
            if count > 1 {
                let mut both = chunk_of_bucket(count - 1).iter().zip(chunk_of_bucket(count));
                assert!(both.all(|(old, new)| old == new || usize::from(*new) == count - 1));
            }
        }
    }

    /// Each pair of lines, and each chunk, is as frequent as the others, also in the deepest group.
    #[test]
    fn all_places_are_as_frequent() {
        const HASHES: usize = 400_000;
        let mut pairs = [[0_usize; CHUNK_LINES]; CHUNK_LINES];
        let mut buckets = [[0_usize; CHUNK_LINES]; BUCKETS];
        for i in 0..HASHES {
            let hash = 7 << 60 | mix(i as u64, Seed(1)) >> (REGION_BITS + DEPTH_MAX);
            let [first, second] = lines(hash);
            assert!(first != second && first < CHUNK_LINES && second < CHUNK_LINES);
            pairs[first][second] += 1;
            buckets[bucket(hash)][first] += 1;
        }
        let mean = HASHES / (CHUNK_LINES * (CHUNK_LINES - 1));
        let between = |mean: usize| move |count: &usize| (mean / 2..mean * 2).contains(count);
        for (first, counts) in pairs.iter().enumerate() {
            let others = counts.iter().enumerate().filter(|(second, _)| *second != first);
            assert!(others.map(|(_, count)| count).all(between(mean)));
        }
        let mean = HASHES / BUCKETS;
        assert!(
            buckets.iter().map(|counts| counts.iter().sum()).all(|count| between(mean)(&count))
        );
    }
}
