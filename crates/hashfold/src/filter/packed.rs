//! A run of fingerprints in RAM, packed into blocks.

use super::{
    block::{Block, Bytes},
    index::BlockIndex,
    pack::Packer,
};
use crate::{
    error::Result,
    fingerprints::{FingerprintBatch, Fingerprints, Universe},
    key::{KeyHash, Seed},
};
use std::{ops::Deref, sync::Arc};

/// An immutable run of fingerprints in RAM, packed into blocks of 4096 bytes.
///
/// A fingerprint takes 2.5 bits plus the base-2 logarithm of the mean distance between
/// fingerprints.
///
/// ```
/// use hashfold::{KeyHash, Seed, filter::PackedRun, fingerprints::{FingerprintBatch, Universe}};
/// # fn main() -> hashfold::Result<()> {
/// let universe = Universe::for_capacity(1000, 0.001)?;
/// let hash = |i: u64| KeyHash::of(&i.to_le_bytes(), Seed(1));
/// let mut fingerprints: Vec<u64> = (0..1000).map(|i| universe.fingerprint(hash(i))).collect();
/// fingerprints.sort_unstable();
/// fingerprints.dedup();
/// let batch = FingerprintBatch::from_sorted(fingerprints)?;
/// let run = PackedRun::build(&mut batch.into_run(Seed(1), universe))?;
/// assert!((0..1000).all(|i| run.contains(hash(i))));
/// assert!((1000..2000).filter(|&i| run.contains(hash(i))).count() < 10);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PackedRun {
    blocks: Vec<Bytes>,
    index: BlockIndex,
    seed: Seed,
    universe: Universe,
    len: u64,
}

impl PackedRun {
    /// Packs a run of fingerprints.
    ///
    /// # Errors
    /// If the run is not as [`Fingerprints`] describes it.
    pub fn build(fingerprints: &mut dyn Fingerprints) -> Result<PackedRun> {
        PackedRun::build_with_room(fingerprints, 0)
    }

    /// Packs a run into memory that is allocated once, for `bytes` bytes: a run that grows step by
    /// step may take twice the memory that it needs.
    pub(super) fn build_with_room(
        fingerprints: &mut dyn Fingerprints,
        bytes: usize,
    ) -> Result<PackedRun> {
        let (seed, universe) = (fingerprints.seed(), fingerprints.universe());
        let index = BlockIndex::new(universe);
        let blocks = Vec::with_capacity(bytes / size_of::<Bytes>());
        let mut run = PackedRun { blocks, index, seed, universe, len: 0 };
        run.rebuild(fingerprints)?;
        Ok(run)
    }

    /// Replaces this run by another run, and reuses its memory: fresh memory costs more time than
    /// packing. After an error, the run is empty.
    pub fn rebuild(&mut self, fingerprints: &mut dyn Fingerprints) -> Result<()> {
        (self.seed, self.universe) = (fingerprints.seed(), fingerprints.universe());
        self.blocks.clear();
        self.index.clear(self.universe);
        self.len = 0;
        let packer = Packer::new(self.universe, self.index.cut_shift());
        let (blocks, index) = (&mut self.blocks, &mut self.index);
        let packed = packer.pack(fingerprints, &mut |first, block: &mut Bytes| {
            index.push(first);
            blocks.push(*block);
            Ok(())
        });
        match packed {
            Ok(len) => self.len = len,
            Err(_) => {
                self.blocks.clear();
                self.index.clear(self.universe);
            }
        }
        packed.map(drop)
    }

    /// Returns all fingerprints in ascending order, with their counts.
    pub fn scan(&self) -> impl Fingerprints + '_ {
        PackedScan { run: self, next: 0 }
    }

    /// Returns all fingerprints, in order. The scan shares ownership of the run.
    pub(super) fn scan_shared(self: Arc<Self>) -> impl Fingerprints {
        PackedScan { run: self, next: 0 }
    }

    /// Whether the count of a key's fingerprint is above 0.
    pub fn contains(&self, hash: KeyHash) -> bool {
        self.count(hash) > 0
    }

    /// Returns the count of a key's fingerprint: 0 if it is not in the run, -1 for a tombstone,
    /// below 0 if a multiset removes more copies than it inserts.
    pub fn count(&self, hash: KeyHash) -> i64 {
        self.find(self.universe.fingerprint(hash)).unwrap_or(0)
    }

    /// Returns the count of a fingerprint; `None` if it is not in the run.
    #[inline]
    pub(crate) fn find(&self, fingerprint: u64) -> Option<i64> {
        let mut candidates = self.index.candidates(fingerprint);
        candidates.find_map(|number| {
            Block::new(&self.blocks[number]).and_then(|block| block.find(fingerprint)).ok()?
        })
    }

    /// Returns the number of fingerprints.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no fingerprints.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the size in RAM, in bytes.
    pub fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Bytes>() + self.index.bytes()
    }

    /// Returns the seed that keys are hashed with.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Returns the universe of the fingerprints.
    pub fn universe(&self) -> Universe {
        self.universe
    }
}

