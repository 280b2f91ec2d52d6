//! Crates whose sketches take hashes.

use super::{PRECISION, local::Sketch};
use crate::Result;
use cardinality_estimator::CardinalityEstimator;
use hyperloglockless::HyperLogLog as LocklessHll;
use hyperloglogplus::{HyperLogLog as _, HyperLogLogPlus};
use simple_hll::HyperLogLog as SimpleSketch;
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use ultraloglog::UltraLogLog;

/// simple_hll: 8 bits a register, Ertl's estimator.
pub(super) struct SimpleHll(SimpleSketch<{ PRECISION as usize }>);

impl Sketch for SimpleHll {
    const NAME: &'static str = "simple_hll";
    const NOTE: &'static str = "0.0.4, add_hash";
    type Item = u64;

    fn empty() -> Result<SimpleHll> {
        Ok(SimpleHll(SimpleSketch::new()))
    }

    fn insert(&mut self, hashes: &[u64]) {
        hashes.iter().for_each(|hash| self.0.add_hash(*hash));
    }

    fn estimate(&mut self) -> f64 {
        self.0.count() as f64
    }

    fn unite(&mut self, other: &SimpleHll) -> Result<()> {
        self.0.merge(&other.0);
        Ok(())
    }

    fn stored_bytes(&self) -> Option<usize> {
        Some(self.0.get_registers().len())
    }
}

/// hyperloglockless: 8 bits a register, LogLog-Beta; it keeps the sum that an estimate needs.
pub(super) struct Lockless(LocklessHll);

impl Sketch for Lockless {
    const NAME: &'static str = "hyperloglockless";
    const NOTE: &'static str = "0.5.0, HyperLogLog::insert_hash; bytes only by serde";
    type Item = u64;

    fn empty() -> Result<Lockless> {
        Ok(Lockless(LocklessHll::new(PRECISION)))
    }

    fn insert(&mut self, hashes: &[u64]) {
        hashes.iter().for_each(|hash| self.0.insert_hash(*hash));
    }

    fn estimate(&mut self) -> f64 {
        self.0.raw_count()
    }

    fn unite(&mut self, other: &Lockless) -> Result<()> {
        self.0.union(&other.0).map_err(|error| format!("{error:?}").into())
    }

    fn stored_bytes(&self) -> Option<usize> {
        None
    }
}

/// hyperloglogplus: 6 bits a register, the tables of HyperLogLog++, 25 bits of precision for few keys.
pub(super) struct PlusPlus(HyperLogLogPlus<u64, Identity>);

impl Sketch for PlusPlus {
    const NAME: &'static str = "hyperloglogplus";
    const NOTE: &'static str = "0.4.1, HyperLogLogPlus::insert with a hasher that hands the hash over; bytes only by serde";
    type Item = u64;

    fn empty() -> Result<PlusPlus> {
        Ok(PlusPlus(HyperLogLogPlus::new(PRECISION, Identity(0))?))
    }

    fn insert(&mut self, hashes: &[u64]) {
        hashes.iter().for_each(|hash| self.0.insert(hash));
    }

    fn estimate(&mut self) -> f64 {
        self.0.count()
    }

    fn unite(&mut self, other: &PlusPlus) -> Result<()> {
        Ok(self.0.merge(&other.0)?)
    }

    fn stored_bytes(&self) -> Option<usize> {
        None
    }
}

/// A hasher that returns the last number that it got.
#[derive(Clone, Copy)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

impl BuildHasher for Identity {
    type Hasher = Identity;

    #[inline]
    fn build_hasher(&self) -> Identity {
        *self
    }
}

/// cardinality-estimator: 6 bits a register, LogLog-Beta; it keeps the sum that an estimate needs.
pub(super) struct Cloudflare(CardinalityEstimator<u64, DefaultHasher, { PRECISION as usize }, 6>);

impl Sketch for Cloudflare {
    const NAME: &'static str = "cardinality-estimator";
    const NOTE: &'static str = "1.0.3, insert_hash, registers of 6 bits; bytes only by serde";
    type Item = u64;

    fn empty() -> Result<Cloudflare> {
        Ok(Cloudflare(CardinalityEstimator::new()))
    }

    fn insert(&mut self, hashes: &[u64]) {
        hashes.iter().for_each(|hash| self.0.insert_hash(*hash));
    }

    fn estimate(&mut self) -> f64 {
        self.0.estimate() as f64
    }

    fn unite(&mut self, other: &Cloudflare) -> Result<()> {
        self.0.merge(&other.0);
        Ok(())
    }

    fn stored_bytes(&self) -> Option<usize> {
        None
    }
}

/// ultraloglog: 8 bits a register, of which 2 are of the values below the largest.
pub(super) struct Ultra(UltraLogLog);

impl Sketch for Ultra {
    const NAME: &'static str = "ultraloglog";
    const NOTE: &'static str = "0.1.6, add; with as many registers, its error is less by a quarter";
    type Item = u64;

    fn empty() -> Result<Ultra> {
        Ok(Ultra(UltraLogLog::new(PRECISION.into())?))
    }

    fn insert(&mut self, hashes: &[u64]) {
        hashes.iter().for_each(|hash| _ = self.0.add(*hash));
    }

    fn estimate(&mut self) -> f64 {
        self.0.get_distinct_count_estimate()
    }

    fn unite(&mut self, other: &Ultra) -> Result<()> {
        self.0.add_sketch(&other.0)?;
        Ok(())
    }

    fn stored_bytes(&self) -> Option<usize> {
        Some(self.0.get_state().len())
    }
}
