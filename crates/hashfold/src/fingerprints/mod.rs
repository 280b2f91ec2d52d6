//! Fingerprints: the first bits of hashes as numbers, in ascending order, each with a count.
//!
//! A *fingerprint* is a key's hash scaled down to a [`Universe`] of numbers. Filters keep
//! fingerprints in place of keys, and hand them on in the order of the hashes:
//!
//! ```text
//! filter ─scan→ Fingerprints ─append_to→ FingerprintBatch ─→ another filter
//! ```
//!
//! [`Fingerprints`] is to filters what [`Run`](crate::run::Run) is to tables: every filter can be
//! read as a run of fingerprints (`scan`), and can be built from one (`build`). Fingerprints have
//! no keys, so nothing that needs keys can be built from them.

mod batch;
mod checked;
mod universe;

pub use self::{batch::FingerprintBatch, universe::Universe};
pub(crate) use self::{
    batch::{BatchSlice, Exception},
    checked::{Ascent, Checked},
};

use crate::{error::Result, key::Seed};

/// A run of fingerprints: ascending, none twice, each with a count. An error ends the run.
///
/// In a multiset a count is the number of keys with this fingerprint; in a set a count above 0
/// means that the fingerprint is present. A run that changes an older one may have counts below
/// 0: they remove that many keys, or the fingerprint.
///
/// Anything can implement this trait. Readers check every batch, and a run that is not as
/// described here is an error.
pub trait Fingerprints: Send {
    /// The seed that the keys were hashed with.
    fn seed(&self) -> Seed;

    /// The universe of the fingerprints.
    fn universe(&self) -> Universe;

    /// Appends the next fingerprints to `batch`, all larger than those before. Returns `false`, and
    /// appends nothing, at the end of the run.
    fn append_to(&mut self, batch: &mut FingerprintBatch) -> Result<bool>;
}

impl<F: Fingerprints + ?Sized> Fingerprints for Box<F> {
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

impl<F: Fingerprints + ?Sized> Fingerprints for &mut F {
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