/// The blocks of a run, decoded one after the other.
struct PackedScan<R> {
    run: R,
    /// Number of the next block.
    next: usize,
}

impl<R: Deref<Target = PackedRun> + Send> Fingerprints for PackedScan<R> {
    fn seed(&self) -> Seed {
        self.run.seed
    }

    fn universe(&self) -> Universe {
        self.run.universe
    }

    fn append_to(&mut self, batch: &mut FingerprintBatch) -> Result<bool> {
        let Some(bytes) = self.run.blocks.get(self.next) else {
            return Ok(false);
        };
        self.next += 1;
        Block::new(bytes)?.decode(batch)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a hash with this fingerprint in [`Universe::EXACT`].
    fn hash(fingerprint: u64) -> KeyHash {
        KeyHash::from_bits(u128::from(fingerprint) << 64)
    }

    /// Returns ascending numbers with random distances of up to `bits(i)` bits.
    fn items(count: u64, bits: impl Fn(u64) -> u32) -> Vec<u64> {
        let gap = |i: u64| KeyHash::of(&i.to_le_bytes(), Seed(0)).high() >> (64 - bits(i));
        let sum = |sum: &mut u64, i| {
            *sum = sum.checked_add(1 + gap(i))?;
            Some(*sum)
        };
        (0..count).scan(0, sum).collect()
    }

    /// Checks that each fingerprint is found with its count, its neighbours are not, and a scan
    /// returns all.
    #[track_caller]
    fn check(batch: &FingerprintBatch) {
        let mut run = batch.clone().into_run(Seed(3), Universe::EXACT);
        let run = PackedRun::build(&mut run).unwrap();
        assert_eq!((run.len(), run.seed()), (batch.len() as u64, Seed(3)));
        for (fingerprint, count) in batch.iter() {
            assert_eq!(run.count(hash(fingerprint)), count, "{fingerprint:#x}");
            assert_eq!(run.contains(hash(fingerprint)), count > 0);
            for near in [fingerprint.wrapping_sub(1), fingerprint.wrapping_add(1)] {
                let is_there = batch.fingerprints().binary_search(&near).is_ok();
                assert_eq!(run.count(hash(near)) != 0, is_there);
            }
        }
        let (mut all, mut scan) = (FingerprintBatch::new(), run.scan());
        while scan.append_to(&mut all).unwrap() {}
        assert_eq!(&all, batch);
    }

    fn ones(fingerprints: Vec<u64>) -> FingerprintBatch {
        FingerprintBatch::from_sorted(fingerprints).unwrap()
    }

    #[test]
    fn no_fingerprint_is_missed() {
        check(&ones(Vec::new()));
        check(&ones(vec![u64::MAX]));
        check(&ones((0..50_000).collect()));
        check(&ones(items(50_000, |_| 49)));
        check(&ones(items(50_000, |i| if i % 5000 == 0 { 59 } else { 3 })));
    }

    /// The index has the first 32 bits; here, 2 to 20,000 fingerprints agree in them.
    #[test]
    fn no_fingerprint_is_missed_where_many_share_their_first_bits() {
        for bits in [31, 28, 24, 20, 18] {
            check(&ones(items(50_000, |_| bits)));
        }
        check(&ones(items(60_000, |i| if i % 20_000 == 0 { 40 } else { 10 })));
    }

    #[test]
    fn no_count_is_missed() {
        for every in [2, 7, 300] {
            let mut batch = FingerprintBatch::new();
            for (i, fingerprint) in items(30_000, |_| 40).into_iter().enumerate() {
                let count = match i % every {
                    0 => 2 + i as i64,
                    1 if i % 3 == 0 => -1,
                    _ => 1,
                };
                batch.push(fingerprint, count).unwrap();
            }
            check(&batch);
        }
    }

    #[test]
    fn fingerprints_outside_the_universe_are_refused() {
        let universe = Universe::with_size(1000).unwrap();
        assert!(PackedRun::build(&mut ones(vec![3, 999]).into_run(Seed(3), universe)).is_ok());
        assert!(PackedRun::build(&mut ones(vec![3, 1000]).into_run(Seed(3), universe)).is_err());
    }

    #[test]
    fn a_run_is_built_again_in_the_memory_of_another() {
        let build = |count| ones(items(count, |_| 45)).into_run(Seed(3), Universe::EXACT);
        let mut run = PackedRun::build(&mut build(60_000)).unwrap();
        let bytes = run.bytes();
        run.rebuild(&mut build(50_000)).unwrap();
        assert_eq!((run.len(), run.bytes()), (50_000, bytes));
        assert_eq!(run.count(hash(items(60_000, |_| 45)[59_999])), 0);
    }
}
