//! The paper's rules, checked by random steps, by independently computed numbers, and by small runs.

use super::{
    buffer::{Buffer, Policy},
    bw::BwTree,
    device::{Counts, Request},
    engine::{Layout, Sal, Sizes},
    groups::{self, Groups, address},
    index::Index,
    rivals::{Extendible, LazySplit, Linear},
    splits,
    theory::{self, Writes},
    traces::{Cost, GROUP, Kind, Locality, World},
};
use crate::dice::Dice;
use hashfold::{KeyHash, Seed};
use std::collections::HashMap;

#[track_caller]
fn near(got: f64, expected: f64, tolerance: f64) {
    assert!((got - expected).abs() <= tolerance, "{got}, expected {expected}");
}

/// Every group has one owner, and the members of a set are the groups that it owns.
#[track_caller]
fn check_owners(groups: &Groups) {
    let mut owned: HashMap<u64, Vec<u64>> = HashMap::new();
    for group in 0..groups.count() {
        owned.entry(groups.owner(group)).or_default().push(group);
    }
    for (set, expected) in owned {
        assert_eq!(groups.owner(set), set);
        assert_eq!(groups.members(set).collect::<Vec<_>>(), expected, "set {set}");
    }
}

#[test]
fn adding_a_group_moves_no_key_between_sets() {
    let dice = Dice::new(1);
    for _ in 0..40 {
        let mut groups = Groups::new();
        for _ in 0..200 {
            let hashes: Vec<u64> = (0..40).map(|_| dice.bits()).collect();
            let set = |groups: &Groups, hash: u64| groups.owner(address(hash, groups.count()));
            let before: Vec<u64> = hashes.iter().map(|&hash| set(&groups, hash)).collect();
            groups.add();
            for (&hash, before) in hashes.iter().zip(before) {
                assert_eq!(set(&groups, hash), before);
            }
            check_owners(&groups);
            if dice.chance(0.3) {
                let set = groups.owner(dice.below(groups.count()));
                groups.split(set);
                check_owners(&groups);
            }
        }
    }
}

#[test]
fn the_records_of_a_set_go_to_its_members() {
    let dice = Dice::new(2);
    let mut groups = Groups::new();
    for _ in 0..300 {
        groups.add();
        let set = groups.owner(dice.below(groups.count()));
        let depth = groups.depth(set);
        let members: Vec<u64> = groups.members(set).collect();
        for _ in 0..20 {
            let hash = set | dice.bits() << depth;
            assert!(members.contains(&address(hash, groups.count())));
        }
        if dice.chance(0.3) {
            groups.split(set);
        }
    }
}

#[test]
fn addresses_are_below_the_count_and_keep_their_low_bits() {
    let dice = Dice::new(3);
    for count in 2..200 {
        for _ in 0..50 {
            let hash = dice.bits();
            let number = address(hash, count);
            let depth = groups::depth(number, count);
            assert!(number < count && number == hash & ((1 << depth) - 1));
        }
    }
}

#[test]
fn the_closed_forms_of_pages_are_those_of_the_layout() {
    for group_size in [4_u64, 16] {
        // The first two groups and their heads, then doublings with theirs.
        let mut next = 0;
        let mut first = 0;
        while first < 64 * group_size {
            let end = if first == 0 { 2 * group_size } else { 2 * first };
            for bucket in first..end {
                assert_eq!(groups::bucket_page(bucket, group_size), next, "bucket {bucket}");
                let group = bucket / group_size;
                assert_eq!(groups::page_group(next, group_size), (group, false), "{next}");
                next += 1;
            }
            for group in first / group_size..end / group_size {
                assert_eq!(groups::head_page(group, group_size), next, "head {group}");
                assert_eq!(groups::page_group(next, group_size), (group, true), "{next}");
                next += 1;
            }
            first = end;
        }
    }
}

#[test]
fn merge_probabilities_sum_to_one_and_fall_with_the_price() {
    for p in 1..=255 {
        let mut sum = 0.0;
        for i in 1..=p {
            sum += theory::merge_probability(i, p);
            near(theory::merged_by(i, p), sum, 1e-9);
            assert!(p == 1 || i >= p || theory::merged_by(i, p) < theory::merged_by(i, p - 1));
        }
        near(sum, 1.0, 1e-9);
    }
}

