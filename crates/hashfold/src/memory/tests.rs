//! Tables in RAM against maps of the standard library.

use super::{
    ahead::{Ahead, BURST},
    append_shard::AppendShard,
    group::Group,
    index::{BATCH, Index, group_at},
    line::Pair,
    mix::unmix,
    place::Place,
    shards::Shards,
    slabs::{Reference, Slabs},
    *,
};
use crate::{
    cpu::Instructions,
    error::ErrorKind,
    key::{KeyHash, Seed},
    run::{Run, VecRun},
    work::{MemoryBudget, Random as _, SeededRandom, Watch},
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Returns a pseudorandom number below `limit`.
fn below(numbers: &SeededRandom, limit: u64) -> u64 {
    numbers.next_u64() % limit
}

/// Returns all pairs of an index, sorted by hash, by a snapshot.
fn pairs_of(index: &mut Index) -> Vec<Pair> {
    let epoch = index.begin_snapshot().unwrap();
    let (mut all, mut group) = (Vec::new(), Vec::new());
    while index.next_of_snapshot(epoch, &mut group).is_some() {
        group.sort_unstable();
        assert!(all.last() < group.first() || group.is_empty());
        all.extend_from_slice(&group);
    }
    index.end_snapshot(epoch);
    all
}

/// The regions of an index.
const REGIONS: Range<usize> = 3..5;

fn index(options: &MemoryOptions, instructions: Instructions) -> Index {
    let mut index = Index::new(options, REGIONS).unwrap();
    index.use_instructions(instructions);
    index
}

/// Hashes in the regions 3 and 4, of which most share many bits if `crowd` is large.
fn hash(numbers: &SeededRandom, crowd: u32) -> u64 {
    let region = 3 + below(numbers, 2);
    region << 56 | numbers.next_u64() >> 8 >> crowd << (crowd / 2)
}

/// Returns the numbers of pairs, of chunks and of groups.
fn units(index: &Index) -> (u64, u64, u64) {
    (index.count, index.chunks.units(), index.groups.units())
}

/// All pairs are removed, so that groups have no lines, and inserted again.
#[test]
fn groups_without_pairs_get_pairs_again() {
    let numbers = SeededRandom::new(41);
    let hashes: Vec<_> = (0..40_000).map(|_| hash(&numbers, 0)).collect();
    for instructions in [Instructions::Portable, Instructions::V3, Instructions::V4] {
        let mut index = index(&MemoryOptions::default(), instructions);
        for round in 0..3 {
            for hash in &hashes {
                assert_eq!(index.put(&index.place(*hash), round).unwrap(), None);
            }
            assert!(hashes.iter().all(|hash| index.first(&index.place(*hash)) == Some(round)));
            for hash in &hashes {
                let found = index.find(&index.place(*hash), |_| true).unwrap();
                index.remove(*hash, found).unwrap();
            }
            assert_eq!(units(&index), (0, 0, REGIONS.len() as u64));
        }
    }
}

/// Batches of all small lengths, and of others, find what single lookups find, also beside hashes with the same last 48 bits,
/// which are in the same two lines.
#[test]
fn batches_find_what_single_lookups_find() {
    let times_seen = Cell::new(0);
    for instructions in [Instructions::Portable, Instructions::V3, Instructions::V4] {
        for count in [0, 300, 30_000] {
            let (numbers, mut index) =
                (SeededRandom::new(5), index(&MemoryOptions::default(), instructions));
            let mut hashes: Vec<_> = (0..count).map(|_| hash(&numbers, 0)).collect();
            hashes.extend((0..count / 10).map(|_| hash(&numbers, 20)));
            for twins in 0..4_u64 {
                let last = twins * 0x1234_5678_9ABC;
                hashes.extend((0..6).map(|high| 3 << 56 | high << 48 | last));
            }
            for (value, hash) in hashes.iter().enumerate().filter(|(i, _)| i % 3 > 0) {
                index.put(&index.place(*hash), value as u64).unwrap();
            }
            for len in (0..150).chain([BATCH, 1000]) {
                let batch: Vec<_> = (0..len)
                    .map(|i| (i, hashes[below(&numbers, hashes.len() as u64) as usize]))
                    .collect();
                let [mut finding, mut inserting, mut seeing] = [(); 3].map(|()| Ahead::new(&batch));
                // The hashes whose places were reached, in this order, and again the last one if the last burst is not full.
                let reached = RefCell::new(Vec::new());
                let see = |places: &mut [Place; BURST]| {
                    for place in places {
                        let first = index.first(place);
                        let seen = index.see(place);
                        assert!(seen == first || seen.is_none());
                        times_seen.set(times_seen.get() + u64::from(seen.is_some()));
                        reached.borrow_mut().push(place.hash);
                    }
                };
                for (position, hash) in &batch {
                    let expected = Some((*position, *hash, index.first(&index.place(*hash))));
                    let found = [
                        finding.next(&index),
                        inserting.next_to_insert(&index),
                        seeing.next_and_reach(&index, see),
                    ];
                    for found in found {
                        let found = found.map(|(at, place)| (at, place.hash, index.first(place)));
                        assert_eq!(found, expected, "{len}");
                    }
                    assert_eq!(reached.borrow().get(*position), Some(hash), "{len}");
                }
                assert_eq!(reached.borrow().len(), len.next_multiple_of(BURST));
                assert!(finding.next(&index).is_none());
                assert!(inserting.next_to_insert(&index).is_none());
                assert!(seeing.next_and_reach(&index, see).is_none());
            }
        }
    }
    assert!(times_seen.get() > 10_000, "{times_seen:?}");
}

/// Does random changes to an index and to a map; both must have the same pairs all the time.
fn check_index(options: &MemoryOptions, instructions: Instructions, crowd: u32, seed: u64) {
    let (numbers, mut index) = (SeededRandom::new(seed), index(options, instructions));
    let mut expected = BTreeMap::new();
    let value_max = if options.wide_values { u64::MAX } else { (1 << 48) - 1 };
    for phase in 0..8 {
        for _ in 0..3000 {
            let known = expected.range(hash(&numbers, crowd)..).next().map(|(hash, _)| *hash);
            let hash = known.filter(|_| below(&numbers, 3) == 0).unwrap_or(hash(&numbers, crowd));
            let found = index.find(&index.place(hash), |_| true);
            assert_eq!(found.map(|found| found.value), expected.get(&hash).copied());
            // Phases of growth and of removal.
            if below(&numbers, 8) < 2 + 5 * (phase % 2) {
                let removed = known.unwrap_or(hash);
                if let Some(found) = index.find(&index.place(removed), |_| true) {
                    index.remove(removed, found).unwrap();
                }
                expected.remove(&removed);
            } else {
                let value = numbers.next_u64() & value_max;
                let before = index.put(&index.place(hash), value).unwrap();
                assert_eq!(before, expected.insert(hash, value));
            }
            assert_eq!(index.count, expected.len() as u64);
        }
        let pairs: Vec<_> = expected.iter().map(|(h, v)| Pair { hash: *h, value: *v }).collect();
        assert_eq!(pairs_of(&mut index), pairs);
    }
    for hash in expected.keys() {
        let found = index.find(&index.place(*hash), |_| true).unwrap();
        index.remove(*hash, found).unwrap();
    }
    assert_eq!(units(&index), (0, 0, REGIONS.len() as u64));
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

/// Groups grow, split, and shrink and merge at last.
#[test]
fn a_place_is_known_until_its_group_is_built_anew() {
    let mut index = index(&MemoryOptions::default(), Instructions::Portable);
    let numbers = SeededRandom::new(5);
    let (mut hashes, mut places) = (Vec::new(), VecDeque::<Place>::new());
    let (mut known, mut unknown) = (0, 0);
    for step in 0..60_000 {
        if step < 40_000 {
            hashes.push(hash(&numbers, 0));
            let place = index.place(hashes[step]);
            index.insert(&place, 1).unwrap();
        } else {
            let hash = hashes.swap_remove(below(&numbers, hashes.len() as u64) as usize);
            let found = index.find(&index.place(hash), |_| true).unwrap();
            index.remove(hash, found).unwrap();
        }
        for place in &places {
            let now = index.place(place.hash);
            if !index.is_current(place) {
                unknown += 1;
                continue;
            }
            known += u64::from(place.rebuilds < now.rebuilds);
            let facts = |place: &Place| (place.group, place.lines, place.has_lines, place.format);
            assert_eq!(facts(place), facts(&now));
        }
        places.push_front(index.place(hash(&numbers, 0)));
        places.truncate(32);
    }
    assert!(known > 10_000 && unknown > 1000, "{known} {unknown}");
}

/// Full groups of random hashes split without moving a pair: about one pair moves per insert, into a further chunk.
#[test]
fn full_groups_split_without_moving_pairs() {
    let numbers = SeededRandom::new(43);
    for wide_values in [false, true] {
        let options = MemoryOptions { wide_values, ..MemoryOptions::default() };
        let mut index = index(&options, Instructions::V4);
        // Groups of depth 3 have been built anew by then, since their lines have another format.
        let put = |index: &mut Index| index.put(&index.place(hash(&numbers, 0)), 7).unwrap();
        (0..50_000).for_each(|_| assert_eq!(put(&mut index), None));
        let [groups, moved] = [index.groups.units(), index.moved];
        (0..200_000).for_each(|_| assert_eq!(put(&mut index), None));
        assert!(index.groups.units() > 3 * groups, "{groups}");
        let moved = index.moved - moved;
        assert!((170_000..230_000).contains(&moved), "{moved}");
    }
}

/// Pairs whose slots were seen are moved and removed, and others come into their slots, before they are looked for.
#[test]
fn a_pair_is_found_after_its_slot_was_seen() {
    let mut index = index(&MemoryOptions::default(), Instructions::in_use());
    let numbers = SeededRandom::new(7);
    let (mut hashes, mut places) = (Vec::new(), VecDeque::<Place>::new());
    let (mut removed, mut moved) = (0, 0);
    for step in 0..60_000 {
        if step % 3 < 2 {
            hashes.push(hash(&numbers, 0));
            let place = index.place(hashes[hashes.len() - 1]);
            index.insert(&place, step).unwrap();
        } else {
            let hash = hashes.swap_remove(below(&numbers, hashes.len() as u64) as usize);
            let found = index.find(&index.place(hash), |_| true).unwrap();
            index.remove(hash, found).unwrap();
        }
        let seen = hashes[below(&numbers, hashes.len() as u64) as usize];
        let mut place = index.place(seen);
        assert!(index.see(&mut place).is_some() && place.seen != 0);
        places.push_front(place);
        places.truncate(200);
        for place in &places {
            let mut now = index.place(place.hash);
            let expected = index.first(&now);
            assert_eq!((index.first(place), index.see(&mut now)), (expected, expected));
            removed += u64::from(expected.is_none());
            moved +=
                u64::from(expected.is_some() && index.is_current(place) && place.seen != now.seen);
        }
    }
    assert!(removed > 1000 && moved > 1000, "{removed} {moved}");
}

/// Keys whose hashes begin with the same bits. Groups whose lines were found ahead are split before they are used, and all
/// keys go to one half.
#[test]
fn a_batch_of_crowded_keys_is_put_whole() {
    let numbers = SeededRandom::new(5);
    for shared in 9..22 {
        let hashes = (0..5000).map(|_| !(u64::MAX >> shared) | numbers.next_u64() >> shared);
        let keys: Vec<u64> = hashes.map(|hash| unmix(hash, Seed(0))).collect();
        let table = GroupTable::new(MemoryOptions::default()).unwrap();
        let pairs: Vec<(u64, u64)> = keys.iter().copied().zip(0..).collect();
        table.put_many(&pairs).unwrap();
        let got = keys.iter().map(|key| table.get(*key));
        assert!(got.eq((0..5000).map(Some)), "{shared} bits");
    }
}

/// Hashes that have their last 30 bits in common are in the same two lines of each chunk: their groups split until few are
/// left in each.
#[test]
fn hashes_with_the_same_last_bits_are_kept() {
    let numbers = SeededRandom::new(6);
    let mut index = index(&MemoryOptions::default(), Instructions::V4);
    let hashes: Vec<_> = (0..5000).map(|_| hash(&numbers, 0) >> 30 << 30 | 77).collect();
    for (value, hash) in hashes.iter().enumerate() {
        index.put(&index.place(*hash), value as u64).unwrap();
    }
    let mut values = hashes.iter().map(|hash| index.first(&index.place(*hash)));
    assert!(values.by_ref().eq((0..5000).map(Some)));
    assert_eq!(pairs_of(&mut index).len(), 5000);
}

/// Returns a hash whose last bits are folded to these, so that the lines of hashes with the same ones are the same; `word` tells
/// them apart, and `first` are the first bits after those of the region.
fn chosen(folded: u64, word: u64, first: u64) -> u64 {
    let middle = folded >> 16 ^ word;
    3 << 56 | first << 48 | word << 32 | middle << 16 | (folded ^ middle) & 0xFFFF
}

/// Puts these hashes, and finds all of them.
fn check_chosen(options: &MemoryOptions, hashes: &[u64]) {
    let mut index = index(options, Instructions::V4);
    for (value, hash) in hashes.iter().enumerate() {
        assert_eq!(index.put(&index.place(*hash), value as u64).unwrap(), None);
    }
    let values = hashes.iter().map(|hash| index.first(&index.place(*hash)));
    assert!(values.eq((0..hashes.len() as u64).map(Some)));
    assert_eq!(pairs_of(&mut index).len(), hashes.len());
}

/// A group splits several times at once, since the pairs of both halves of a half find no slots: all are in two lines.
#[test]
fn a_group_whose_halves_find_no_slots_splits_several_times() {
    const IN_TWO_LINES: [u64; 4] = [0x1444_59B8, 0x25C8_10F6, 0x85CD_087B, 0x02C0_A27A];
    let firsts = (0..9).map(|i| 0x80 + i % 2 * 16);
    let firsts = firsts.chain((0..11).map(|i| 0xC0 + i % 2 * 8));
    let firsts = firsts.chain((0..13).map(|i| 0xE0 + i % 2 * 8));
    let hash = |(i, first): (usize, u64)| chosen(IN_TWO_LINES[(i / 8).min(3)], i as u64, first);
    let hashes: Vec<u64> = firsts.enumerate().map(hash).collect();
    for wide_values in [false, true] {
        check_chosen(&MemoryOptions { wide_values, ..MemoryOptions::default() }, &hashes);
    }
}

/// A group splits into one half without pairs and one that would merge with it again: the pair that made it split is put.
#[test]
fn halves_that_would_merge_again_take_a_pair() {
    let full = [0x02E8_5EA2, 0xE5D2_0000].into_iter();
    let full = full.flat_map(|folded| (0..8).map(move |word| chosen(folded, word, 0x80)));
    let hashes: Vec<u64> = full.chain([chosen(0x02E8_5EA2, 9, 0)]).collect();
    check_chosen(&MemoryOptions::default(), &hashes);
}

/// Hashes of which few are in the upper half of each group, with a low load: a half of few pairs does not keep four chunks.
#[test]
fn groups_that_split_have_no_more_chunks_than_they_need() {
    let numbers = SeededRandom::new(45);
    let options = MemoryOptions { load: 0.5, ..MemoryOptions::default() };
    let mut index = index(&options, Instructions::V4);
    let rare_ones = || (0..5).fold(u64::MAX, |bits, _| bits & numbers.next_u64());
    // The bits by which the first groups split are 1 in one of 32 hashes.
    let hashes: Vec<_> = (0..20_000)
        .map(|_| 3 << 56 | (rare_ones() & 0xFF) << 48 | numbers.next_u64() >> 16)
        .collect();
    hashes.iter().for_each(|hash| assert_eq!(index.put(&index.place(*hash), 7).unwrap(), None));
    for hash in &hashes {
        let group = Group::decode(index.groups.line(group_at(index.group_of(*hash))));
        let format = index.shape.format(group.division.depth);
        assert!(!index.shape.shrinks(format, group.chunks, group.count), "{group:?}");
    }
}

/// Full groups split while a snapshot reads them.
#[test]
fn a_snapshot_has_the_pairs_of_groups_that_split_since() {
    let (numbers, mut index) =
        (SeededRandom::new(44), index(&MemoryOptions::default(), Instructions::V4));
    let put = |index: &mut Index, value| {
        let hash = hash(&numbers, 0);
        assert_eq!(index.put(&index.place(hash), value).unwrap(), None);
        Pair { hash, value }
    };
    let mut expected: Vec<Pair> = (0..40_000).map(|value| put(&mut index, value)).collect();
    let (groups, epoch) = (index.groups.units(), index.begin_snapshot().unwrap());
    let (mut all, mut group) = (Vec::new(), Vec::new());
    for value in 0..80_000 {
        put(&mut index, value);
        if value > 60_000 && value % 10 == 0 && index.next_of_snapshot(epoch, &mut group).is_some()
        {
            all.extend_from_slice(&group);
        }
    }
    assert!(index.groups.units() >= 2 * groups, "{groups}");
    while index.next_of_snapshot(epoch, &mut group).is_some() {
        all.extend_from_slice(&group);
    }
    index.end_snapshot(epoch);
    all.sort_unstable();
    expected.sort_unstable();
    assert!(all == expected);
}

/// Hashes that share as many bits as a directory knows fill one group of the greatest depth, and the next ones are refused.
#[test]
fn a_group_of_the_greatest_depth_is_filled_and_does_not_split() {
    let numbers = SeededRandom::new(8);
    let mut index = index(&MemoryOptions::default(), Instructions::V4);
    let (mut expected, mut refused) = (BTreeSet::new(), 0);
    while refused < 100 {
        let pair = Pair { hash: 3 << 56 | numbers.next_u64() >> 28, value: 7 };
        match index.insert(&index.place(pair.hash), pair.value) {
            Ok(()) => _ = expected.insert(pair),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
                refused += 1;
            }
        }
        assert!(expected.len() < 2000);
    }
    assert!(expected.len() > 1000, "{}", expected.len());
    assert!(pairs_of(&mut index).into_iter().eq(expected));
}

/// Inserts that the budget refuses, when a group would grow or split, leave all pairs as they are.
#[test]
fn an_insert_that_is_refused_changes_no_pair() {
    let numbers = SeededRandom::new(7);
    let sizes = (512..1024).step_by(64).flat_map(|kib| [(kib, 0), (kib, 9)]);
    for (kib, crowd) in sizes {
        let budget = MemoryBudget::new(kib << 10);
        let mut index =
            index(&MemoryOptions { budget, ..MemoryOptions::default() }, Instructions::V4);
        let (mut expected, mut refused) = (BTreeSet::new(), 0);
        while refused < 100 {
            let pair = Pair { hash: hash(&numbers, crowd), value: refused };
            match index.insert(&index.place(pair.hash), pair.value) {
                Ok(()) => _ = expected.insert(pair),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Memory { .. }), "{error}");
                    refused += 1;
                }
            }
        }
        assert!(expected.len() > 10_000, "{}", expected.len());
        assert!(pairs_of(&mut index).into_iter().eq(expected));
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
        assert_eq!(table.get(i * i), (i < table.len()).then_some((i * i) ^ 5));
    }
    let mut values = vec![None; keys.len()];
    table.get_many(&keys, &mut values);
    assert!(keys.iter().zip(&values).all(|(key, value)| *value == Some(key ^ 5)));
    let stats = table.stat();
    assert_eq!((stats.keys, table.len()), (120_000, 120_000));
    assert_eq!(table.remove_many(&keys).unwrap(), 120_000);
    assert_eq!((table.stat().keys, table.remove(4).unwrap()), (0, None));
}

