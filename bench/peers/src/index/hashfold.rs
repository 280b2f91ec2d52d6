//! The three indexes of Hashfold's tables.

use super::{Keys, Measured, Peer, build, time, time_gets};
use crate::{Result, measure::TemporaryFolder};
use hashfold::table::{HashIndex, IndexOptions};
use std::ops::Range;

pub(super) fn peers() -> Vec<Box<dyn Peer>> {
    let shapes = [
        Shape::Dense { bucket_size: 64 },
        Shape::Dense { bucket_size: 256 },
        Shape::Sparse { per_block: 8 },
        Shape::Sparse { per_block: 16 },
        Shape::Fences { per_block: 16 },
        Shape::Fences { per_block: 64 },
    ];
    shapes.into_iter().map(|shape| Box::new(shape) as Box<dyn Peer>).collect()
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Dense { bucket_size: u32 },
    Sparse { per_block: u64 },
    Fences { per_block: u64 },
}

impl Shape {
    fn build(self, keys: &Keys) -> Result<HashIndex> {
        let hashes = keys.sorted.iter().copied();
        let options = IndexOptions::default();
        Ok(match self {
            Shape::Dense { bucket_size } => {
                let options = IndexOptions { bucket_size, ..options };
                HashIndex::dense(hashes, keys.count(), &options)?
            }
            Shape::Sparse { per_block } => {
                HashIndex::sparse(hashes, keys.count(), per_block, &options)?
            }
            Shape::Fences { per_block } => HashIndex::fences(hashes, keys.count(), per_block)?,
        })
    }

    /// Checks that the answer leads to the hash with this rank. Returns whether a second block must
    /// be read.
    fn check(self, ranks: &Range<u64>, rank: u64) -> Result<bool> {
        let right = match self {
            Shape::Dense { .. } => *ranks == (rank..rank + 1),
            Shape::Sparse { .. } => ranks.contains(&rank),
            Shape::Fences { per_block } => {
                ranks.contains(&rank) || ranks.contains(&(rank + per_block))
            }
        };
        if right {
            return Ok(!ranks.contains(&rank));
        }
        Err(format!("{} leads to {ranks:?} instead of {rank}", self.name()).into())
    }
}

impl Peer for Shape {
    fn name(&self) -> String {
        match self {
            Shape::Dense { bucket_size } => format!("Hashfold dense g={bucket_size}"),
            Shape::Sparse { per_block } => format!("Hashfold sparse k={per_block}"),
            Shape::Fences { per_block } => format!("Hashfold fences k={per_block}"),
        }
    }

    fn note(&self) -> String {
        let answer = match self {
            Shape::Dense { .. } => "rank",
            Shape::Sparse { .. } => "block",
            Shape::Fences { .. } => "block or the one after it",
        };
        format!("order preserved; gives the {answer}; built from sorted hashes")
    }

    fn round(&self, keys: &Keys, _: &TemporaryFolder) -> Result<Measured> {
        let (index, build_ns) = build(keys.count(), || self.build(keys))?;
        let queries = &keys.queries;
        let mut many = Vec::with_capacity(queries.hashes.len());
        index.ranks_many(&queries.hashes, &mut many);
        let mut second_reads = 0;
        for ((hash, rank), batched) in queries.hashes.iter().zip(&queries.ranks).zip(&many) {
            let ranks = index.ranks(*hash);
            if ranks != *batched {
                return Err(format!("{ranks:?} alone and {batched:?} in a batch").into());
            }
            second_reads += u64::from(self.check(&ranks, *rank)?);
        }
        let batched_get_ns = time(&queries.hashes, |hashes| {
            /// Number of hashes in a batch, as for a reader with this many requests in flight.
            const BATCH: usize = 128;
            for hashes in hashes.chunks(BATCH) {
                many.clear();
                index.ranks_many(hashes, &mut many);
            }
        });
        Ok(Measured {
            bits_per_key: index.bytes() as f64 * 8.0 / keys.count() as f64,
            build_ns,
            get_ns: time_gets(&queries.hashes, |hash| index.ranks(*hash)),
            batched_get_ns: Some(batched_get_ns),
            second_reads_percent: Some(100.0 * second_reads as f64 / queries.hashes.len() as f64),
        })
    }
}
