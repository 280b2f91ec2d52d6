//! Merges compared with a sorted map.

use super::{
    FingerprintMerge,
    kernel::{self, Repeated},
    merger::{Merger, Rule},
    tags::Tags,
};
use crate::{
    error::Result,
    filter::{Mode, PackedRun, machine::Wide},
    fingerprints::{BatchSlice, Exception, FingerprintBatch, Fingerprints, Universe},
    key::Seed,
};
use proptest::{collection::vec, prelude::*};
use std::collections::BTreeMap;

const RULES: [Rule; 4] = [
    Rule { mode: Mode::Set, is_last: false },
    Rule { mode: Mode::Set, is_last: true },
    Rule { mode: Mode::Multiset, is_last: false },
    Rule { mode: Mode::Multiset, is_last: true },
];

fn batch_of(map: &BTreeMap<u64, i64>) -> FingerprintBatch {
    let mut batch = FingerprintBatch::new();
    map.iter().try_for_each(|(&fingerprint, &count)| batch.push(fingerprint, count)).unwrap();
    batch
}

/// Merges fingerprint by fingerprint, by the rules.
fn naive(batches: &[FingerprintBatch], rule: Rule) -> FingerprintBatch {
    let mut all: BTreeMap<u64, i64> = BTreeMap::new();
    for batch in batches {
        for (fingerprint, count) in batch.iter() {
            let sum = all.entry(fingerprint);
            match rule.mode {
                Mode::Set => sum.or_insert(count),
                Mode::Multiset => {
                    sum.and_modify(|sum| *sum = sum.saturating_add(count)).or_insert(count)
                }
            };
        }
    }
    if rule.mode == Mode::Set {
        all.values_mut().for_each(|count| *count = count.signum());
    }
    all.retain(|_, count| *count != 0 && (!rule.is_last || *count > 0));
    batch_of(&all)
}

#[track_caller]
fn check(batches: &[FingerprintBatch]) {
    for rule in RULES {
        let mut merger = Merger::default();
        let parts: Vec<BatchSlice<'_>> = batches.iter().map(FingerprintBatch::all).collect();
        let mut out = batch_of(&BTreeMap::from([(3, -7), (4, 1)]));
        merger.merge(&parts, rule, &mut out);
        assert_eq!(out.exceptions[0], Exception { position: 0, count: -7 });
        out.remove_first(2);
        assert_eq!(out, naive(batches, rule), "{rule:?} {batches:?}");
        // Reused memory does not change the result.
        let mut again = FingerprintBatch::new();
        merger.merge(&parts, rule, &mut again);
        assert_eq!(again, out);
    }
}

fn batch(counts: &[(u64, i64)]) -> FingerprintBatch {
    batch_of(&counts.iter().copied().collect())
}

/// All triples of batches of the fingerprints 0 and 1, each of which is absent or has one of three
/// counts.
#[test]
fn every_small_merge_agrees_with_a_map() {
    let counts = [None, Some(1), Some(-1), Some(2)];
    let mut batches = Vec::new();
    for first in counts {
        for second in counts {
            let items = [(0, first), (1, second)];
            let items = items.iter().filter_map(|&(i, count)| Some((i, count?)));
            batches.push(batch_of(&items.collect()));
        }
    }
    for a in &batches {
        for b in &batches {
            for c in &batches {
                check(&[a.clone(), b.clone(), c.clone()]);
            }
        }
    }
}

/// All triples of sets of the fingerprints 0 to 3.
#[test]
fn every_small_merge_of_ones_agrees_with_a_map() {
    let set =
        |bits: u64| batch_of(&(0..4).filter(|i| bits >> i & 1 == 1).map(|i| (i, 1)).collect());
    for bits in 0..1 << 12 {
        check(&[set(bits & 15), set(bits >> 4 & 15), set(bits >> 8)]);
    }
}

#[test]
fn sums_stop_at_the_largest_number() {
    check(&[batch(&[(7, i64::MAX)]), batch(&[(7, i64::MAX)]), batch(&[(7, 1)])]);
    check(&[batch(&[(7, i64::MIN)]), batch(&[(7, -1)])]);
}

#[test]
fn counts_that_add_up_to_one_become_ones() {
    check(&[batch(&[(7, 3)]), batch(&[(5, 1), (7, -2), (9, 1)])]);
    check(&[batch(&[(7, 2)]), batch(&[(7, -1)])]);
    check(&[batch(&[(7, -2)]), batch(&[(7, 1)]), batch(&[(7, 1)]), batch(&[(7, 1)])]);
}

#[test]
fn any_number_of_batches_is_merged() {
    for count in 0..40 {
        let part = |i: u64| batch_of(&(0..3 * i % 50).map(|j| (j * 17 + i % 3, 1)).collect());
        check(&(0..count).map(part).collect::<Vec<_>>());
    }
}

#[test]
fn long_lists_of_every_proportion_are_merged() {
    for (a, b) in [(1000, 1000), (1000, 10), (3, 1000), (0, 100), (1, 1)] {
        for (stride_a, stride_b, start_b) in [(2, 2, 1), (1, 1, 0), (1, 1, 2000), (7, 3, 500)] {
            let first = batch_of(&(0..a).map(|i| (i * stride_a, 1)).collect());
            let second = batch_of(&(0..b).map(|i| (start_b + i * stride_b, 1)).collect());
            check(&[first.clone(), second.clone()]);
            check(&[second, first]);
        }
    }
}

