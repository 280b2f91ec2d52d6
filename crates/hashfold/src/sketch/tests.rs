//! Laws of sketches, against naive twins, and the errors of their estimates, by simulation with fixed seeds.

use super::{
    redis::{self, RedisHll},
    *,
};
use crate::{
    fingerprints::{self, FingerprintBatch, Universe},
    key::{KeyHash, Seed},
    run::VecRun,
    work::{Random as _, SeededRandom},
};
use std::collections::BTreeMap;

const FAMILIES: [Family; 5] = [
    Family::Hashfold(Seed(7)),
    Family::Redis,
    Family::Postgres { regwidth: 5 },
    Family::Postgres { regwidth: 3 },
    Family::DataSketches,
];

fn key(i: u64) -> [u8; 8] {
    i.to_le_bytes()
}

fn sketch_of(family: Family, precision: u8, keys: impl Iterator<Item = u64>) -> Hll {
    let mut sketch = Hll::of_family(family, precision).unwrap();
    keys.for_each(|i| _ = sketch.insert(&key(i)));
    sketch
}

/// Returns the registers of keys, computed bit by bit.
fn naive(family: Family, precision: u8, keys: impl Iterator<Item = u64>) -> BTreeMap<usize, u8> {
    let mut registers = BTreeMap::new();
    for i in keys {
        let hash = family.hash(&key(i));
        // The bits in the order in which they number the register and are counted, and the weight of the first.
        let bits: Vec<u64> = match family {
            Family::Hashfold(_) => (0..64).map(|at| hash >> (63 - at) & 1).collect(),
            _ => (0..64).map(|at| hash >> at & 1).collect(),
        };
        let weight = |at: u8| match family {
            Family::Hashfold(_) => precision - 1 - at,
            _ => at,
        };
        let index = (0..precision).map(|at| (bits[usize::from(at)] as usize) << weight(at)).sum();
        let zeros =
            bits[usize::from(precision)..].iter().take_while(|bit| **bit == 0).count() as u8;
        let value = match family {
            Family::Postgres { regwidth } => (zeros + 1).min(2_u8.pow(regwidth.into()) - 1),
            Family::DataSketches => {
                let [_, zeros] = murmur::murmur_hash_3(&key(i), 9001);
                (0..64).take_while(|at| zeros >> (63 - at) & 1 == 0).count() as u8 + 1
            }
            _ => zeros + 1,
        };
        let register = registers.entry(index).or_insert(0);
        *register = value.max(*register);
    }
    registers
}

fn registers(sketch: &Hll) -> BTreeMap<usize, u8> {
    let mut registers = BTreeMap::new();
    sketch.for_each(|index, value| _ = registers.insert(index, value));
    registers
}

#[test]
fn registers_are_those_of_a_naive_sketch() {
    for family in FAMILIES {
        for precision in [4, 5, 11, 18] {
            for count in [0, 1, 2, 3, 10, 300, 5000] {
                let sketch = sketch_of(family, precision, 0..count);
                assert_eq!(registers(&sketch), naive(family, precision, 0..count), "{sketch:?}");
                assert_eq!(sketch.is_empty(), count == 0);
            }
        }
    }
}

/// Hashes that end in zeros only, on both sides of the bits of the register.
#[test]
fn the_largest_value_is_the_number_of_other_bits_plus_1() {
    for precision in [4, 14, 18] {
        for family in [Family::Hashfold(Seed(7)), Family::Redis] {
            let mut sketch = Hll::of_family(family, precision).unwrap();
            assert!(sketch.insert_bits(0));
            assert_eq!(registers(&sketch), BTreeMap::from([(0, 65 - precision)]));
            assert!(!sketch.insert_bits(0));
        }
    }
}

/// Values at the bounds: postgresql-hll does not count a hash without ones, and bounds values by the width.
#[test]
fn the_largest_values_of_other_programs_are_theirs() {
    for (regwidth, hash, value) in [
        (5, 0, 0),
        (5, 1 << 63, 31),
        (6, 1 << 63, 53),
        (7, 1 << 63, 53),
        (1, 1 << 12, 1),
        (2, 3 << 12, 2),
    ] {
        let mut sketch = Hll::of_family(Family::Postgres { regwidth }, 11).unwrap();
        assert_eq!(sketch.insert_bits(hash), value > 0);
        assert_eq!(registers(&sketch).into_values().max().unwrap_or(0), value, "{regwidth} {hash}");
    }
    let mut sketch = Hll::of_family(Family::DataSketches, 4).unwrap();
    assert!(!sketch.insert_bits(5) && sketch.insert_bits(63 << 26 | 21));
    assert_eq!(registers(&sketch), BTreeMap::from([(5, 63)]));
}

