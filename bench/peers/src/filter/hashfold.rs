//! Hashfold's quotient filter: rank and select, remainders in byte planes and bit planes.

use super::{Keys, Measured, Peer, ask_all, batches, check, check_removed, quarter, rate};
use crate::Result;
use hashfold::{
    KeyHash, Seed,
    filter::{
        Mode,
        quotient::{BuildOptions, Growth, QuotientFilter, QuotientOptions},
    },
    fingerprints::{FingerprintBatch, Fingerprints},
};
use std::hint::black_box;

pub(super) enum Quotient {
    Single,
    Batched,
}

impl Peer for Quotient {
    fn name(&self) -> String {
        match self {
            Quotient::Single => "Hashfold quotient".to_owned(),
            Quotient::Batched => "Hashfold quotient, batched".to_owned(),
        }
    }

    fn note(&self) -> String {
        let how = match self {
            Quotient::Single => "one key at a time",
            Quotient::Batched => "batches of 4096 keys",
        };
        format!("as its options choose it for these keys at this error rate; {how}")
    }

    fn round(&self, keys: &Keys) -> Result<Measured> {
        match self {
            Quotient::Single => single(keys),
            Quotient::Batched => batched(keys),
        }
    }
}

fn single(keys: &Keys) -> Result<Measured> {
    let (filled, insert) = rate(keys.all.len(), || -> Result<QuotientFilter> {
        let mut filter = new(keys)?;
        for hash in &keys.all {
            filter.insert(*hash)?;
        }
        Ok(filter)
    });
    let mut filter = filled?;
    let lookups = ask_all(keys, filter.false_positive_rate(), |hash| filter.contains(hash))?;
    let (iterate, build) = stream(&filter)?;
    let bits_per_item = filter.bits_per_item();
    let merge = merge(keys, filter.distinct())?;
    let (removed, delete) = rate(quarter(keys).len(), || {
        quarter(keys).iter().map(|&hash| u64::from(filter.remove(hash))).sum::<u64>()
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

fn batched(keys: &Keys) -> Result<Measured> {
    let (mut filter, insert) = insert_batches(keys, &keys.all)?;
    let (found, present) = ask_batches(&filter, &keys.present);
    check(found == keys.present.len() as u64, || "a batch lost a key")?;
    let (errors, absent) = ask_batches(&filter, &keys.absent);
    let singly = keys.absent.iter().filter(|&&hash| filter.contains(hash)).count();
    check(errors == singly as u64, || "a batch differs from single keys")?;
    let bits_per_item = filter.bits_per_item();
    let delete = delete_batches(&mut filter, keys)?;
    Ok(Measured {
        bits_per_item,
        error_rate: errors as f64 / keys.absent.len() as f64,
        insert: Some(insert),
        present,
        absent,
        delete: Some(delete),
        ..Measured::default()
    })
}

fn new(keys: &Keys) -> Result<QuotientFilter> {
    let options = QuotientOptions::new(keys.all.len() as u64, keys.error_rate(), Seed(0));
    let filter = QuotientFilter::new(&options)?;
    check(filter.slots() <= 1 << keys.log_slots, || "more slots than for the others")?;
    Ok(filter)
}

fn insert_batches(keys: &Keys, hashes: &[KeyHash]) -> Result<(QuotientFilter, f64)> {
    let mut is_new = vec![false; super::BATCH];
    let (filled, insert) = rate(hashes.len(), || -> Result<QuotientFilter> {
        let mut filter = new(keys)?;
        for batch in batches(hashes.len()) {
            let is_new = &mut is_new[..batch.len()];
            filter.insert_batch(&hashes[batch], is_new)?;
        }
        Ok(filter)
    });
    Ok((filled?, insert))
}

/// Looks up keys in batches. Returns the number found, and keys per second: the best of a few
/// passes.
fn ask_batches(filter: &QuotientFilter, hashes: &[KeyHash]) -> (u64, f64) {
    let mut flags = vec![false; super::BATCH];
    let mut best = (0, 0.0_f64);
    for _ in 0..3 {
        let (found, per_s) = rate(hashes.len(), || {
            let mut found = 0;
            for batch in batches(hashes.len()) {
                let flags = &mut flags[..batch.len()];
                filter.contains_batch(&hashes[batch], flags);
                found += flags.iter().filter(|flag| **flag).count() as u64;
            }
            found
        });
        best = (found, best.1.max(per_s));
    }
    best
}

/// Returns the items per second of reading all, and of building another filter from them.
fn stream(filter: &QuotientFilter) -> Result<(f64, f64)> {
    let (seen, iterate) = rate(filter.distinct() as usize, || -> Result<u64> {
        let (mut scan, mut batch, mut seen) = (filter.scan(), FingerprintBatch::new(), 0);
        while scan.append_to(&mut batch)? {
            seen += batch.len() as u64;
            black_box(&batch);
            batch.clear();
        }
        Ok(seen)
    });
    check(seen? == filter.distinct(), || "a scan lost an item")?;
    let options = BuildOptions {
        capacity: filter.capacity(),
        mode: Mode::Set,
        growth: Growth::Refuse,
        load_max: 0.9,
    };
    let (built, build) =
        rate(filter.distinct() as usize, || QuotientFilter::build(&mut filter.scan(), &options));
    check(built?.len() == filter.len(), || "a built filter lost an item")?;
    Ok((iterate, build))
}

/// Returns the items per second of merging two halves; the result must have as many fingerprints as
/// a filter of all keys.
fn merge(keys: &Keys, distinct: u64) -> Result<f64> {
    let (left, right) = keys.all.split_at(keys.all.len() / 2);
    let (left, right) = (insert_batches(keys, left)?.0, insert_batches(keys, right)?.0);
    let (merged, merge) = rate(keys.all.len(), || left.merge(&right));
    let merged = merged?;
    let right = keys.present.iter().all(|&hash| merged.contains(hash));
    check(right && merged.distinct() == distinct, || "a merge lost or invented a key")?;
    Ok(merge)
}

fn delete_batches(filter: &mut QuotientFilter, keys: &Keys) -> Result<f64> {
    let mut flags = vec![false; super::BATCH];
    let hashes = quarter(keys);
    let (removed, delete) = rate(hashes.len(), || {
        let mut removed = 0;
        for batch in batches(hashes.len()) {
            let flags = &mut flags[..batch.len()];
            filter.remove_batch(&hashes[batch], flags);
            removed += flags.iter().filter(|flag| **flag).count() as u64;
        }
        removed
    });
    check_removed(removed, keys)?;
    Ok(delete)
}
