//! The quotient filter compared with the paper's layout and with a sorted map.

use crate::paper_quotient::PaperQuotient;
use hashfold::{
    ErrorKind, KeyHash, Seed,
    filter::{
        Mode,
        quotient::{BuildOptions, Growth, QuotientFilter, QuotientOptions, QuotientView},
    },
    fingerprints::{FingerprintBatch, Fingerprints, Universe},
    io::{Access, Disk, MemoryDisk, OsDisk},
};
use proptest::prelude::*;
use std::{collections::BTreeMap, path::Path};

const SEED: Seed = Seed(11);

/// Returns an empty filter with `2^quotient_bits` slots (64 or more) and remainders of
/// `remainder_bits` bits.
fn empty(quotient_bits: u32, remainder_bits: u32, mode: Mode) -> QuotientFilter {
    let universe = Universe::with_size(1 << (quotient_bits + remainder_bits)).unwrap();
    let capacity = (0.95 * 2_f64.powi(quotient_bits as i32)) as u64;
    let growth = Growth::Refuse;
    let options = BuildOptions { capacity, mode, growth, load_max: 0.95 };
    let mut nothing = FingerprintBatch::new().into_run(SEED, universe);
    let filter = QuotientFilter::build(&mut nothing, &options).unwrap();
    assert_eq!((filter.slots(), filter.remainder_bits()), (1 << quotient_bits, remainder_bits));
    filter
}

/// Returns a hash with this fingerprint in a universe of `2^bits`.
fn hash(fingerprint: u64, bits: u32) -> KeyHash {
    KeyHash::from_bits(u128::from(fingerprint) << (128 - bits))
}

/// Returns a run as a map from fingerprints to counts.
pub(crate) fn counts(run: &mut dyn Fingerprints) -> BTreeMap<u64, u64> {
    let mut all = FingerprintBatch::new();
    while run.append_to(&mut all).unwrap() {}
    assert!(all.fingerprints().is_sorted_by(|a, b| a < b));
    all.iter().map(|(fingerprint, count)| (fingerprint, count as u64)).collect()
}

/// Checks that all queries of a filter agree with the map.
#[track_caller]
fn check(filter: &QuotientFilter, map: &BTreeMap<u64, u64>) {
    assert_eq!(counts(&mut filter.scan()), *map);
    assert_eq!(filter.len(), map.values().sum::<u64>());
    assert_eq!(filter.distinct(), map.len() as u64);
    let slots: u64 = map.values().map(|&count| count.min(4)).sum();
    assert!((filter.load() - slots as f64 / filter.slots() as f64).abs() < 1e-9);
    let bits = filter.universe().bits();
    for (&fingerprint, &count) in map {
        assert_eq!(filter.count(hash(fingerprint, bits)), count);
    }
    // The blocks do not depend on the history of the filter.
    let file = |filter: &QuotientFilter| {
        let disk = MemoryDisk::default();
        filter.save(&disk, Path::new("f"), 1).unwrap();
        hashfold::io::read_all(&*disk.open(Path::new("f"), Access::Cached).unwrap(), 1 << 30)
            .unwrap()
            .to_vec()
    };
    let (opened, id) = {
        let disk = MemoryDisk::default();
        filter.save(&disk, Path::new("f"), 7).unwrap();
        QuotientFilter::read(&disk, Path::new("f"), Access::Cached).unwrap()
    };
    assert_eq!(id, 7);
    assert!(file(&opened) == file(filter));
}

/// A filter and its twins.
struct Trio {
    filter: QuotientFilter,
    paper: PaperQuotient,
    map: BTreeMap<u64, u64>,
    quotient_bits: u32,
    bits: u32,
    mode: Mode,
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u64>),
    Remove(Vec<u64>),
    Look(Vec<u64>),
    Grow,
    Shrink,
    MergeWith(Vec<u64>),
}

