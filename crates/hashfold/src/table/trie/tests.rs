//! Every rank of many tries, also of skewed and damaged ones.

use super::{
    bits::BitVec,
    code::{CODE_BITS_MAX, CodeBook, Direction, SMALL_MAX, Word, decode_rice},
    kernel::{BitOps, Portable},
    read::Machine,
    tables::Tables,
    *,
};
use crate::{
    key::{KeyHash, Seed},
    table::{
        image::{Image, Sections},
        options::{IndexChoice, IndexStats},
    },
};

/// Hashes of consecutive numbers, sorted.
fn uniform(count: u64, seed: u64) -> Vec<u128> {
    let mut hashes: Vec<u128> =
        (0..count).map(|i| KeyHash::of(&i.to_le_bytes(), Seed(seed)).bits()).collect();
    hashes.sort_unstable();
    hashes
}

fn build(hashes: &[u128], options: TrieOptions, per_block: Option<u64>) -> (Trie, Vec<u8>) {
    let mut builder = TrieBuilder::new(options, hashes.len() as u64, per_block.is_some());
    for (rank, &hash) in hashes.iter().enumerate() {
        builder.push(KeyHash::from_bits(hash), per_block.map_or(0, |count| rank as u64 / count));
    }
    let mut image = Image::default();
    builder.finish(&mut image);
    let (fields, parts) = image.into_parts();
    let bytes = parts.concat();
    let (mut fields, mut sections) = Sections::split(&fields, &bytes).unwrap();
    let trie = Trie::open(&mut fields, &mut sections).unwrap();
    fields.end().unwrap();
    (trie, bytes)
}

/// Checks that each hash gets its rank, with and without machine instructions, alone and among
/// others.
#[track_caller]
fn check_dense(hashes: &[u128], options: TrieOptions) -> IndexStats {
    let (trie, bytes) = build(hashes, options, None);
    let all: Vec<KeyHash> = hashes.iter().map(|&hash| KeyHash::from_bits(hash)).collect();
    let mut many = Vec::new();
    trie.ranks_many(&bytes, &all, |_, ranks| many.push(ranks));
    for (rank, &hash) in all.iter().enumerate() {
        let ranks = trie.ranks(&bytes, hash);
        assert!(ranks.contains(&(rank as u64)), "{hash} is at {rank}, not in {ranks:?}");
        assert_eq!(ranks, many[rank]);
        let same = |&rank: &u64| hashes[rank as usize] == hash.bits();
        assert!(ranks.end - ranks.start == 1 || ranks.clone().all(|rank| same(&rank)));
    }
    let stats = trie.stats(IndexChoice::Dense);
    let trie = trie.portable();
    many.clear();
    trie.ranks_many(&bytes, &all, |_, ranks| many.push(ranks));
    for (rank, &hash) in all.iter().enumerate() {
        assert!(trie.ranks(&bytes, hash).contains(&(rank as u64)), "portable: {hash} at {rank}");
        assert!(many[rank].contains(&(rank as u64)));
    }
    check_absent(&trie, &bytes, hashes);
    stats
}

/// Checks that absent hashes get ranks that exist.
fn check_absent(trie: &Trie, bytes: &[u8], hashes: &[u128]) {
    let near = hashes.iter().flat_map(|hash| [hash.wrapping_add(1), hash.wrapping_sub(1), !hash]);
    let far = (0..200).map(|i| KeyHash::of(b"far", Seed(i)).bits());
    for hash in near.chain(far).chain([0, u128::MAX]) {
        let ranks = trie.ranks(bytes, KeyHash::from_bits(hash));
        assert!(ranks.end <= hashes.len() as u64, "{hash:x}: {ranks:?}");
    }
}

/// Checks that each hash gets a range of ranks that includes its own rank and lies in one block.
#[track_caller]
fn check_sparse(hashes: &[u128], options: TrieOptions, per_block: u64) -> IndexStats {
    let (trie, bytes) = build(hashes, options, Some(per_block));
    for (rank, &hash) in hashes.iter().enumerate() {
        let ranks = trie.span(&bytes, KeyHash::from_bits(hash), |ranks, marks| {
            ranks.filter(|rank| rank % per_block == 0).for_each(|rank| marks.add(rank));
        });
        assert!(ranks.contains(&(rank as u64)), "{hash:x} is at {rank}, not in {ranks:?}");
        let same = hashes[ranks.start as usize] == hash;
        let blocks = ranks.start / per_block..=(ranks.end - 1) / per_block;
        assert!(same || blocks.start() == blocks.end(), "{ranks:?} are in {blocks:?}");
    }
    trie.stats(IndexChoice::Sparse)
}