#[test]
fn the_merge_rule_is_nearly_as_good_as_the_best_possible() {
    for (p, ratio) in [(5, 1.67), (17, 1.61), (100, 1.59)] {
        near(theory::competitive_ratio(p), ratio, 0.006);
    }
    for (p, lookups) in [(8, 7), (16, 14), (32, 28), (40, 35), (64, 56)] {
        assert_eq!(theory::unstable_lookups(p), lookups, "p = {p}");
    }
}

#[test]
fn overflow_probabilities_are_the_known_ones() {
    let peak = |of: fn(f64) -> f64| {
        let all = (0..=1000).map(|i| f64::from(i) / 1000.0);
        all.map(|at| (at, of(at))).max_by(|a, b| a.1.total_cmp(&b.1)).unwrap()
    };
    let (at, share) = peak(theory::records_in_overflow);
    near(at, 0.455, 0.0025);
    near(share, 0.499, 0.001);
    near(peak(theory::splits_per_bucket).1, theory::SPLITS_PER_BUCKET_MAX, 0.0006);
    // A half that overflows needs about this luck.
    near(theory::overflow_probability(192.0, 256), 4.6e-6, 0.1e-6);
}

#[test]
fn the_cost_of_writes_is_the_known_one() {
    let writes = |group, coarse_gain| Writes { records: 80e6, group, coarse_gain };
    for (gain, mebibytes) in [(8.0, 9.5), (16.0, 8.5)] {
        near(writes(16.0, gain).buffer_bytes() / f64::from(1 << 20), mebibytes, 0.02);
    }
    let known = [1.05, 0.51, 0.25, 0.13, 0.07, 0.050, 0.053, 0.083];
    for (group, cost) in (2..).map(|log| f64::from(1 << log)).zip(known) {
        let merged = f64::from(theory::LOG_PAGE_RECORDS) * theory::REGION_PAGES_MAX as f64;
        near(writes(group, 8.0).per_change(f64::from(4 << 20), merged), cost, 0.006);
    }
}

#[test]
fn shared_memory_pages_have_the_stated_capacity() {
    // Formula 5 has its maximum at seven: the paper's lemma says six or seven.
    for segments in [1, 4, 64, 256] {
        let best = (0..10).max_by_key(|&parts| splits::page_entries(segments, 256, parts)).unwrap();
        assert!((6..=8).contains(&best), "{segments} segments: {best}");
    }
    let memory = splits::split_cycle(1 << 12, 20, &Dice::new(4));
    let peak = memory.iter().max_by_key(|memory| memory.address_bytes).unwrap();
    near(peak.split_factor, 0.4, 0.06);
    assert!(peak.page_bytes as f64 <= 2.0 * peak.address_bytes as f64, "{peak:?}");
    assert_eq!(memory.last().unwrap().address_bytes, 0);
}

fn buffer(pages: usize) -> Buffer {
    Buffer::new(Policy::Lru, pages)
}

/// The obvious LRU buffer: pages and whether they are dirty, the last used one at the end.
struct NaiveBuffer(Vec<(u64, bool)>, usize);

impl NaiveBuffer {
    fn touch(&mut self, page: u64, is_dirty: bool) -> (u64, u64) {
        let at = self.0.iter().position(|(known, _)| *known == page);
        let was_dirty = at.is_some_and(|at| self.0.remove(at).1);
        self.0.push((page, is_dirty || was_dirty));
        let is_over = self.0.len() > self.1;
        let writes = is_over && self.0.remove(0).1;
        (u64::from(at.is_none()), u64::from(writes))
    }
}

#[test]
fn the_buffer_agrees_with_a_naive_one() {
    let dice = Dice::new(5);
    let (mut buffer, mut naive) = (buffer(10), NaiveBuffer(Vec::new(), 10));
    let (mut reads, mut writes) = (0, 0);
    for _ in 0..5000 {
        let (page, is_dirty) = (dice.below(30), dice.chance(0.4));
        if is_dirty {
            buffer.modify(page);
        } else {
            buffer.fetch(page);
        }
        let (read, written) = naive.touch(page, is_dirty);
        (reads, writes) = (reads + read, writes + written);
        assert_eq!((buffer.counts.reads, buffer.counts.writes), (reads, writes));
    }
}