/// A growing table has no second copy of its keys at any moment: about as much memory for each, and beside that a step of 2 MiB.
#[test]
fn a_growing_table_has_as_much_memory_for_each_key_at_any_moment() {
    let table = GroupTable::new(MemoryOptions { shards: 1, ..MemoryOptions::default() }).unwrap();
    let numbers = SeededRandom::new(3);
    for _ in 0..1000 {
        let pairs: Vec<_> = (0..1000).map(|i| (numbers.next_u64(), i)).collect();
        table.put_many(&pairs).unwrap();
        let stats = table.stat();
        let limit = 20 * stats.keys + (3 << 20);
        assert!(stats.bytes <= limit, "{} bytes for {} keys", stats.bytes, stats.keys);
    }
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

/// Most pairs are removed while there are snapshots, so that no groups merge. They do at the end of the last one, a few at a
/// time, and are as large then as without a snapshot.
#[test]
fn groups_that_a_snapshot_kept_apart_merge_at_its_end() {
    for kept in [usize::MAX, 1000, 100, 20] {
        let numbers = SeededRandom::new(43);
        let hashes: Vec<_> = (0..100_000).map(|_| hash(&numbers, 0)).collect();
        let [mut index, mut other] =
            [0; 2].map(|_| index(&MemoryOptions::default(), Instructions::V4));
        for index in [&mut index, &mut other] {
            hashes.iter().for_each(|hash| _ = index.put(&index.place(*hash), 1).unwrap());
        }
        let (snapshots, groups) =
            ([0; 2].map(|_| index.begin_snapshot().unwrap()), index.groups.units());
        for (i, hash) in hashes.iter().enumerate().filter(|(i, _)| (i + 1) % kept > 0) {
            for index in [&mut index, &mut other] {
                let found = index.find(&index.place(*hash), |_| true).unwrap();
                index.remove(*hash, found).unwrap();
            }
            assert_eq!(index.groups.units(), groups, "{i}");
        }
        index.end_snapshot(snapshots[0]);
        assert!(!index.merge_due() && index.groups.units() == groups);
        index.end_snapshot(snapshots[1]);
        loop {
            let before = index.groups.units();
            let has_others = index.merge_due();
            assert!(before - index.groups.units() <= 8);
            if !has_others {
                break;
            }
        }
        let [with, without] = [units(&index), units(&other)];
        assert!(
            with.1 * 10 <= without.1 * 11 && with.2 * 10 <= without.2 * 11 && with.2 < groups / 2,
            "{with:?} {without:?}"
        );
        assert!(kept <= hashes.len() || with == (0, 0, REGIONS.len() as u64));
        for (i, hash) in hashes.iter().enumerate() {
            let found = index.first(&index.place(*hash));
            assert_eq!(found, ((i + 1) % kept == 0).then_some(1));
        }
    }
}

/// Dropping the last snapshot of a table merges the groups of all shards.
#[test]
fn the_end_of_a_snapshot_merges_groups_of_both_tables() {
    let options = MemoryOptions { shards: 2, ..MemoryOptions::default() };
    let (numbers, values) =
        (GroupTable::new(options.clone()).unwrap(), AppendTable::new(options).unwrap());
    let keys: Vec<u64> = (0..600_000).collect();
    numbers.put_many(&keys.iter().map(|key| (*key, *key)).collect::<Vec<_>>()).unwrap();
    let texts: Vec<_> = keys.iter().map(|key| key.to_le_bytes()).collect();
    values.put_many(&texts.iter().map(|text| (text, text)).collect::<Vec<_>>()).unwrap();
    let snapshots = (numbers.snapshot().unwrap(), values.snapshot().unwrap());
    numbers.remove_many(&keys[1000..]).unwrap();
    values.remove_many(&texts[1000..]).unwrap();
    let before = [numbers.stat().groups, values.stat().groups];
    drop(snapshots);
    let after = [numbers.stat().groups, values.stat().groups];
    // A group for each region: few have merged so far that they have more keys than the first ones.
    assert!(
        after.iter().zip(before).all(|(after, before)| *after <= 256 && before >= 500),
        "{before:?} {after:?}"
    );
    assert!(keys[..1000].iter().all(|key| numbers.get(*key) == Some(*key)));
    assert!(texts[..1000].iter().all(|text| values.get(text) == Some(text.to_vec())));
}

/// A snapshot has the pairs of its moment, whatever is changed while it is read, also beside other snapshots.
#[test]
fn snapshots_have_the_pairs_of_their_moments() {
    let numbers = SeededRandom::new(9);
    // A few groups, and many, which split, shrink and merge.
    for (count, crowd) in [(128, 50), (12_000, 0)] {
        let hashes: Vec<_> = (0..count).map(|_| hash(&numbers, crowd)).collect();
        check_snapshots(&numbers, &hashes);
    }
}

/// Puts and removes pairs with these hashes while snapshots begin, are read, and end.
fn check_snapshots(numbers: &SeededRandom, hashes: &[u64]) {
    let mut index = index(&MemoryOptions::default(), Instructions::V4);
    let mut expected = BTreeMap::new();
    let mut open: Vec<(u32, BTreeMap<u64, u64>, Vec<Pair>)> = Vec::new();
    let mut group = Vec::new();
    for step in 0..60_000_u64 {
        let hash = hashes[below(numbers, hashes.len() as u64) as usize];
        if step < 40_000 && below(numbers, 4) > 0 {
            index.put(&index.place(hash), step).unwrap();
            expected.insert(hash, step);
        } else if let Some(found) = index.find(&index.place(hash), |_| true) {
            index.remove(hash, found).unwrap();
            expected.remove(&hash);
        }
        if step % 7000 == 0 {
            open.push((index.begin_snapshot().unwrap(), expected.clone(), Vec::new()));
        }
        if step % 300 == 0 && !open.is_empty() {
            let which = below(numbers, open.len() as u64) as usize;
            let (epoch, expected, seen) = &mut open[which];
            if index.next_of_snapshot(*epoch, &mut group).is_some() {
                group.sort_unstable();
                seen.extend_from_slice(&group);
                continue;
            }
            let pairs = expected.iter().map(|(hash, value)| Pair { hash: *hash, value: *value });
            assert!(pairs.eq(seen.iter().copied()), "snapshot {epoch}");
            index.end_snapshot(*epoch);
            open.remove(which);
        }
    }
    for (epoch, expected, mut seen) in open {
        while index.next_of_snapshot(epoch, &mut group).is_some() {
            group.sort_unstable();
            seen.extend_from_slice(&group);
        }
        let pairs = expected.iter().map(|(hash, value)| Pair { hash: *hash, value: *value });
        assert!(pairs.eq(seen), "snapshot {epoch}");
        index.end_snapshot(epoch);
    }
    assert_eq!(index.snapshots.bytes(), 0);
}

/// Pairs with one hash are all found, until both lines are full of them.
#[test]
fn pairs_with_one_hash_are_told_apart_by_their_values() {
    let mut index = index(&MemoryOptions::default(), Instructions::V4);
    let hash = 3 << 56 | 12_345;
    let mut count = 0;
    while index.insert(&index.place(hash), count).is_ok() {
        count += 1;
        for value in 0..count {
            assert!(index.find(&index.place(hash), |found| found == value).is_some());
        }
    }
    assert!(count >= 8, "{count}");
    let refused = index.insert(&index.place(hash), count).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Limit { .. }), "{refused}");
    for value in 0..count {
        let found = index.find(&index.place(hash), |found| found == value).unwrap();
        index.remove(hash, found).unwrap();
    }
    assert_eq!((index.count, index.find(&index.place(hash), |_| true).is_none()), (0, true));
}

