//! Prefix samples against sorted sets, the laws of sets, and the errors of estimates, by simulation with
//! fixed seeds.

use super::*;
use crate::{
    error::{ErrorKind, Result},
    fingerprints::{self, FingerprintBatch, Universe},
    key::{KeyHash, Seed},
    run::{Entry, Run, Summary, VecRun},
    sketch::BottomK,
    work::{Random as _, SeededRandom},
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

const SEED: Seed = Seed(7);

/// A run of hashes in the given order, with the number of them that were read.
struct Hashes {
    hashes: Vec<(u128, bool)>,
    steps: usize,
    read: Arc<AtomicUsize>,
}

impl Hashes {
    fn new(hashes: impl IntoIterator<Item = u128>) -> Hashes {
        let hashes = hashes.into_iter().map(|hash| (hash, true)).collect();
        Hashes { hashes, steps: 0, read: Arc::default() }
    }
}

impl Run for Hashes {
    fn seed(&self) -> Seed {
        SEED
    }

    fn summary(&self) -> Summary {
        Summary::EMPTY
    }

    fn advance(&mut self) -> Result<bool> {
        self.steps += 1;
        self.read.fetch_add(1, Relaxed);
        Ok(self.steps <= self.hashes.len())
    }

    fn entry(&self) -> Entry<'_> {
        let (hash, is_present) = self.hashes[self.steps - 1];
        Entry { hash: KeyHash::from_bits(hash), key: b"", value: is_present.then_some(b"") }
    }
}

fn run_of(keys: impl IntoIterator<Item = u64>) -> VecRun {
    let entries = keys.into_iter().map(|key| (key.to_le_bytes().to_vec(), Some(Vec::new())));
    VecRun::new(entries.collect(), SEED)
}

fn read(sets: Vec<PrefixSet<'_>>, expression: &Expression, error: f64) -> PrefixSample {
    PrefixSample::read(sets, expression, &Precision::new(error, 0.95).unwrap()).unwrap()
}

fn text(text: &str) -> Expression {
    text.parse().unwrap()
}

/// Makes a random expression, and the keys that it counts of some sets.
fn random_expression(
    random: &SeededRandom,
    sets: &[BTreeSet<u64>],
    depth: u32,
) -> (Expression, BTreeSet<u64>) {
    let part = || random_expression(random, sets, depth - 1);
    match if depth == 0 { 0 } else { random.next_u64() % 5 } {
        0 => {
            let number = random.next_u64() as usize % sets.len();
            (Expression::set(number), sets[number].clone())
        }
        1 => {
            let (a, keys) = part();
            let all: BTreeSet<u64> = sets.iter().flatten().copied().collect();
            (!a, &all - &keys)
        }
        2 => {
            let ((a, a_keys), (b, b_keys)) = (part(), part());
            (a & b, &a_keys & &b_keys)
        }
        3 => {
            let ((a, a_keys), (b, b_keys)) = (part(), part());
            (a | b, &a_keys | &b_keys)
        }
        _ => {
            let ((a, a_keys), (b, b_keys)) = (part(), part());
            (a - b, &a_keys - &b_keys)
        }
    }
}

fn random_sets(random: &SeededRandom, count: usize, keys: u64) -> Vec<BTreeSet<u64>> {
    let set = |_| {
        let chance = random.next_u64() % 100;
        (0..keys).filter(|_| random.next_u64() % 100 < chance).collect()
    };
    (0..count).map(set).collect()
}

fn sources(sets: &[BTreeSet<u64>]) -> Vec<PrefixSet<'static>> {
    sets.iter().map(|set| PrefixSet::of_run(run_of(set.iter().copied()))).collect()
}

#[test]
fn at_the_end_each_expression_has_the_size_of_a_sorted_set() {
    let random = SeededRandom::new(1);
    for round in 0..400 {
        let sets = random_sets(&random, 1 + round % 4, 60);
        let (expression, keys) = random_expression(&random, &sets, 4);
        let sample = read(sources(&sets), &expression, 1e-3);
        let estimate = sample.estimate(&expression);
        assert!(estimate.is_exact, "{expression} of {sets:?}: {estimate:?}");
        assert_eq!((estimate.value, estimate.low), (keys.len() as f64, estimate.high));
        let (other, keys) = random_expression(&random, &sets, 3);
        let estimate = sample.estimate(&other);
        let is_known = estimate.is_exact && estimate.value == keys.len() as f64;
        assert!(is_known || sample.theta() < 1.0, "{other} of {sets:?}: {estimate:?}");
    }
}

