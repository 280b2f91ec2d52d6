//! The traces A to H of the paper, at a scale.

use super::{
    buffer::{Buffer, Policy},
    bw::BwTree,
    device::{Counts, NVME, SATA},
    engine::{Layout, Sal, Sizes},
    index::Index,
    rivals::{Extendible, LazySplit, Linear},
    zipf::Zipf,
};
use crate::dice::Dice;
use crate::hashes::pick;
use hashfold::{KeyHash, Seed};

/// Buckets in a group, but for Trace H.
pub const GROUP: u64 = 16;
/// Memory in the paper, in pages: 64 MB.
const MEMORY_PAGES: u64 = 16384;
/// Operations of each trace but A, in the paper.
const OPERATIONS: u64 = 10_000_000;

/// Number of keys that are drawn to find a hot or a cold one.
const TRIES_MAX: u32 = 1000;

/// An index that is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Linear,
    Extendible,
    LazySplit,
    BwTree,
    Sal,
    SalPacked,
}

impl Kind {
    pub const ALL: [Kind; 6] =
        [Kind::Linear, Kind::Extendible, Kind::LazySplit, Kind::BwTree, Kind::Sal, Kind::SalPacked];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Linear => "linear hashing",
            Kind::Extendible => "extendible hashing",
            Kind::LazySplit => "lazy-split hashing",
            Kind::BwTree => "Bw-like tree",
            Kind::Sal => "SAL, paper's layout",
            Kind::SalPacked => "SAL, filters in RAM",
        }
    }
}

/// Which keys a trace asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Locality {
    Uniform,
    /// This percentage of requests goes to the rest of 100 % of the buckets: 80 means 80-20.
    HotBuckets(u64),
    /// Neighbouring buckets are hot together, so that a fifth of the sets is.
    HotGroups(u64),
    /// Keys are asked for by Zipf's law.
    Zipf,
}

/// A scale and a seed.
#[derive(Clone, Copy, Debug)]
pub struct World {
    /// Sizes are those of the paper divided by this number.
    pub scale: u64,
    pub seed: u64,
}

impl World {
    /// Returns a number of the paper at this scale.
    pub fn scaled(&self, number: u64) -> u64 {
        number / self.scale
    }

    pub fn operations(&self) -> u64 {
        self.scaled(OPERATIONS)
    }

    pub fn memory(&self) -> usize {
        self.scaled(MEMORY_PAGES).max(16) as usize
    }

    pub fn dice(&self, purpose: u64) -> Dice {
        Dice::new(KeyHash::of(&purpose.to_le_bytes(), Seed(self.seed)).high())
    }

    /// Returns the hash of a numbered key.
    fn hash(&self, i: u64) -> u64 {
        KeyHash::of(&i.to_le_bytes(), Seed(self.seed)).high()
    }

    pub fn index(&self, kind: Kind, group: u64) -> Box<dyn Index> {
        let memory = self.memory();
        let (buffer, dice) = (Buffer::new(Policy::Lru, memory), self.dice(kind as u64));
        let sizes = Sizes { group, memory };
        match kind {
            Kind::Linear => Box::new(Linear::new(buffer, dice)),
            Kind::Extendible => Box::new(Extendible::new(buffer, dice)),
            Kind::LazySplit => Box::new(LazySplit::new(buffer, dice)),
            Kind::BwTree => Box::new(BwTree::new(memory, dice)),
            Kind::Sal => Box::new(Sal::new(Layout::Paper, sizes, buffer, dice)),
            Kind::SalPacked => Box::new(Sal::new(Layout::Packed, sizes, buffer, dice)),
        }
    }

    /// Inserts the keys from `first` to `end`.
    pub fn insert(&self, index: &mut dyn Index, first: u64, end: u64) {
        (first..end).for_each(|i| index.insert(self.hash(i)));
    }

    /// Returns the requests for the first `keys` keys.
    pub fn requests(&self, keys: u64, locality: Locality) -> Requests {
        let zipf = (locality == Locality::Zipf).then(|| Zipf::new(keys));
        Requests { world: *self, keys, locality, zipf, dice: self.dice(100) }
    }
}

/// Requests for present keys.
#[derive(Clone, Debug)]
pub struct Requests {
    world: World,
    keys: u64,
    locality: Locality,
    zipf: Option<Zipf>,
    dice: Dice,
}

impl Requests {
    fn next(&self) -> u64 {
        let any = || self.world.hash(self.dice.below(self.keys));
        if let Some(zipf) = &self.zipf {
            return self.world.hash(zipf.rank(self.dice.unit()));
        }
        let (share, hash_of) = match self.locality {
            Locality::Uniform | Locality::Zipf => return any(),
            Locality::HotBuckets(share) => (share, 0),
            Locality::HotGroups(share) => (share, GROUP.ilog2()),
        };
        // Buckets of the size of linear hashing, whatever the index has.
        let bits = (self.keys / 192).max(2).ilog2();
        let wants_hot = self.dice.below(100) < share;
        // A tiny index may have no hot or no cold bucket.
        for _ in 0..TRIES_MAX {
            let hash = any();
            let bucket = (hash & ((1 << bits) - 1)) >> hash_of;
            if (pick(bucket, self.world.seed, 100) < 100 - share) == wants_hot {
                return hash;
            }
        }
        any()
    }

    /// Runs one operation: a search with this probability, or else an update.
    pub fn step(&self, index: &mut dyn Index, search_part: f64) {
        let hash = self.next();
        if self.dice.chance(search_part) { index.search(hash) } else { index.update(hash) }
    }

    /// Runs a number of operations, this part of them searches, the others updates.
    pub fn run(&self, index: &mut dyn Index, count: u64, search_part: f64) -> Cost {
        let before = index.counts();
        (0..count).for_each(|_| self.step(index, search_part));
        Cost::of(&index.counts().minus(&before), count, GROUP)
    }

    /// Looks up absent keys.
    pub fn run_misses(&self, index: &mut dyn Index, count: u64) -> Cost {
        let before = index.counts();
        (0..count).for_each(|_| index.miss(self.dice.bits()));
        Cost::of(&index.counts().minus(&before), count, GROUP)
    }
}

/// I/O and time per operation.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub reads: f64,
    pub writes: f64,
    pub coarse_reads: f64,
    pub coarse_writes: f64,
    pub appended: f64,
    pub nvme_us: f64,
    pub sata_us: f64,
}

impl Cost {
    pub fn of(counts: &Counts, operations: u64, group: u64) -> Cost {
        let per = |number: f64| number / operations as f64;
        Cost {
            reads: per(counts.reads as f64),
            writes: per(counts.writes as f64),
            coarse_reads: per(counts.coarse_reads as f64),
            coarse_writes: per(counts.coarse_writes as f64),
            appended: per(counts.appended_pages()),
            nvme_us: per(NVME.microseconds(counts, group)),
            sata_us: per(SATA.microseconds(counts, group)),
        }
    }

    /// Returns the columns of results.
    pub fn columns(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("reads", self.reads),
            ("writes", self.writes),
            ("coarse_reads", self.coarse_reads),
            ("coarse_writes", self.coarse_writes),
            ("appended_pages", self.appended),
            ("nvme_us", self.nvme_us),
            ("sata_us", self.sata_us),
        ]
    }
}
