//! Merging runs of fingerprints: of equal fingerprints, the newest count is kept, or all counts are
//! added.

mod fingerprint_merge;
mod kernel;
mod merger;
mod tags;
#[cfg(test)]
mod tests;

pub use self::fingerprint_merge::FingerprintMerge;
pub(super) use self::kernel::ascends;
