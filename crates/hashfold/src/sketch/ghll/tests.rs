//! Generalized sketches against sets, against sketches of registers of 6 bits, and against the theory.

use super::{
    super::{Estimate, Family, Hll, PRECISION_MIN},
    *,
};
use crate::{
    checksum::crc32c,
    key::Seed,
    work::{Random as _, SeededRandom},
};

/// Returns a sketch of the hashes of a set of random numbers, which are keys.
fn sketch_of(width: u8, precision: u8, keys: impl Iterator<Item = u64>) -> Ghll {
    let mut sketch = Ghll::new(precision, width).unwrap();
    keys.for_each(|key| _ = sketch.insert(&key.to_le_bytes()));
    sketch
}

#[test]
fn the_order_of_keys_and_repetitions_make_no_difference() {
    let forth = sketch_of(12, 8, 0..3000);
    assert_eq!(sketch_of(12, 8, (0..3000).rev().chain(500..900)), forth);
    let mut one_by_one = Ghll::new(8, 12).unwrap();
    let hashes: Vec<u64> =
        (0..3000_u64).map(|key| Family::Hashfold(Seed(0)).hash(&key.to_le_bytes())).collect();
    one_by_one.insert_hashes(&hashes);
    assert_eq!(one_by_one, forth);
    assert!(!one_by_one.insert(&5_u64.to_le_bytes()));
}

#[test]
fn a_union_is_the_sketch_of_all_keys_at_every_precision() {
    for width in REGISTER_BITS {
        let (a, b) = (sketch_of(width, 10, 0..2000), sketch_of(width, 10, 1500..9000));
        let mut union = a.clone();
        union.union(&b).unwrap();
        assert_eq!(union, sketch_of(width, 10, 0..9000));
        for precision in PRECISION_MIN..=10 {
            let shorter = union.downsize(precision).unwrap();
            assert_eq!(shorter, sketch_of(width, precision, 0..9000), "{width} {precision}");
        }
    }
}

#[test]
fn what_does_not_go_together_is_an_error() {
    let sketch = sketch_of(12, 8, 0..10);
    for other in [
        Ghll::new(9, 12).unwrap(),
        Ghll::new(8, 11).unwrap(),
        Ghll::with_seed(Seed(1), 8, 12).unwrap(),
    ] {
        assert!(sketch.clone().union(&other).is_err() && joint(&sketch, &other).is_err());
    }
    for (precision, width) in [(3, 12), (19, 12), (14, 6), (14, 17)] {
        assert!(Ghll::new(precision, width).is_err(), "{precision} {width}");
    }
    assert!(sketch.downsize(9).is_err() && sketch.downsize(3).is_err());
}

/// The mean of many estimates is the number of keys, and their deviation is the standard error that they say.
#[test]
fn estimates_have_the_error_that_they_say_at_every_size() {
    let random = SeededRandom::new(1);
    const ROUNDS: usize = 150;
    for width in [7, 8, 12, 16] {
        for count in [1_u64, 10, 100, 600, 1000, 2500, 20_000] {
            let (mut sum, mut squares, mut expected) = (0.0, 0.0, 0.0);
            for _ in 0..ROUNDS {
                let mut sketch = Ghll::new(8, width).unwrap();
                (0..count).for_each(|_| _ = sketch.insert_bits(random.next_u64()));
                let estimate = sketch.estimate_with_error();
                let error = estimate.value / count as f64 - 1.0;
                (sum, squares) = (sum + error, squares + error * error);
                expected += (estimate.standard_error / count as f64).powi(2);
            }
            let rounds = ROUNDS as f64;
            let (mean, deviation, said) =
                (sum / rounds, (squares / rounds).sqrt(), (expected / rounds).sqrt());
            let place = format!("{width} bits, {count} keys: {mean} {deviation} {said}");
            // 1/256 is the bias; four standard errors of the mean.
            assert!(mean.abs() < 1.0 / 256.0 + 4.0 * said / rounds.sqrt() + 1e-6, "{place}");
            assert!(deviation < 1.25 * said + 0.002, "{place}");
            assert!(count < 600 || deviation > 0.8 * said, "{place}");
            assert!(said < 1.05 / 16.0, "{place}");
        }
    }
}