/// Many keys of narrow registers: the estimate takes the bound into account.
#[test]
fn estimates_of_narrow_registers_have_no_bias() {
    let random = SeededRandom::new(5);
    for (regwidth, count) in [(3, 50_000), (4, 100_000), (2, 3000), (1, 500)] {
        let (mut sum, rounds) = (0.0, 10);
        for _ in 0..rounds {
            let mut sketch = Hll::of_family(Family::Postgres { regwidth }, 10).unwrap();
            (0..count).for_each(|_| _ = sketch.insert_bits(random.next_u64()));
            sum += sketch.estimate() / f64::from(count) - 1.0;
        }
        let bias = sum / f64::from(rounds);
        assert!(bias.abs() < 0.06, "{regwidth}: {bias}");
    }
}

#[test]
fn many_hashes_give_the_sketch_of_each() {
    for family in FAMILIES {
        for count in [0, 100, 1000, 100_000] {
            let hashes: Vec<u64> = (0..count).map(|i| family.hash(&key(i))).collect();
            let mut sketch = Hll::of_family(family, 12).unwrap();
            hashes.chunks(777).for_each(|part| sketch.insert_hashes(part));
            assert_eq!(sketch, sketch_of(family, 12, 0..count));
        }
    }
}

#[test]
fn a_union_is_the_sketch_of_all_keys() {
    for family in FAMILIES {
        for (a, b) in [(0, 0), (5, 0), (0, 5), (100, 90), (3000, 10), (10, 3000), (5000, 4000)] {
            let mut union = sketch_of(family, 10, 0..a);
            union.union(&sketch_of(family, 10, a / 2..a / 2 + b)).unwrap();
            assert_eq!(union, sketch_of(family, 10, (0..a).chain(a / 2..a / 2 + b)), "{a} {b}");
        }
    }
}

#[test]
fn a_shorter_sketch_is_that_of_the_same_keys() {
    for family in FAMILIES {
        for count in [0, 3, 500, 50_000] {
            let long = sketch_of(family, 16, 0..count);
            for precision in PRECISION_MIN..=16 {
                let expected = sketch_of(family, precision, 0..count);
                assert_eq!(long.downsize(precision).unwrap(), expected, "{precision}");
            }
        }
    }
}

#[test]
fn sketches_that_do_not_fit_are_refused() {
    let mut sketch = Hll::new(12).unwrap();
    for other in [
        Hll::new(11).unwrap(),
        Hll::of_family(Family::Redis, 12).unwrap(),
        Hll::of_family(Family::Hashfold(Seed(1)), 12).unwrap(),
    ] {
        assert!(sketch.union(&other).is_err() && joint(&sketch, &other).is_err());
        assert!(inclusion_exclusion(&sketch, &other).is_err());
    }
    assert!(Hll::new(3).is_err() && Hll::new(19).is_err());
    assert!(sketch.downsize(13).is_err() && sketch.downsize(3).is_err());
}

/// Returns sketches of random hashes: of sets with a, b and x keys in the first only, the second only and both.
fn random_pair(random: &SeededRandom, precision: u8, [a, b, x]: [u64; 3]) -> [Hll; 2] {
    let mut sketches = [Hll::new(precision).unwrap(), Hll::new(precision).unwrap()];
    let mut add = |count: u64, to: &[usize]| {
        for _ in 0..count {
            let hash = random.next_u64();
            to.iter().for_each(|&i| _ = sketches[i].insert_bits(hash));
        }
    };
    add(a, &[0]);
    add(b, &[1]);
    add(x, &[0, 1]);
    sketches
}

