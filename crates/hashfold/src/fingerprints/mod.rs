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
mod run;
mod universe;

pub use self::{batch::FingerprintBatch, run::Fingerprints, universe::Universe};
pub(crate) use self::{
    batch::{BatchSlice, Exception},
    checked::{Ascent, Checked},
};
