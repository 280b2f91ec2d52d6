//! Hashfold's sketch: hashes in batches, one by one, and keys.

use super::{PRECISION, local::Sketch};
use crate::Result;
use hashfold::{
    KeyHash, Seed,
    sketch::{self, Family, Hll},
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