impl Trio {
    fn new(quotient_bits: u32, remainder_bits: u32, mode: Mode) -> Trio {
        Trio {
            filter: empty(quotient_bits, remainder_bits, mode),
            // Capacity for the copies that the filter only counts.
            paper: PaperQuotient::new(quotient_bits, remainder_bits),
            map: BTreeMap::new(),
            quotient_bits,
            bits: quotient_bits + remainder_bits,
            mode,
        }
    }

    fn hashes(&self, fingerprints: &[u64]) -> Vec<KeyHash> {
        fingerprints.iter().map(|&fingerprint| hash(fingerprint, self.bits)).collect()
    }

    /// Inserts into all three; into none if the paper's filter, which stores every copy, is full.
    fn insert(&mut self, fingerprint: u64) {
        let present = self.map.contains_key(&fingerprint);
        if self.paper.len() + 4 >= self.paper.slots() * 15 / 16 {
            return;
        }
        assert_eq!(self.filter.insert(hash(fingerprint, self.bits)).unwrap(), !present);
        if self.mode == Mode::Set && present {
            return;
        }
        assert!(self.paper.insert(fingerprint));
        *self.map.entry(fingerprint).or_insert(0) += 1;
    }

    fn remove(&mut self, fingerprint: u64) {
        let present = self.map.contains_key(&fingerprint);
        assert_eq!(self.filter.remove(hash(fingerprint, self.bits)), present);
        assert_eq!(self.paper.remove(fingerprint), present);
        if let Some(count) = self.map.get_mut(&fingerprint) {
            *count -= 1;
            if *count == 0 {
                self.map.remove(&fingerprint);
            }
        }
    }

    fn look(&self, fingerprints: &[u64]) {
        let hashes = self.hashes(fingerprints);
        let (mut found, mut counts) = (vec![false; hashes.len()], vec![0; hashes.len()]);
        self.filter.contains_batch(&hashes, &mut found);
        self.filter.count_batch(&hashes, &mut counts);
        for (i, fingerprint) in fingerprints.iter().enumerate() {
            let expected = self.map.get(fingerprint).copied().unwrap_or(0);
            assert_eq!(self.paper.count(*fingerprint) as u64, expected);
            assert_eq!(counts[i], expected);
            assert_eq!(self.filter.count(hashes[i]), expected);
            assert_eq!(found[i], expected > 0);
            assert_eq!(self.filter.contains(hashes[i]), expected > 0);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Insert(all) => all.iter().for_each(|&fingerprint| self.insert(fingerprint)),
            Step::Remove(all) => all.iter().for_each(|&fingerprint| self.remove(fingerprint)),
            Step::Look(all) => self.look(all),
            Step::Grow => {
                if self.bits - self.quotient_bits > 1 && self.quotient_bits < 9 {
                    self.filter.grow().unwrap();
                    self.quotient_bits += 1;
                    self.paper = self.paper.resize(self.quotient_bits).unwrap();
                }
            }
            Step::Shrink => {
                let half = self.filter.slots() / 2;
                let fits = self.map.values().sum::<u64>() <= half * 15 / 16 - 4;
                if self.quotient_bits > 6 && fits {
                    self.filter.shrink().unwrap();
                    self.quotient_bits -= 1;
                    self.paper = self.paper.resize(self.quotient_bits).unwrap();
                }
            }
            Step::MergeWith(all) => self.merge_with(all),
        }
        assert_eq!(self.filter.slots(), 1 << self.quotient_bits);
    }

    fn merge_with(&mut self, all: &[u64]) {
        let mut other = Trio::new(self.quotient_bits, self.bits - self.quotient_bits, self.mode);
        all.iter().for_each(|&fingerprint| other.insert(fingerprint));
        let mut map = self.map.clone();
        for (&fingerprint, &count) in &other.map {
            let sum = map.entry(fingerprint).or_insert(0);
            *sum = if self.mode == Mode::Set { 1 } else { *sum + count };
        }
        match self.filter.merge(&other.filter) {
            Ok(merged) => check(&merged, &map),
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::Full { .. } | ErrorKind::Limit { .. }),
                    "{error}"
                );
                assert_eq!(self.filter.remainder_bits(), 1);
                let slots: u64 = map.values().map(|&count| count.min(4)).sum();
                assert!(slots > self.filter.capacity());
            }
        }
        if let (Some(paper), Mode::Multiset) = (self.paper.merge(&other.paper), self.mode) {
            assert_eq!(paper.iterate(), expand(&map));
        }
    }
}

