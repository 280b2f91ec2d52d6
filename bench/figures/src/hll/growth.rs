//! A sketch that gets random hashes, of which only those that change it are made.
//!
//! A hash changes a sketch with m registers, C(k) of which have the value k, with the probability
//!
//! ```text
//! p = Σ C(k)·2^−k / m      over all k but the largest value
//! ```
//!
//! so the number of hashes up to the next change has a geometric distribution. The value of the register
//! that changes is k with a probability proportional to C(k)·2^−k, and grows by 1 with the probability 1/2, by 2 with
//! 1/4, and so on. That is the exact distribution of n inserts, in a time that grows with m·ln n.

use crate::{Result, dice::Dice, measure::ensure};
use hashfold::sketch::Hll;

/// A sketch that grows.
pub(super) struct Growth {
    pub sketch: Hll,
    /// Number of hashes that it has got before the next one that changes it.
    pub hashes: u64,
    /// For each value, the registers that have it.
    registers: Vec<Vec<u32>>,
    dice: Dice,
}

impl Growth {
    pub(super) fn new(precision: u8, dice: Dice) -> Result<Growth> {
        let value_max = 65 - usize::from(precision);
        let mut registers = vec![Vec::new(); value_max + 1];
        registers[0] = (0..1 << precision).collect();
        let mut growth = Growth { sketch: Hll::new(precision)?, hashes: 0, registers, dice };
        growth.skip();
        Ok(growth)
    }

    /// Lets the sketch get as many hashes as this.
    pub(super) fn grow(&mut self, hashes: u64) -> Result<()> {
        while self.hashes < hashes {
            self.change()?;
            self.skip();
        }
        Ok(())
    }

    /// Returns the estimate of the posts: the raw one, or linear counting for few keys.
    pub(super) fn classic_estimate(&self) -> f64 {
        let m = self.sketch.register_count() as f64;
        let sum: f64 =
            self.weights().sum::<f64>() + self.full() * 0.5_f64.powi(self.value_max() as i32);
        let alpha = match self.sketch.precision() {
            4 => 0.673,
            5 => 0.697,
            6 => 0.709,
            _ => 0.7213 / (1.0 + 1.079 / m),
        };
        let raw = alpha * m * m / sum;
        match self.registers[0].len() {
            zeros if zeros > 0 && raw <= 2.5 * m => m * (m / zeros as f64).ln(),
            _ => raw,
        }
    }

    fn value_max(&self) -> usize {
        self.registers.len() - 1
    }

    /// Returns the number of registers with the largest value.
    fn full(&self) -> f64 {
        self.registers[self.value_max()].len() as f64
    }

    /// Returns C(k)·2^−k for each value that can grow.
    fn weights(&self) -> impl Iterator<Item = f64> + '_ {
        let of =
            |(k, registers): (usize, &Vec<u32>)| registers.len() as f64 * 0.5_f64.powi(k as i32);
        self.registers[..self.value_max()].iter().enumerate().map(of)
    }

    /// Adds the hashes before the next change.
    fn skip(&mut self) {
        let p = self.weights().sum::<f64>() / self.sketch.register_count() as f64;
        // 1 − unit is 0 never. Of a sketch that is empty, the first hash is a change.
        let hashes =
            if p >= 1.0 { 0.0 } else { ((1.0 - self.dice.unit()).ln() / (-p).ln_1p()).floor() };
        self.hashes = self.hashes.saturating_add(hashes as u64);
    }

    /// Inserts a hash that changes the sketch.
    fn change(&mut self) -> Result<()> {
        let mut left = self.dice.unit() * self.weights().sum::<f64>();
        let occupied = |(k, weight): (usize, f64)| (weight > 0.0).then_some((k, weight));
        let mut chosen = None;
        for (k, weight) in self.weights().enumerate().filter_map(occupied) {
            chosen = Some(k);
            left -= weight;
            if left < 0.0 {
                break;
            }
        }
        let k = chosen.ok_or("all registers are full")?;
        let at = self.dice.below(self.registers[k].len() as u64) as usize;
        let register = self.registers[k].swap_remove(at);
        let value = (k + 1 + self.dice.bits().leading_zeros() as usize).min(self.value_max());
        self.registers[value].push(register);
        let bits = 64 - u32::from(self.sketch.precision());
        let rest = if value as u32 > bits { 0 } else { 1 << (bits - value as u32) };
        self.hashes += 1;
        let is_changed = self.sketch.insert_bits(u64::from(register) << bits | rest);
        ensure(is_changed, || format!("a register with {k} refuses {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hashfold::{KeyHash, Seed};

    /// The mean and the root of the mean square of many numbers.
    fn moments(numbers: &[f64]) -> (f64, f64) {
        let mean = |of: &dyn Fn(f64) -> f64| {
            numbers.iter().map(|it| of(*it)).sum::<f64>() / numbers.len() as f64
        };
        (mean(&|it| it), mean(&|it| it * it).sqrt())
    }

    /// Estimates of sketches of hashes that are all inserted have the same distribution.
    #[test]
    fn a_sketch_grows_as_by_inserts() {
        const RUNS: u64 = 4000;
        for (precision, keys) in [(4, 1), (4, 3), (4, 40), (4, 3000), (6, 150), (8, 700)] {
            let (mut grown, mut inserted) = (Vec::new(), Vec::new());
            let dice = Dice::new(u64::from(precision) * 7 + keys);
            for run in 0..RUNS {
                let mut growth = Growth::new(precision, dice.clone()).unwrap();
                growth.grow(keys).unwrap();
                grown.push(growth.sketch.estimate() / keys as f64);
                let mut sketch = Hll::new(precision).unwrap();
                let hash = |i: u64| KeyHash::of(&i.to_le_bytes(), Seed(run)).high();
                (0..keys).for_each(|i| _ = sketch.insert_bits(hash(i)));
                inserted.push(sketch.estimate() / keys as f64);
            }
            let (a, b) = (moments(&grown), moments(&inserted));
            let spread = (b.1 * b.1 - b.0 * b.0).max(0.0).sqrt();
            let bound = 5.0 * spread * (2.0 / RUNS as f64).sqrt() + 1e-9;
            assert!((a.0 - b.0).abs() < bound, "{precision}, {keys}: {a:?}, {b:?}");
            assert!((a.1 - b.1).abs() < 2.0 * bound, "{precision}, {keys}: {a:?}, {b:?}");
        }
    }

    #[test]
    fn the_posts_estimator_counts_zeros_while_there_are_few_keys() {
        let mut growth = Growth::new(10, Dice::new(1)).unwrap();
        for (keys, error) in [(1, 1e-3), (100, 0.05), (1000, 0.1), (1_000_000, 0.15)] {
            growth.grow(keys).unwrap();
            let estimate = growth.classic_estimate();
            assert!((estimate / keys as f64 - 1.0).abs() < error, "{keys}: {estimate}");
        }
    }
}