fn text(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// Checks that a run has these entries, and that it is one.
#[track_caller]
fn check_run(mut run: impl Run, expected: &HashMap<Vec<u8>, Vec<u8>>) {
    let (mut count, mut before) = (0, None);
    let (seed, summary) = (run.seed(), run.summary());
    while run.advance().unwrap() {
        let entry = run.entry();
        assert_eq!(entry.hash, KeyHash::of(entry.key, seed));
        let place = Some((entry.hash, entry.key.to_vec()));
        assert!(before < place);
        before = place;
        assert_eq!(entry.value, expected.get(entry.key).map(Vec::as_slice));
        let value = entry.value.unwrap().len() as u64;
        assert!(summary.values.min <= value && value <= summary.values.max);
        assert!(summary.keys.min <= entry.key.len() as u64);
        assert!(entry.key.len() as u64 <= summary.keys.max);
        count += 1;
    }
    assert_eq!(count, expected.len());
    assert!(summary.entries_max >= count as u64);
}

/// Does a random change to a table and to a map.
fn change(table: &AppendTable, expected: &mut HashMap<Vec<u8>, Vec<u8>>, numbers: &SeededRandom) {
    let key = text(below(numbers, 600));
    let shift = below(numbers, 17);
    let size = (numbers.next_u64() >> 47 >> shift) as usize % 50_000;
    let value: Vec<u8> = (0..size).map(|i| (i as u64 + shift) as u8).collect();
    match below(numbers, 10) {
        0..5 => {
            table.append(&key, &value).unwrap();
            expected.entry(key).or_default().extend_from_slice(&value);
        }
        5..7 => {
            let was_there = table.put(&key, &value).unwrap();
            assert_eq!(was_there, expected.insert(key, value).is_some());
        }
        7 => {
            let trimmed = table.trim(&key, size).unwrap();
            let drop = expected.get(&key).map(|value| value.len().saturating_sub(size));
            assert_eq!(trimmed, drop);
            if let Some(drop) = drop {
                expected.get_mut(&key).unwrap().drain(..drop);
            }
        }
        8 => assert_eq!(table.remove(&key).unwrap(), expected.remove(&key).is_some()),
        _ => {
            let mut found = vec![1];
            assert_eq!(table.get_into(&key, &mut found), expected.contains_key(&key));
            assert_eq!(&found, expected.get(&key).unwrap_or(&vec![1]));
            assert_eq!(table.get(&key), expected.get(&key).cloned());
        }
    }
}

#[track_caller]
fn check_table(table: &AppendTable, expected: &HashMap<Vec<u8>, Vec<u8>>) {
    let stats = table.stat();
    let data: usize = expected.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert_eq!((stats.keys, stats.data_bytes), (expected.len() as u64, data as u64));
    assert!(stats.block_bytes >= stats.data_bytes && stats.page_bytes >= stats.block_bytes);
    assert!(stats.bytes >= stats.index_bytes + stats.page_bytes);
    check_run(table.snapshot().unwrap().scan(), expected);
    let mut keys: Vec<(u64, Vec<u8>)> = Vec::new();
    let end = table.visit_keys(0, |hash, key| {
        keys.push((hash, key.to_vec()));
        true
    });
    assert_eq!((end, keys.len()), (None, expected.len()));
    assert!(keys.is_sorted_by_key(|(hash, _)| *hash));
    assert!(keys.iter().all(|(_, key)| expected.contains_key(key)));
}

/// Random changes, snapshots read beside them, and compactions.
#[test]
fn a_table_of_values_agrees_with_a_map() {
    let numbers = SeededRandom::new(11);
    for shards in [1, 4] {
        let options = MemoryOptions { shards, seed: Seed(8), ..MemoryOptions::default() };
        let table = AppendTable::new(options).unwrap();
        let mut expected = HashMap::new();
        for round in 0..10 {
            (0..300).for_each(|_| change(&table, &mut expected, &numbers));
            let (snapshot, then) = (table.snapshot().unwrap(), expected.clone());
            (0..200).for_each(|_| change(&table, &mut expected, &numbers));
            if round % 3 == 0 {
                table.compact(&Watch::default()).unwrap();
            }
            check_run(snapshot.scan(), &then);
            check_table(&table, &expected);
        }
        table.compact(&Watch::default()).unwrap();
        assert_eq!(table.stat().deferred_blocks, 0);
        check_table(&table, &expected);
        let keys: Vec<_> = expected.keys().cloned().collect();
        let mut values = vec![None; keys.len()];
        table.get_many(&keys, &mut values);
        assert!(keys.iter().zip(&values).all(|(key, value)| expected.get(key) == value.as_ref()));
        keys.iter().for_each(|key| assert!(table.remove(key).unwrap()));
        assert_eq!((table.len(), table.stat().page_bytes, table.stat().data_bytes), (0, 0, 0));
    }
}

#[test]
fn a_table_is_restored_from_a_run_with_any_seed() {
    let entry = |i: u64| (text(i), Some(vec![i as u8; i as usize % 50]));
    let entries: Vec<_> = (0..3000).map(entry).collect();
    let expected: HashMap<_, _> =
        entries.iter().map(|(key, value)| (key.clone(), value.clone().unwrap())).collect();
    for seed in [1, 2] {
        let options = MemoryOptions { seed: Seed(2), ..MemoryOptions::default() };
        let table = AppendTable::new(options).unwrap();
        let run = VecRun::new(entries.clone(), Seed(seed));
        table.restore(run, &Watch::default()).unwrap();
        check_table(&table, &expected);
        let tombstones = entries.iter().map(|(key, _)| (key.clone(), None)).collect();
        table.restore(VecRun::new(tombstones, Seed(seed)), &Watch::default()).unwrap();
        assert!(table.is_empty());
    }
}

#[test]
fn records_in_batches_are_appended_in_their_order() {
    let table = AppendTable::new(MemoryOptions::default()).unwrap();
    let mut expected: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let records: Vec<_> = (0..20_000_u64).map(|i| (text(i * i % 997), i.to_le_bytes())).collect();
    for records in records.chunks(777) {
        table.append_many(records).unwrap();
    }
    for (key, value) in &records {
        expected.entry(key.clone()).or_default().extend_from_slice(value);
    }
    check_table(&table, &expected);
    let puts: Vec<_> = expected.keys().map(|key| (key.clone(), b"new")).collect();
    table.put_many(&puts).unwrap();
    expected.values_mut().for_each(|value| *value = b"new".to_vec());
    check_table(&table, &expected);
}

/// Reads and changes of several keys together, and of one key several times, against a map.
#[test]
fn slots_are_changed_in_the_order_of_their_keys() {
    let numbers = SeededRandom::new(5);
    let table = AppendTable::new(MemoryOptions::default()).unwrap();
    let mut expected: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    for _ in 0..200 {
        let keys: Vec<_> = (0..below(&numbers, 300)).map(|_| text(below(&numbers, 200))).collect();
        let kinds: Vec<_> = keys.iter().map(|_| below(&numbers, 4)).collect();
        let sizes: Vec<_> = keys.iter().map(|_| below(&numbers, 40) as usize).collect();
        let mut got = vec![(None, 0); keys.len()];
        table
            .change_many(&keys, |i, slot| {
                assert_eq!(slot.key(), keys[i]);
                let before = slot.get();
                assert_eq!(slot.size(), before.as_ref().map(Vec::len));
                let bytes = vec![i as u8; sizes[i]];
                let result = match kinds[i] {
                    0 => usize::from(slot.remove()?),
                    1 => usize::from(slot.put(bytes)?),
                    _ => slot.append(bytes)?,
                };
                got[i] = (before, result);
                Ok(())
            })
            .unwrap();
        for (i, key) in keys.iter().enumerate() {
            let (before, bytes) = (expected.get(key).cloned(), vec![i as u8; sizes[i]]);
            let result = match kinds[i] {
                0 => usize::from(expected.remove(key).is_some()),
                1 => usize::from(expected.insert(key.clone(), bytes).is_some()),
                _ => {
                    let value = expected.entry(key.clone()).or_default();
                    value.extend(bytes);
                    value.len()
                }
            };
            assert_eq!(got[i], (before, result), "{i}");
        }
    }
    check_table(&table, &expected);
}

/// Values that lie in one block, and longer ones, are lent.
#[test]
fn values_of_many_keys_are_lent() {
    let table = AppendTable::new(MemoryOptions::default()).unwrap();
    let value = |i: u64| vec![i as u8; (i * 401) as usize];
    (0..200).for_each(|i| assert!(!table.put(text(i), value(i)).unwrap()));
    let keys: Vec<_> = (0..300).map(text).collect();
    let mut seen = vec![false; keys.len()];
    table
        .visit_many(&keys, |i, got| {
            let expected = (i < 200).then(|| value(i as u64));
            assert_eq!(got, expected.as_deref());
            seen[i] = true;
            Ok(())
        })
        .unwrap();
    assert!(seen.iter().all(|seen| *seen));
    for (i, key) in (0..).zip(&keys) {
        assert_eq!(table.size(key), (i < 200).then(|| value(i).len()));
    }
    let part = |i: usize, size: usize| (i * 131).min(size)..(i * 307).min(size);
    table
        .visit_parts(&keys, part, |i, got| {
            let value = (i < 200).then(|| value(i as u64));
            let expected = value.as_ref().map(|value| (&value[part(i, value.len())], value.len()));
            assert_eq!(got, expected);
            seen[i] = false;
            Ok(())
        })
        .unwrap();
    assert!(seen.into_iter().all(|seen| !seen));
    let mut calls = 0;
    let stopped = table.visit_many(&keys, |_, _| {
        calls += 1;
        Err(ErrorKind::Stopped.into())
    });
    assert!(stopped.is_err() && calls == 1);
}

/// A walk through the keys goes on where it has stopped, also at the first and the last hash.
#[test]
fn keys_are_visited_from_any_hash_on() {
    let options = MemoryOptions { seed: Seed(3), ..MemoryOptions::default() };
    let table = AppendTable::new(options).unwrap();
    assert_eq!(table.visit_keys(0, |_, _| false), None);
    (0..5000).for_each(|i| table.append(text(i), "x").unwrap());
    let long = vec![7; 65_535];
    table.put(&long, "long").unwrap();
    let mut expected: Vec<_> = (0..5000).map(text).chain([long]).collect();
    expected.sort_by_key(|key| KeyHash::of(key, Seed(3)).high());
    let (mut from, mut keys) = (0, Vec::new());
    loop {
        let mut left = 7;
        let next = table.visit_keys(from, |_, key| {
            if left > 0 {
                keys.push(key.to_vec());
            }
            left -= 1;
            left >= 0
        });
        let Some(next) = next else { break };
        from = next;
    }
    assert_eq!(keys, expected);
    assert_eq!(table.visit_keys(u64::MAX, |_, _| false), None);
}

/// Keys as long as the first one that is not empty take no byte for their length, others take one. All are told apart.
#[test]
fn keys_of_one_length_are_stored_without_it() {
    let table = AppendTable::new(MemoryOptions { shards: 1, ..MemoryOptions::default() }).unwrap();
    let mut expected = HashMap::new();
    let waste = || table.stat().block_bytes - table.stat().data_bytes;
    let mut put = |key: &[u8], value: &[u8]| {
        assert!(!table.put(key, value).unwrap());
        expected.insert(key.to_vec(), value.to_vec());
    };
    put(b"", &[1; 31]);
    assert_eq!(waste(), 1);
    for i in 0..5000_u64 {
        put(&i.to_le_bytes(), &[i as u8; 16]);
    }
    assert_eq!(waste(), 1);
    for i in 0..5000_u32 {
        put(&i.to_le_bytes(), &[i as u8; 19]);
        put(&[i.to_le_bytes(), [0; 4]].concat()[..7], &[]);
    }
    assert_eq!(waste(), 1 + 5000 + 5000 * (16 - 7));
    check_table(&table, &expected);
}

/// After most keys were removed, the values of the others move together, and values of other sizes use the pages.
#[test]
fn compaction_gives_pages_back() {
    let table = AppendTable::new(MemoryOptions { shards: 1, ..MemoryOptions::default() }).unwrap();
    let mut expected = HashMap::new();
    for i in 0..40_000 {
        let value = vec![i as u8; 100 + i as usize % 60];
        table.put(text(i), &value).unwrap();
        expected.insert(text(i), value);
    }
    for i in (0..40_000).filter(|i| i % 4 > 0) {
        assert!(table.remove(text(i)).unwrap());
        expected.remove(&text(i));
    }
    let before = table.stat();
    table.compact(&Watch::default()).unwrap();
    let after = table.stat();
    assert!(after.page_bytes * 10 < before.page_bytes * 4, "{before:?} {after:?}");
    assert!(after.block_bytes * 100 > after.page_bytes * 75, "{after:?}");
    check_table(&table, &expected);
    assert!(after.bytes + (1 << 20) < before.bytes, "{before:?} {after:?}");
    // Values of other sizes take the pages that were kept, and then those that were given back.
    (0..1000).for_each(|i| assert!(table.put(text(i * 4), vec![5; 1000]).unwrap()));
    assert!(table.stat().bytes <= before.bytes);
}

/// The values that were put first are removed, and the memory of their pages is given back: a compaction needs none of it, and
/// moves nothing.
#[test]
fn compaction_after_the_oldest_values_were_removed_needs_no_memory() {
    let budget = MemoryBudget::unlimited();
    let options = MemoryOptions { shards: 1, budget: budget.clone(), ..MemoryOptions::default() };
    let table = AppendTable::new(options).unwrap();
    let keys: Vec<_> = (0..40_000).map(text).collect();
    keys.iter().for_each(|key| assert!(!table.put(key, [7; 1000]).unwrap()));
    assert_eq!(table.remove_many(&keys[..30_000]).unwrap(), 30_000);
    let (before, groups) = (budget.reserved(), Arc::new(AtomicU64::new(0)));
    assert!(before < 16 << 20, "{before}");
    let seen = groups.clone();
    let watch = Watch::new(move |more| {
        seen.fetch_add(more, Relaxed);
        Ok(())
    });
    table.compact(&watch).unwrap();
    assert_eq!((groups.load(Relaxed), budget.reserved()), (0, before));
    assert!(keys[30_000..].iter().all(|key| table.get(key).as_deref() == Some(&[7; 1000][..])));
}

/// Checks what a part counts against what the system counts: within 2 %, but for vectors beside, and for a step that ends
/// within a large page, all of which is resident.
#[cfg(target_os = "linux")]
#[track_caller]
fn check_resident(counted: u64, system: u64) {
    assert!(counted <= system + system / 50 + (1 << 18), "{counted} {system}");
    assert!(system <= counted + counted / 50 + (2 << 20), "{counted} {system}");
}

/// Most pairs of an index are removed, three times, and put again: its memory follows.
#[test]
fn the_memory_of_an_index_follows_the_number_of_pairs() {
    const PAIRS: u64 = 250_000;
    let mut index = Index::new(&MemoryOptions::default(), 0..256).unwrap();
    let hash = |i: u64| mix::mix(i, Seed(1));
    for cycle in 0..3 {
        for i in 0..PAIRS {
            index.put(&index.place(hash(i)), i + cycle).unwrap();
        }
        let before = index.bytes();
        #[cfg(target_os = "linux")]
        check_resident(before, index.chunks.system_bytes() + index.groups.system_bytes());
        for i in (0..PAIRS).filter(|i| i % 10 != cycle) {
            let found = index.find(&index.place(hash(i)), |_| true).unwrap();
            index.remove(hash(i), found).unwrap();
        }
        let after = index.bytes();
        assert!(after * 4 < before, "{before} {after}");
        #[cfg(target_os = "linux")]
        check_resident(after, index.chunks.system_bytes() + index.groups.system_bytes());
        for i in 0..PAIRS {
            let found = index.find(&index.place(hash(i)), |_| true).map(|found| found.value);
            assert_eq!(found, (i % 10 == cycle).then_some(i + cycle));
        }
    }
}

/// Most values are removed or trimmed, three times, and put again: after a compaction, their memory is given back.
#[test]
fn the_memory_of_values_follows_their_size() {
    const KEYS: u64 = 80_000;
    let mut shard = AppendShard::new(&MemoryOptions::default(), 0..256).unwrap();
    let hash = |key: &[u8]| KeyHash::of(key, Seed(0)).high();
    let value = |i: u64, cycle: u64| vec![(i + cycle) as u8; 150 + i as usize % 200];
    let bytes = |shard: &AppendShard| {
        let mut stats = AppendStats::default();
        shard.add_to(&mut stats);
        stats.bytes - stats.index_bytes
    };
    for cycle in 0..3 {
        for i in 0..KEYS {
            shard.put(&shard.place(hash(&text(i))), &text(i), &value(i, cycle)).unwrap();
        }
        let before = bytes(&shard);
        #[cfg(target_os = "linux")]
        check_resident(before, shard.values.slabs.system_bytes());
        for i in (0..KEYS).filter(|i| i % 10 != cycle) {
            if i % 2 == 0 {
                assert!(shard.remove(&shard.place(hash(&text(i))), &text(i)).unwrap());
            } else {
                let dropped =
                    shard.trim(&shard.place(hash(&text(i))), &text(i), |value| value.len() - 10);
                assert_eq!(dropped.unwrap(), Some(value(i, cycle).len() - 10));
            }
        }
        let begins: [fn(&mut Slabs) -> usize; 2] =
            [|slabs| slabs.begin_leaving(0.75), Slabs::begin_leaving_last];
        for begin in begins {
            assert!(begin(&mut shard.values.slabs) > 0);
            let (mut next, mut pairs) = (Some(0), Vec::new());
            while let Some(hash) = next {
                next = shard.leave_group(hash, &mut pairs).unwrap().checked_add(1);
            }
            while shard.values.slabs.give_some_back() {}
        }
        shard.values.slabs.end_leaving();
        let after = bytes(&shard);
        assert!(after * 2 < before, "{before} {after}");
        #[cfg(target_os = "linux")]
        check_resident(after, shard.values.slabs.system_bytes());
        for i in 0..KEYS {
            let found = shard
                .find(&shard.place(hash(&text(i))), &text(i))
                .map(|found| Reference(found.value));
            let mut scratch = Vec::new();
            let found = found.map(|found| shard.values.part(found, |size| 0..size, &mut scratch).0);
            let expected = value(i, cycle);
            let kept = if i % 10 == cycle { expected.len() } else { 10 };
            assert_eq!(found, (i % 10 == cycle || i % 2 == 1).then_some(&expected[..kept]));
        }
    }
}

/// Memory that one table gives back can be used by another one of the same budget.
#[test]
fn memory_that_is_given_back_is_free_in_the_budget() {
    let budget = MemoryBudget::new(8 << 20);
    let options = MemoryOptions { budget: budget.clone(), shards: 1, ..MemoryOptions::default() };
    let [first, second] = [0; 2].map(|_| GroupTable::new(options.clone()).unwrap());
    let fill = |table: &GroupTable| (0..).map_while(|key| table.put(key, key).ok()).count() as u64;
    let count = fill(&first);
    assert!(count > 300_000 && budget.reserved() > 6 << 20);
    (0..count).for_each(|key| assert_eq!(first.remove(key).unwrap(), Some(key)));
    assert!(budget.reserved() < 1 << 20, "{}", budget.reserved());
    let others = fill(&second);
    assert!(others > count * 8 / 10, "{others} of {count}");
    assert!((0..others).all(|key| second.get(key) == Some(key)));
}

/// A value that the budget has no room for takes none of it.
#[test]
#[cfg(target_os = "linux")]
fn a_value_that_is_refused_gives_its_memory_back() {
    let budget = MemoryBudget::new(24 << 20);
    let options = MemoryOptions { budget: budget.clone(), ..MemoryOptions::default() };
    let table = AppendTable::new(options).unwrap();
    table.put("small", "1").unwrap();
    let before = (budget.reserved(), table.stat().bytes);
    for key in ["small", "other"] {
        let refused = table.put(key, vec![1; 40 << 20]).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Memory { .. }), "{refused}");
        let after = (budget.reserved(), table.stat().bytes);
        assert!(after.0 <= before.0 + (256 << 10), "{before:?} {after:?}");
        assert!(after.1 <= before.1 + (256 << 10), "{before:?} {after:?}");
    }
    table.put("other", vec![2; 16 << 20]).unwrap();
    assert_eq!(table.get("small"), Some(b"1".to_vec()));
}