const SIZES: [u64; 15] = [0, 1, 2, 3, 5, 8, 27, 28, 29, 100, 500, 1791, 1792, 1793, 20_000];

#[test]
fn every_hash_gets_its_rank() {
    for count in SIZES {
        for (bucket_size, coding_limit) in [(8, 32), (64, 32), (256, 32), (512, 256), (64, 0)] {
            check_dense(&uniform(count, count), TrieOptions { bucket_size, coding_limit });
        }
    }
}

#[test]
fn every_coding_limit_works() {
    for coding_limit in (0..=40).chain([64, 100, CODING_LIMIT_MAX]) {
        check_dense(&uniform(4000, 3), TrieOptions { bucket_size: 128, coding_limit });
        check_sparse(&uniform(4000, 3), TrieOptions { bucket_size: 128, coding_limit }, 5);
    }
}

#[test]
fn every_hash_gets_its_block() {
    for count in SIZES {
        for per_block in [1, 2, 3, 8, 64, 1000] {
            check_sparse(&uniform(count, count), TrieOptions::default(), per_block);
        }
    }
}

#[test]
fn uniform_hashes_need_no_lists() {
    for bucket_size in [16, 64, 256] {
        let options = TrieOptions { bucket_size, ..TrieOptions::default() };
        assert_eq!(check_dense(&uniform(100_000, 5), options).explicit_superblocks, 0);
    }
}

/// Hashes that an attacker who knows the seed could choose.
fn hostile() -> Vec<Vec<u128>> {
    let top = |i: u128| i << 64;
    let mut all = vec![
        vec![7; 300],
        (0..3000).collect(),
        (0..3000).map(top).collect(),
        (0..3000).map(|i| top(i) + (1 << 127)).collect(),
        (0..3000).map(|i| u128::MAX - 2999 + i).collect(),
        (0..2000).map(|i| i / 3).collect(),
        (0..128).map(|i| 1 << i).collect(),
        (0..128).map(|i| !(u128::MAX >> i)).collect(),
        (0..128).rev().map(|i| u128::MAX >> i).collect(),
        vec![0, u128::MAX],
    ];
    let mut mixed = uniform(5000, 9);
    mixed.extend((0..5000).map(|i| (1 << 126) + top(i)));
    mixed.extend([1 << 100; 10]);
    mixed.sort_unstable();
    all.push(mixed);
    all
}

#[test]
fn hostile_hashes_keep_their_ranks() {
    for hashes in hostile() {
        for (bucket_size, coding_limit) in [(8, 32), (64, 32), (64, 0), (512, 256)] {
            let options = TrieOptions { bucket_size, coding_limit };
            check_dense(&hashes, options);
            check_sparse(&hashes, options, 7);
        }
    }
}

/// A bucket whose trie has more pending subtries than the decoder's stack can hold.
#[test]
fn a_trie_that_is_too_deep_for_the_stack_is_listed() {
    // Pairs that differ one bit later each: all but the last pair are pending on the right.
    let pair = |i: u32| (u128::MAX << (100 - i)) & (u128::MAX >> 6);
    let mut hashes: Vec<u128> = (0..15).flat_map(|i| [pair(i), pair(i) + 1]).collect();
    hashes.sort_unstable();
    check_dense(&hashes, TrieOptions { bucket_size: 64, coding_limit: 32 });
}

/// All sets of up to five of the 32 hashes that differ in five bits, in one bucket.
#[test]
fn every_small_trie_is_right() {
    let bits = |i: u32| u128::from(i) << 80;
    for set in 0..1_u32 << 16 {
        if set.count_ones() <= 5 {
            let hashes: Vec<u128> = (0..16).filter(|i| set >> i & 1 == 1).map(bits).collect();
            let (trie, bytes) = build(&hashes, TrieOptions::default(), None);
            for (rank, &hash) in hashes.iter().enumerate() {
                let ranks = trie.ranks(&bytes, KeyHash::from_bits(hash));
                assert_eq!(ranks, rank as u64..rank as u64 + 1, "set {set:b}");
            }
        }
    }
}

/// Bits per key, computed independently: Huffman codes without a length limit, and Rice codes above
/// the coding limit.
#[test]
fn expected_sizes_are_those_of_the_theory() {
    let check = |keys: usize, limit, bits: f64| {
        let got = expected_bits(keys, limit) / keys as f64;
        let fits = (bits - 0.005..bits + 0.0015).contains(&got);
        assert!(fits, "{keys} keys, limit {limit}: {got}, not {bits}");
    };
    for (keys, at_16, at_32) in
        [(64, 2.309, 2.302), (128, 2.346, 2.339), (256, 2.366, 2.359), (512, 2.377, 2.370)]
    {
        check(keys, 16, at_16);
        check(keys, 32, at_32);
    }
}

