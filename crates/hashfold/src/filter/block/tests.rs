//! Blocks compared with plain lists.

use super::{super::machine::Wide, layout::*, *};
use crate::{fingerprints::FingerprintBatch, io::Seal};
use proptest::{collection::vec, prelude::*};

/// Returns the instructions of this processor, and none.
fn machines() -> [Option<Wide>; 2] {
    [None, Wide::detect()]
}

fn naive_find(batch: &FingerprintBatch, fingerprint: u64) -> Option<i64> {
    let position = batch.fingerprints.binary_search(&fingerprint).ok()?;
    let exception = batch.exceptions.iter().find(|exception| exception.position == position);
    Some(exception.map_or(1, |exception| exception.count))
}

/// Packs a batch into blocks, and checks each block. Returns the number of items in each.
#[track_caller]
fn check(all: &FingerprintBatch, cut_shift: u32) -> Vec<usize> {
    let mut encoders = machines().map(Encoder::on);
    let (mut start, mut lens) = (0, Vec::new());
    while start < all.len() {
        let mut bytes = [0xaa; BLOCK_SIZE];
        let mut same = [0x55; BLOCK_SIZE];
        let [anywhere, wide] = &mut encoders;
        let rest = all.from(start);
        let taken = anywhere.encode(rest, cut_shift, &mut bytes);
        assert_eq!(wide.encode(rest, cut_shift, &mut same), taken);
        assert!(bytes == same, "the blocks of two machines differ");
        let (now, later) = rest.split_at(taken);
        start += taken;
        let mut here = FingerprintBatch::new();
        here.append(now);
        Seal::of(3, 4).put(&mut bytes);
        let block = unseal(&bytes, 3, 4).unwrap();
        assert_eq!(block.len(), here.len());
        assert_eq!(Some(block.first()), here.first());
        if let Some(next) = later.fingerprints.first() {
            let [first, last] = [here.first(), here.last()].map(|it| it.unwrap() >> cut_shift);
            assert!(last < next >> cut_shift || first == last);
        }
        for machine in machines() {
            let mut decoded = FingerprintBatch { fingerprints: vec![5, 4], exceptions: Vec::new() };
            block.decode_on(machine, &mut decoded).unwrap();
            decoded.remove_first(2);
            assert_eq!(decoded, here, "{machine:?}");
            for &item in &here.fingerprints {
                for near in [item, item.wrapping_add(1), item.wrapping_sub(1)] {
                    let found = block.find_on(machine, near).unwrap();
                    assert_eq!(found, naive_find(&here, near), "{machine:?} {near:#x}");
                }
            }
        }
        lens.push(here.len());
    }
    lens
}

/// Returns ascending numbers whose distances are one more than these.
fn sums(gaps: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut next = Some(0_u64);
    let sum = |gap| {
        let item = next?.checked_add(gap)?;
        next = item.checked_add(1);
        Some(item)
    };
    gaps.into_iter().map_while(sum).collect()
}

fn ones(fingerprints: Vec<u64>) -> FingerprintBatch {
    FingerprintBatch::from_sorted(fingerprints).unwrap()
}

/// Returns a batch of these fingerprints, with counts by position.
fn counted(fingerprints: &[u64], count: impl Fn(usize) -> i64) -> FingerprintBatch {
    let mut batch = FingerprintBatch::new();
    for (i, &fingerprint) in fingerprints.iter().enumerate() {
        batch.push(fingerprint, count(i)).unwrap();
    }
    batch
}

/// Returns uniform distances up to twice their mean, from a splitmix64 stream.
fn even_gaps(count: u64, mean: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |i| {
        let mut x = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(x ^ x >> 31) * (2 * u128::from(mean) + 1)) >> 64) as u64
    })
}

#[test]
fn blocks_of_every_density_decode_to_their_input() {
    for bits in 0..64 {
        let items = sums(even_gaps(3000, (1 << bits) - 1));
        check(&ones(items), 0);
    }
}

#[test]
fn a_block_takes_two_and_a_half_bits_more_than_the_distance_has() {
    for bits in [2, 5, 11, 13, 20, 40] {
        let items = sums(even_gaps(20_000, 1 << bits));
        let lens = check(&ones(items), 0);
        let most = (BLOCK_SIZE * 8) as f64 / (f64::from(bits) + 2.1);
        assert!(lens[0] as f64 > most * 0.95, "{bits} {}", lens[0]);
    }
}

#[test]
fn dense_numbers_fill_a_block_with_as_many_as_it_may_have() {
    assert_eq!(check(&ones((7..9000).collect()), 0), [ITEMS_MAX, 9000 - 7 - ITEMS_MAX]);
}

#[test]
fn far_ends_of_the_universe_fit_in_one_block() {
    check(&ones(vec![0]), 0);
    check(&ones(vec![u64::MAX]), 63);
    check(&ones(vec![0, u64::MAX]), 63);
    check(&ones(vec![0, 1, 2, u64::MAX - 1, u64::MAX]), 32);
    check(&ones((0..64).map(|bit| 1 << bit).collect()), 0);
    check(&ones((0..63).map(|bit| u64::MAX << (63 - bit)).collect()), 0);
}

#[test]
fn a_change_of_density_costs_little() {
    let mut gaps: Vec<u64> = vec![3; 5000];
    gaps.push(1 << 60);
    gaps.extend([3; 5000]);
    assert_eq!(check(&ones(sums(gaps)), 0).len(), 2);
}