#[test]
fn a_budget_that_is_met_stops_appends_and_loses_nothing() {
    let budget = MemoryBudget::new(3 << 20);
    let options = MemoryOptions { budget: budget.clone(), shards: 2, ..MemoryOptions::default() };
    let table = AppendTable::new(options).unwrap();
    let mut expected: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut refused = 0;
    for i in 0..4000_u64 {
        let (key, value) = (text(i % 700), vec![i as u8; (i % 37 * i % 4001) as usize]);
        match table.append(&key, &value) {
            Ok(()) => expected.entry(key).or_default().extend_from_slice(&value),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Memory { .. }), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 100, "{refused}");
    for (key, value) in &expected {
        assert_eq!(table.get(key).as_ref(), Some(value));
    }
    assert_eq!(table.len(), expected.len() as u64);
    drop(table);
    assert_eq!(budget.reserved(), 0);
}

/// Writers in threads; a snapshot beside them has whole values, of which each is a prefix of what its key has later.
#[test]
fn readers_and_snapshots_go_on_beside_writers() {
    let table = AppendTable::new(MemoryOptions { shards: 4, ..MemoryOptions::default() }).unwrap();
    let write = |thread: u64| {
        for i in 0..6000_u64 {
            table.append(text(thread * 500 + i % 500), (i / 500).to_le_bytes()).unwrap();
        }
    };
    let is_whole = |value: &[u8]| {
        let numbers = value.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        value.len().is_multiple_of(8) && numbers.eq(0..value.len() as u64 / 8)
    };
    std::thread::scope(|scope| {
        let writers = [scope.spawn(|| write(0)), scope.spawn(|| write(1))];
        for _ in 0..20 {
            let (mut run, mut count) = (table.snapshot().unwrap().scan(), 0);
            while run.advance().unwrap() {
                assert!(is_whole(run.entry().value.unwrap()));
                count += 1;
            }
            assert!(count <= 1000);
            assert!(table.get(text(count / 2)).is_none_or(|value| is_whole(&value)));
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    assert!((0..1000).all(|key| table.get(text(key)).unwrap().len() == 96));
}

/// A function of the caller that panics changes nothing, and the table can be used.
#[test]
fn a_panic_of_the_caller_changes_nothing() {
    let table = AppendTable::new(MemoryOptions::default()).unwrap();
    table.put("a", "value").unwrap();
    std::thread::scope(|scope| {
        let panics = scope.spawn(|| table.trim_with("a", |_| panic!("on purpose")));
        assert!(panics.join().is_err());
    });
    assert_eq!(table.trim("a", 3).unwrap(), Some(2));
    assert_eq!(table.get("a").as_deref(), Some(&b"lue"[..]));
}

/// Writers of different threads, and a snapshot of numbers beside them.
#[test]
fn numbers_are_put_by_several_threads() {
    let table = GroupTable::new(MemoryOptions { shards: 8, ..MemoryOptions::default() }).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let table = &table;
            scope.spawn(move || {
                for start in (0..30_000).step_by(100) {
                    let pair = |i| (i * 3 + thread, i);
                    table.put_many(&(start..start + 100).map(pair).collect::<Vec<_>>()).unwrap();
                }
            });
        }
        let (mut group, mut before) = (Vec::new(), 0);
        for _ in 0..20 {
            let (mut snapshot, mut count) = (table.snapshot().unwrap(), 0);
            while snapshot.next_group(&mut group) {
                assert!(group.iter().all(|(key, value)| key / 3 == *value));
                count += group.len();
            }
            assert!(before <= count && count <= 90_000);
            before = count;
        }
    });
    assert!((0..90_000).all(|key| table.get(key) == Some(key / 3)));
    assert_eq!((table.len(), table.stat().snapshot_bytes), (90_000, 0));
}

