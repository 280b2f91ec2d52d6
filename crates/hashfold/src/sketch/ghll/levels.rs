//! The values of registers: which one a hash gives, and how often.
//!
//! ```text
//! bits of a hash: | 18: the first p number the register | zeros, then a one … | t: the step |
//!
//! value = 2^t · min(zeros, 46 − t) + step + 1, with a probability of 2^−(t + min(zeros + 1, 46 − t))
//! ```
//!
//! The bits of the value do not depend on the precision, so that a lower precision loses nothing else.

use super::super::PRECISION_MAX;

/// Number of bits of a hash that make the value.
const VALUE_BITS: u32 = u64::BITS - PRECISION_MAX as u32;

/// The values of registers with 2^t steps from one number of zeros to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Levels {
    /// t.
    pub(super) step_bits: u8,
}

impl Levels {
    /// The largest number of zeros.
    fn zeros_max(self) -> u32 {
        VALUE_BITS - u32::from(self.step_bits)
    }

    /// Returns the register of a hash among 2^`precision`, and the value that it gives the register.
    #[inline]
    pub(super) fn place(self, hash: u64, precision: u8) -> (usize, u16) {
        let rest = hash << PRECISION_MAX;
        let zeros = rest.leading_zeros().min(self.zeros_max());
        let step = hash & ((1 << self.step_bits) - 1);
        let value = (u64::from(zeros) << self.step_bits) + step + 1;
        ((hash >> (u64::BITS - u32::from(precision))) as usize, value as u16)
    }

    /// The largest value.
    pub(super) fn value_max(self) -> u16 {
        (self.zeros_max() as u16 + 1) << self.step_bits
    }

    /// Returns the probability that a hash gives this value; 0 of the value 0.
    pub(super) fn probability(self, value: u16) -> f64 {
        if value == 0 {
            return 0.0;
        }
        let zeros = u32::from(value - 1) >> self.step_bits;
        let exponent = (zeros + 1).min(self.zeros_max()) + u32::from(self.step_bits);
        0.5_f64.powi(exponent as i32)
    }

    /// Returns the probability that a hash gives a larger value.
    pub(super) fn above(self, value: u16) -> f64 {
        if value == 0 {
            return 1.0;
        }
        let zeros = u32::from(value - 1) >> self.step_bits;
        let steps_above =
            (u32::from(value - 1) | ((1 << self.step_bits) - 1)) - u32::from(value - 1);
        let zeros_above =
            if zeros < self.zeros_max() { 0.5_f64.powi(zeros as i32 + 1) } else { 0.0 };
        f64::from(steps_above) * self.probability(value) + zeros_above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probabilities_of_all_values_are_exact() {
        for step_bits in 1..=10 {
            let levels = Levels { step_bits };
            let (mut above, max) = (0.0, levels.value_max());
            for value in (0..=max).rev() {
                // Sums of powers of two are exact.
                assert_eq!(levels.above(value), above, "{value}");
                above += levels.probability(value);
            }
            assert_eq!(above, 1.0);
            assert!(u32::from(max) < 1 << (6 + step_bits), "it fits the register");
        }
    }

    /// All hashes with few other bits: each value comes as often as its probability says.
    #[test]
    fn hashes_have_the_values_of_their_zeros_and_steps() {
        let levels = Levels { step_bits: 2 };
        let mut counts = vec![0; usize::from(levels.value_max()) + 1];
        for high in 0..1_u64 << 8 {
            for low in 0..4 {
                let hash = 5 << 60 | high << (VALUE_BITS - 8) | low;
                let (index, value) = levels.place(hash, 4);
                assert_eq!(index, 5);
                counts[usize::from(value)] += 1;
            }
        }
        for value in 1..=8 * 4 {
            assert_eq!(f64::from(counts[usize::from(value)]), levels.probability(value) * 1024.0);
        }
        assert_eq!(levels.place(0, 18), (0, 44 * 4 + 1));
        assert_eq!(levels.place(u64::MAX, 18), ((1 << 18) - 1, 4));
    }
}
