//! Indexes over sorted hashes without tables: their sizes, and lookup times in memory.

use crate::{
    Result,
    measure::{ensure, thread_seconds},
};
use hashfold::{KeyHash, Seed, table::HashIndex};
use record::Samples;
use std::ops::Range;

/// Maximum number of lookups that are timed together.
pub const LOOKUPS_MAX: u64 = 250_000;

/// Number of lookups in a batch.
const BATCH: usize = 16384;

/// Number of passes over all lookups in a round.
pub const PASSES: u32 = 10;

/// An index to be measured.
#[derive(Debug)]
pub struct Indexed {
    pub index: HashIndex,
    /// Maximum number of ranks after the right one that a lookup may return: a block, with fences.
    pub slack: u64,
}

impl Indexed {
    fn accepts(&self, found: &Range<u64>, rank: u64) -> bool {
        (found.start.saturating_sub(self.slack)..found.end).contains(&rank)
    }
}

/// CPU times per lookup, in nanoseconds.
#[derive(Clone, Debug)]
pub struct LookupTimes {
    pub single: Samples,
    pub batch: Samples,
}

/// Sorted hashes, and some of them in random order.
#[derive(Clone, Debug)]
pub struct Hashes {
    pub sorted: Vec<KeyHash>,
    lookups: Vec<KeyHash>,
    ranks: Vec<u64>,
}

impl Hashes {
    pub fn new(count: u64, seed: u64) -> Hashes {
        let hash = |i: u64| KeyHash::of(&i.to_le_bytes(), Seed(seed));
        let mut sorted: Vec<KeyHash> = (0..count).map(hash).collect();
        sorted.sort_unstable();
        let ranks: Vec<u64> = (0..LOOKUPS_MAX.min(count)).map(|i| pick(i, seed, count)).collect();
        let lookups = ranks.iter().map(|&rank| sorted[rank as usize]).collect();
        Hashes { sorted, lookups, ranks }
    }

    pub fn count(&self) -> u64 {
        self.sorted.len() as u64
    }

    /// Returns the bits per key.
    pub fn bits(&self, bytes: u64) -> f64 {
        bytes as f64 * 8.0 / self.count() as f64
    }

    /// Measures lookups in each index. The indexes alternate in many short passes, so that each
    /// meets moments in which the machine is otherwise idle.
    pub fn time(&self, indexes: &[Indexed], rounds: u32) -> Result<Vec<LookupTimes>> {
        let mut times = vec![(Vec::new(), Vec::new()); indexes.len()];
        for _ in 0..PASSES * rounds {
            for (index, (single, batch)) in indexes.iter().zip(&mut times) {
                single.push(self.single_ns(index)?);
                batch.push(self.batch_ns(index)?);
            }
        }
        let times = times.into_iter();
        Ok(times.map(|(a, b)| LookupTimes { single: a.into(), batch: b.into() }).collect())
    }

    /// Returns the CPU time per lookup, in nanoseconds. All results are checked.
    fn single_ns(&self, index: &Indexed) -> Result<f64> {
        let mut wrong = 0;
        let seconds = thread_seconds(|| {
            for (hash, rank) in self.lookups.iter().zip(&self.ranks) {
                wrong += u64::from(!index.accepts(&index.index.ranks(*hash), *rank));
            }
        });
        ensure(wrong == 0, || format!("{wrong} lookups gave a wrong rank"))?;
        Ok(seconds / self.lookups.len() as f64 * 1e9)
    }

    /// Measures lookups in batches, in nanoseconds each.
    fn batch_ns(&self, index: &Indexed) -> Result<f64> {
        let mut wrong = 0;
        let mut out = Vec::with_capacity(BATCH);
        let seconds = thread_seconds(|| {
            for (batch, ranks) in self.lookups.chunks(BATCH).zip(self.ranks.chunks(BATCH)) {
                out.clear();
                index.index.ranks_many(batch, &mut out);
                let found = out.iter().zip(ranks);
                wrong += found.filter(|(found, rank)| !index.accepts(found, **rank)).count();
            }
        });
        ensure(wrong == 0, || format!("{wrong} lookups in batches gave a wrong rank"))?;
        Ok(seconds / self.lookups.len() as f64 * 1e9)
    }

    /// Looks up every hash. Returns the fraction for which fences name the block after their own.
    pub fn second_reads(&self, fences: &HashIndex, block: u64) -> Result<f64> {
        let (mut second, mut wrong) = (0_u64, 0_u64);
        for (rank, hash) in self.sorted.iter().enumerate() {
            let (own, named) = (rank as u64 / block, fences.ranks(*hash).start / block);
            second += u64::from(named == own + 1);
            wrong += u64::from(named != own && named != own + 1);
        }
        ensure(wrong == 0, || format!("fences name a wrong block for {wrong} keys"))?;
        Ok(second as f64 / self.count() as f64)
    }

    /// Looks up every hash in an index that returns its exact block.
    pub fn check_blocks(&self, sparse: &HashIndex, block: u64) -> Result<()> {
        let wrong = self.sorted.iter().enumerate().filter(|(rank, hash)| {
            let (rank, ranks) = (*rank as u64, sparse.ranks(**hash));
            let one_block = ranks.start / block == (ranks.end.max(1) - 1) / block;
            !(ranks.contains(&rank) && one_block)
        });
        let wrong = wrong.count();
        ensure(wrong == 0, || format!("{wrong} keys are not in the block that the index names"))
    }
}

/// Returns a pseudorandom number below `count`.
pub fn pick(i: u64, seed: u64, count: u64) -> u64 {
    let hash = KeyHash::of(&i.to_be_bytes(), Seed(!seed)).high();
    ((u128::from(hash) * u128::from(count)) >> 64) as u64
}
