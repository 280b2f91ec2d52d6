//! Bottom-k sketches against sorted sets, their bytes, and damage.

use super::*;
use crate::{
    checksum::crc32c,
    run::VecRun,
    work::{Random as _, SeededRandom},
};
use std::collections::BTreeSet;

const SEED: Seed = Seed(7);

fn key(i: u64) -> [u8; 8] {
    i.to_le_bytes()
}

fn sketch_of(capacity: usize, keys: impl Iterator<Item = u64>) -> BottomK {
    let mut sketch = BottomK::new(capacity, SEED).unwrap();
    keys.for_each(|i| sketch.insert(&key(i)));
    sketch
}

/// Returns all hashes of keys, ascending.
fn naive(keys: impl Iterator<Item = u64>) -> BTreeSet<u64> {
    keys.map(|i| KeyHash::of(&key(i), SEED).high() >> 24).collect()
}

#[test]
fn the_smallest_hashes_are_those_of_a_sorted_set() {
    for capacity in [16, 100, 1000] {
        for count in [0, 1, 15, 16, 17, 99, 100, 101, 5000] {
            let sketch = sketch_of(capacity, (0..count).chain(0..count / 2));
            let all = naive(0..count);
            let expected: Vec<u64> = all.iter().take(capacity).copied().collect();
            assert_eq!(sketch.hashes(), expected);
            assert_eq!(sketch.is_complete(), all.len() <= capacity, "{capacity} {count}");
            assert_eq!(sketch, sketch_of(capacity, (0..count).rev()));
        }
    }
}

#[test]
fn a_union_is_the_sketch_of_all_keys() {
    for (a, b) in [(0, 0), (5, 0), (0, 50), (40, 30), (3000, 10), (10, 3000), (5000, 4000)] {
        for (capacity, other) in [(32, 32), (32, 100), (100, 32)] {
            let mut union = sketch_of(capacity, 0..a);
            union.union(&sketch_of(other, a / 2..a / 2 + b)).unwrap();
            let expected = sketch_of(capacity.min(other), (0..a).chain(a / 2..a / 2 + b));
            assert_eq!(union, expected, "{a} {b} {capacity} {other}");
        }
    }
    let other = BottomK::new(32, Seed(8)).unwrap();
    assert!(sketch_of(32, 0..9).union(&other).is_err());
    assert!(BottomK::new(15, SEED).is_err() && BottomK::new(CAPACITY_MAX + 1, SEED).is_err());
}

/// Each part of two sets that fit in their sketches is exact, also when one of them ends long before the other.
#[test]
fn small_sets_together_are_exact() {
    let both: Expression = "A & B".parse().unwrap();
    for (a, b) in [(0, 500), (500, 0), (1, 3), (20, 20), (3, 900), (0, 0)] {
        for shared in [0, a.min(b)] {
            let sets = [sketch_of(1024, 0..a), sketch_of(1024, a - shared..a - shared + b)];
            let sets = sets.iter().map(BottomK::to_set).collect();
            let sample = PrefixSample::read(sets, &both, &Precision::whole(0.95).unwrap()).unwrap();
            for (expression, expected) in [
                ("A & B", shared),
                ("A & !B", a - shared),
                ("B & !A", b - shared),
                ("A | B", a + b - shared),
            ] {
                let got = sample.estimate(&expression.parse().unwrap());
                assert_eq!(
                    (got.value, got.low, got.high),
                    (expected as f64, expected as f64, expected as f64),
                    "{a} {b} {shared} {expression}"
                );
            }
        }
    }
}

