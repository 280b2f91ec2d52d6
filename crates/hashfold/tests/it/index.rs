//! Indexes without tables, over adversarial and uniform hashes.

use crate::fixture::random;
use hashfold::{
    ErrorKind, KeyHash,
    table::{HashIndex, IndexOptions, expected_trie_bits},
};

fn options(bucket_size: u32) -> IndexOptions {
    IndexOptions { bucket_size, ..IndexOptions::default() }
}

/// Checks that every hash finds its rank with each index, alone and among others, for any announced
/// number of hashes.
#[track_caller]
fn check_promised(hashes: &[u128], promised: u64, bucket_size: u32) {
    let options = options(bucket_size);
    let mut hashes: Vec<KeyHash> = hashes.iter().map(|&bits| KeyHash::from_bits(bits)).collect();
    hashes.sort();
    let all = || hashes.iter().copied();
    let mut indexes = vec![(1, HashIndex::dense(all(), promised, &options).unwrap())];
    for per_block in [1, 2, 7, 50] {
        indexes.push((per_block, HashIndex::sparse(all(), promised, per_block, &options).unwrap()));
    }
    for (per_block, index) in &indexes {
        let mut many = Vec::new();
        index.ranks_many(&hashes, &mut many);
        for (rank, hash) in hashes.iter().enumerate() {
            let ranks = index.ranks(*hash);
            assert!(ranks.contains(&(rank as u64)), "{hash}: {ranks:?} without {rank}");
            assert_eq!(many[rank], ranks);
            let is_one_block = ranks.start / per_block == (ranks.end - 1) / per_block;
            let all_equal =
                || hashes[ranks.start as usize..ranks.end as usize].iter().all(|h| h == hash);
            assert!(is_one_block || all_equal(), "{hash}: {ranks:?}");
        }
    }
    for per_block in [1, 16] {
        let index = HashIndex::fences(all(), promised, per_block).unwrap();
        for (rank, hash) in hashes.iter().enumerate() {
            // A block's fence may be too low, but never too high.
            assert!(index.ranks(*hash).end > rank as u64, "{hash} before its block");
        }
    }
}

#[track_caller]
fn check(hashes: &[u128]) {
    for bucket_size in [8, 64, 512] {
        check_promised(hashes, hashes.len() as u64, bucket_size);
    }
}

fn uniform(count: u64, seed: u64) -> Vec<u128> {
    let mut random = random(seed);
    (0..count).map(|_| u128::from(random()) << 64 | u128::from(random())).collect()
}

#[test]
fn none_and_one_and_two() {
    check(&[]);
    for bits in [0, 1, u128::MAX, 1 << 64, 1 << 127] {
        check(&[bits]);
        check(&[bits, bits]);
        check(&[0, bits]);
        check(&[bits, u128::MAX]);
    }
}

#[test]
fn equal_hashes() {
    for count in [3, 63, 64, 700, 3000] {
        for bits in [0, u128::MAX, 0x1234 << 96] {
            check(&vec![bits; count]);
        }
    }
}

#[test]
fn hashes_that_differ_in_the_low_half_only() {
    let low: Vec<u128> = (0..500).map(|i| 7 << 64 | i).collect();
    check(&low);
    check(&[low, uniform(2000, 1)].concat());
}

#[test]
fn hashes_with_a_long_prefix_in_common() {
    for prefix_bits in [32, 48, 57, 60, 63] {
        let some = uniform(400, 2).into_iter().map(|bits| 5 << 100 | bits >> prefix_bits);
        let some: Vec<u128> = some.collect();
        check(&some);
        check(&[some, uniform(1500, 3)].concat());
    }
}

#[test]
fn hashes_that_leave_the_others_one_bit_later_each() {
    let comb: Vec<u128> = (0..128).map(|bit| 1 << bit).collect();
    check(&comb);
    check(&comb.iter().map(|bits| !bits).collect::<Vec<_>>());
    // Keys on one path to the right with a small subtrie on the left of each node, and the mirror
    // image.
    let twins = |bits: &u128| [*bits, bits | bits >> 1, bits | bits >> 2];
    let forest: Vec<u128> = comb.iter().flat_map(twins).collect();
    check(&forest);
    check(&forest.iter().map(|bits| !bits).collect::<Vec<_>>());
}

#[test]
fn all_hashes_in_one_bucket() {
    for count in [100, 639, 640, 1023, 1024, 1100, 5000] {
        let some: Vec<u128> = uniform(count, 4).into_iter().map(|bits| bits >> 40).collect();
        check(&some);
    }
}

#[test]
fn arithmetic_progressions() {
    for shift in [64, 80, 100, 110] {
        check(&(0..3000).map(|i| i << shift).collect::<Vec<_>>());
    }
    let step = u128::MAX / 4001;
    check(&(0..4000).map(|i| i * step).collect::<Vec<_>>());
}

