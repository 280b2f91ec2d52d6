//! All kernels treat whole filters alike, and blocks do not depend on their history.

use super::{
    kernel::Processor,
    {BuildOptions, Growth, QuotientFilter, QuotientOptions},
};
use crate::{
    error::ErrorKind,
    filter::Mode,
    fingerprints::{FingerprintBatch, Fingerprints, Universe},
    key::{KeyHash, Seed},
};

fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state ^ state >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

fn filter(mode: Mode, false_positive_rate: f64, machine: Processor) -> QuotientFilter {
    let growth = Growth::Double;
    // With a high false-positive rate, remainders have few bits to lose, so the filter must not
    // grow.
    let capacity = if false_positive_rate > 0.1 { 20_000 } else { 5000 };
    let options = QuotientOptions {
        mode,
        growth,
        ..QuotientOptions::new(capacity, false_positive_rate, Seed(1))
    };
    let mut filter = QuotientFilter::new(&options).unwrap();
    filter.machine = machine;
    filter
}

/// Inserts twice as many keys as the capacity, removes some, merges and shrinks.
fn history(
    mode: Mode,
    false_positive_rate: f64,
    machine: Processor,
) -> (Vec<u8>, FingerprintBatch, Vec<bool>) {
    let (mut one, mut other) =
        (filter(mode, false_positive_rate, machine), filter(mode, false_positive_rate, machine));
    let mut random = random(9);
    let hashes: Vec<KeyHash> =
        (0..10_000).map(|_| KeyHash::from_bits(u128::from(random()) << 64)).collect();
    let mut flags = vec![false; hashes.len()];
    one.insert_batch(&hashes, &mut flags).unwrap();
    other.insert_batch(&hashes[2000..5000], &mut flags[2000..5000]).unwrap();
    one.remove_batch(&hashes[..7000], &mut flags[..7000]);
    one.insert_batch(&hashes[3000..4000], &mut flags[3000..4000]).unwrap();
    let mut merged = one.merge(&other).unwrap();
    merged.machine = machine;
    let _ = merged.shrink();
    merged.contains_batch(&hashes, &mut flags);
    let mut all = FingerprintBatch::new();
    let mut run = merged.scan();
    while run.append_to(&mut all).unwrap() {}
    drop(run);
    (merged.storage.blocks.to_vec(), all, flags)
}

#[test]
fn the_kernels_make_the_same_filters() {
    for mode in [Mode::Set, Mode::Multiset] {
        for false_positive_rate in [0.4, 0.05, 0.01, 1e-3, 1e-4, 1e-5, 1e-7, 1e-10] {
            let mut all = Processor::all().into_iter();
            let portable = all.next().map(|machine| history(mode, false_positive_rate, machine));
            for machine in all {
                let other = Some(history(mode, false_positive_rate, machine));
                assert!(other == portable, "{false_positive_rate} {machine:?}");
            }
        }
    }
}

#[test]
fn blocks_do_not_depend_on_the_order_of_operations() {
    let mut random = random(4);
    let mut hashes: Vec<KeyHash> =
        (0..4000).map(|_| KeyHash::from_bits(u128::from(random()) << 64)).collect();
    let mut one = filter(Mode::Set, 1e-3, Processor::best());
    let mut other = filter(Mode::Set, 1e-3, Processor::best());
    let mut flags = vec![false; 4000];
    one.insert_batch(&hashes, &mut flags).unwrap();
    one.remove_batch(&hashes[..2000], &mut flags[..2000]);
    hashes.drain(..2000);
    hashes.sort_unstable();
    // Keys that shared a fingerprint with a removed key are gone too.
    hashes.retain(|&hash| one.contains(hash));
    for &hash in hashes.iter().rev() {
        other.insert(hash).unwrap();
    }
    assert!(*one.storage.blocks == *other.storage.blocks);
    one.grow().unwrap();
    one.shrink().unwrap();
    assert!(*one.storage.blocks == *other.storage.blocks);
}

/// Issue 12: the error said that the number of items is 18446744073709551615, which is the limit.
#[test]
fn a_sum_of_counts_beyond_64_bits_is_named_in_the_error() {
    let mut batch = FingerprintBatch::new();
    for fingerprint in 0..3 {
        batch.push(fingerprint, i64::MAX).unwrap();
    }
    let universe = Universe::with_size(1 << 20).unwrap();
    let mut run = batch.into_run(Seed(1), universe);
    let options = BuildOptions { mode: Mode::Multiset, ..BuildOptions::new(1000) };
    let error = QuotientFilter::build(&mut run, &options).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Argument { .. }));
    let text = error.to_string();
    assert!(
        text.contains("sum of the counts of all fingerprints is 18446744073709551606,"),
        "{text}"
    );
}