#[test]
fn estimates_have_no_bias_and_the_error_that_is_said() {
    let random = SeededRandom::new(1);
    for (precision, count, rounds) in
        [(10, 200, 2000), (10, 2600, 1500), (10, 20_000, 400), (12, 9000, 300)]
    {
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..rounds {
            let [sketch, _] = random_pair(&random, precision, [count, 0, 0]);
            let error = sketch.estimate() / count as f64 - 1.0;
            sum += error;
            squares += error * error;
        }
        let (bias, rmse) = (sum / f64::from(rounds), (squares / f64::from(rounds)).sqrt());
        // Four standard errors of the mean, and what is said of the bias.
        assert!(
            bias.abs() < 0.001 + 4.0 * rmse / f64::from(rounds).sqrt(),
            "{precision} {count}: {bias}"
        );
        let said = Hll::new(precision).unwrap().standard_error();
        assert!(rmse < 1.15 * said, "{precision} {count}: {rmse} > {said}");
    }
}

/// With few registers, a mean error of 1/m would show: 6 % with 16.
#[test]
fn estimates_from_few_registers_have_no_bias() {
    let random = SeededRandom::new(3);
    let sizes = [(6, 8), (6, 32), (6, 64), (6, 128), (6, 256), (6, 1000), (4, 400)];
    for (precision, count) in sizes {
        let rounds = 20_000;
        let m = f64::from(1_u32 << precision);
        let estimates = (0..rounds).map(|_| {
            let [sketch, _] = random_pair(&random, precision, [count, 0, 0]);
            sketch.estimate() / count as f64 - 1.0
        });
        let bias = estimates.sum::<f64>() / f64::from(rounds);
        // Four standard errors of the mean are 0.25 / m or less.
        assert!(bias.abs() < 0.3 / m, "{precision} {count}: {} / m", bias * m);
    }
}

#[test]
fn intervals_of_intersections_have_the_true_value_in_95_of_100_cases() {
    let random = SeededRandom::new(2);
    for sizes in [[4000, 4000, 1000], [2000, 30_000, 500], [100, 100, 3000]] {
        let rounds = 300;
        let (mut hits, mut squares, mut by_union) = ([0, 0], 0.0, 0.0);
        for _ in 0..rounds {
            let [a, b] = random_pair(&random, 11, sizes);
            let likely = joint(&a, &b).unwrap().intersection;
            let simple = inclusion_exclusion(&a, &b).unwrap().intersection;
            let truth = sizes[2] as f64;
            for (i, estimate) in [likely, simple].iter().enumerate() {
                let (low, high) = estimate.interval(0.95);
                hits[i] += usize::from(low <= truth && truth <= high);
            }
            squares += (likely.value / truth - 1.0).powi(2);
            by_union += (simple.value / truth - 1.0).powi(2);
        }
        assert!(
            hits.iter().all(|hits| *hits as f64 / f64::from(rounds) > 0.9),
            "{sizes:?}: {hits:?}"
        );
        assert!(squares <= by_union * 1.05, "{sizes:?}: {squares} {by_union}");
    }
}

#[test]
fn empty_and_equal_sets_have_sound_estimates() {
    let random = SeededRandom::new(3);
    for sizes in [[0, 0, 0], [100, 0, 0], [0, 5000, 0], [0, 0, 5000], [5000, 5000, 0], [1, 1, 1]] {
        let [a, b] = random_pair(&random, 12, sizes);
        for both in [joint(&a, &b).unwrap(), inclusion_exclusion(&a, &b).unwrap()] {
            for (estimate, truth) in [
                (both.only_a, sizes[0]),
                (both.only_b, sizes[1]),
                (both.intersection, sizes[2]),
                (both.union, sizes.iter().sum()),
            ] {
                let limit = 0.1 * sizes.iter().sum::<u64>() as f64 + 1.0;
                assert!((estimate.value - truth as f64).abs() < limit, "{sizes:?}: {both:?}");
                assert!(estimate.standard_error.is_finite(), "{sizes:?}: {both:?}");
            }
            assert!((0.0..=1.0).contains(&both.jaccard.value));
        }
    }
}

