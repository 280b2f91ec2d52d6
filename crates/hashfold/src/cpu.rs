//! The machine instructions that inner loops use.
//!
//! The best that the processor has are used, unless the environment variable `HASHFOLD_CPU` limits
//! them when the process first asks: `portable`, `v3` or `v4`. Results do not depend on it.

use crate::error::{Error, Result};
use std::{env::VarError, sync::OnceLock};

/// The environment variable that limits the instructions.
const VARIABLE: &str = "HASHFOLD_CPU";

const ALL: [Instructions; 3] = [Instructions::Portable, Instructions::V3, Instructions::V4];

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
            let limit = std::env::var(VARIABLE).ok().and_then(|name| Instructions::named(&name));
            Instructions::detect().min(limit.unwrap_or(Instructions::V4))
        })
    }

    /// Checks the environment variable `HASHFOLD_CPU`, whose other values limit nothing.
    ///
    /// # Errors
    /// `Argument` if it is set and no name of instructions.
    pub fn check_environment() -> Result<()> {
        match std::env::var(VARIABLE) {
            Err(VarError::NotPresent) => Ok(()),
            Ok(name) if Instructions::named(&name).is_some() => Ok(()),
            other => {
                let got = other.unwrap_or_else(|_| "text that is not UTF-8".to_owned());
                Err(Error::argument(VARIABLE, "portable, v3 or v4", got))
            }
        }
    }

    fn named(name: &str) -> Option<Instructions> {
        ALL.into_iter().find(|instructions| instructions.name() == name)
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
    use super::*;

    #[test]
    fn every_name_names_its_instructions() {
        for instructions in ALL {
            assert_eq!(Instructions::named(instructions.name()), Some(instructions));
        }
        assert_eq!(Instructions::named("v5"), None);
    }

    /// `./test` runs this with and without a limit.
    #[test]
    fn the_environment_limits_this_process() {
        let limit = std::env::var(VARIABLE).ok().and_then(|name| Instructions::named(&name));
        assert_eq!(Instructions::in_use(), Instructions::detect().min(limit.unwrap_or(ALL[2])));
    }
}
