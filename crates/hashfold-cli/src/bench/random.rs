//! Pseudorandom numbers and bytes, the same in every run.

use hashfold::{KeyHash, Seed};

/// Returns a pseudorandom number below `count` for `i`.
pub(crate) fn pick(i: u64, seed: u64, count: u64) -> u64 {
    let hash = KeyHash::of(&i.to_be_bytes(), Seed(!seed)).high();
    ((u128::from(hash) * u128::from(count)) >> 64) as u64
}

/// Returns `len` incompressible bytes; `len` is a multiple of 16.
pub(crate) fn noise(len: u64, seed: u64) -> impl Iterator<Item = u8> {
    (0..len / 16).flat_map(move |i| KeyHash::of(&i.to_le_bytes(), Seed(seed)).bits().to_le_bytes())
}
