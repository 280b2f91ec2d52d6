//! Have I seen this key? A quotient filter in RAM and a cascade filter on flash.
//!
//! After Bender et al., *Don't Thrash: How to Cache your Hash on Flash* (2011): see
//! `docs/papers/cascade.md`. A filter keeps not keys but *fingerprints* of their hashes, in the
//! order of the hashes. A key that was inserted is always found; one that was not is found with the
//! small probability of having another one's fingerprint.

mod block;
pub mod cascade;
mod index;
mod machine;
mod merge;
mod mode;
mod pack;
mod packed;
pub mod quotient;

pub use self::{merge::FingerprintMerge, mode::Mode, packed::PackedRun};