#[test]
fn every_policy_keeps_to_its_capacity_and_loses_no_change() {
    for policy in [Policy::Lru, Policy::Cfdc, Policy::Fd] {
        let dice = Dice::new(6);
        let mut buffer = Buffer::new(policy, 20);
        let mut changed = std::collections::HashSet::new();
        for _ in 0..3000 {
            let page = dice.below(100);
            if dice.chance(0.3) {
                changed.insert(page);
                buffer.modify(page);
            } else {
                buffer.fetch(page);
            }
            assert!(buffer.len() <= 20);
        }
        // Pages without changes push out the others.
        (1000..2000).for_each(|page| buffer.fetch(page));
        assert!(buffer.counts.writes >= changed.len() as u64 / 2, "{policy:?}");
        let before = buffer.counts;
        (3000..3500).for_each(|page| buffer.fetch(page));
        assert_eq!(buffer.counts.reads, before.reads + 500, "{policy:?}");
        if policy != Policy::Fd {
            // Only an FD-buffer reserves a pool for dirty pages.
            assert_eq!(buffer.counts.writes, before.writes, "{policy:?}");
        }
    }
}

#[test]
fn linear_hashing_agrees_with_one_of_keys() {
    let dice = Dice::new(7);
    let mut index = Linear::new(buffer(50), Dice::new(8));
    let mut keys = Vec::new();
    for _ in 0..20_000 {
        let hash = dice.bits();
        keys.push(hash);
        index.insert(hash);
    }
    let buckets = index.buckets();
    assert_eq!(buckets.len(), (20_000.0_f64 / 192.0).ceil() as usize);
    assert_eq!(buckets.iter().sum::<u32>(), 20_000);
    let mut exact = vec![0_u32; buckets.len()];
    keys.iter().for_each(|&key| exact[address(key, buckets.len() as u64) as usize] += 1);
    for (got, expected) in buckets.iter().zip(exact) {
        // Splits draw how many records move: a difference of six standard deviations.
        near(f64::from(*got), f64::from(expected), 6.0 * f64::from(expected).sqrt());
    }
}

fn sal(layout: Layout, memory: usize) -> Sal {
    Sal::new(layout, Sizes { group: 4, memory }, buffer(memory), Dice::new(9))
}

#[test]
fn sal_hashing_loses_no_record() {
    for layout in [Layout::Paper, Layout::Packed] {
        let dice = Dice::new(10);
        let mut index = sal(layout, 16);
        for i in 1..=60_000 {
            let hash = dice.bits();
            index.insert(hash);
            // At first, regions grow until they are full.
            match if i < 30_000 { 3 } else { dice.below(4) } {
                0 => index.search(hash),
                1 => index.miss(dice.bits()),
                2 => index.update(hash),
                _ => {}
            }
            if i % 1000 == 0 {
                assert_eq!(index.all_records(), i, "{layout:?}");
                assert!(index.largest_set() < groups::SET_GROUPS_MAX, "{layout:?}");
            }
        }
        assert!(index.events.merges > index.events.drawn_merges, "{layout:?}");
        assert!(index.events.drawn_merges > 0 && index.events.flushes > 100, "{layout:?}");
        index.settle();
        assert_eq!(index.all_records(), 60_000, "{layout:?}");
        // Without regions, and with hardly any buffer, a search reads one page.
        let before = index.counts();
        (0..1000).for_each(|_| index.miss(dice.bits()));
        let reads = index.counts().minus(&before).reads;
        assert!((800..=1000).contains(&reads), "{layout:?}: {reads}");
    }
}

#[test]
fn searches_read_what_lies_on_the_device() {
    let dice = Dice::new(11);
    let all: Vec<Box<dyn Index>> = vec![
        Box::new(Linear::new(buffer(4), Dice::new(12))),
        Box::new(Extendible::new(buffer(4), Dice::new(12))),
        Box::new(LazySplit::new(buffer(4), Dice::new(12))),
        Box::new(BwTree::new(4, Dice::new(12))),
    ];
    // After 2^14 records, lists of a lazy-split index have from one to four pages.
    for (mut index, most) in all.into_iter().zip([1.3, 1.0, 3.0, 8.0]) {
        (0..40_000).for_each(|_| index.insert(dice.bits()));
        let before = index.counts();
        (0..2000).for_each(|_| index.search(dice.bits()));
        let reads = index.counts().minus(&before).reads as f64 / 2000.0;
        assert!((0.8..=most).contains(&reads), "{reads} reads, expected at most {most}");
    }
}

