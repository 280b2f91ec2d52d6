//! Detection of AVX-512.

/// Proof that the processor has AVX-512 with byte permutations and compression, so that functions
/// compiled for these instructions may be called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wide(());

impl Wide {
    /// Queries the processor.
    #[inline]
    pub(super) fn detect() -> Option<Wide> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("avx512vpopcntdq")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
        {
            return Some(Wide(()));
        }
        None
    }
}
