//! qfilter: a rank-and-select quotient filter in Rust.

use super::{Keys, Measured, Peer, REMAINDER_BITS, ask_all, check, check_removed, quarter, rate};
use crate::Result;
use hashfold::KeyHash;
use qfilter::{Builder, Filter};
use std::hint::black_box;

pub(super) struct Qfilter;

impl Peer for Qfilter {
    fn name(&self) -> String {
        "qfilter".to_owned()
    }

    fn note(&self) -> String {
        "0.3; fingerprints handed over, so that it hashes nothing".to_owned()
    }

    fn round(&self, keys: &Keys) -> Result<Measured> {
        let (filled, insert) = rate(keys.all.len(), || fill(keys, &keys.all));
        let mut filter = filled?;
        let expected = filter.len() as f64 / 2_f64.powi(i32::from(filter.fingerprint_size()));
        let lookups =
            ask_all(keys, expected, |hash| filter.contains_fingerprint(fingerprint(keys, hash)))?;
        let items = filter.len();
        let (seen, iterate) = rate(items as usize, || {
            filter.fingerprints().fold(0, |seen: u64, it| {
                black_box(it);
                seen + 1
            })
        });
        check(seen == items, || "an iteration lost an item")?;
        let (built, build) = rate(items as usize, || -> Result<Filter> {
            let mut builder = Builder::new(new(keys)?);
            for fingerprint in filter.fingerprints() {
                builder.insert_fingerprint(false, fingerprint)?;
            }
            Ok(builder.into_filter())
        });
        check(built?.len() == items, || "a built filter lost an item")?;
        let merge = merge(keys, items)?;
        let bits_per_item = filter.memory_usage() as f64 * 8.0 / items as f64;
        let (removed, delete) = rate(quarter(keys).len(), || {
            let removed = quarter(keys)
                .iter()
                .map(|&hash| filter.remove_fingerprint(fingerprint(keys, hash)));
            removed.map(u64::from).sum::<u64>()
        });
        check_removed(removed, keys)?;
        Ok(Measured {
            bits_per_item,
            error_rate: lookups.error_rate,
            insert: Some(insert),
            present: lookups.present,
            absent: lookups.absent,
            delete: Some(delete),
            iterate: Some(iterate),
            build: Some(build),
            merge: Some(merge),
        })
    }
}

/// Returns the high bits of the hash.
#[inline]
fn fingerprint(keys: &Keys, hash: KeyHash) -> u64 {
    hash.high() >> (64 - keys.log_slots - REMAINDER_BITS)
}

fn new(keys: &Keys) -> Result<Filter> {
    let bits = (keys.log_slots + REMAINDER_BITS) as u8;
    Ok(Filter::with_fingerprint_size(keys.all.len() as u64, bits)?)
}

fn fill(keys: &Keys, hashes: &[KeyHash]) -> Result<Filter> {
    let mut filter = new(keys)?;
    for &hash in hashes {
        filter.insert_fingerprint(false, fingerprint(keys, hash))?;
    }
    Ok(filter)
}

/// Returns the items per second of merging two halves; the result must have as many items as a filter
/// of all keys.
fn merge(keys: &Keys, items: u64) -> Result<f64> {
    let (left, right) = keys.all.split_at(keys.all.len() / 2);
    let (mut left, right) = (fill(keys, left)?, fill(keys, right)?);
    let (merged, merge) = rate(keys.all.len(), || left.merge(false, &right));
    merged?;
    let contains = |&hash: &KeyHash| left.contains_fingerprint(fingerprint(keys, hash));
    let is_right = keys.present.iter().all(contains) && left.len() == items;
    check(is_right, || "a merge lost or invented a key")?;
    Ok(merge)
}