/// Returns each fingerprint once per copy.
fn expand(map: &BTreeMap<u64, u64>) -> Vec<u64> {
    map.iter().flat_map(|(&key, &count)| (0..count).map(move |_| key)).collect()
}

/// Returns fingerprints of `bits` bits, many of them close to each other.
fn fingerprints(bits: u32) -> impl Strategy<Value = Vec<u64>> {
    let all = (1_u64 << bits) - 1;
    let near = (0..=all, 0..64_u64)
        .prop_map(move |(at, by)| (at & (all << 5)).saturating_add(by).min(all));
    let few = (0..6_u64).prop_map(move |i| i * (all / 5));
    let last = (0..40_u64).prop_map(move |i| all - i);
    prop::collection::vec(prop_oneof![0..=all, near, few, last], 0..60)
}

fn steps(bits: u32) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => fingerprints(bits).prop_map(Step::Insert),
        4 => fingerprints(bits).prop_map(Step::Remove),
        2 => fingerprints(bits).prop_map(Step::Look),
        1 => Just(Step::Grow),
        1 => Just(Step::Shrink),
        1 => fingerprints(bits).prop_map(Step::MergeWith),
    ];
    prop::collection::vec(step, 1..40)
}

fn run_steps(remainder_bits: u32, mode: Mode, steps: &[Step]) {
    let mut trio = Trio::new(6, remainder_bits, mode);
    for step in steps {
        trio.step(step);
        assert_eq!(trio.paper.iterate(), expand(&trio.map));
        assert_eq!(counts(&mut trio.filter.scan()), trio.map);
    }
    check(&trio.filter, &trio.map);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sets_agree_with_the_paper_and_a_map(
        (remainder_bits, steps) in (1_u32..20).prop_flat_map(|r| (Just(r), steps(r + 6)))
    ) {
        run_steps(remainder_bits, Mode::Set, &steps);
    }

    #[test]
    fn multisets_agree_with_the_paper_and_a_map(
        (remainder_bits, steps) in (1_u32..20).prop_flat_map(|r| (Just(r), steps(r + 6)))
    ) {
        run_steps(remainder_bits, Mode::Multiset, &steps);
    }
}

fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// Fills filters completely and empties them again, for remainders of every length.
#[test]
fn full_filters_of_every_remainder_agree_with_a_map() {
    for remainder_bits in 1..=56_u32 {
        let quotient_bits = if remainder_bits > 50 { 64 - remainder_bits } else { 11 };
        let quotient_bits = quotient_bits.max(8);
        if quotient_bits + remainder_bits > 63 {
            continue;
        }
        let bits = quotient_bits + remainder_bits;
        let mut random = random(u64::from(remainder_bits));
        let mut filter = empty(quotient_bits, remainder_bits, Mode::Set);
        let mut map = BTreeMap::new();
        while filter.len() < filter.capacity() {
            let fingerprint = random() >> (64 - bits);
            let new = map.insert(fingerprint, 1).is_none();
            assert_eq!(filter.insert(hash(fingerprint, bits)).unwrap(), new);
        }
        check(&filter, &map);
        let there = *map.keys().next().unwrap();
        assert!(!filter.insert(hash(there, bits)).unwrap(), "there is room for what is there");
        let absent = (0..).find(|fingerprint| !map.contains_key(fingerprint)).unwrap();
        let error = filter.insert(hash(absent, bits)).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Full { .. } | ErrorKind::Limit { .. }),
            "{error}"
        );
        check(&filter, &map);
        for _ in 0..2000 {
            let fingerprint = random() >> (64 - bits);
            assert_eq!(filter.contains(hash(fingerprint, bits)), map.contains_key(&fingerprint));
        }
        let keys: Vec<u64> = map.keys().copied().collect();
        for key in keys.iter().step_by(2).chain(keys.iter().skip(1).step_by(2)) {
            assert!(filter.remove(hash(*key, bits)));
            map.remove(key);
            if map.len() % 256 == 0 {
                check(&filter, &map);
            }
        }
        check(&filter, &BTreeMap::new());
    }
}

