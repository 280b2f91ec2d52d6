//! Whether intervals of 95 % have the true value in 95 of 100 cases, by simulation with fixed seeds, from sets of far fewer
//! keys than registers to those of far more.

use super::{Estimate, Ghll, Hll, Joint, ghll, inclusion_exclusion, joint};
use crate::work::{Random as _, SeededRandom};

/// Precisions, with the number of keys of a set for each register.
const RATIOS: [(u8, f64); 5] = [(13, 0.02), (11, 0.1), (10, 0.5), (9, 2.0), (8, 20.0)];

/// Checks the intervals of two sets of which each shares half of its keys with the other, and that the standard errors are
/// those of the simulation.
fn check<S>(
    rounds: u32,
    (precision, ratio): (u8, f64),
    sketch: impl Fn(u8, &[u64]) -> S,
    estimate: impl Fn(&S, &S) -> Vec<(Estimate, usize)>,
) {
    let half = (f64::from(1_u32 << precision) * ratio / 2.0) as usize;
    let random = SeededRandom::new(11);
    let draw = || (0..half).map(|_| random.next_u64()).collect::<Vec<u64>>();
    let mut tallies = Vec::new();
    for _ in 0..rounds {
        let shared = draw();
        let [a, b] = [(); 2].map(|()| sketch(precision, &[draw(), shared.clone()].concat()));
        let found = estimate(&a, &b);
        tallies.resize(found.len(), (0, 0.0, 0.0));
        for ((estimate, halves), (hits, said, errors)) in found.iter().zip(&mut tallies) {
            let truth = (halves * half) as f64;
            let (low, high) = estimate.interval(0.95);
            *hits += u32::from((low..=high).contains(&truth));
            *said += estimate.standard_error.powi(2);
            *errors += (estimate.value - truth).powi(2);
        }
    }
    for (i, (hits, said, errors)) in tallies.into_iter().enumerate() {
        let (part, scale) = (f64::from(hits) / f64::from(rounds), (said / errors).sqrt());
        let place = format!("precision {precision}, {ratio}, {i}: {part}, {scale}");
        assert!((0.92..=0.985).contains(&part), "{place}");
        assert!((0.85..1.15).contains(&scale), "{place}");
    }
}

fn hll(precision: u8, hashes: &[u64]) -> Hll {
    let mut sketch = Hll::new(precision).unwrap();
    sketch.insert_hashes(hashes);
    sketch
}

fn larger(precision: u8, hashes: &[u64]) -> Ghll {
    let mut sketch = Ghll::new(precision, 12).unwrap();
    sketch.insert_hashes(hashes);
    sketch
}

/// Returns the estimates of an answer, with their true values as multiples of half a set.
fn sizes(found: Joint) -> Vec<(Estimate, usize)> {
    vec![(found.intersection, 1), (found.only_a, 1), (found.only_b, 1), (found.union, 3)]
}

#[test]
fn intervals_of_inclusion_exclusion_hold_for_few_keys_and_many() {
    for ratio in RATIOS {
        check(600, ratio, hll, |a, b| sizes(inclusion_exclusion(a, b).unwrap()));
    }
}

#[test]
fn intervals_of_maximum_likelihood_hold_for_few_keys_and_many() {
    for ratio in RATIOS {
        check(300, ratio, hll, |a, b| sizes(joint(a, b).unwrap()));
    }
}

#[test]
fn intervals_of_maximum_likelihood_hold_for_larger_registers() {
    for ratio in [(12, 0.1), (9, 0.5)] {
        check(200, ratio, larger, |a, b| sizes(ghll::joint(a, b).unwrap()));
    }
}

#[test]
fn intervals_of_one_set_hold_for_few_keys_and_many() {
    for ratio in RATIOS {
        check(600, ratio, hll, |a, b| [a, b].map(|one| (one.estimate_with_error(), 2)).to_vec());
    }
}