/// The sketches of C and D end below most hashes of A and B, which fit in theirs.
#[test]
fn sets_that_fit_in_their_sketches_are_exact_beside_others() {
    let ranges = [0..600, 400..900, 500..5000, 0..5000];
    let capacities = [1024, 900, 16, 64];
    let sketches = ranges.clone().into_iter().zip(capacities);
    let sets = sketches.map(|(range, capacity)| sketch_of(capacity, range).to_set()).collect();
    let whole = Precision::whole(0.9999).unwrap();
    let sample = PrefixSample::read(sets, &Expression::all(4), &whole).unwrap();
    assert!(sample.theta() < 0.01, "{sample:?}");
    let sets_of = |key: u64| -> u64 {
        (0..4).filter(|set| ranges[*set].contains(&key)).map(|set| 1_u64 << set).sum()
    };
    for (text, is_exact) in [
        ("A", true),
        ("B", true),
        ("A & B", true),
        ("A - B", true),
        ("A | B", true),
        ("(A | B) & !(A & B)", true),
        ("A & !A & C", true),
        ("(A | B) & (A | !C) & (A | C) & (B | !A)", false),
        ("C", false),
        ("A & C", false),
        ("A - C", false),
        ("A | D", false),
        ("!A", false),
    ] {
        let expression: Expression = text.parse().unwrap();
        let truth = (0..5000).filter(|key| expression.contains(sets_of(*key))).count() as f64;
        let got = sample.estimate(&expression);
        assert_eq!(got.is_exact, is_exact, "{text}: {got:?}");
        assert!(got.low <= truth && truth <= got.high, "{text}: {truth} {got:?}");
        let part = sample.fraction(&expression, &"A | B".parse().unwrap());
        assert!(part.low <= part.value && part.value <= part.high, "{text}: {part:?}");
    }
    let both = sample.fraction(&"A & B".parse().unwrap(), &"A | B".parse().unwrap());
    assert!(both.is_exact && both.value == 200.0 / 900.0, "{both:?}");
}

/// A run that refuses to be read further than expected.
struct Short(VecRun, usize);

impl Run for Short {
    fn seed(&self) -> Seed {
        self.0.seed()
    }

    fn summary(&self) -> crate::run::Summary {
        self.0.summary()
    }

    fn advance(&mut self) -> Result<bool> {
        self.1 = self.1.checked_sub(1).expect("the run is not read further");
        self.0.advance()
    }

    fn entry(&self) -> crate::run::Entry<'_> {
        self.0.entry()
    }
}

#[test]
fn a_sketch_of_a_run_reads_its_first_entries() {
    for count in [0, 10, 64, 65, 5000] {
        let entry = |i: u64| (key(i).to_vec(), (!i.is_multiple_of(5)).then(Vec::new));
        let run = VecRun::new((0..count).map(entry).collect(), SEED);
        let limit = if count > 1000 { 120 } else { count as usize + 1 };
        let sketch = BottomK::of_run(Short(run, limit), 64).unwrap();
        assert_eq!(sketch, sketch_of(64, (0..count).filter(|i| !i.is_multiple_of(5))), "{count}");
    }
}

#[test]
fn estimates_are_exact_for_few_keys_and_near_for_many() {
    let few = sketch_of(64, 0..64).estimate(0.95).unwrap();
    assert!(few.is_exact && few.value == 64.0);
    assert_eq!(sketch_of(64, 0..0).estimate(0.95).unwrap().value, 0.0);
    let mut hits = 0;
    for round in 0..300_u64 {
        let sketch = sketch_of(64, round * 10_000..round * 10_000 + 3000);
        let many = sketch.estimate(0.95).unwrap();
        assert!(!many.is_exact && many.matches == 63);
        hits += u32::from(many.low < 3000.0 && 3000.0 < many.high);
    }
    assert!((279..=299).contains(&hits), "{hits}");
    assert!(sketch_of(64, 0..9).estimate(1.0).is_err());
}

