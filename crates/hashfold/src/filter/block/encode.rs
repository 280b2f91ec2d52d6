//! Encoding fingerprints in blocks.

use super::{
    kernel,
    layout::{BLOCK_SIZE, Bytes, GROUP, HEAD, ITEMS_MAX, LOW_BITS_MAX, fold},
    portable::{self, BucketMarks, Sizes},
};
use crate::{codec::put_varint, filter::machine::Wide, fingerprints::BatchSlice};

/// The size of a block without its head, in bytes.
const PAYLOAD: usize = BLOCK_SIZE - HEAD;

/// An encoder of fingerprints, which keeps its memory between blocks.
pub(in super::super) struct Encoder {
    wide: Option<Wide>,
    room: Box<Scratch>,
    exceptions: EncodedExceptions,
    /// Number of items in the last block, which is a guess for the next block.
    items: usize,
}

/// Memory for the bits of the buckets.
struct Scratch {
    /// Zeros between two blocks.
    marks: BucketMarks,
    words: kernel::BucketWords,
}

/// The number of items in a block, and their number of low bits.
#[derive(Clone, Copy)]
struct Filling {
    items: usize,
    low_bits: u32,
}

impl Encoder {
    pub(in super::super) fn new() -> Encoder {
        Encoder::on(Wide::detect())
    }

    /// Returns an encoder that uses these instructions.
    pub(super) fn on(wide: Option<Wide>) -> Encoder {
        let room = Scratch { marks: [0; _], words: [0; _] };
        Encoder {
            wide,
            room: Box::new(room),
            exceptions: EncodedExceptions::default(),
            items: ITEMS_MAX,
        }
    }

    /// Fills a block, without its checksum, with as many of the first items as fit. Returns the
    /// number of these items.
    ///
    /// At least one item fits. If not all fit, the next item differs from the last item of the
    /// block in the bits from `cut_shift` on (at most 63), unless all items of the block agree in
    /// these bits.
    pub(in super::super) fn encode(
        &mut self,
        items: BatchSlice<'_>,
        cut_shift: u32,
        block: &mut Bytes,
    ) -> usize {
        self.exceptions.clear();
        let shape = best_shape(items, &mut self.exceptions, self.items, cut_shift);
        self.items = shape.items;
        write(self.wide, items.fingerprints, shape, &mut self.room, block);
        let exceptions = self.exceptions.before(shape.items, items);
        block[6..8].copy_from_slice(&(exceptions.len() as u16).to_le_bytes());
        block[BLOCK_SIZE - exceptions.len()..].copy_from_slice(exceptions);
        shape.items
    }
}

/// The first exceptions, encoded as far as needed.
#[derive(Default)]
struct EncodedExceptions {
    bytes: Vec<u8>,
    /// The end of each exception.
    ends: Vec<usize>,
    /// The item after the last one.
    next: usize,
}

impl EncodedExceptions {
    /// Encodes the exceptions among the first `count` items.
    fn before(&mut self, count: usize, items: BatchSlice<'_>) -> &[u8] {
        let among = items.split_at(count).0.exceptions_len();
        let known = self.ends.len();
        self.ends.reserve(among);
        self.bytes.reserve(2 * among);
        items.exceptions_in(known.min(among)..among).for_each(|it| {
            let (gap, count) = ((it.position - self.next) as u64, fold(it.count));
            if gap | count < 0x80 {
                // Nearly all exceptions have two bytes.
                self.bytes.extend([gap as u8, count as u8]);
            } else {
                put_varint(&mut self.bytes, gap);
                put_varint(&mut self.bytes, count);
            }
            self.ends.push(self.bytes.len());
            self.next = it.position + 1;
        });
        &self.bytes[..among.checked_sub(1).map_or(0, |last| self.ends[last])]
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.next = 0;
    }
}

/// Returns the filling with the most items.
fn best_shape(
    items: BatchSlice<'_>,
    exceptions: &mut EncodedExceptions,
    near: usize,
    cut_shift: u32,
) -> Filling {
    // The best `low_bits` depends on the number of items, which depends on `low_bits`.
    const SAMPLE: usize = 2048;
    let fingerprints = items.fingerprints;
    let guess = low_bits(fingerprints, SAMPLE);
    let mut best = fill(items, exceptions, guess, near);
    let better = low_bits(fingerprints, best.items);
    if better != guess {
        let other = fill(items, exceptions, better, best.items);
        best = if other.items > best.items { other } else { best };
    }
    Filling { items: cut(fingerprints, best.items, cut_shift), ..best }
}

