//! Detection of AVX-512.

use crate::cpu::Instructions;

/// Proof that the processor has AVX-512 with byte permutations and compression, so that functions
/// compiled for these instructions may be called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wide(());

impl Wide {
    /// Returns the proof if this process uses AVX-512.
    #[inline]
    pub(super) fn detect() -> Option<Wide> {
        (Instructions::in_use() >= Instructions::V4).then_some(Wide(()))
    }
}
