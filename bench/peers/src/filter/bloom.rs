//! fastbloom: a fast Bloom filter crate, with the lowest false-positive rate for its size.

use super::{Keys, Measured, Peer, ask_all, rate};
use crate::Result;
use fastbloom::BloomFilter;

pub(super) struct FastBloom;

impl Peer for FastBloom {
    fn name(&self) -> String {
        "fastbloom".to_owned()
    }

    fn note(&self) -> String {
        "the same error rate; as many hash functions as it finds best; hashes handed over"
            .to_owned()
    }

    fn round(&self, keys: &Keys) -> Result<Measured> {
        let (filter, insert) = rate(keys.all.len(), || fill(keys));
        let lookups = ask_all(keys, keys.error_rate(), |hash| filter.contains_hash(hash.high()))?;
        let bits_per_item = filter.num_bits() as f64 / keys.all.len() as f64;
        Ok(Measured {
            bits_per_item,
            error_rate: lookups.error_rate,
            insert: Some(insert),
            present: lookups.present,
            absent: lookups.absent,
            ..Measured::default()
        })
    }
}

fn fill(keys: &Keys) -> BloomFilter {
    let mut filter =
        BloomFilter::with_false_pos(keys.error_rate()).seed(&1).expected_items(keys.all.len());
    for hash in &keys.all {
        filter.insert_hash(hash.high());
    }
    filter
}