/// A watch may use the table that is restored.
#[test]
fn a_watch_uses_the_table_that_is_restored() {
    let table = AppendTable::new(MemoryOptions { shards: 1, ..MemoryOptions::default() }).unwrap();
    let entries: Vec<_> = (0..5000).map(|i| (text(i), Some(vec![1]))).collect();
    let watched = table.clone();
    let watch = Watch::new(move |_| {
        assert!(watched.len() >= 4096);
        Ok(())
    });
    table.restore(VecRun::new(entries, Seed(1)), &watch).unwrap();
    assert_eq!(table.len(), 5000);
}

/// A watch that panics leaves a table that can be compacted.
#[test]
fn a_panic_of_a_watch_does_not_stop_later_compactions() {
    let table = AppendTable::new(MemoryOptions::default()).unwrap();
    table.put("a", "value").unwrap();
    std::thread::scope(|scope| {
        let watch = Watch::new(|_| panic!("on purpose"));
        let table = &table;
        assert!(scope.spawn(move || table.compact(&watch)).join().is_err());
    });
    table.compact(&Watch::default()).unwrap();
    assert_eq!(table.get("a").as_deref(), Some(&b"value"[..]));
}

/// The end of a snapshot frees what was kept for it, also if nothing changes any more.
#[test]
fn what_a_snapshot_kept_is_freed_at_its_end() {
    let table = AppendTable::new(MemoryOptions { shards: 1, ..MemoryOptions::default() }).unwrap();
    let value = vec![7; 1 << 20];
    for _ in 0..30 {
        let snapshot = table.snapshot().unwrap();
        table.put("a", &value).unwrap();
        let newer = table.snapshot().unwrap();
        assert!(table.stat().deferred_blocks <= 35);
        drop(newer);
        drop(snapshot);
        assert_eq!(table.stat().deferred_blocks, 0);
    }
}