#[test]
fn the_order_of_sets_makes_no_difference() {
    let random = SeededRandom::new(2);
    for error in [0.5, 0.2, 1e-3] {
        let sets = random_sets(&random, 3, 3000);
        let reversed: Vec<_> = sets.iter().rev().cloned().collect();
        for (forth, back) in [("A & B", "C & B"), ("A - (B | C)", "C - (B | A)"), ("!A", "!C")] {
            let (forth, back) = (text(forth), text(back));
            let a = read(sources(&sets), &forth, error);
            let b = read(sources(&reversed), &back, error);
            let PrefixEstimate { low, value, high, .. } = a.estimate(&forth);
            assert!(low <= value && value <= high, "{low} {value} {high}");
            assert_eq!(a.estimate(&forth), b.estimate(&back));
            assert_eq!((a.theta(), a.keys_read()), (b.theta(), b.keys_read()));
        }
    }
}

/// The laws hold for all estimates from one sample, exact or not.
#[test]
fn estimates_of_one_sample_obey_the_laws_of_sets() {
    let random = SeededRandom::new(3);
    for error in [0.5, 0.2, 1e-3] {
        let sets = random_sets(&random, 3, 3000);
        for wanted in ["A & B", "A | B", "A & B & C", "!C"] {
            let sample = read(sources(&sets), &text(wanted), error);
            let size = |expression: &str| sample.estimate(&text(expression)).value;
            let same = |a: f64, b: f64| assert!((a - b).abs() < 1e-6 * a.max(1.0), "{a} {b}");
            // A law may mix exact parts with estimates, where only A or B have ended.
            if sample.estimate(&text("A")).is_exact != sample.estimate(&text("B")).is_exact {
                continue;
            }
            same(size("A & B") + size("A & !B"), size("A"));
            same(size("A | B"), size("A") + size("B") - size("A & B"));
            same(size("!(A | B)"), size("!A & !B"));
            same(size("!(A & B)"), size("!A | !B"));
            same(size("A - B"), size("A & !B"));
            same(size("A & (B | C)"), size("A & B | A & C"));
            same(size("!!A"), size("A"));
        }
    }
}

#[test]
fn deleted_keys_and_repeated_hashes_do_not_count() {
    let mut run = Hashes::new([3, 3, 5, 7, 9, 9]);
    run.hashes[2].1 = false;
    // Many deleted keys are not the end.
    run.hashes.splice(3..3, (0..1000).map(|_| (6, false)));
    let sets = vec![PrefixSet::of_run(run), PrefixSet::of_run(Hashes::new([3, 5, 9]))];
    let sample = read(sets, &text("A | B"), 1e-3);
    assert_eq!(sample.estimate(&text("A")).value, 3.0);
    assert_eq!(sample.estimate(&text("A & B")).value, 2.0);
    assert_eq!(sample.estimate(&text("A | B")).value, 4.0);
}

#[test]
fn hashes_are_compared_in_the_bits_that_all_sets_have() {
    // The first 64 bits are 1, 1, 2.
    let hashes = [1 << 64 | 5, 1 << 64 | 6, 2 << 64];
    let runs = || {
        vec![PrefixSet::of_run(Hashes::new(hashes)), PrefixSet::of_run(Hashes::new([hashes[1]]))]
    };
    let both = read(runs(), &text("A | B"), 1e-3);
    assert_eq!(both.estimate(&text("A | B")).value, 3.0);
    let filter = FingerprintBatch::from_sorted(vec![1, 4]).unwrap().into_run(SEED, Universe::EXACT);
    let mut sets = runs();
    sets.push(PrefixSet::of_fingerprints(filter).unwrap());
    let all = read(sets, &text("A | B | C"), 1e-3);
    let size = |expression: &str| all.estimate(&text(expression)).value;
    assert_eq!((size("A"), size("A & B & C"), size("A | B | C")), (2.0, 1.0, 3.0));
}

#[test]
fn keys_of_exact_filters_are_those_of_the_run() {
    let keys = |range: std::ops::Range<u64>| run_of(range);
    let exact =
        |run| PrefixSet::of_fingerprints(fingerprints::of_run(run, Universe::EXACT)).unwrap();
    for error in [0.5, 0.1, 1e-4] {
        let runs = vec![PrefixSet::of_run(keys(0..9000)), PrefixSet::of_run(keys(5000..20_000))];
        let filters = vec![exact(keys(0..9000)), exact(keys(5000..20_000))];
        let mixed = vec![exact(keys(0..9000)), PrefixSet::of_run(keys(5000..20_000))];
        let both = text("A & B");
        let expected = read(runs, &both, error).estimate(&both);
        for sets in [filters, mixed] {
            let got = read(sets, &both, error).estimate(&both);
            assert_eq!((got.matches, got.is_exact), (expected.matches, expected.is_exact));
            assert!((got.value / expected.value - 1.0).abs() < 1e-9);
        }
    }
}