fn unique(wide: Option<Wide>, numbers: &[u64], mode: Mode) -> (Vec<u64>, Vec<Repeated>) {
    let (mut out, mut repeated) = (vec![9], vec![Repeated { from: 8, to: 8 }]);
    kernel::unique_on(wide, numbers, mode, &mut out, &mut repeated);
    (out, repeated)
}

fn newest(wide: Option<Wide>, numbers: &[u64], is_last: bool) -> (Vec<u64>, Vec<u32>) {
    let (mut out, mut tombstones) = (vec![9], vec![8]);
    let kept = if is_last { None } else { Some(&mut tombstones) };
    let tags = Tags { base: 1000, bits: 3 };
    kernel::newest_on(wide, numbers, tags, &mut out, kept);
    (out, tombstones)
}

fn collect(mut run: impl Fingerprints) -> Result<FingerprintBatch> {
    let mut all = FingerprintBatch::new();
    while run.append_to(&mut all)? {}
    Ok(all)
}

#[test]
fn runs_of_different_universes_or_seeds_are_not_merged() {
    let universe = |size| Universe::with_size(size).unwrap();
    let run = |size| FingerprintBatch::new().into_run(Seed(1), universe(size));
    assert!(FingerprintMerge::new(vec![run(10), run(11)], Mode::Set).is_err());
    assert!(FingerprintMerge::new(vec![run(10), run(10)], Mode::Set).is_ok());
    let other = FingerprintBatch::new().into_run(Seed(2), universe(10));
    assert!(FingerprintMerge::new(vec![run(10), other], Mode::Set).is_err());
    let none: Vec<Box<dyn Fingerprints>> = Vec::new();
    assert!(FingerprintMerge::new(none, Mode::Set).is_err());
}

#[test]
fn large_runs_are_merged_in_steps() {
    let part = |i: u64| {
        let fingerprint = |j: u64| (j * j).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
        let count = |j: u64| if j % 10 == i { [-1, 2, -3][j as usize % 3] } else { 1 };
        batch_of(&(i * 4000..i * 4000 + 40_000).map(|j| (fingerprint(j), count(j))).collect())
    };
    let batches: Vec<FingerprintBatch> = (0..5).map(part).collect();
    for rule in RULES {
        let runs = batches.iter().map(|batch| batch.clone().into_run(Seed(1), Universe::EXACT));
        let runs: Vec<_> = runs.map(|mut run| PackedRun::build(&mut run).unwrap()).collect();
        let scans = runs.iter().map(PackedRun::scan).collect();
        let merged = collect(match rule.is_last {
            true => FingerprintMerge::last(scans, rule.mode).unwrap(),
            false => FingerprintMerge::new(scans, rule.mode).unwrap(),
        });
        assert_eq!(merged.unwrap(), naive(&batches, rule), "{rule:?}");
    }
}

proptest! {
    #[test]
    fn batches_agree_with_a_map(
        changes in vec(vec((0_u64..300, -3_i64..4), 0..200), 1..9),
    ) {
        let is_count = |&&(_, count): &&(u64, i64)| count != 0;
        let batches: Vec<FingerprintBatch> =
            changes.iter().map(|it| batch_of(&it.iter().filter(is_count).copied().collect())).collect();
        check(&batches);
    }

    #[test]
    fn repetitions_are_found_alike_on_each_machine(mut numbers in vec(0_u64..200, 0..300)) {
        numbers.sort_unstable();
        for mode in [Mode::Set, Mode::Multiset] {
            prop_assert_eq!(unique(None, &numbers, mode), unique(Wide::detect(), &numbers, mode));
        }
    }

    #[test]
    fn the_newest_are_found_alike_on_each_machine(mut numbers in vec(0_u64..900, 0..300)) {
        numbers.sort_unstable();
        numbers.dedup();
        for is_last in [false, true] {
            let [anywhere, wide] = [None, Wide::detect()].map(|it| newest(it, &numbers, is_last));
            prop_assert_eq!(anywhere, wide);
        }
    }

    #[test]
    fn tombstones_agree_with_a_map(
        spans in vec(vec((0_u64..300, any::<bool>()), 0..200), 1..9),
        shift in 0_u32..56,
    ) {
        let count = |is_in: bool| if is_in { 1 } else { -1 };
        let map = |it: &Vec<(u64, bool)>| it.iter().map(|it| (it.0 << shift, count(it.1))).collect();
        check(&spans.iter().map(|it| batch_of(&map(it))).collect::<Vec<_>>());
    }

    #[test]
    fn two_lists_become_one(
        mut a in vec(0_u64..5000, 0..2000),
        mut b in vec(0_u64..5000, 0..2000),
        shift in 0_u32..13,
    ) {
        b.iter_mut().for_each(|it| *it >>= shift);
        a.sort_unstable();
        b.sort_unstable();
        let (mut out, mut safe) = (vec![7; 3], vec![0; a.len() + b.len()]);
        kernel::merge(&a, &b, &mut out);
        kernel::merge_safely(&a, &b, &mut safe);
        let mut expected = [a, b].concat();
        expected.sort_unstable();
        prop_assert_eq!(&out[..expected.len()], &expected);
        prop_assert_eq!(&safe, &expected);
    }
}
