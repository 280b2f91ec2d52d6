//! The directory of a trie: from a hash to its bucket's first rank and code, with one cache line.
//!
//! Hashes are divided into equal ranges, *superblocks* of [`BUCKETS`] buckets. The line of a
//! superblock (`docs/formats/table.md` has the same table):
//!
//! | offset | size | field     |                                                                   |
//! |-------:|-----:|-----------|-------------------------------------------------------------------|
//! |      0 |   28 | counts    | keys of each bucket, less bucket_size, plus 128                   |
//! |     28 |   28 | residuals | bits of code of each bucket, less those predicted, plus 128       |
//! |     56 |    4 | rank      | of the first key, less that of the epoch                          |
//! |     60 |    4 | bits      | start of the code, less that of the epoch; all ones: no code      |
//!
//! With R keys before a bucket in its superblock, the predicted size of the code of a bucket of c keys
//! is P(R + c) - P(R) bits, where P(R) = R * slope / 256, rounded down.
//!
//! An *epoch* is [`EPOCH`] superblocks. Its first rank and code position are stored in full, so that
//! four-byte numbers suffice in a line however large the table is.
//!
//! A superblock that does not fit its line (a count or residual out of range, keys that agree in
//! 64 bits, a trie too skewed for the decoder) is *explicit*: its hashes are stored in a list. With
//! uniform hashes there are almost none. With hashes that an attacker chose, the index grows to 16
//! bytes per key and stays correct.

use super::{
    code::KEYS_MAX,
    kernel::{BitOps, SUMMED},
};

/// Number of buckets in a superblock: their bytes and the superblock's own fields fill one cache
/// line.
pub(super) const BUCKETS: usize = 28;

/// Size of a superblock's line, in bytes: one cache line.
pub(super) const LINE_SIZE: usize = 64;

/// Number of superblocks in an epoch.
pub(super) const EPOCH: u64 = 1 << 14;

const RESIDUALS_OFFSET: usize = BUCKETS;
const RANK_OFFSET: usize = 2 * BUCKETS;
const BITS_OFFSET: usize = RANK_OFFSET + size_of::<u32>();
const _: () = assert!(BITS_OFFSET + size_of::<u32>() == LINE_SIZE);
const _: () = assert!(BUCKETS < SUMMED);
const _: () = assert!(RESIDUALS_OFFSET + SUMMED <= LINE_SIZE);

/// Size of an epoch's entry, in bytes.
pub(super) const EPOCH_SIZE: usize = 16;
/// Size of an explicit superblock's entry, in bytes.
pub(super) const EXPLICIT_SIZE: usize = 24;
/// Size of a listed hash, in bytes.
pub(super) const HASH_SIZE: usize = 16;

/// The value of a line's `bits` in an explicit superblock.
const EXPLICIT: u32 = u32::MAX;

/// The offset that is added to stored counts and residuals.
const MIDDLE: i64 = 128;

/// The largest mean bucket size: the decoder's nodes can hold its largest count.
pub(super) const BUCKET_SIZE_MAX: u32 = 512;
const _: () = assert!(BUCKET_SIZE_MAX as usize + 127 <= KEYS_MAX);

/// The superblock, the bucket and the fraction of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) superblock: u64,
    pub(super) bucket: usize,
    /// The bits of the hash that tell the keys of one bucket apart, the first bit highest.
    pub(super) fraction: u64,
}

impl Address {
    /// Returns the address of a hash's high 64 bits, if there are this many superblocks. Addresses
    /// order like hashes.
    #[inline(always)]
    pub(super) fn of(hash: u64, superblocks: u64) -> Address {
        let (rest, superblock) = hash.widening_product(superblocks);
        let (fraction, bucket) = rest.widening_product(BUCKETS as u64);
        Address { superblock, bucket: bucket as usize, fraction }
    }
}

trait WideningProduct {
    /// Returns the low and the high half of the product.
    fn widening_product(self, other: u64) -> (u64, u64);
}

impl WideningProduct for u64 {
    #[inline(always)]
    fn widening_product(self, other: u64) -> (u64, u64) {
        let product = u128::from(self) * u128::from(other);
        (product as u64, (product >> 64) as u64)
    }
}