/// Sketches as only hostile bytes are: all registers have their largest values.
#[test]
fn full_sketches_have_finite_estimates() {
    let full = |precision: u8| {
        let mut sketch = Hll::new(precision).unwrap();
        (0..1 << precision).for_each(|index| _ = sketch.raise(index, 65 - precision));
        sketch
    };
    let some = sketch_of(Family::Hashfold(Seed(0)), 10, 0..1000);
    for (a, b) in [(full(10), full(10)), (full(10), some.clone()), (some, full(10))] {
        assert!(a.estimate().is_finite() && b.estimate().is_finite());
        for both in [joint(&a, &b).unwrap(), inclusion_exclusion(&a, &b).unwrap()] {
            let (low, high) = both.intersection.interval(0.95);
            assert!(low <= high, "{both:?}");
        }
    }
    let dense = [&b"HYLL\0\0\0\0\0\0\0\0\0\0\0\x80"[..], &[255; 12_288]].concat();
    assert_eq!(RedisHll::from_bytes(dense).unwrap().count().unwrap(), i64::MAX as u64);
}

/// Sets that differ in a few keys may have equal registers. The estimate says that it does not know.
#[test]
fn equal_registers_leave_a_few_keys_possible() {
    let sketch = sketch_of(Family::Hashfold(Seed(0)), 12, 0..100_000);
    let both = joint(&sketch, &sketch).unwrap();
    for estimate in [both.only_a, both.only_b] {
        let (low, high) = estimate.interval(0.95);
        assert!(low == 0.0 && (10.0..1000.0).contains(&high), "{both:?}");
    }
    assert!(both.jaccard.interval(0.95).0 < 1.0, "{both:?}");
}

#[test]
fn it_is_said_whether_an_intersection_is_known() {
    let random = SeededRandom::new(4);
    let [a, b] = random_pair(&random, 10, [1000, 100_000, 50]);
    let both = joint(&a, &b).unwrap();
    let got = both.intersection.relative_error();
    assert_eq!(both.usable(got * 1.01), Usable::Yes);
    assert_eq!(both.usable(got / 1.9), Usable::No { precision: Some(12) });
    assert_eq!(both.usable(1e-6), Usable::No { precision: None });
}

/// Registers show that sets of a few keys share none: nearly all keys have registers of their own.
#[test]
fn few_keys_that_no_other_set_has_are_known_to_be_in_none() {
    let random = SeededRandom::new(9);
    let pairs = (0..100).map(|_| random_pair(&random, 12, [20, 30, 0]));
    let known = pairs.filter(|[a, b]| {
        let both = joint(a, b).unwrap();
        both.intersection.interval(0.95).1 < 0.5 && both.usable(0.1) == Usable::Yes
    });
    // Two of 600 pairs of keys have equal registers with a probability of 1 in 4096 · 3.
    let known = known.count();
    assert!(known >= 90, "{known}");
}

#[test]
fn a_sketch_of_a_run_is_that_of_its_keys() {
    let run =
        VecRun::new((0..1000).map(|i| (key(i).to_vec(), Some(Vec::new()))).collect(), Seed(7));
    let sketch = Hll::of_run(run, 9).unwrap();
    assert_eq!(sketch, sketch_of(FAMILIES[0], 9, 0..1000));
    let mut other = Hll::of_family(FAMILIES[0], 9).unwrap();
    (0..1000).for_each(|i| _ = other.insert_hash(KeyHash::of(&key(i), Seed(7))));
    assert_eq!(sketch, other);
    let run =
        VecRun::new((0..1000).map(|i| (key(i).to_vec(), Some(Vec::new()))).collect(), Seed(7));
    let filter = fingerprints::of_run(run, Universe::EXACT);
    assert_eq!(Hll::of_fingerprints(filter, 9).unwrap(), other);
    let few = FingerprintBatch::new().into_run(Seed(7), Universe::with_size(1 << 40).unwrap());
    assert!(Hll::of_fingerprints(few, 9).is_err());
}

#[test]
fn sketches_come_back_from_their_bytes() {
    for family in FAMILIES {
        for precision in [4, 9, 14, 18] {
            for count in [0, 1, 30, 3000, 100_000] {
                let sketch = sketch_of(family, precision, 0..count);
                let bytes = sketch.to_bytes();
                assert_eq!(Hll::from_bytes(&bytes).unwrap(), sketch);
                assert!(bytes.len() <= 20 + 3 * sketch.register_count() / 4, "{sketch:?}");
            }
        }
    }
}

