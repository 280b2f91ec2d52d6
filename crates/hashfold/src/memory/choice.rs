//! The places that a hash may have in a group: a chunk, and two lines of it.
//!
//! ```text
//! last 48 bits of a hash, mixed to 32 bits:   9 bits: bucket → chunk │ 5 + 12 bits: two lines of the chunk │ …
//! ```
//!
//! Hashes are divided into buckets, and a table has the chunk of each bucket for each number of chunks. A further chunk takes
//! its part of the buckets from all others: no other bucket moves. Both lines are in one chunk, and so is all that
//! a pair may displace: on one page, also where the system or a hypervisor has pages of 4 KiB.

use super::group::{CHUNK_LINES, CHUNKS_MAX};

/// Number of the first bits of a mixed hash that select a bucket, of those after them that select the first line, and of those
/// after these that select the second one.
const BUCKET_BITS: u32 = 9;
const FIRST_BITS: u32 = CHUNK_LINES.ilog2();
const SECOND_BITS: u32 = 12;

const _: () = assert!(CHUNK_LINES.is_power_of_two());

/// Number of buckets: a set of them fits in two registers of AVX2.
const BUCKETS: usize = 1 << BUCKET_BITS;

/// The chunk of each bucket, by the number of chunks.
type ChunkOfBucket = [u8; BUCKETS];

static CHUNKS: [ChunkOfBucket; CHUNKS_MAX + 1] = {
    let mut all = [[0; BUCKETS]; CHUNKS_MAX + 1];
    let mut count = 2;
    while count <= CHUNKS_MAX {
        all[count] = with_further_chunk(&all[count - 1], count - 1);
        count += 1;
    }
    all
};

/// Returns the chunk of each bucket after the chunk with this number has taken its part of the buckets, one after the other from
/// the chunk that has the most.
const fn with_further_chunk(chunks: &ChunkOfBucket, further: usize) -> ChunkOfBucket {
    let (mut grown, mut counts) = (*chunks, [0; CHUNKS_MAX]);
    let mut bucket = 0;
    while bucket < BUCKETS {
        counts[chunks[bucket] as usize] += 1;
        bucket += 1;
    }
    while counts[further] < BUCKETS / (further + 1) {
        let (mut most, mut chunk) = (0, 1);
        while chunk < further {
            if counts[chunk] > counts[most] {
                most = chunk;
            }
            chunk += 1;
        }
        let mut bucket = 0;
        while grown[bucket] as usize != most {
            bucket += 1;
        }
        grown[bucket] = further as u8;
        counts[most] -= 1;
        counts[further] += 1;
    }
    grown
}

/// A set of buckets: a bit for each.
pub(super) type Buckets = [u32; BUCKETS / 32];

/// The buckets of the last chunk, by the number of chunks.
static LAST: [Buckets; CHUNKS_MAX + 1] = {
    let mut all = [[0; BUCKETS / 32]; CHUNKS_MAX + 1];
    let mut count = 1;
    while count <= CHUNKS_MAX {
        let mut bucket = 0;
        while bucket < BUCKETS {
            if CHUNKS[count][bucket] as usize == count - 1 {
                all[count][bucket / 32] |= 1 << (bucket % 32);
            }
            bucket += 1;
        }
        count += 1;
    }
    all
};

/// Returns the chunk of a hash, of which the last 48 bits are enough, in a group of `count` chunks.
#[inline(always)]
pub(super) fn chunk(count: usize, hash: u64) -> usize {
    usize::from(CHUNKS[count][bucket(hash)])
}

/// Returns the buckets of the last chunk in a group of `count` chunks, which it takes from the others when it is added.
#[inline(always)]
pub(super) fn buckets_of_last(count: usize) -> &'static Buckets {
    &LAST[count]
}

/// Whether the bucket of a hash, of which the last 48 bits are enough, is one of these.
#[inline(always)]
pub(super) fn is_in(buckets: &Buckets, hash: u64) -> bool {
    let bucket = bucket(hash);
    buckets[bucket / 32] >> (bucket % 32) & 1 == 1
}

/// The factor that mixes folded hashes: odd, so that all of their bits count.
pub(super) const FACTOR: u32 = 0x9E37_79B1;

/// Number of bits after those of a bucket in a mixed hash.
pub(super) const AFTER_BUCKET: u32 = u32::BITS - BUCKET_BITS;

/// Folds the last 48 bits of a hash to 32.
#[inline(always)]
pub(super) fn folded(hash: u64) -> u32 {
    hash as u32 ^ (hash >> 16) as u32
}

/// Mixes the last 48 bits of a hash. The bits that select a bucket depend on all of them, and those that select lines on most,
/// so that hashes which have most bits in common have several places, too.
#[inline(always)]
fn mixed(hash: u64) -> u32 {
    folded(hash).wrapping_mul(FACTOR)
}

/// Returns the bucket of a hash.
#[inline(always)]
fn bucket(hash: u64) -> usize {
    (mixed(hash) >> AFTER_BUCKET) as usize
}

/// Returns the two lines of its chunk that may have a hash, of which the last 48 bits are enough. They are distinct.
#[inline(always)]
pub(super) fn lines(hash: u64) -> [usize; 2] {
    const LINES: u32 = CHUNK_LINES as u32;
    let bits = mixed(hash) << BUCKET_BITS;
    let first = bits >> (u32::BITS - FIRST_BITS);
    let bits = bits << FIRST_BITS >> (u32::BITS - SECOND_BITS);
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

    /// A chunk that is added has as many buckets as each of the others, or one less, and no bucket moves between these.
    #[test]
    fn a_further_chunk_takes_its_part_of_all_others() {
        for count in 1..=CHUNKS_MAX {
            let of =
                |chunk: usize| CHUNKS[count].iter().filter(|of| usize::from(**of) == chunk).count();
            let part = BUCKETS / count;
            assert!((0..count).all(|chunk| (part..=part + 1).contains(&of(chunk))), "{count}");
            if count > 1 {
                let mut both = CHUNKS[count - 1].iter().zip(&CHUNKS[count]);
                assert!(both.all(|(old, new)| old == new || usize::from(*new) == count - 1));
            }
        }
    }

    #[test]
    fn the_last_chunk_has_its_buckets() {
        for count in 1..=CHUNKS_MAX {
            for i in 0..5000 {
                let hash = mix(i, Seed(4));
                assert_eq!(is_in(buckets_of_last(count), hash), chunk(count, hash) == count - 1);
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
