//! Merging runs of fingerprints, each fingerprint once: the newest count is kept, or all are added.

mod fingerprint_merge;
mod kernel;
mod merger;
mod tags;
#[cfg(test)]
mod tests;

pub use self::fingerprint_merge::FingerprintMerge;
pub(super) use self::kernel::ascends;