/// Chains over several blocks: in the first block, in the middle and in the last block.
#[test]
fn chains_over_many_blocks_agree_with_a_map() {
    let (quotient_bits, remainder_bits) = (10, 13);
    let bits = quotient_bits + remainder_bits;
    for quotient in [0_u64, 1, 63, 64, 500, 960, 1022, 1023] {
        for mode in [Mode::Set, Mode::Multiset] {
            let mut filter = empty(quotient_bits, remainder_bits, mode);
            let mut map = BTreeMap::new();
            let mut random = random(quotient);
            for i in 0..900 {
                let remainder = random() % (1 << remainder_bits);
                let near = (quotient + i % 3).min(1023);
                let fingerprint = near << remainder_bits | remainder;
                let copies =
                    if mode == Mode::Set { 1 } else { map.get(&fingerprint).map_or(1, |c| c + 1) };
                let new = map.insert(fingerprint, copies).is_none();
                assert_eq!(filter.insert(hash(fingerprint, bits)).unwrap(), new);
            }
            check(&filter, &map);
            let keys: Vec<u64> = map.keys().copied().collect();
            for key in keys.iter().skip(1).step_by(3).chain(keys.iter().step_by(3)) {
                for _ in 0..map.remove(key).unwrap() {
                    assert!(filter.remove(hash(*key, bits)));
                }
            }
            check(&filter, &map);
        }
    }
}

/// All hashes descend in the last block, until the spare blocks are full.
#[test]
fn hashes_that_crowd_the_end_are_refused_in_the_end_and_nothing_breaks() {
    let (quotient_bits, remainder_bits) = (14, 20);
    let bits = quotient_bits + remainder_bits;
    let mut filter = empty(quotient_bits, remainder_bits, Mode::Set);
    let largest = (1_u64 << bits) - 1;
    let mut count = 0;
    let error = loop {
        match filter.insert(hash(largest - count, bits)) {
            Ok(new) => assert!(new),
            Err(error) => break error,
        }
        count += 1;
    };
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
    assert_eq!(count, 1 + 64 * 64);
    let map: BTreeMap<u64, u64> = (0..count).map(|i| (largest - i, 1)).collect();
    check(&filter, &map);
    for i in 0..count {
        assert!(filter.remove(hash(largest - i, bits)));
    }
    check(&filter, &BTreeMap::new());
}

/// One quotient with more remainders than an offset can count.
#[test]
fn a_chain_that_is_too_long_is_refused_and_nothing_breaks() {
    let (quotient_bits, remainder_bits) = (18, 20);
    let bits = quotient_bits + remainder_bits;
    let base = 1000_u64 << remainder_bits;
    let universe = Universe::with_size(1 << bits).unwrap();
    let start = FingerprintBatch::from_sorted((0..65_400).map(|i| base + i).collect()).unwrap();
    let options =
        BuildOptions { capacity: 200_000, mode: Mode::Set, growth: Growth::Refuse, load_max: 0.95 };
    let mut filter = QuotientFilter::build(&mut start.into_run(SEED, universe), &options).unwrap();
    let start = filter.len();
    let hashes: Vec<KeyHash> = (start..start + 200).map(|i| hash(base + i, bits)).collect();
    let mut new = vec![true; hashes.len()];
    let error = filter.insert_batch(&hashes, &mut new).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { limit: 65_471, .. }), "{error}");
    let count = filter.len();
    assert!(new.iter().zip(start..).all(|(&new, i)| new == (i < count)));
    let map: BTreeMap<u64, u64> = (0..count).map(|i| (base + i, 1)).collect();
    // Counting each fingerprint separately would take long in such a chain.
    assert_eq!(counts(&mut filter.scan()), map);
    let mut removed = vec![false; hashes.len()];
    filter.remove_batch(&hashes, &mut removed);
    assert_eq!(new, removed);
    assert_eq!(counts(&mut filter.scan()), (0..start).map(|i| (base + i, 1)).collect());
}