/// Returns the best number of low bits for the first `count` items.
///
/// An item takes `low_bits` bits and one, and a bit for each bucket that is passed: on average, the
/// mean distance divided by `2^low_bits`. One more low bit saves half of the passed buckets, which
/// is worth it if they are more than 2.
#[inline]
fn low_bits(items: &[u64], count: usize) -> u32 {
    let last = items.len().min(count).max(2) - 1;
    let distance = items.get(last).map_or(0, |item| item - items[0]);
    (distance / last as u64).max(1).ilog2()
}
const _: () = assert!(u64::MAX.ilog2() == LOW_BITS_MAX);

/// Returns the largest number of items that fit; `near` is a guess.
fn fill(
    items: BatchSlice<'_>,
    exceptions: &mut EncodedExceptions,
    low_bits: u32,
    near: usize,
) -> Filling {
    const STEP: usize = 16;
    let fingerprints = items.fingerprints;
    let mut fits = |count: usize| {
        // Distances of buckets may be up to 2^64, but then they do not fit.
        let buckets = (fingerprints[count - 1] >> low_bits) - (fingerprints[0] >> low_bits);
        let extra = exceptions.before(count, items).len();
        let lows = count.div_ceil(GROUP) * low_bits as usize;
        let room = (8 * PAYLOAD).saturating_sub(8 * (lows + extra));
        count <= room && buckets <= (room - count) as u64
    };
    let most = fingerprints.len().min(ITEMS_MAX);
    let (mut from, mut to) = (near.clamp(1, most), most + 1);
    if fits(from) {
        let mut step = STEP;
        while from + step < to {
            if fits(from + step) {
                from += step;
            } else {
                to = from + step;
            }
            step *= 2;
        }
    } else {
        let mut step = STEP;
        to = from;
        from = from.saturating_sub(step).max(1);
        while from > 1 && !fits(from) {
            (to, step) = (from, 2 * step);
            from = from.saturating_sub(step).max(1);
        }
    }
    // Invariant: `from` items fit; `to` items do not fit or do not exist. One item always fits.
    while to - from > 1 {
        let middle = from.midpoint(to);
        (from, to) = if fits(middle) { (middle, to) } else { (from, middle) };
    }
    Filling { items: from, low_bits }
}

/// Reduces the number of items so that the first item left out differs from the last item in a bit
/// from `cut_shift` on. Returns `count` if that is not possible.
fn cut(items: &[u64], count: usize, cut_shift: u32) -> usize {
    let Some(next) = items.get(count) else {
        return count;
    };
    let prefix = next >> cut_shift;
    if items[count - 1] >> cut_shift != prefix {
        return count;
    }
    match items[..count].partition_point(|item| item >> cut_shift < prefix) {
        0 => count,
        fewer => fewer,
    }
}

/// Writes a block except for the checksum and the exceptions.
fn write(wide: Option<Wide>, items: &[u64], shape: Filling, room: &mut Scratch, block: &mut Bytes) {
    let Filling { items: count, low_bits } = shape;
    block[..4].fill(0);
    block[4..6].copy_from_slice(&(count as u16).to_le_bytes());
    block[6..8].fill(0);
    block[8..16].copy_from_slice(&(items[0] >> low_bits).to_le_bytes());
    block[16] = low_bits as u8;
    block[17..HEAD].fill(0);
    let items = &items[..count];
    let buckets = (items[count - 1] >> low_bits) - (items[0] >> low_bits);
    let buckets_start = HEAD + count.div_ceil(GROUP) * low_bits as usize;
    let buckets_end = buckets_start + (count + buckets as usize).div_ceil(8);
    let sizes = Sizes { low_bits, buckets_start, buckets_end };
    match wide {
        Some(wide) if low_bits <= kernel::LOW_BITS_MAX => {
            kernel::pack_wide(wide, items, &sizes, &mut room.words, block);
        }
        _ => portable::pack(items, &sizes, &mut room.marks, block),
    }
    block[buckets_end..].fill(0);
}