/// A few values are replaced, and a long one is appended to, again and again beside snapshots: what is kept for them does not
/// grow with the number of changes.
#[test]
fn what_is_kept_for_snapshots_is_bounded_by_what_was_there() {
    let table = AppendTable::new(MemoryOptions { shards: 1, ..MemoryOptions::default() }).unwrap();
    let value = |i: u64, round: u64| vec![(i + round) as u8; 100 + i as usize];
    let mut expected: HashMap<_, _> = (0..1000).map(|i| (text(i), value(i, 0))).collect();
    expected.insert(b"long".to_vec(), vec![1; 1 << 20]);
    table.put_many(&expected.iter().collect::<Vec<_>>()).unwrap();
    let first = table.stat();
    let mut snapshots = VecDeque::new();
    for round in 1..=4 {
        snapshots.push_back((table.snapshot().unwrap(), expected.clone()));
        for change in 0..20_000 {
            let i = change % 10;
            table.put(text(i), value(i, round + change)).unwrap();
            table.append("long", [change as u8; 8]).unwrap();
            expected.insert(text(i), value(i, round + change));
            expected.get_mut(&b"long"[..]).unwrap().extend([change as u8; 8]);
        }
        if snapshots.len() > 2 {
            let (snapshot, then) = snapshots.pop_front().unwrap();
            check_run(snapshot.scan(), &then);
        }
        // The values, those of two snapshots, and pages that a class has begun.
        let stats = table.stat();
        assert!(stats.page_bytes < 4 * first.page_bytes + (2 << 20), "{first:?} {stats:?}");
        assert!(stats.deferred_blocks < 20_000, "{stats:?}");
    }
    check_table(&table, &expected);
    snapshots.into_iter().for_each(|(snapshot, then)| check_run(snapshot.scan(), &then));
    assert_eq!(table.stat().deferred_blocks, 0);
}