#[test]
fn sketches_come_back_from_their_bytes() {
    for capacity in [16, 1000] {
        for count in [0, 1, 15, 16, 17, 1000, 50_000] {
            let sketch = sketch_of(capacity, 0..count);
            assert_eq!(BottomK::capacity_in(&sketch.to_bytes()), Some(capacity));
            assert_eq!(BottomK::from_bytes(&sketch.to_bytes()).unwrap(), sketch);
        }
    }
    assert_eq!(BottomK::capacity_in(b"HFBK"), None);
    assert_eq!(BottomK::capacity_in(&[0; 100]), None);
    // The ends of the range of hashes.
    let mut sketch = BottomK::new(16, SEED).unwrap();
    [0, 1, (1 << 40) - 1].into_iter().for_each(|hash| sketch.insert_bits(hash));
    assert_eq!(BottomK::from_bytes(&sketch.to_bytes()).unwrap(), sketch);
}

#[test]
fn a_hash_takes_16_bits_among_100_million_keys_and_22_among_a_million() {
    let random = SeededRandom::new(1);
    for (keys, bits_max) in [(100_000_000, 16.0), (1_000_000, 22.0)] {
        let mut sketch = BottomK::new(4096, SEED).unwrap();
        let below = (1 << 40) / (keys / 4096) * 2;
        (0..8192).for_each(|_| sketch.insert_bits(random.next_u64() % below));
        let bits = (sketch.to_bytes().len() - 28) as f64 * 8.0 / 4096.0;
        assert!(bits <= bits_max && bits > bits_max - 2.0, "{keys}: {bits}");
    }
}

/// The bytes of format version 1.
#[test]
fn the_bytes_of_a_sketch_stay_as_they_are() {
    let hex =
        |bytes: Vec<u8>| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let bytes = [sketch_of(16, 0..3), sketch_of(16, 0..1000)].map(|sketch| hex(sketch.to_bytes()));
    assert_eq!(bytes, [GOLDEN_COMPLETE, GOLDEN_SMALLEST]);
}

const GOLDEN_COMPLETE: &str =
    "4846424b01010125070000000000000010000000030000008f1d069e1ab09b1fa70a11c8ac137a7dcbfcaa";
const GOLDEN_SMALLEST: &str = "4846424b0101021d070000000000000010000000100000001c648167bead50e5d7fd90f8367b8e9690e87ab97afcfb122854fa34990de23d8ad0a2ffdfd91990e3654d1b338e4a0ec7c9f42202dc8ce1974577296db1bc2c1d94364c";

#[test]
fn every_change_of_a_sketchs_bytes_is_noticed() {
    for count in [0, 3, 3000] {
        let good = sketch_of(64, 0..count).to_bytes();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(BottomK::from_bytes(&bad).is_err(), "bit {bit}");
        }
        assert!((0..good.len()).all(|len| BottomK::from_bytes(&good[..len]).is_err()));
    }
}

/// Bytes whose checksum is right: an error, or a sketch that can be used.
#[test]
fn forged_bytes_are_errors_or_sketches() {
    let random = SeededRandom::new(2);
    let good = sketch_of(64, 0..3000).to_bytes();
    let mut read = 0;
    for _ in 0..20_000 {
        let mut bytes = good[..good.len() - 4].to_vec();
        for _ in 0..1 + random.next_u64() % 3 {
            let at = 4 + random.next_u64() as usize % (bytes.len() - 4);
            bytes[at] = random.next_u64() as u8;
        }
        bytes.truncate(bytes.len() - random.next_u64() as usize % 3);
        bytes.extend(crc32c(&bytes).to_le_bytes());
        let Ok(sketch) = BottomK::from_bytes(&bytes) else { continue };
        read += 1;
        let estimate = sketch.estimate(0.95).unwrap();
        assert!(estimate.low <= estimate.high && estimate.value.is_finite(), "{sketch:?}");
        assert_eq!(BottomK::from_bytes(&sketch.to_bytes()).unwrap(), sketch);
    }
    assert!(read > 100, "{read}");
    // Hostile numbers: the largest count, with hardly any bytes.
    let mut bytes = good[..24].to_vec();
    bytes[16..24].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1]);
    bytes.extend(crc32c(&bytes).to_le_bytes());
    assert!(BottomK::from_bytes(&bytes).is_err());
}
