//! Runs of fingerprints.

use super::{batch::FingerprintBatch, universe::Universe};
use crate::{error::Result, key::Seed};
use std::ops::DerefMut;

/// A run of fingerprints: a stream in strictly ascending order, each with a count. The run ends
/// after an error.
///
/// In a multiset, a count is the number of keys with this fingerprint. In a set, a count above 0
/// means that the fingerprint is present. A run that changes an older run may have negative counts,
/// which remove that number of keys, or the fingerprint.
///
/// Foreign code may implement this trait. Readers check every batch, and return an error if a run
/// violates this description.
pub trait Fingerprints: Send {
    /// Returns the seed that keys are hashed with.
    fn seed(&self) -> Seed;

    /// Returns the universe of the fingerprints.
    fn universe(&self) -> Universe;

    /// Appends the next fingerprints to `batch`, all larger than the previous ones. Returns
    /// `false`, and appends nothing, at the end of the run.
    fn append_to(&mut self, batch: &mut FingerprintBatch) -> Result<bool>;
}

/// A mutable reference to a run of fingerprints, or a box of one, is that run.
impl<P: DerefMut<Target: Fingerprints> + Send> Fingerprints for P {
    fn seed(&self) -> Seed {
        (**self).seed()
    }

    fn universe(&self) -> Universe {
        (**self).universe()
    }

    fn append_to(&mut self, batch: &mut FingerprintBatch) -> Result<bool> {
        (**self).append_to(batch)
    }
}

impl FingerprintBatch {
    /// Returns this batch as a run of fingerprints of keys hashed with `seed`.
    pub fn into_run(self, seed: Seed, universe: Universe) -> impl Fingerprints {
        OneBatch { seed, universe, batch: Some(self) }
    }
}

/// A run of one batch.
struct OneBatch {
    seed: Seed,
    universe: Universe,
    /// The batch, until it is read.
    batch: Option<FingerprintBatch>,
}

impl Fingerprints for OneBatch {
    fn seed(&self) -> Seed {
        self.seed
    }

    fn universe(&self) -> Universe {
        self.universe
    }

    fn append_to(&mut self, batch: &mut FingerprintBatch) -> Result<bool> {
        let own = self.batch.take().filter(|own| !own.is_empty());
        if let Some(own) = &own {
            batch.append(own.all());
        }
        Ok(own.is_some())
    }
}