/// The numbers that lines are decoded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    /// Mean number of keys in a bucket.
    pub(super) bucket_size: u32,
    /// Predicted bits of code per key, times 256.
    pub(super) slope: u32,
}

impl Scale {
    #[inline(always)]
    fn predicted(self, keys: u64) -> i64 {
        // A damaged file may claim too many keys.
        (keys.wrapping_mul(u64::from(self.slope)) >> 8) as i64
    }
}

/// The keys and the code of a bucket, relative to the start of its epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TrieBucket {
    pub(super) first_rank: u64,
    pub(super) keys: usize,
    /// Start of the bucket's code, in bits; the next field is its end.
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The line of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a>(pub(super) &'a [u8; LINE_SIZE]);

impl Line<'_> {
    /// Returns the bucket with this number, or `None` if the superblock is explicit.
    #[inline(always)]
    pub(super) fn bucket<K: BitOps>(self, bucket: usize, scale: Scale) -> Option<TrieBucket> {
        let (counts, _) = self.0.split_first_chunk::<SUMMED>()?;
        let (residuals, _) = self.0[RESIDUALS_OFFSET..].split_first_chunk::<SUMMED>()?;
        let bits = self.u32(BITS_OFFSET);
        if bits == EXPLICIT {
            return None;
        }
        let i = bucket as i64;
        let bucket_size = i64::from(scale.bucket_size);
        let before = K::sum(counts, bucket) as i64 + i * (bucket_size - MIDDLE);
        let keys = i64::from(counts[bucket]) + bucket_size - MIDDLE;
        let shift = K::sum(residuals, bucket) as i64 - i * MIDDLE;
        let residual = i64::from(residuals[bucket]) - MIDDLE;
        let predicted = scale.predicted(before as u64);
        let start = i64::from(bits) + predicted + shift;
        let len = scale.predicted((before + keys) as u64) - predicted + residual;
        Some(TrieBucket {
            first_rank: (i64::from(self.u32(RANK_OFFSET)) + before) as u64,
            keys: keys.clamp(0, KEYS_MAX as i64) as usize,
            start: start as u64,
            end: (start + len) as u64,
        })
    }

    #[inline(always)]
    fn u32(self, offset: usize) -> u32 {
        let bytes = self.0[offset..].first_chunk().expect("the offset is that of a field");
        u32::from_le_bytes(*bytes)
    }
}

/// A superblock before it is encoded: the number of keys and the code size of each bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Superblock {
    pub(super) keys: [u32; BUCKETS],
    pub(super) bits: [u32; BUCKETS],
}

/// Encodes the line of a superblock whose rank and code start at these places in their epoch;
/// `None` if a number does not fit.
pub(super) fn encode(
    superblock: &Superblock,
    rank: u64,
    bits: u64,
    scale: Scale,
) -> Option<[u8; LINE_SIZE]> {
    let mut line = [0; LINE_SIZE];
    let mut before = 0;
    for i in 0..BUCKETS {
        let keys = u64::from(superblock.keys[i]);
        let count = keys as i64 - i64::from(scale.bucket_size) + MIDDLE;
        let predicted = scale.predicted(before + keys) - scale.predicted(before);
        let residual = i64::from(superblock.bits[i]) - predicted + MIDDLE;
        line[i] = u8::try_from(count).ok()?;
        line[RESIDUALS_OFFSET + i] = u8::try_from(residual).ok()?;
        before += keys;
    }
    let bits = u32::try_from(bits).ok().filter(|&bits| bits != EXPLICIT)?;
    line[RANK_OFFSET..BITS_OFFSET].copy_from_slice(&u32::try_from(rank).ok()?.to_le_bytes());
    line[BITS_OFFSET..].copy_from_slice(&bits.to_le_bytes());
    Some(line)
}

/// A superblock that lists its hashes, because a bucket of it cannot be coded: see the front page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Explicit {
    pub(super) superblock: u64,
    pub(super) first_rank: u64,
    /// Index of the first hash in the list of hashes.
    pub(super) first_hash: u64,
}

/// The line of an explicit superblock.
pub(super) const EXPLICIT_LINE: [u8; LINE_SIZE] = [0xff; LINE_SIZE];