/// All histories of up to three insertions and two removals over a few fingerprints.
#[test]
fn every_small_history_agrees_with_a_map() {
    let some = [0_u64, 1, 2, 3, 62 * 2, 63 * 2, 63 * 2 + 1, 5];
    for mode in [Mode::Set, Mode::Multiset] {
        for code in 0..8_usize.pow(5) {
            let mut filter = empty(6, 1, mode);
            let mut map = BTreeMap::new();
            let pick = |i: u32| some[code / 8_usize.pow(i) % 8];
            for fingerprint in (0..3).map(pick) {
                filter.insert(hash(fingerprint, 7)).unwrap();
                let count = map.entry(fingerprint).or_insert(0);
                *count = if mode == Mode::Set { 1 } else { *count + 1 };
            }
            for fingerprint in (3..5).map(pick) {
                let present = map.contains_key(&fingerprint);
                assert_eq!(filter.remove(hash(fingerprint, 7)), present);
                if map.get(&fingerprint) == Some(&1) {
                    map.remove(&fingerprint);
                } else if present {
                    *map.get_mut(&fingerprint).unwrap() -= 1;
                }
            }
            assert_eq!(counts(&mut filter.scan()), map, "{code}");
        }
    }
}

#[test]
fn a_key_inserted_a_million_times_takes_four_slots() {
    let options =
        QuotientOptions { mode: Mode::Multiset, ..QuotientOptions::new(1000, 0.01, SEED) };
    let mut filter = QuotientFilter::new(&options).unwrap();
    filter.insert_key(b"other").unwrap();
    for i in 0..1_000_000 {
        assert_eq!(filter.insert_key(b"much").unwrap(), i == 0);
    }
    assert_eq!((filter.len(), filter.distinct()), (1_000_001, 2));
    assert!((filter.load() * filter.slots() as f64 - 5.0).abs() < 1e-6);
    assert_eq!(filter.count_key(b"much"), 1_000_000);
    let disk = MemoryDisk::default();
    filter.save(&disk, Path::new("f"), 0).unwrap();
    let view = QuotientView::open(&disk, Path::new("f"), Access::Mapped).unwrap();
    assert_eq!(view.count_key(b"much"), 1_000_000);
    for i in (0..1_000_000).rev() {
        assert!(filter.remove_key(b"much"));
        if i % 99_999 == 0 || i < 6 {
            assert_eq!(filter.count_key(b"much"), i);
        }
    }
    assert!(!filter.remove_key(b"much"));
    assert_eq!((filter.len(), filter.count_key(b"other")), (1, 1));
}

#[test]
fn removing_a_key_that_was_never_there_removes_one_with_its_fingerprint() {
    let mut filter = empty(6, 4, Mode::Set);
    let here = KeyHash::from_bits(5 << 120);
    let same = KeyHash::from_bits((5 << 120) + 77);
    filter.insert(here).unwrap();
    assert!(!filter.remove(KeyHash::from_bits(6 << 120)));
    assert!(filter.contains(same));
    assert!(filter.remove(same));
    assert!(!filter.contains(here), "its fingerprint is gone");
}