#[test]
fn measured_sizes_are_the_expected_ones() {
    for bucket_size in [64, 128, 256] {
        let options = TrieOptions { bucket_size, ..TrieOptions::default() };
        let stats = check_dense(&uniform(200_000, 11), options);
        let got = stats.coded_bytes as f64 * 8.0 / 200_000.0;
        let expected = expected_bits(bucket_size as usize, 32) / f64::from(bucket_size);
        assert!((got / expected - 1.0).abs() < 0.005, "{bucket_size}: {got}, not {expected}");
    }
}

#[test]
fn codes_are_prefix_free_and_come_back_in_both_directions() {
    for limit in [0, 5, 32, 100] {
        let tables = Tables::new(limit);
        for keys in (2..=150).chain([300, 639]) {
            for symbol in 0..keys {
                let word = tables.book.word(keys, symbol, Direction::Forward);
                assert!(word.len <= CODE_BITS_MAX);
                let node = tables.node::<false>(keys, word.bits | u64::MAX << word.len);
                assert_eq!((node.symbol, node.len), (symbol, word.len), "{keys} keys");
                let word = tables.book.word(keys, symbol, Direction::Backward);
                let window = (word.bits | u64::MAX << word.len).reverse_bits();
                let node = tables.node::<true>(keys, window);
                assert_eq!((node.symbol, node.len), (symbol, word.len), "{keys} keys backward");
            }
        }
    }
}

#[test]
fn huffman_codes_use_up_their_space() {
    let book = CodeBook::new(CODING_LIMIT_MAX);
    for keys in 2..=CODING_LIMIT_MAX as usize {
        let words = book.huffman(keys).unwrap();
        let used: u64 = words.iter().map(|word| 1 << (CODE_BITS_MAX - word.len)).sum();
        assert_eq!(used, 1 << CODE_BITS_MAX, "{keys} keys");
        assert_eq!(book.is_plain_huffman(keys), keys <= SMALL_MAX);
    }
}

#[test]
fn any_bits_are_decoded_to_something() {
    for seed in 0..2000 {
        let window = KeyHash::of(b"bits", Seed(seed)).high() & u64::MAX >> (seed % 40);
        let forward = decode_rice::<false>(window, 3, 100);
        let backward = decode_rice::<true>(window, 3, 100);
        assert!(forward.len <= CODE_BITS_MAX && backward.len <= CODE_BITS_MAX);
    }
}

#[test]
fn both_kernels_agree() {
    for seed in 0..500 {
        let word = |i: u64| KeyHash::of(&i.to_le_bytes(), Seed(seed)).high();
        let bytes: [u8; 32] = std::array::from_fn(|i| word(i as u64) as u8);
        for count in 0..32 {
            let naive: u64 = bytes[..count].iter().map(|&byte| u64::from(byte)).sum();
            assert_eq!(Portable::sum(&bytes, count), naive);
            #[cfg(target_arch = "x86_64")]
            if Machine::best() == Machine::V3 {
                assert_eq!(kernel::V3::sum(&bytes, count), naive);
            }
        }
        let (value, mask) = (word(100), word(101) & word(102));
        let naive = (0..64).rev().filter(|bit| mask >> bit & 1 == 1);
        let naive = naive.fold(0, |out, bit| out << 1 | (value >> bit & 1));
        assert_eq!(Portable::extract(value, mask), naive);
        #[cfg(target_arch = "x86_64")]
        if Machine::best() == Machine::V3 {
            assert_eq!(kernel::V3::extract(value, mask), naive);
        }
    }
}

#[test]
fn bits_come_back_from_either_end() {
    let words: Vec<Word> = (0..500_u64)
        .map(|i| {
            let len = (i * 7 % 36) as u32;
            Word { bits: KeyHash::of(&i.to_le_bytes(), Seed(1)).high() & ((1 << len) - 1), len }
        })
        .collect();
    let mut bits = BitVec::default();
    words.iter().for_each(|&word| bits.push(word));
    let mut reversed = BitVec::default();
    reversed.push_reversed(&bits);
    let (len, bytes, reversed) =
        (bits.len(), bits.into_padded_bytes(), reversed.into_padded_bytes());
    let mut forward = bits::Cursor::<false>::new(&bytes, 0);
    let mut backward = bits::Cursor::<true>::new(&reversed, len);
    for word in words {
        let mask = (1 << word.len) - 1;
        assert_eq!(forward.window(36).unwrap() & mask, word.bits);
        assert_eq!(backward.window(36).unwrap().reverse_bits() & mask, word.bits);
        forward.consume(word.len);
        backward.consume(word.len);
    }
}