#[test]
fn clusters() {
    let mut random = random(5);
    let centers = uniform(40, 6);
    let near = |_| {
        let center = centers[random() as usize % centers.len()];
        center.wrapping_add(u128::from(random()) << (random() % 40))
    };
    check(&(0..4000).map(near).collect::<Vec<_>>());
}

#[test]
fn both_ends() {
    let ends = [0, 0, 1, u128::MAX - 1, u128::MAX, u128::MAX];
    check(&ends);
    check(&[&ends[..], &uniform(3000, 7)].concat());
}

#[test]
fn hashes_between_those_of_uniform_keys() {
    check(&uniform(20_000, 8));
    for count in [2, 5, 28, 63, 65, 1791, 1792, 1793] {
        check(&uniform(count, count));
    }
}

#[test]
fn counts_that_were_promised_wrongly() {
    let hashes = uniform(3000, 9);
    for promised in [0, 1, 100, 2999, 3001, 6000, 100_000] {
        for bucket_size in [8, 64, 512] {
            check_promised(&hashes, promised, bucket_size);
        }
    }
}

/// Absent hashes get existing ranks, or none.
#[test]
fn absent_hashes_stay_inside() {
    let hashes = uniform(5000, 10);
    let mut sorted: Vec<KeyHash> = hashes.iter().map(|&bits| KeyHash::from_bits(bits)).collect();
    sorted.sort();
    let dense = HashIndex::dense(sorted.iter().copied(), 5000, &options(64)).unwrap();
    let sparse = HashIndex::sparse(sorted.iter().copied(), 5000, 9, &options(64)).unwrap();
    for bits in uniform(20_000, 11).into_iter().chain([0, u128::MAX]) {
        for index in [&dense, &sparse] {
            let ranks = index.ranks(KeyHash::from_bits(bits));
            assert!(ranks.is_empty() || ranks.end <= 5000, "{ranks:?}");
        }
    }
}

#[test]
fn descending_hashes_are_refused() {
    let hashes = [KeyHash::from_bits(2), KeyHash::from_bits(1)];
    let error = HashIndex::dense(hashes, 2, &options(64)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Order { .. }), "{error}");
}

/// Compares bits per key of tries with section 2.6 of the paper, computed exactly: see
/// `docs/papers/ect.md`.
#[test]
fn tries_are_as_small_as_the_theory_says() {
    const COUNT: u64 = 400_000;
    let mut hashes: Vec<u128> = uniform(COUNT, 12);
    hashes.sort_unstable();
    let all = || hashes.iter().map(|&bits| KeyHash::from_bits(bits));
    for (bucket_size, expected) in [(64, 2.302), (128, 2.339), (256, 2.359)] {
        let theory = expected_trie_bits(bucket_size, 32).unwrap() / f64::from(bucket_size);
        assert!((theory / expected - 1.0).abs() < 0.001, "{theory}");
        let stats = HashIndex::dense(all(), COUNT, &options(bucket_size)).unwrap().stats();
        let bits = stats.coded_bytes as f64 * 8.0 / COUNT as f64;
        assert!((bits / expected - 1.0).abs() < 0.005, "bucket size {bucket_size}: {bits}");
        assert_eq!(stats.explicit_superblocks, 0);
    }
    // Entries per block, and the bits per key of an exact sparse trie of 256 keys with Huffman
    // codes up to 32 keys: between those with limit 16 and those with limit 64 and gamma codes.
    for (per_block, expected) in [(2, 2.000), (4, 1.566), (8, 1.139), (16, 0.780), (64, 0.314)] {
        let sparse = HashIndex::sparse(all(), COUNT, per_block, &options(256)).unwrap();
        let bits = sparse.stats().coded_bytes as f64 * 8.0 / COUNT as f64;
        assert!((bits / expected - 1.0).abs() < 0.02, "{per_block} a block: {bits}");
    }
}

/// An update that overwrites most entries announces up to twice as many entries as it has.
#[test]
fn a_promise_of_twice_the_entries_costs_little() {
    const COUNT: u64 = 100_000;
    let mut hashes = uniform(COUNT, 13);
    hashes.sort_unstable();
    let all = || hashes.iter().map(|&bits| KeyHash::from_bits(bits));
    for bucket_size in [64, 128, 256, 512] {
        let index = HashIndex::dense(all(), 2 * COUNT, &options(bucket_size)).unwrap();
        let bits = index.bytes() as f64 * 8.0 / COUNT as f64;
        assert!(bits < 4.0, "bucket size {bucket_size}: {bits} bits a key");
    }
}
