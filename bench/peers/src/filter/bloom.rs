//! fastbloom: the Bloom filter crate with the best error rate for its size, and fast.

use super::{Keys, Measured, Peer, ask_all, check, rate};
use crate::Result;
use fastbloom::BloomFilter;
use hashfold::KeyHash;

pub(super) struct FastBloom;

impl Peer for FastBloom {
    fn name(&self) -> String {
        "fastbloom".to_owned()
    }

    fn note(&self) -> String {
        "the same error rate; as many hash functions as it finds best; hashes handed over; merge is \
         a union"
            .to_owned()
    }

    fn round(&self, keys: &Keys) -> Result<Measured> {
        let (filter, insert) = rate(keys.all.len(), || fill(keys, &keys.all));
        let lookups = ask_all(keys, keys.error_rate(), |hash| filter.contains_hash(hash.high()))?;
        let bits_per_item = filter.num_bits() as f64 / keys.all.len() as f64;
        drop(filter);
        let (left, right) = keys.all.split_at(keys.all.len() / 2);
        let (mut left, right) = (fill(keys, left), fill(keys, right));
        let ((), merge) = rate(keys.all.len(), || left.union(&right));
        let contains = |hash: &KeyHash| left.contains_hash(hash.high());
        check(keys.present.iter().all(contains), || "a union lost a key")?;
        Ok(Measured {
            bits_per_item,
            error_rate: lookups.error_rate,
            insert: Some(insert),
            present: lookups.present,
            absent: lookups.absent,
            merge: Some(merge),
            ..Measured::default()
        })
    }
}

fn fill(keys: &Keys, hashes: &[KeyHash]) -> BloomFilter {
    let mut filter =
        BloomFilter::with_false_pos(keys.error_rate()).seed(&1).expected_items(keys.all.len());
    for hash in hashes {
        filter.insert_hash(hash.high());
    }
    filter
}