#[test]
fn recorded_requests_are_those_that_are_counted() {
    let dice = Dice::new(13);
    for has_page_buffer in [true, false] {
        let mut index = sal(Layout::Paper, 16);
        (0..30_000).for_each(|_| index.insert(dice.bits()));
        if !has_page_buffer {
            index.drop_page_buffer();
        }
        let before = index.counts();
        index.record();
        let mut recorded = Counts::default();
        for _ in 0..20_000 {
            let hash = dice.bits();
            if dice.chance(0.5) {
                index.search(hash);
            } else {
                index.update(hash);
            }
            for request in index.take_requests() {
                let group = match request {
                    Request::SearchPage(page)
                    | Request::ReadPage(page)
                    | Request::WritePage(page) => index.owner(page).0,
                    Request::ReadGroup(group) | Request::WriteGroup(group) => group,
                };
                assert!(group < index.group_count(), "{request:?}");
                *match request {
                    Request::SearchPage(_) | Request::ReadPage(_) => &mut recorded.reads,
                    Request::WritePage(_) => &mut recorded.writes,
                    Request::ReadGroup(_) => &mut recorded.coarse_reads,
                    Request::WriteGroup(_) => &mut recorded.coarse_writes,
                } += 1;
            }
        }
        assert_eq!(recorded, index.counts().minus(&before));
        assert!(recorded.reads > 5_000 && recorded.writes > 100, "{recorded:?}");
        assert!(recorded.coarse_writes >= recorded.coarse_reads && recorded.coarse_reads > 0);
    }
}

#[test]
fn without_regions_a_search_reads_a_page_of_its_own_group() {
    let (dice, mut index) = (Dice::new(14), sal(Layout::Paper, 16));
    (0..30_000).for_each(|_| index.insert(dice.bits()));
    index.settle();
    index.drop_page_buffer();
    index.record();
    for _ in 0..2000 {
        let hash = dice.bits();
        index.miss(hash);
        // The last page may still be in memory.
        for request in index.take_requests() {
            let Request::SearchPage(page) = request else { panic!("{request:?}") };
            let buckets = index.group_count() * 4;
            assert_eq!(index.owner(page), (address(hash, buckets) / 4, false));
        }
    }
}

#[test]
fn a_copy_goes_on_alone() {
    let mut index = sal(Layout::Paper, 16);
    (0..10_000_u64)
        .for_each(|i| index.insert(KeyHash::of(&[i as u8, (i >> 8) as u8], Seed(0)).high()));
    let before = index.counts();
    let mut copy = index.fork();
    (0..500).for_each(|i| copy.miss(i << 3));
    assert_eq!(index.counts(), before);
    assert!(copy.counts().reads > before.reads);
}

/// Counts of another program for Trace A, at an eighth of the paper's sizes.
#[test]
fn inserts_cost_at_a_small_scale_what_they_cost_at_a_large_one() {
    let world = World { scale: 256, seed: 1 };
    let known = [
        (Kind::Linear, [(0.44, 0.37), (0.91, 0.75), (1.12, 0.92)]),
        (Kind::Extendible, [(0.33, 0.34), (0.73, 0.74), (0.91, 0.91)]),
    ];
    for (kind, costs) in known {
        let mut index = world.index(kind, GROUP);
        let mut keys = 0;
        for (millions, (reads, writes)) in [10, 40, 160].into_iter().zip(costs) {
            let end = world.scaled(millions * 1_000_000);
            world.insert(&mut *index, keys, end);
            keys = end;
            let cost = Cost::of(&index.counts(), keys, GROUP);
            near(cost.reads / reads, 1.0, 0.06);
            near(cost.writes / writes, 1.0, 0.06);
        }
    }
}

#[test]
fn sal_hashing_takes_half_the_time_of_linear_hashing() {
    let world = World { scale: 256, seed: 1 };
    let keys = world.scaled(80_000_000);
    let time = |kind| {
        let mut index = world.index(kind, GROUP);
        world.insert(&mut *index, 0, keys);
        let requests = world.requests(keys, Locality::Uniform);
        let part = |i| f64::from(i) / 5.0;
        let times =
            (0..=5).map(|i| requests.run(&mut *index.fork(), world.operations(), part(i)).nvme_us);
        times.sum::<f64>()
    };
    let linear = time(Kind::Linear);
    for kind in [Kind::Sal, Kind::SalPacked] {
        near(time(kind) / linear, 0.45, 0.08);
    }
}