/// A copy of a group that two snapshots read counts once.
#[test]
fn a_copy_for_two_snapshots_counts_once() {
    let table = AppendTable::new(MemoryOptions { shards: 1, ..MemoryOptions::default() }).unwrap();
    (0..100).for_each(|i| assert!(!table.put(text(i), "value").unwrap()));
    let first = table.snapshot().unwrap();
    let second = table.snapshot().unwrap();
    table.put(text(1), "another value, which is longer").unwrap();
    let both = table.stat().snapshot_bytes;
    drop(second);
    assert!(both > 0);
    assert_eq!(table.stat().snapshot_bytes, both);
    drop(first);
    assert_eq!(table.stat().snapshot_bytes, 0);
}

/// The extents of a long value move one by one: a compaction needs a few pages, not as many as the value has.
#[test]
fn a_long_value_is_compacted_within_a_small_budget() {
    const PARTS: u64 = 400;
    const PART_BYTES: usize = 32 << 10;
    const BUDGET: u64 = 30 << 20;
    let budget = MemoryBudget::new(BUDGET);
    let options = MemoryOptions { shards: 1, budget, ..MemoryOptions::default() };
    let table = AppendTable::new(options).unwrap();
    // Extents of the long value alternate with other values, and are alone in their pages then.
    for i in 0..PARTS {
        table.append("long", vec![i as u8; PART_BYTES]).unwrap();
        table.put(text(i), vec![1; PART_BYTES - 100]).unwrap();
    }
    let keys: Vec<_> = (0..PARTS).map(text).collect();
    assert_eq!(table.remove_many(&keys).unwrap(), PARTS);
    assert_eq!(table.remove_many(&keys).unwrap(), 0);
    // What is left of the budget is less than half of the value.
    assert!(BUDGET - table.stat().bytes < PARTS * PART_BYTES as u64 / 2);
    let before = table.stat().page_bytes;
    table.compact(&Watch::default()).unwrap();
    let after = table.stat().page_bytes;
    assert!(after + (8 << 20) < before, "{before} to {after}");
    let value = table.get("long").unwrap();
    let parts = value.chunks(PART_BYTES).enumerate();
    assert!(parts.into_iter().all(|(i, part)| part.iter().all(|byte| *byte == i as u8)));
    assert_eq!(value.len(), PARTS as usize * PART_BYTES);
}