#[test]
fn options_out_of_range_are_refused() {
    let good = QuotientOptions::new(1000, 0.01, SEED);
    for bad in [
        QuotientOptions { capacity: 0, ..good },
        QuotientOptions { capacity: u64::MAX, ..good },
        QuotientOptions { capacity: 1 << 50, ..good },
        QuotientOptions { capacity: 1 << 57, false_positive_rate: 0.5, ..good },
        QuotientOptions { false_positive_rate: 0.0, ..good },
        QuotientOptions { false_positive_rate: 1.0, ..good },
        QuotientOptions { false_positive_rate: f64::NAN, ..good },
        QuotientOptions { false_positive_rate: -1.0, ..good },
        QuotientOptions { load_max: 0.96, ..good },
        QuotientOptions { load_max: f64::NAN, ..good },
    ] {
        let error = QuotientFilter::new(&bad).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{bad:?}: {error}");
    }
}

/// The false-positive rate is as requested, and memory has no step at a power of two.
#[test]
fn memory_follows_the_number_of_keys_without_steps() {
    for false_positive_rate in [0.5, 0.1, 0.01, 0.00195, 0.0004, 1e-6, 1e-9] {
        let mut before = f64::INFINITY;
        for capacity in [50_000, 58_000, 60_000, 65_536, 70_000, 98_000, 100_000, 131_000] {
            let options = QuotientOptions::new(capacity, false_positive_rate, SEED);
            let filter = QuotientFilter::new(&options).unwrap();
            assert!(filter.capacity() >= capacity);
            let full = capacity as f64 / filter.universe().size() as f64;
            assert!(full <= false_positive_rate, "{full} {false_positive_rate}");
            let bits = filter.bytes() as f64 * 8.0 / capacity as f64;
            assert!(bits < before * 1.02, "{bits} bits at {capacity}, {false_positive_rate}");
            before = bits;
        }
    }
}

#[test]
fn a_growing_filter_takes_any_number_of_keys() {
    for mode in [Mode::Set, Mode::Multiset] {
        let options = QuotientOptions {
            mode,
            growth: Growth::Double,
            ..QuotientOptions::new(100, 1e-4, SEED)
        };
        let mut filter = QuotientFilter::new(&options).unwrap();
        let hashes: Vec<KeyHash> = (0..30_000_u32).map(|i| filter.hash(&i.to_le_bytes())).collect();
        let mut new = vec![false; hashes.len()];
        filter.insert_batch(&hashes, &mut new).unwrap();
        let mut found = vec![false; hashes.len()];
        filter.contains_batch(&hashes, &mut found);
        assert!(found.iter().all(|&found| found));
        assert_eq!(new.iter().filter(|&&new| new).count() as u64, filter.distinct());
        let error = (0..).find_map(|i: u64| filter.insert_key(&i.to_le_bytes()).err()).unwrap();
        assert!(
            matches!(error.kind(), ErrorKind::Full { .. } | ErrorKind::Limit { .. }),
            "{error}"
        );
        assert_eq!(filter.remainder_bits(), 1);
    }
}

#[test]
fn the_false_positive_rate_is_the_expected_one() {
    let mut filter = QuotientFilter::new(&QuotientOptions::new(100_000, 0.01, SEED)).unwrap();
    for i in 0..100_000_u64 {
        filter.insert_key(&i.to_le_bytes()).unwrap();
    }
    let wrong = (100_000..1_100_000_u64).filter(|i| filter.contains_key(&i.to_le_bytes())).count();
    let (rate, expected) = (wrong as f64 / 1e6, filter.false_positive_rate());
    assert!((rate / expected - 1.0).abs() < 0.05, "{rate} {expected}");
    assert!(expected <= 0.01);
}

