//! The directory: from a hash to its bucket's first rank and code, in one cache line.
//!
//! Hashes are cut into equal ranges, *superblocks* of [`BUCKETS`] buckets. The line of a
//! superblock (the same table stands in `docs/formats/table.md`):
//!
//! | offset | size | field     |                                                                   |
//! |-------:|-----:|-----------|-------------------------------------------------------------------|
//! |      0 |   28 | counts    | keys of each bucket, less bucket_size, plus 128                   |
//! |     28 |   28 | residuals | bits of code of each bucket, less those predicted, plus 128       |
//! |     56 |    4 | rank      | of the first key, from that of the epoch on                       |
//! |     60 |    4 | bits      | where the code starts, from that of the epoch on; all ones: none  |
//!
//! With R the keys before a bucket in its superblock, the code of a bucket of c keys is predicted
//! to take P(R + c) - P(R) bits, where P(R) = R * slope / 256, rounded down.
//!
//! An *epoch* is [`EPOCH`] superblocks, with its first rank and code position in full, so that a
//! line has four-byte numbers however large the table is.
//!
//! A superblock that does not fit its line (a count or residual out of range, keys that agree in
//! 64 bits, a trie too skewed for the decoder) is *explicit*: its hashes are kept in a list of
//! their own. With uniform hashes there are next to none; with hashes made to hurt, the index
//! grows to 16 bytes a key and stays correct.

use super::{
    code::KEYS_MAX,
    kernel::{Kernel, SUMMED},
};

/// Buckets in a superblock: as many as fill one cache line with their superblock's own fields.
pub(super) const BUCKETS: usize = 28;

/// The size of a superblock's line, in bytes: one cache line.
pub(super) const LINE_SIZE: usize = 64;

/// Superblocks in an epoch.
pub(super) const EPOCH: u64 = 1 << 14;

const RESIDUALS_OFFSET: usize = BUCKETS;
const RANK_OFFSET: usize = 2 * BUCKETS;
const BITS_OFFSET: usize = RANK_OFFSET + size_of::<u32>();
const _: () = assert!(BITS_OFFSET + size_of::<u32>() == LINE_SIZE);
const _: () = assert!(RESIDUALS_OFFSET + SUMMED <= LINE_SIZE);

/// In a line's `bits`: the superblock is explicit.
const EXPLICIT: u32 = u32::MAX;

/// What stored counts and residuals are shifted by.
const MIDDLE: i64 = 128;

/// The largest mean bucket size: the one whose largest count the decoder's nodes can hold.
pub(super) const BUCKET_SIZE_MAX: u32 = 512;
const _: () = assert!(BUCKET_SIZE_MAX as usize + 127 <= KEYS_MAX);

/// Where a hash belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) superblock: u64,
    pub(super) bucket: usize,
    /// The bits of the hash that tell keys of one bucket apart, the first one highest.
    pub(super) fraction: u64,
}

impl Address {
    /// Of a hash's high 64 bits, with this number of superblocks in all. Keeps the order.
    #[inline(always)]
    pub(super) fn of(hash: u64, superblocks: u64) -> Address {
        let (rest, superblock) = hash.widening_product(superblocks);
        let (fraction, bucket) = rest.widening_product(BUCKETS as u64);
        Address { superblock, bucket: bucket as usize, fraction }
    }
}

trait WideningProduct {
    /// The low and the high half of the product.
    fn widening_product(self, other: u64) -> (u64, u64);
}

impl WideningProduct for u64 {
    #[inline(always)]
    fn widening_product(self, other: u64) -> (u64, u64) {
        let product = u128::from(self) * u128::from(other);
        (product as u64, (product >> 64) as u64)
    }
}

/// The numbers that lines are read with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    /// The mean number of keys in a bucket.
    pub(super) bucket_size: u32,
    /// Predicted bits of code a key, times 256.
    pub(super) slope: u32,
}

impl Scale {
    #[inline(always)]
    fn predicted(self, keys: u64) -> i64 {
        // Keys from a damaged file may be too many.
        (keys.wrapping_mul(u64::from(self.slope)) >> 8) as i64
    }
}

/// The keys and code of a bucket, from the start of its epoch on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    pub(super) first_rank: u64,
    pub(super) keys: usize,
    /// Where its code starts and ends, in bits.
    pub(super) start: u64,
    pub(super) end: u64,
}

/// A superblock's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a>(pub(super) &'a [u8; LINE_SIZE]);

impl Line<'_> {
    /// The bucket with this number, or `None` if the superblock is explicit.
    #[inline(always)]
    pub(super) fn bucket<K: Kernel>(self, bucket: usize, scale: Scale) -> Option<Bucket> {
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
        Some(Bucket {
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

/// One superblock as the builder hands it over: keys and code size of each bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shape {
    pub(super) keys: [u32; BUCKETS],
    pub(super) bits: [u32; BUCKETS],
}

/// Encodes the line of a superblock whose rank and code start at these places in their epoch;
/// `None` if something does not fit.
pub(super) fn encode(shape: &Shape, rank: u64, bits: u64, scale: Scale) -> Option<[u8; LINE_SIZE]> {
    let mut line = [0; LINE_SIZE];
    let mut before = 0;
    for i in 0..BUCKETS {
        let keys = u64::from(shape.keys[i]);
        let count = keys as i64 - i64::from(scale.bucket_size) + MIDDLE;
        let predicted = scale.predicted(before + keys) - scale.predicted(before);
        let residual = i64::from(shape.bits[i]) - predicted + MIDDLE;
        line[i] = u8::try_from(count).ok()?;
        line[RESIDUALS_OFFSET + i] = u8::try_from(residual).ok()?;
        before += keys;
    }
    let bits = u32::try_from(bits).ok().filter(|&bits| bits != EXPLICIT)?;
    line[RANK_OFFSET..BITS_OFFSET].copy_from_slice(&u32::try_from(rank).ok()?.to_le_bytes());
    line[BITS_OFFSET..].copy_from_slice(&bits.to_le_bytes());
    Some(line)
}

/// The line of an explicit superblock.
pub(super) const EXPLICIT_LINE: [u8; LINE_SIZE] = [0xff; LINE_SIZE];