/// In a full table, the blocks of long values that were removed are used again, also without a free page.
#[test]
fn a_full_table_takes_long_values_in_place_of_others() {
    const LONG: usize = 33_000;
    let budget = MemoryBudget::new(24 << 20);
    let options = MemoryOptions { shards: 1, budget, ..MemoryOptions::default() };
    let table = AppendTable::new(options).unwrap();
    let fill = |name: &str, len: usize| -> u64 {
        let put = |i: &u64| table.put(format!("{name} {i}"), vec![*i as u8; len]).is_ok();
        (0..).take_while(put).count() as u64
    };
    let count = fill("long", LONG);
    let others = fill("short", 3000);
    assert!(count > 300, "{count} and {others}");
    let removed = || (0..count).step_by(2).map(|i| format!("long {i}"));
    assert_eq!(table.remove_many(&removed().collect::<Vec<_>>()).unwrap(), count.div_ceil(2));
    table.compact(&Watch::default()).unwrap();
    removed().for_each(|key| assert!(!table.put(key, vec![7; LONG]).unwrap()));
    for i in 0..count {
        let expected = if i % 2 == 0 { 7 } else { i as u8 };
        assert_eq!(table.get(format!("long {i}")), Some(vec![expected; LONG]), "{i}");
    }
    // Appends to them, too, as far as a list has room.
    assert!(table.append("long 1", [1]).is_ok());
}

#[test]
fn batches_visit_all_positions_once_and_in_order_in_each_shard() {
    for shards in [1, 2, 256] {
        let options = MemoryOptions { shards, ..MemoryOptions::default() };
        let table = Shards::new(&options, |regions| Ok(regions.len())).unwrap();
        assert!(table.write_all().iter().all(|regions| **regions * shards == 256));
        for count in [0, 1, BATCH as u64 - 1, BATCH as u64, BATCH as u64 + 1, 5000] {
            let hash = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut seen = vec![Vec::new(); shards];
            let visit = |shard: usize, batch: &[(usize, u64)]| {
                assert!(!batch.is_empty() && batch.len() <= BATCH);
                seen[shard].extend_from_slice(batch);
                Ok(())
            };
            table.in_batches((0..count).map(hash), visit).unwrap();
            let mut all: Vec<_> = seen.concat();
            for (shard, positions) in seen.iter().enumerate() {
                assert!(positions.is_sorted());
                assert!(positions.iter().all(|(_, hash)| table.of(*hash) == shard));
            }
            all.sort_unstable();
            assert!(all.into_iter().eq((0..count).map(|i| (i as usize, hash(i)))));
        }
    }
}

#[test]
fn bad_options_are_refused() {
    for (shards, load) in [(3, 0.8), (512, 0.8), (0, 0.8), (1, 0.4), (1, f64::NAN)] {
        let options = MemoryOptions { shards, load, ..MemoryOptions::default() };
        assert!(Shards::new(&options, |_| Ok(())).is_err());
    }
}
