//! The machine instructions that inner loops use.
//!
//! The best that the processor has are used, unless the environment variable `HASHFOLD_CPU` limits
//! them when the process first asks: `portable`, `v3` or `v4`. Results do not depend on it.

use std::sync::OnceLock;

/// Sets of machine instructions, each a superset of the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instructions {
    /// No more than the compiler assumes for this kind of processor.
    Portable,
    /// AVX2, BMI1, BMI2, LZCNT and POPCNT: the level x86-64-v3.
    V3,
    /// [`Instructions::V3`], and AVX-512 with byte permutations and compression (F, BW, VL, VBMI,
    /// VBMI2, VPOPCNTDQ).
    V4,
}

impl Instructions {
    /// Returns the instructions that this process uses.
    #[inline]
    pub fn in_use() -> Instructions {
        static IN_USE: OnceLock<Instructions> = OnceLock::new();
        *IN_USE.get_or_init(|| {
            let limit = std::env::var("HASHFOLD_CPU").ok();
            Instructions::detect().min(Instructions::limit(limit.as_deref()))
        })
    }

    /// Returns the limit of this name. Other names limit nothing.
    fn limit(name: Option<&str>) -> Instructions {
        match name {
            Some("portable") => Instructions::Portable,
            Some("v3") => Instructions::V3,
            _ => Instructions::V4,
        }
    }

    /// Returns the name, as in `HASHFOLD_CPU`.
    pub fn name(self) -> &'static str {
        match self {
            Instructions::Portable => "portable",
            Instructions::V3 => "v3",
            Instructions::V4 => "v4",
        }
    }

    fn detect() -> Instructions {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vbmi")
                && is_x86_feature_detected!("avx512vbmi2")
                && is_x86_feature_detected!("avx512vpopcntdq")
            {
                return Instructions::V4;
            }
            return Instructions::V3;
        }
        Instructions::Portable
    }
}

#[cfg(test)]
mod tests {
    use super::Instructions::{self, Portable, V3, V4};

    #[test]
    fn instructions_are_limited_by_their_names() {
        for limit in [Portable, V3, V4] {
            assert_eq!(Instructions::limit(Some(limit.name())), limit);
        }
        assert_eq!(Instructions::limit(None), V4);
    }

    #[test]
    fn the_environment_limits_this_process() {
        let limit = Instructions::limit(std::env::var("HASHFOLD_CPU").ok().as_deref());
        assert!(Instructions::in_use() <= limit);
    }
}