#[test]
fn empty_and_full_sketches_have_estimates() {
    let empty = Ghll::new(6, 8).unwrap();
    assert_eq!((empty.estimate(), empty.estimate_with_error().standard_error), (0.0, 0.0));
    let mut full = empty.clone();
    full.registers.fill(full.levels.value_max());
    assert!(full.estimate() > 1e12 && full.estimate_with_error().standard_error.is_finite());
    let both = joint(&full, &empty).unwrap();
    assert_eq!((both.intersection.value, both.only_b.value), (0.0, 0.0));
    let same = joint(&full, &full).unwrap();
    assert!(same.intersection.value.is_finite() && same.jaccard.value <= 1.0);
}

/// The errors of intersections, relative to the true size: root mean square of many, and the part of intervals of 95 % that
/// have the truth.
fn errors(
    rounds: u32,
    (only, shared): (u64, u64),
    estimate: &mut dyn FnMut(&[u64], &[u64]) -> Estimate,
) -> (f64, f64) {
    let random = SeededRandom::new(7);
    let (mut squares, mut hits) = (0.0, 0);
    for _ in 0..rounds {
        let draw = |count: u64| (0..count).map(|_| random.next_u64()).collect::<Vec<u64>>();
        let x = draw(shared);
        let [a, b] = [(); 2].map(|()| [draw(only), x.clone()].concat());
        let found = estimate(&a, &b);
        squares += (found.value / shared as f64 - 1.0).powi(2);
        let (low, high) = found.interval(0.95);
        hits += u32::from((low..=high).contains(&(shared as f64)));
    }
    ((squares / f64::from(rounds)).sqrt(), f64::from(hits) / f64::from(rounds))
}

/// Two sets of one size share a twentieth: the standard error times √m is 12 with registers of 6 bits, and 6.4 with 12 bits
/// (computed from the Fisher information of many keys). The test has 1024 registers and 20 keys a register.
#[test]
fn an_intersection_has_about_half_of_the_error_of_registers_of_6_bits() {
    const ROUNDS: u32 = 120;
    let sizes = (19_000, 1000);
    let of_6_bits = &mut |a: &[u64], b: &[u64]| {
        let [a, b] = [a, b].map(|hashes| {
            let mut sketch = Hll::new(10).unwrap();
            sketch.insert_hashes(hashes);
            sketch
        });
        super::super::joint(&a, &b).unwrap().intersection
    };
    let of_12_bits = &mut |a: &[u64], b: &[u64]| {
        let [a, b] = [a, b].map(|hashes| {
            let mut sketch = Ghll::new(10, 12).unwrap();
            sketch.insert_hashes(hashes);
            sketch
        });
        joint(&a, &b).unwrap().intersection
    };
    let (theirs, _) = errors(ROUNDS, sizes, of_6_bits);
    let (ours, hits) = errors(ROUNDS, sizes, of_12_bits);
    // The deviation of a standard error from 120 rounds is 6.5 %.
    assert!((0.8..1.2).contains(&(theirs / (12.0 / 32.0))), "{theirs}");
    assert!((0.8..1.2).contains(&(ours / (6.4 / 32.0))), "{ours}");
    assert!(ours < 0.65 * theirs, "{ours} {theirs}");
    assert!((0.90..=0.99).contains(&hits), "{hits}");
}

#[test]
fn the_answer_for_two_sets_agrees_with_itself() {
    let (a, b) = (sketch_of(12, 12, 0..30_000), sketch_of(12, 12, 20_000..70_000));
    let found = joint(&a, &b).unwrap();
    for (estimate, truth) in [
        (found.only_a, 20_000.0),
        (found.only_b, 40_000.0),
        (found.intersection, 10_000.0),
        (found.union, 70_000.0),
        (found.jaccard, 1.0 / 7.0),
    ] {
        let (low, high) = estimate.interval(0.9999);
        assert!(low < truth && truth < high && estimate.relative_error() < 0.1, "{found:?}");
    }
    let back = joint(&b, &a).unwrap();
    assert!((back.intersection.value / found.intersection.value - 1.0).abs() < 1e-4);
    assert!((back.only_b.value / found.only_a.value - 1.0).abs() < 1e-4);
}