#[test]
fn a_run_of_any_universe_makes_a_filter_and_a_filter_gives_it_back() {
    let universe = Universe::with_size(1_000_003).unwrap();
    let mut random = random(5);
    for mode in [Mode::Set, Mode::Multiset] {
        let mut map: BTreeMap<u64, i64> = BTreeMap::new();
        for _ in 0..20_000 {
            let count = if random().is_multiple_of(10) { random() as i64 % 10 } else { 1 };
            map.insert(random() % 1_000_003, count);
        }
        map.insert(1_000_002, 1);
        let all: Vec<(u64, i64)> = map.iter().map(|(&f, &c)| (f, c)).collect();
        let mut run = FingerprintBatch::new();
        for &(fingerprint, count) in all.iter().filter(|(_, count)| *count != 0) {
            run.push(fingerprint, count).unwrap();
        }
        let options =
            BuildOptions { capacity: 40_000, mode, growth: Growth::Refuse, load_max: 0.9 };
        let run = &mut run.into_run(SEED, universe);
        let filter = QuotientFilter::build(run, &options).unwrap();
        assert_eq!(filter.seed(), SEED);
        let kept = all.iter().filter(|(_, count)| *count > 0);
        let kept = kept.map(|&(f, c)| (f, if mode == Mode::Set { 1 } else { c as u64 }));
        let map: BTreeMap<u64, u64> = kept.collect();
        assert_eq!(counts(&mut filter.scan()), map);
        let again = QuotientFilter::build(&mut filter.scan(), &options).unwrap();
        assert_eq!(counts(&mut again.scan()), map);
        let tight = BuildOptions { capacity: 100, ..options };
        let refused = QuotientFilter::build(&mut filter.scan(), &tight);
        assert!(
            refused.is_ok()
                || matches!(
                    refused.unwrap_err().kind(),
                    ErrorKind::Full { .. } | ErrorKind::Limit { .. }
                )
        );
    }
}

#[test]
fn filters_that_do_not_belong_together_are_not_merged() {
    let one = QuotientFilter::new(&QuotientOptions::new(1000, 0.01, Seed(1))).unwrap();
    let seed = QuotientFilter::new(&QuotientOptions::new(1000, 0.01, Seed(2))).unwrap();
    let size = QuotientFilter::new(&QuotientOptions::new(1000, 0.001, Seed(1))).unwrap();
    for other in [&seed, &size] {
        let error = one.merge(other).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Mismatch { .. } | ErrorKind::WrongSeed { .. }),
            "{error}"
        );
    }
    let options =
        QuotientOptions { mode: Mode::Multiset, ..QuotientOptions::new(1000, 0.01, Seed(1)) };
    assert!(one.merge(&QuotientFilter::new(&options).unwrap()).is_err());
}

/// Files on a real disk, mapped and read, and overwritten.
#[test]
fn files_contain_the_saved_filter() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seen.filter");
    let disk = OsDisk;
    for (count, mode) in [(0, Mode::Set), (50_000_u64, Mode::Set), (50_000, Mode::Multiset)] {
        let options = QuotientOptions { mode, ..QuotientOptions::new(60_000, 1e-3, SEED) };
        let mut filter = QuotientFilter::new(&options).unwrap();
        for i in 0..count {
            filter.insert_key(&(i % 40_000).to_le_bytes()).unwrap();
        }
        for _ in 0..count / 1000 {
            filter.insert_key(b"often").unwrap();
        }
        filter.save(&disk, &path, 99).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        for access in [Access::Cached, Access::Mapped, Access::Direct] {
            let view = QuotientView::open(&disk, &path, access).unwrap();
            assert!(view.verify().unwrap().is_sound());
            assert_eq!((view.id(), view.seed(), view.len()), (99, SEED, filter.len()));
            assert_eq!(view.count_key(b"often"), filter.count_key(b"often"));
            for i in (0..70_000_u64).step_by(7) {
                assert_eq!(view.count_key(&i.to_le_bytes()), filter.count_key(&i.to_le_bytes()));
            }
            assert_eq!(counts(&mut view.scan()), counts(&mut filter.scan()));
            let (mut opened, _) = QuotientFilter::read(&disk, &path, access).unwrap();
            assert!(opened.insert_key(b"one more").unwrap());
            assert_eq!(opened.len(), filter.len() + 1);
        }
    }
}
