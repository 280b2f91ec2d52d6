//! PtrHash (Groot Koerkamp, 2025), a minimal perfect hash function with fast gets.

use super::{Keys, Measured, Peer, build, check_minimal_perfect, time, time_gets};
use crate::{Result, measure::TemporaryFolder};
use ptr_hash::{CompactPtrHash, DefaultPtrHash, PtrHashParams};
use std::hint::black_box;

pub(super) fn peers() -> Vec<Box<dyn Peer>> {
    vec![Box::new(Variant::Default), Box::new(Variant::Compact)]
}

#[derive(Clone, Copy, Debug)]
enum Variant {
    Default,
    Compact,
}

/// Measures a variant; the variants have different types.
macro_rules! measure_variant {
    ($type:ty, $params:expr, $keys:expr) => {{
        /// Number of overlapping cache misses, as the crate's documentation recommends.
        const AHEAD: usize = 32;
        let (keys, queries) = (&$keys.highs, &$keys.queries.highs);
        let (index, build_ns) = build($keys.count(), || Ok(<$type>::new(keys, $params)))?;
        check_minimal_perfect(keys, |key| index.index(key))?;
        // A stream can be folded, but has no iterator.
        let mut streamed = Vec::with_capacity(queries.len());
        index.index_stream::<AHEAD, _>(queries).for_each(|number| streamed.push(number));
        if !queries.iter().map(|key| index.index(key)).eq(streamed) {
            return Err("a stream differs from single gets".into());
        }
        let (pilots, remap) = index.bits_per_element();
        Ok(Measured {
            bits_per_key: pilots + remap,
            build_ns,
            get_ns: time_gets(queries, |key| index.index(key)),
            batched_get_ns: Some(time(queries, |queries| {
                black_box(index.index_stream::<AHEAD, _>(queries).sum::<usize>());
            })),
            second_reads_percent: None,
        })
    }};
}

impl Peer for Variant {
    fn name(&self) -> String {
        let variant = match self {
            Variant::Default => "default",
            Variant::Compact => "compact",
        };
        format!("ptr_hash {variant}")
    }

    fn note(&self) -> String {
        "order not preserved; takes the high 64 bits of hashes, unsorted".to_owned()
    }

    fn round(&self, keys: &Keys, _: &TemporaryFolder) -> Result<Measured> {
        match self {
            Variant::Default => {
                measure_variant!(DefaultPtrHash, PtrHashParams::default(), keys)
            }
            Variant::Compact => {
                measure_variant!(CompactPtrHash, PtrHashParams::default_compact(), keys)
            }
        }
    }
}
