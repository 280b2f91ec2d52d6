//! Hashfold's cascade filter: at the paper's false-positive rate, and with 64-bit fingerprints.

use super::{Options, Peer, Set, background_threads};
use crate::Result;
use hashfold::{
    Env, KeyHash, Seed,
    filter::cascade::{CascadeFilter, CascadeOptions, CascadeSettings},
    work::Threads,
};
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

/// False-positive rate of the filters in the paper.
const ERROR_RATE: f64 = 0.0004;

pub(super) fn peers() -> Vec<Box<dyn Peer>> {
    vec![Box::new(Cascade::Approximate), Box::new(Cascade::Exact)]
}

enum Cascade {
    Approximate,
    Exact,
}

impl Peer for Cascade {
    fn name(&self) -> String {
        match self {
            Cascade::Approximate => "Hashfold cascade".to_owned(),
            Cascade::Exact => "Hashfold cascade, exact".to_owned(),
        }
    }

    fn note(&self) -> String {
        let what = match self {
            Cascade::Approximate => "error rate 0.04 %",
            Cascade::Exact => "64-bit fingerprints: in effect no errors",
        };
        format!("{what}; without a log; direct I/O; lookups by one thread, no compaction before")
    }

    fn keys(&self, options: &Options) -> u64 {
        options.keys
    }

    fn takes_all(&self) -> bool {
        true
    }

    fn get_threads(&self, _: &Options) -> usize {
        1
    }

    fn error_max(&self) -> f64 {
        match self {
            Cascade::Approximate => ERROR_RATE,
            Cascade::Exact => 0.0,
        }
    }

    fn create(&self, options: &Options, folder: &Path) -> Result<Box<dyn Set>> {
        let seed = Seed(options.common.seed);
        let new = match self {
            Cascade::Approximate => CascadeOptions::new(seed, 1, options.keys, ERROR_RATE)?,
            Cascade::Exact => CascadeOptions::exact(seed, 1),
        };
        let settings = CascadeSettings {
            memory_bytes: options.memory << 20,
            env: Env { executor: Arc::new(Threads::new(background_threads())), ..Env::system() },
            ..CascadeSettings::default()
        };
        let folder = folder.join("cascade");
        let filter = CascadeFilter::create(&folder, &new, settings)?;
        Ok(Box::new(Open { filter: Mutex::new(filter), seed, hashes: Vec::new() }))
    }
}

struct Open {
    /// The filter, which one thread uses at a time.
    filter: Mutex<CascadeFilter>,
    seed: Seed,
    hashes: Vec<KeyHash>,
}

fn hash(key: u64, seed: Seed) -> KeyHash {
    KeyHash::of(&key.to_le_bytes(), seed)
}

impl Open {
    fn filter(&mut self) -> &mut CascadeFilter {
        self.filter.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Set for Open {
    fn insert(&mut self, keys: &[u64]) -> Result<()> {
        let mut hashes = std::mem::take(&mut self.hashes);
        hashes.clear();
        hashes.extend(keys.iter().map(|&key| hash(key, self.seed)));
        self.filter().insert_batch(&hashes)?;
        self.hashes = hashes;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(self.filter().flush()?)
    }

    fn finish_work(&mut self) -> Result<()> {
        Ok(self.filter().wait_for_merges()?)
    }

    fn look_up(&self, keys: &[u64], found: &mut [bool]) -> Result<()> {
        let hashes: Vec<KeyHash> = keys.iter().map(|&key| hash(key, self.seed)).collect();
        let filter = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(filter.contains_batch(&hashes, found)?)
    }
}