/// Small sets of which a part is in a large one.
#[test]
fn intervals_of_a_part_of_a_small_set_in_a_large_one_hold() {
    const ROUNDS: u32 = 100;
    let random = SeededRandom::new(6);
    let draw = |count: usize| (0..count).map(|_| random.next_u64()).collect::<Vec<u64>>();
    let small_in_large = [0, 5, 10, 15].map(|shared| (10, 20, 6000, shared));
    for (precision, small, large, shared) in
        [&small_in_large[..], &[(12, 100, 60_000, 50)]].concat()
    {
        let mut hits = [0_u32; 2];
        for _ in 0..ROUNDS {
            let (both, a, b) = (draw(shared), draw(small - shared), draw(large - shared));
            let [a, b] = [a, b].map(|keys| [keys, both.clone()].concat());
            let found = joint(&hll(precision, &a), &hll(precision, &b)).unwrap();
            let wide = ghll::joint(&larger(precision, &a), &larger(precision, &b)).unwrap();
            for (hits, found) in hits.iter_mut().zip([found, wide]) {
                let (low, high) = found.intersection.interval(0.95);
                *hits += u32::from((low.round()..=high.round()).contains(&(shared as f64)));
                assert!(high.round() <= small as f64 * 1.3, "{found:?}");
            }
        }
        let wanted = 0.88 * f64::from(ROUNDS);
        assert!(
            hits.iter().all(|hits| f64::from(*hits) > wanted),
            "{precision} {shared}: {hits:?}"
        );
    }
}

/// Sets of a few keys that share none to three of them.
#[test]
fn intervals_of_a_few_keys_have_the_whole_numbers() {
    const ROUNDS: u32 = 300;
    let random = SeededRandom::new(8);
    for shared in 0..4 {
        let mut hits = [0_u32; 6];
        for _ in 0..ROUNDS {
            let draw = |count: usize| (0..count).map(|_| random.next_u64()).collect::<Vec<u64>>();
            let (shared, keys) = (draw(shared), [draw(10), draw(25)]);
            let [a, b] = keys.map(|keys| [keys, shared.clone()].concat());
            let found = joint(&hll(10, &a), &hll(10, &b)).unwrap();
            let wide = ghll::joint(&larger(10, &a), &larger(10, &b)).unwrap();
            let estimates = [found, wide].map(|it| [it.intersection, it.only_a, it.only_b]);
            let truths = [shared.len(), 10, 25].map(|count| count as f64);
            for (i, estimate) in estimates.concat().iter().enumerate() {
                let (low, high) = estimate.interval(0.95);
                hits[i] += u32::from((low.round()..=high.round()).contains(&truths[i % 3]));
            }
        }
        assert!(hits.iter().all(|hits| f64::from(*hits) > 0.9 * f64::from(ROUNDS)), "{hits:?}");
    }
}

/// A small set in a large one: often no register says whether its keys are in the other. What is not known is bounded by
/// the sizes of the sets.
#[test]
fn intervals_of_a_small_set_within_a_large_one_are_bounded() {
    const ROUNDS: u32 = 60;
    let random = SeededRandom::new(5);
    let mut hits = [0_u32; 8];
    for _ in 0..ROUNDS {
        let large: Vec<u64> = (0..100_000).map(|_| random.next_u64()).collect();
        let small = &large[..20];
        let found = joint(&hll(12, small), &hll(12, &large)).unwrap();
        let wide = ghll::joint(&larger(12, small), &larger(12, &large)).unwrap();
        let estimates = [found, wide].map(|it| [it.intersection, it.only_a, it.only_b, it.union]);
        let truths = [20.0, 0.0, 99_980.0, 100_000.0];
        for (i, estimate) in estimates.concat().iter().enumerate() {
            let (low, high) = estimate.interval(0.95);
            // To whole keys, as they are printed: the interval of a few keys is narrower than one.
            hits[i] += u32::from((low.round()..=high.round()).contains(&truths[i % 4]));
            assert!(high <= [100.0, 100.0, 120_000.0, 120_000.0][i % 4], "{i}: {low} to {high}");
        }
    }
    assert!(hits.iter().all(|hits| f64::from(*hits) > 0.9 * f64::from(ROUNDS)), "{hits:?}");
}