#[test]
fn a_sketch_of_a_run_is_that_of_its_keys() {
    let entry = |i: u64| {
        let value = (!i.is_multiple_of(5)).then(Vec::new);
        (i.to_le_bytes().to_vec(), value)
    };
    let run = crate::run::VecRun::new((0..1000).map(entry).collect(), Seed(0));
    let expected = sketch_of(12, 8, (0..1000_u64).filter(|i| !i.is_multiple_of(5)));
    assert_eq!(Ghll::of_run(run, 8, 12).unwrap(), expected);
}

#[test]
fn sketches_come_back_from_their_bytes() {
    for width in REGISTER_BITS {
        for count in [0, 1, 31, 32, 33, 34, 35, 300, 100_000] {
            let sketch = sketch_of(width, 8, 0..count);
            let bytes = sketch.to_bytes();
            assert_eq!(Ghll::from_bytes(&bytes).unwrap(), sketch, "{width} {count}");
            assert!(bytes.len() <= 21 + 256 * usize::from(width) / 8, "{width} {count}");
        }
    }
    let mut ends = Ghll::new(4, 16).unwrap();
    (ends.registers[0], ends.registers[15]) = (1, ends.levels.value_max());
    assert_eq!(Ghll::from_bytes(&ends.to_bytes()).unwrap(), ends);
}

#[test]
fn every_change_of_a_sketchs_bytes_is_noticed() {
    for count in [0, 3, 3000] {
        let good = sketch_of(9, 5, 0..count).to_bytes();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Ghll::from_bytes(&bad).is_err(), "bit {bit}");
        }
        assert!((0..good.len()).all(|len| Ghll::from_bytes(&good[..len]).is_err()));
    }
}

/// Bytes whose checksum is right: an error, or a sketch that can be used.
#[test]
fn forged_bytes_are_errors_or_sketches() {
    let random = SeededRandom::new(2);
    let mut read = 0;
    for round in 0..10_000_u64 {
        let good = sketch_of(7 + (round % 10) as u8, 4, 0..round % 40).to_bytes();
        let mut bytes = good[..good.len() - 4].to_vec();
        for _ in 0..random.next_u64() % 3 {
            let at = 4 + random.next_u64() as usize % (bytes.len() - 4);
            bytes[at] = random.next_u64() as u8;
        }
        bytes.truncate(bytes.len() - random.next_u64() as usize % 2);
        bytes.extend(crc32c(&bytes).to_le_bytes());
        let Ok(sketch) = Ghll::from_bytes(&bytes) else { continue };
        read += 1;
        let estimate = sketch.estimate_with_error();
        assert!(estimate.value.is_finite() && estimate.standard_error.is_finite(), "{sketch:?}");
        let same = joint(&sketch, &sketch).unwrap();
        assert!(same.union.value.is_finite(), "{sketch:?}");
        assert_eq!(Ghll::from_bytes(&sketch.to_bytes()).unwrap(), sketch);
    }
    assert!(read > 1000, "{read}");
}

/// The bytes of format version 1.
#[test]
fn the_bytes_of_a_sketch_stay_as_they_are() {
    let hex = |sketch: Ghll| -> String {
        sketch.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let bytes = [sketch_of(12, 4, 0..2), sketch_of(12, 4, 0..1000)].map(hex);
    assert_eq!(bytes, [GOLDEN_SPARSE, GOLDEN_DENSE]);
}

const GOLDEN_SPARSE: &str = "484647480101040100000000000000000c0295418e8102fb056268";
const GOLDEN_DENSE: &str =
    "484647480101040200000000000000000c3e221796011a72612b7ed21baaa120b5112496511367411f164889fa";