#[test]
fn what_cannot_be_estimated_is_refused() {
    let run = || PrefixSet::of_run(run_of(0..10));
    let other = || PrefixSet::of_run(VecRun::new(Vec::new(), Seed(8)));
    let precision = Precision::new(0.1, 0.95).unwrap();
    let kind = |sets, expression: &str| {
        let result = PrefixSample::read(sets, &text(expression), &precision);
        result.unwrap_err().kind().clone()
    };
    assert!(matches!(kind(vec![run(), other()], "A & B"), ErrorKind::WrongSeed { .. }));
    assert!(matches!(kind(vec![run()], "A & B"), ErrorKind::Argument { .. }));
    assert!(matches!(kind(vec![], "A"), ErrorKind::Argument { .. }));
    let many = (0..=SETS_MAX).map(|_| run()).collect();
    assert!(matches!(kind(many, "A"), ErrorKind::Argument { .. }));
    let falling = vec![PrefixSet::of_run(Hashes::new([5, 4]))];
    assert!(matches!(kind(falling, "A"), ErrorKind::Argument { .. }));
    let universe = Universe::for_capacity(1000, 0.001).unwrap();
    let error =
        PrefixSet::of_fingerprints(fingerprints::of_run(run_of(0..10), universe)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{error}");
    for (error, confidence) in [
        (0.0, 0.9),
        (1.0, 0.9),
        (-0.1, 0.9),
        (f64::NAN, 0.9),
        (0.1, 0.0),
        (0.1, 1.0),
        (0.1, f64::NAN),
    ] {
        assert!(Precision::new(error, confidence).is_err(), "{error} {confidence}");
    }
}

#[test]
fn reading_stops_at_the_requested_precision() {
    let (a, b) =
        (Hashes::new((0..50_000).map(|i| i << 100)), Hashes::new((0..90_000).map(|i| i << 100)));
    let (read_a, read_b) = (a.read.clone(), b.read.clone());
    let precision = Precision::new(0.2, 0.95).unwrap();
    let wanted = precision.matches();
    let sets = vec![PrefixSet::of_run(a), PrefixSet::of_run(b)];
    let sample = PrefixSample::read(sets, &text("A & B"), &precision).unwrap();
    assert_eq!(sample.estimate(&text("A & B")).matches, wanted);
    assert_eq!(sample.keys_read(), 2 * wanted);
    for read in [read_a, read_b] {
        assert!(read.load(Relaxed) as u64 <= wanted + 64, "{read:?}");
    }
}

/// Where one of the sets has ended, no more keys can be in both.
#[test]
fn an_intersection_is_exact_where_a_set_ends() {
    let b = Hashes::new((0..90_000).map(|i| i << 100));
    let read_b = b.read.clone();
    let sets = vec![
        PrefixSet::of_run(Hashes::new([5 << 100, 77 << 100, 100 << 100 | 1])),
        PrefixSet::of_run(b),
    ];
    let sample = read(sets, &text("A & B"), 0.1);
    let (both, only_a) = (sample.estimate(&text("A & B")), sample.estimate(&text("A - B")));
    assert!(both.is_exact && both.value == 2.0 && only_a.is_exact && only_a.value == 1.0);
    assert!(!sample.estimate(&text("B")).is_exact && read_b.load(Relaxed) < 300);
}

#[test]
fn a_limit_of_hashes_gives_a_wider_interval() {
    let sets =
        || vec![PrefixSet::of_run(run_of(0..20_000)), PrefixSet::of_run(run_of(10_000..60_000))];
    let both = text("A & B");
    let precision = Precision::new(0.02, 0.99).unwrap().keys_max(700);
    let sample = PrefixSample::read(sets(), &both, &precision).unwrap();
    let estimate = sample.estimate(&both);
    assert!(sample.keys_read() <= 701 && estimate.relative_error() > 0.1, "{estimate:?}");
    assert!(estimate.low < 10_000.0 && 10_000.0 < estimate.high, "{estimate:?}");
}

/// The first hashes of disjoint sets of these sizes, as they would be among uniform hashes: each gap
/// follows from the number of hashes that are left, and the set of each from the numbers left in each.
fn front(random: &SeededRandom, mut sizes: [u64; 3], count: usize) -> Vec<(u128, usize)> {
    let unit = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut at = 0.0;
    let mut front = Vec::new();
    while front.len() < count && sizes.iter().sum::<u64>() > 0 {
        let left: u64 = sizes.iter().sum();
        at += (1.0 - at) * -((1.0 - unit()).ln() / left as f64).exp_m1();
        let mut nth = random.next_u64() % left;
        let set = sizes.iter().position(|size| {
            let is_here = nth < *size;
            nth = nth.saturating_sub(*size);
            is_here
        });
        let set = set.unwrap();
        sizes[set] -= 1;
        front.push(((at * 2_f64.powi(128)) as u128, set));
    }
    front
}

/// A stop that depends on the matches changes neither coverage nor error.
#[test]
fn intervals_have_the_true_value_in_95_of_100_cases_and_errors_are_those_of_theory() {
    let random = SeededRandom::new(4);
    let cells = [
        ([2000, 60_000, 1000], 0.5, 1000),
        ([50_000, 900_000, 5000], 0.5, 300),
        ([400, 300, 700], 0.2, 1000),
        ([50, 5000, 60], 0.3, 600),
    ];
    for (sizes, error, rounds) in cells {
        let wanted = Precision::new(error, 0.95).unwrap().matches();
        let all: u64 = sizes.iter().sum();
        let count = (3 * wanted * all / sizes[2]).min(all) as usize;
        let (mut hits, mut sum, mut squares, mut inexact) = ([0; 4], 0.0, 0.0, 0);
        for _ in 0..rounds {
            let front = front(&random, sizes, count);
            let of = |sets: [usize; 2]| {
                let here = front.iter().filter(|(_, set)| sets.contains(set));
                PrefixSet::of_run(Hashes::new(here.map(|(hash, _)| *hash)))
            };
            let sample = read(vec![of([0, 2]), of([1, 2])], &text("A & B"), error);
            let both = sample.estimate(&text("A & B"));
            inexact += u32::from(!both.is_exact);
            let [a, b, x] = sizes.map(|size| size as f64);
            for (i, (estimate, truth)) in [
                (both, x),
                (sample.estimate(&text("A | B")), a + b + x),
                (sample.estimate(&text("A - B")), a),
                (sample.fraction(&text("A & B"), &text("A | B")), x / (a + b + x)),
            ]
            .into_iter()
            .enumerate()
            {
                let margin = 1e-9 * truth;
                hits[i] +=
                    u32::from(estimate.low <= truth + margin && truth <= estimate.high + margin);
            }
            let off = both.value / x - 1.0;
            (sum, squares) = (sum + off, squares + off * off);
        }
        let rounds = f64::from(rounds);
        let (bias, rmse) = (sum / rounds, (squares / rounds).sqrt());
        let theory = 1.0 / ((wanted - 2) as f64).sqrt();
        eprintln!(
            "{sizes:?}: k {wanted}, hits {hits:?}, bias {bias:.4}, RMSE {rmse:.4}, theory {theory:.4}"
        );
        assert!(hits.iter().all(|hits| f64::from(*hits) >= 0.93 * rounds), "{sizes:?}: {hits:?}");
        assert!(bias.abs() < 4.0 * theory / rounds.sqrt(), "{sizes:?}: {bias}");
        assert!(rmse < 1.1 * theory, "{sizes:?}: {rmse} {theory}");
        assert!(f64::from(inexact) > 0.9 * rounds || sizes[2] < wanted, "{sizes:?}: {inexact}");
    }
}

#[test]
fn the_interval_at_the_stop_is_within_the_requested_error() {
    for error in [0.9, 0.5, 0.1, 0.03] {
        for confidence in [0.5, 0.68, 0.95, 0.999] {
            let precision = Precision::new(error, confidence).unwrap();
            let count = precision.matches() as u128 + 100;
            let run = Hashes::new((1..count).map(|i| i << 70));
            let all = Expression::set(0);
            let sample =
                PrefixSample::read(vec![PrefixSet::of_run(run)], &all, &precision).unwrap();
            let got = sample.estimate(&all);
            assert!(got.relative_error() <= 1.005 * error, "{error} {confidence}: {got:?}");
            assert_eq!(got.matches, precision.matches());
        }
    }
}

#[test]
fn sketches_and_runs_mix_up_to_the_end_of_the_sketch() {
    let mut sketch = BottomK::new(500, SEED).unwrap();
    (0..40_000_u64).for_each(|key| sketch.insert(&key.to_le_bytes()));
    let sets = vec![sketch.to_set(), PrefixSet::of_run(run_of(20_000..60_000))];
    let both = text("A & B");
    let precision = Precision::new(0.001, 0.999).unwrap();
    let sample = PrefixSample::read(sets, &both, &precision).unwrap();
    let estimate = sample.estimate(&both);
    assert!(!estimate.is_exact && estimate.low < 20_000.0 && 20_000.0 < estimate.high);
    assert!(estimate.relative_error() < 0.25 && sample.keys_read() < 1100, "{sample:?}");
    assert_eq!(sample.estimate(&text("A")).matches, 499);
}

#[test]
fn expressions_are_read_and_printed() {
    for (given, printed) in [
        ("a", "A"),
        ("A&B", "A & B"),
        ("A | B & C", "A | (B & C)"),
        ("(A | B) & C", "(A | B) & C"),
        ("A & B - C", "A & (B & !C)"),
        ("A \\ 2 \\ 27", "(A & !B) & !27"),
        ("!A & !(B|!C)", "!A & !(B | !C)"),
        ("!!Z", "!!Z"),
        ("64", "64"),
    ] {
        let expression = text(given);
        assert_eq!(expression.to_string(), printed);
        assert_eq!(text(&expression.to_string()), expression);
    }
}

/// Each message says where the error is, and what was expected there.
#[test]
fn texts_that_are_no_expressions_are_refused_with_the_place() {
    let set = "expected a set (A to Z, or 1 to 64), ! or ( there";
    let operator = "expected &, |, - or the end there";
    for (bad, place, expected) in [
        ("", "is empty", set),
        ("  ", "is empty", set),
        ("A B", r#"is "A B", with "B" at character 3"#, operator),
        ("A & ", r#"is "A &", which ends after character 3"#, set),
        ("& A", r#"with "&" at character 1"#, set),
        ("(A", "which ends after character 2", "or ) there; the ( at character 1 is open"),
        ("A|( B", "which ends after character 5", "or ) there; the ( at character 3 is open"),
        ("(A 2)", r#"with "2" at character 4"#, "or ) there; the ( at character 1 is open"),
        ("A)", r#"with ")" at character 2"#, operator),
        ("()", r#"with ")" at character 2"#, set),
        ("!", "which ends after character 1", set),
        ("A ! B", r#"with "!" at character 3"#, operator),
        ("0", r#"with "0" at character 1"#, set),
        ("A & 65", r#"with "65" at character 5"#, set),
        ("A & é", r#"with "é" at character 5"#, set),
        ("é", r#"is "é", with "é" at character 1"#, set),
        ("A++B", r#"with "+" at character 2"#, operator),
        ("1a", r#"with "a" at character 2"#, operator),
        ("A\u{7}", r#"is "A\u{7}", with "\u{7}" at character 2"#, operator),
    ] {
        let error = bad.parse::<Expression>().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }), "{bad}: {error}");
        let message = error.to_string();
        assert!(message.starts_with("expression is "), "{bad}: {message}");
        assert!(message.contains(place) && message.ends_with(expected), "{bad}: {message}");
    }
    let long = "A | ".repeat(1000) + "& B" + &" | C".repeat(1000);
    let message = long.parse::<Expression>().unwrap_err().to_string();
    assert!(message.contains("with \"&\" at character 4001") && message.len() < 300, "{message}");
}

#[test]
fn an_expression_depends_on_the_sets_that_it_names_or_counts() {
    for (given, sets) in [("A & C", "AC"), ("A - B", "AB"), ("!A", "ABCD"), ("!A & B", "AB")] {
        let depends = |set: &char| text(given).depends_on(*set as usize - 'A' as usize);
        assert_eq!("ABCD".chars().filter(depends).collect::<String>(), sets, "{given}");
    }
}

/// Random texts of tokens: no panic, and what is read means the same when it is printed.
#[test]
fn random_texts_are_expressions_or_errors() {
    let random = SeededRandom::new(5);
    let tokens = ["A", "B", "3", "!", "(", ")", "&", "|", "-", " "];
    let mut read = 0;
    for _ in 0..20_000 {
        let len = 1 + random.next_u64() % 9;
        let text: String =
            (0..len).map(|_| tokens[random.next_u64() as usize % tokens.len()]).collect();
        let Ok(expression) = text.parse::<Expression>() else { continue };
        read += 1;
        let again: Expression = expression.to_string().parse().unwrap();
        assert!((0..8).all(|sets| again.contains(sets) == expression.contains(sets)), "{text}");
    }
    assert!(read > 500, "{read}");
}
