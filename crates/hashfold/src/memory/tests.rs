//! Tables in RAM against maps of the standard library.

use super::{index::Index, line::Pair, *};
use crate::{cpu::Instructions, error::ErrorKind, key::Seed, work::MemoryBudget};
use std::collections::BTreeMap;

/// Pseudorandom numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix::mix(self.0, Seed(5))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Returns all pairs of an index, sorted by hash, by a snapshot.
fn pairs_of(index: &mut Index) -> Vec<Pair> {
    let epoch = index.begin_snapshot().unwrap();
    let (mut all, mut group) = (Vec::new(), Vec::new());
    while index.next_of_snapshot(epoch, &mut group) {
        group.sort_unstable();
        assert!(all.last() < group.first() || group.is_empty());
        all.extend_from_slice(&group);
    }
    index.end_snapshot(epoch);
    all
}

fn index(options: &MemoryOptions, instructions: Instructions) -> Index {
    let mut index = Index::new(options, 3..5).unwrap();
    index.use_instructions(instructions);
    index
}

/// Hashes in the regions 3 and 4, of which most share many bits if `crowd` is large.
fn hash(numbers: &mut Numbers, crowd: u32) -> u64 {
    let region = 3 + numbers.below(2);
    region << 56 | numbers.next() >> 8 >> crowd << (crowd / 2)
}

/// Does random changes to an index and to a map; both must have the same pairs all the time.
fn check_index(options: &MemoryOptions, instructions: Instructions, crowd: u32, seed: u64) {
    let (mut numbers, mut index) = (Numbers(seed), index(options, instructions));
    let mut expected = BTreeMap::new();
    let value_max = if options.wide_values { u64::MAX } else { (1 << 48) - 1 };
    for phase in 0..8 {
        for _ in 0..3000 {
            let known = expected.range(hash(&mut numbers, crowd)..).next().map(|(hash, _)| *hash);
            let hash = known.filter(|_| numbers.below(3) == 0).unwrap_or(hash(&mut numbers, crowd));
            let found = index.find(hash, |_| true);
            assert_eq!(found.map(|found| found.value), expected.get(&hash).copied());
            // Phases of growth and of removal.
            if numbers.below(8) < 2 + 5 * (phase % 2) {
                let removed = known.unwrap_or(hash);
                if let Some(found) = index.find(removed, |_| true) {
                    index.remove(removed, found).unwrap();
                }
                expected.remove(&removed);
            } else {
                let value = numbers.next() & value_max;
                let before = index.put(Pair { hash, value }).unwrap();
                assert_eq!(before, expected.insert(hash, value));
            }
            assert_eq!(index.count, expected.len() as u64);
        }
        let pairs: Vec<_> = expected.iter().map(|(h, v)| Pair { hash: *h, value: *v }).collect();
        assert_eq!(pairs_of(&mut index), pairs);
    }
    for hash in expected.keys() {
        let found = index.find(*hash, |_| true).unwrap();
        index.remove(*hash, found).unwrap();
    }
    assert_eq!((index.count, index.chunks.units()), (0, 0));
}

#[test]
fn an_index_agrees_with_a_sorted_map() {
    for wide_values in [false, true] {
        for (load, crowd) in [(0.87, 0), (0.95, 3), (0.5, 20)] {
            let options = MemoryOptions { load, wide_values, ..MemoryOptions::default() };
            for instructions in [Instructions::Portable, Instructions::V3, Instructions::V4] {
                check_index(&options, instructions, crowd, u64::from(crowd) + 1);
            }
        }
    }
}

/// A table through all its sizes, with narrow lines at the end.
#[test]
fn a_growing_table_keeps_all_keys_and_grows_by_groups() {
    let options = MemoryOptions { shards: 2, ..MemoryOptions::default() };
    let table = GroupTable::new(options).unwrap();
    let keys: Vec<u64> = (0..120_000_u64).map(|i| i * i).collect();
    for (i, keys) in keys.chunks(1000).enumerate() {
        let pairs: Vec<_> = keys.iter().map(|key| (*key, key ^ 5)).collect();
        table.put_many(&pairs).unwrap();
        let i = i as u64 * 997 % 1000;
        assert_eq!(table.get(i * i), (i < table.len()).then_some(i * i ^ 5));
    }
    let mut values = vec![None; keys.len()];
    table.get_many(&keys, &mut values);
    assert!(keys.iter().zip(&values).all(|(key, value)| *value == Some(key ^ 5)));
    let stats = table.stat();
    assert_eq!((stats.keys, table.len()), (120_000, 120_000));
    assert_eq!(table.remove_many(&keys).unwrap(), 120_000);
    assert_eq!((table.stat().keys, table.remove(4).unwrap()), (0, None));
}

#[test]
fn a_value_of_49_bits_needs_an_option() {
    for wide_values in [false, true] {
        let options = MemoryOptions { wide_values, ..MemoryOptions::default() };
        let table = GroupTable::new(options).unwrap();
        table.put(1, (1 << 48) - 1).unwrap();
        let many = table.put_many(&[(2, 2), (1, 1 << 48)]);
        assert_eq!((many.is_ok(), table.put(3, u64::MAX).is_ok()), (wide_values, wide_values));
        assert_eq!(table.get(2), wide_values.then_some(2));
    }
}

#[test]
fn a_budget_that_is_met_stops_inserts_and_loses_nothing() {
    let budget = MemoryBudget::new(4 << 20);
    let options = MemoryOptions { budget: budget.clone(), shards: 1, ..MemoryOptions::default() };
    let table = GroupTable::new(options).unwrap();
    let count = (0..).map_while(|key| table.put(key, key).ok()).count() as u64;
    let refused = table.put(count, 0).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Memory { .. }), "{refused}");
    assert!(count > 150_000 && table.stat().bytes <= 5 << 20);
    assert!((0..count).all(|key| table.get(key) == Some(key)));
    assert!(table.get(count).is_none());
    drop(table);
    assert_eq!(budget.reserved(), 0);
}