#[test]
fn blocks_end_where_the_prefix_changes() {
    // Five items with one prefix, then more items with one prefix than a block holds.
    let mut items: Vec<u64> = (0..10_000).map(|i| ((i / 5) << 40) | ((i % 5) << 30)).collect();
    items.extend((0..10_000).map(|i| 1 << 62 | i << 20));
    items.extend((0..3).map(|i| 1 << 63 | i));
    let lens = check(&ones(items), 40);
    assert!(lens.len() > 5, "{lens:?}");
}

#[test]
fn items_of_other_counts_cost_a_block_little() {
    let items = sums(even_gaps(6000, 1000));
    let counts = [-1, 2, 3, i64::MAX, i64::MIN, -2];
    for every in [1, 2, 10, 1000, 5999] {
        let count = |i: usize| match i % every == every / 2 {
            true if i.is_multiple_of(37) => counts[i % 6],
            is_exception => 1 - 2 * i64::from(is_exception),
        };
        check(&counted(&items, count), 0);
    }
}

fn sealed(batch: &FingerprintBatch) -> Bytes {
    let mut bytes = [0; BLOCK_SIZE];
    Encoder::new().encode(batch.all(), 0, &mut bytes);
    Seal::of(3, 4).put(&mut bytes);
    bytes
}

#[test]
fn every_flipped_bit_is_noticed() {
    let mut bytes = sealed(&ones(sums(even_gaps(3000, 5000))));
    assert!(unseal(&bytes, 3, 5).is_err());
    assert!(unseal(&bytes, 2, 4).is_err());
    assert!(unseal(&bytes[1..], 3, 4).is_err());
    for bit in 0..BLOCK_SIZE * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(unseal(&bytes, 3, 4).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    unseal(&bytes, 3, 4).unwrap();
}

/// Checks that arbitrary bytes cause errors or fingerprints, the same with and without AVX-512.
fn use_forged(bytes: &Bytes) {
    let Ok(block) = Block::new(bytes) else {
        return;
    };
    let mut decoded = machines().map(|machine| {
        let mut items = FingerprintBatch::new();
        let result = block.decode_on(machine, &mut items);
        assert!(result.is_ok() || items == FingerprintBatch::new());
        for fingerprint in [0, 1, block.first(), u64::MAX / 2, u64::MAX] {
            let _ = block.find_on(machine, fingerprint);
        }
        result.ok().map(|()| items)
    });
    let [anywhere, wide] = decoded.each_mut().map(Option::take);
    assert_eq!(anywhere, wide);
    if let Some(items) = anywhere {
        assert!(items.fingerprints.is_sorted_by(|a, b| a < b));
        assert!(items.exceptions.is_sorted_by(|a, b| a.position < b.position));
        assert!(items.exceptions.iter().all(|it| it.position < items.len()));
        assert_eq!(items.len(), block.len());
    }
}

#[test]
fn lows_that_do_not_ascend_are_refused() {
    // Two items of one bucket.
    let good = sealed(&ones(vec![4096, 4096 + 10, 3 << 12, 4 << 12]));
    let swap = |bytes: &mut Bytes| bytes[HEAD..HEAD + 3].fill(0xff);
    let mut bad = good;
    swap(&mut bad);
    Seal::of(3, 4).put(&mut bad);
    let block = unseal(&bad, 3, 4).unwrap();
    for machine in machines() {
        assert!(block.decode_on(machine, &mut FingerprintBatch::new()).is_err());
    }
}

proptest! {
    #[test]
    fn any_ascending_list_comes_back(
        gaps in vec((0_u32..64, any::<u64>()), 1..3000),
        bits in 0_u32..64,
        cut_shift in 0_u32..64,
        every in 1_usize..200,
    ) {
        let items = sums(gaps.iter().map(|(shift, gap)| (gap >> shift) >> bits));
        let count = |i: usize| if i > 0 && i.is_multiple_of(every) { 2 + i as i64 } else { 1 };
        check(&counted(&items, count), cut_shift);
    }

    #[test]
    fn random_bytes_under_a_right_checksum_never_panic(
        head in any::<[u8; 16]>(),
        items in 1..=ITEMS_MAX as u16,
        exceptions in 0_u16..5000,
        low_bits in 0_u8..64,
        rest in vec(any::<u8>(), BLOCK_SIZE - HEAD),
    ) {
        let mut bytes = [0; BLOCK_SIZE];
        bytes[HEAD..].copy_from_slice(&rest);
        bytes[4..HEAD].copy_from_slice(&head);
        use_forged(&bytes);
        bytes[4..6].copy_from_slice(&items.to_le_bytes());
        bytes[6..8].copy_from_slice(&exceptions.to_le_bytes());
        bytes[14..HEAD].copy_from_slice(&[0, 0, low_bits, 0, 0, 0]);
        bytes[HEAD + 1] |= 1;
        use_forged(&bytes);
    }

    #[test]
    fn bits_flipped_under_a_right_checksum_never_panic(
        bits in vec(0..BLOCK_SIZE * 8, 1..4),
        in_head in 32..HEAD * 8,
        is_counted in any::<bool>(),
        mean in 0_u32..60,
    ) {
        let items = sums(even_gaps(2000, 1 << mean));
        let count = |i| if is_counted && i % 9 == 4 { -7 } else { 1 };
        let mut bytes = sealed(&counted(&items, count));
        for bit in bits {
            bytes[bit / 8] ^= 1 << (bit % 8);
            use_forged(&bytes);
        }
        bytes[in_head / 8] ^= 1 << (in_head % 8);
        use_forged(&bytes);
    }
}