/// The bytes of format version 1.
#[test]
fn the_bytes_of_a_sketch_stay_as_they_are() {
    let hex =
        |bytes: Vec<u8>| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    assert_eq!(hex(sketch_of(FAMILIES[0], 12, 0..3).to_bytes()), GOLDEN_SPARSE);
    assert_eq!(hex(sketch_of(FAMILIES[1], 4, 0..9).to_bytes()), GOLDEN_DENSE);
    assert_eq!(hex(sketch_of(FAMILIES[2], 12, 0..3).to_bytes()), GOLDEN_POSTGRES);
    assert_eq!(hex(sketch_of(FAMILIES[4], 4, 0..9).to_bytes()), GOLDEN_DATASKETCHES);
}

const GOLDEN_SPARSE: &str = "4846484c01010c01070000000000000003c28608810ac1f3033e35036b";
const GOLDEN_DENSE: &str = "4846484c010204020000000000000000403000c0200000000402010042afbc48";

const GOLDEN_POSTGRES: &str = "4846484c01030c010500000000000000038354839103833f4ba6e8fb";
const GOLDEN_DATASKETCHES: &str =
    "4846484c010404020000000000000000401000403000000008020000cc454376";

#[test]
fn every_change_of_a_sketchs_bytes_is_noticed() {
    for count in [3, 3000] {
        let good = sketch_of(FAMILIES[0], 8, 0..count).to_bytes();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Hll::from_bytes(&bad).is_err(), "bit {bit}");
        }
        assert!((0..good.len()).all(|len| Hll::from_bytes(&good[..len]).is_err()));
    }
}

/// Strings of Redis through all sizes: the registers, the count, and the way back.
#[test]
fn strings_of_redis_have_the_registers_of_their_keys() {
    let mut string = RedisHll::new();
    let mut sketch = Hll::of_family(Family::Redis, 14).unwrap();
    assert_eq!(string.count().unwrap(), 0);
    for i in 0..40_000 {
        let is_changed = string.insert(&key(i)).unwrap();
        assert_eq!(is_changed, sketch.insert(&key(i)));
        assert!(!is_changed || string.known_count().is_none());
        if i < 300 || i % 997 == 0 {
            assert_eq!(string.to_hll().unwrap(), sketch);
            let count = string.count().unwrap();
            assert_eq!(string.known_count(), Some(count));
            // Redis leaves the mean error of about 1/m in.
            let difference = count as f64 - sketch.estimate();
            assert!((-0.5..=0.5 + count as f64 * 1.08 / 16384.0).contains(&difference), "{i}");
            let read = RedisHll::from_bytes(string.as_bytes().to_vec()).unwrap();
            assert_eq!(read, string);
            let back = RedisHll::from_hll(&sketch).unwrap();
            assert_eq!(back.registers().unwrap(), string.registers().unwrap());
        }
    }
    assert!(string.is_dense());
}

#[test]
fn damaged_strings_of_redis_are_errors() {
    let mut string = RedisHll::new();
    (0..300).for_each(|i| _ = string.insert(&key(i)).unwrap());
    let bytes = string.into_bytes();
    let use_all = |mut string: RedisHll| {
        let _ = (string.count(), string.to_hll(), string.insert(b"key"));
        let _ = string.raise_all(&vec![40; redis::REGISTERS], false);
    };
    for len in 0..bytes.len() {
        if let Ok(string) = RedisHll::from_bytes(bytes[..len].to_vec()) {
            assert!(string.registers().is_err(), "{len}");
            use_all(string);
        }
    }
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        RedisHll::from_bytes(bytes).into_iter().for_each(use_all);
    }
    let dense = [&b"HYLL\0\0\0\0\0\0\0\0\0\0\0\0"[..], &[255; 12_288]].concat();
    let string = RedisHll::from_bytes(dense).unwrap();
    assert!(string.to_hll().is_err(), "a register of 63");
    use_all(string);
}

#[test]
fn an_operation_of_redis_that_is_cut_short_is_shown() {
    let mut bytes = RedisHll::new().into_bytes();
    bytes.pop();
    let sketch = RedisHll::from_bytes(bytes).unwrap();
    assert_eq!(sketch.operations().as_deref(), Some("Z:16129"));
    assert!(sketch.registers().is_err());
}
