//! Hashfold's sketches: hashes in batches, one by one, and keys; larger registers, and the smallest hashes.

use super::{PRECISION, local::Sketch};
use crate::Result;
use hashfold::{
    KeyHash, Seed,
    sketch::{self, BottomK, Expression, Family, Ghll, Hll, Precision, PrefixSample, ghll},
};

/// Number of hashes of a batch.
const BATCH: usize = 1024;

/// The estimates and the union of a sketch of the library.
macro_rules! answers {
    () => {
        fn estimate(&mut self) -> f64 {
            self.0.estimate()
        }

        fn unite(&mut self, other: &Self) -> Result<()> {
            Ok(self.0.union(&other.0)?)
        }

        fn stored_bytes(&self) -> Option<usize> {
            Some(self.0.to_bytes().len())
        }

        fn intersection(self, other: Self) -> Result<f64> {
            Ok(sketch::joint(&self.0, &other.0)?.intersection.value)
        }
    };
}

/// Gets hashes in batches.
pub(super) struct Batched(Hll);

impl Sketch for Batched {
    const NAME: &'static str = "Hashfold, batches";
    const NOTE: &'static str =
        "insert_hashes, batches of 1024; intersections by maximum likelihood";
    type Item = u64;

    fn empty() -> Result<Batched> {
        Ok(Batched(Hll::new(PRECISION)?))
    }

    fn insert(&mut self, hashes: &[u64]) {
        hashes.chunks(BATCH).for_each(|hashes| self.0.insert_hashes(hashes));
    }

    answers!();
}

/// Gets hashes one by one.
pub(super) struct Single(Hll);

impl Sketch for Single {
    const NAME: &'static str = "Hashfold, one by one";
    const NOTE: &'static str = "insert_bits";
    type Item = u64;

    fn empty() -> Result<Single> {
        Ok(Single(Hll::new(PRECISION)?))
    }

    fn insert(&mut self, hashes: &[u64]) {
        hashes.iter().for_each(|hash| _ = self.0.insert_bits(*hash));
    }

    answers!();
}

/// Bits of the larger registers: twice as many as of the others.
const REGISTER_BITS: u8 = 12;

/// Gets hashes, and keeps larger registers.
pub(super) struct Generalized(Ghll);

impl Sketch for Generalized {
    const NAME: &'static str = "Hashfold, GHLL";
    const NOTE: &'static str =
        "Ghll::insert_hashes, registers of 12 bits; intersections by maximum likelihood";
    type Item = u64;

    fn empty() -> Result<Generalized> {
        Ok(Generalized(Ghll::new(PRECISION, REGISTER_BITS)?))
    }

    fn insert(&mut self, hashes: &[u64]) {
        self.0.insert_hashes(hashes);
    }

    fn estimate(&mut self) -> f64 {
        self.0.estimate()
    }

    fn unite(&mut self, other: &Generalized) -> Result<()> {
        Ok(self.0.union(&other.0)?)
    }

    fn stored_bytes(&self) -> Option<usize> {
        Some(self.0.to_bytes().len())
    }

    fn intersection(self, other: Generalized) -> Result<f64> {
        Ok(ghll::joint(&self.0, &other.0)?.intersection.value)
    }
}

/// Number of the smallest hashes, which take about the bytes of registers of 6 bits if there are a million keys.
const HASHES: usize = 1 << (PRECISION - 2);
/// The probability that intervals have the truth; the estimates are the same with any.
const CONFIDENCE: f64 = 0.95;

/// Gets hashes, and keeps the smallest ones.
pub(super) struct Smallest(BottomK);

impl Sketch for Smallest {
    const NAME: &'static str = "Hashfold, bottom-k";
    const NOTE: &'static str =
        "BottomK::insert_hash, 4096 hashes, which have intersections of any number of sets";
    type Item = u64;

    fn empty() -> Result<Smallest> {
        Ok(Smallest(BottomK::new(HASHES, Seed(0))?))
    }

    fn insert(&mut self, hashes: &[u64]) {
        let whole = |hash: u64| KeyHash::from_bits(u128::from(hash) << u64::BITS);
        hashes.iter().for_each(|hash| self.0.insert_hash(whole(*hash)));
    }

    fn estimate(&mut self) -> f64 {
        // An error is a wrong answer, which ends the command.
        self.0.estimate(CONFIDENCE).map_or(f64::NAN, |estimate| estimate.value)
    }

    fn unite(&mut self, other: &Smallest) -> Result<()> {
        Ok(self.0.union(&other.0)?)
    }

    fn stored_bytes(&self) -> Option<usize> {
        Some(self.0.to_bytes().len())
    }

    fn intersection(self, other: Smallest) -> Result<f64> {
        let (sets, both) = (vec![self.0.to_set(), other.0.to_set()], Expression::all(2));
        let sample = PrefixSample::read(sets, &both, &Precision::whole(CONFIDENCE)?)?;
        Ok(sample.estimate(&both).value)
    }
}

/// Gets keys, and hashes them with its own function.
pub(super) struct Hashing(Hll);

impl Sketch for Hashing {
    const NAME: &'static str = "Hashfold";
    const NOTE: &'static str = "XXH3-128 of each key, then insert_hashes, batches of 1024";
    type Item = u64;

    fn empty() -> Result<Hashing> {
        Ok(Hashing(Hll::new(PRECISION)?))
    }

    fn insert(&mut self, keys: &[u64]) {
        let hash = |key: u64| KeyHash::of(&key.to_le_bytes(), Seed(0)).high();
        insert_batches(&mut self.0, keys, hash);
    }

    answers!();
}

/// Gets keys, and hashes them as DataSketches does.
pub(super) struct OfDataSketches(Hll);

impl Sketch for OfDataSketches {
    const NAME: &'static str = "Hashfold, hash of DataSketches";
    const NOTE: &'static str = "MurmurHash3 of each key, then insert_hashes, batches of 1024: the registers of DataSketches";
    type Item = u64;

    fn empty() -> Result<OfDataSketches> {
        Ok(OfDataSketches(Hll::of_family(Family::DataSketches, PRECISION)?))
    }

    fn insert(&mut self, keys: &[u64]) {
        insert_batches(&mut self.0, keys, |key| Family::DataSketches.hash(&key.to_le_bytes()));
    }

    answers!();
}

fn insert_batches(sketch: &mut Hll, keys: &[u64], hash: impl Fn(u64) -> u64) {
    let mut hashes = [0; BATCH];
    for keys in keys.chunks(BATCH) {
        let hashes = &mut hashes[..keys.len()];
        hashes.iter_mut().zip(keys).for_each(|(to, key)| *to = hash(*key));
        sketch.insert_hashes(hashes);
    }
}
