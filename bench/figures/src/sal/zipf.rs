//! Zipf's law, for skewed traces.

/// The number of the first terms of a sum that are added one by one.
const TERMS: u64 = 1000;

/// Ranks whose probability is proportional to `1 / (rank + 1)^0.99`.
///
/// The ranks are computed as by Gray and others, *Quickly Generating Billion-Record Synthetic Databases*
/// (1994): exact for the first two, close for the others.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    count: u64,
    sum: f64,
    power: f64,
    correction: f64,
}

impl Zipf {
    pub const EXPONENT: f64 = 0.99;

    /// Returns the law for `count` ranks, two or more.
    pub fn new(count: u64) -> Zipf {
        assert!(count >= 2);
        let sum = weights(count);
        let rest = 1.0 - (2.0 / count as f64).powf(1.0 - Zipf::EXPONENT);
        let correction = rest / (1.0 - weights(2) / sum);
        Zipf { count, sum, power: 1.0 / (1.0 - Zipf::EXPONENT), correction }
    }

    /// Returns a rank from 0 on, for a number that is drawn uniformly from 0 to 1.
    pub fn rank(&self, part: f64) -> u64 {
        let passed = part * self.sum;
        if passed < weights(2) {
            return u64::from(passed >= 1.0);
        }
        let base = self.correction * part - self.correction + 1.0;
        ((self.count as f64 * base.powf(self.power)) as u64).min(self.count - 1)
    }
}

/// Returns the sum of the weights of the first `count` ranks: the first terms, and the Euler–Maclaurin formula
/// for the others.
fn weights(count: u64) -> f64 {
    let weight = |rank: f64| rank.powf(-Zipf::EXPONENT);
    let first = count.min(TERMS);
    let sum: f64 = (1..=first).map(|rank| weight(rank as f64)).sum();
    let (low, high) = (first as f64, count as f64);
    let power = 1.0 - Zipf::EXPONENT;
    sum + (high.powf(power) - low.powf(power)) / power + (weight(high) - weight(low)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn the_sum_of_weights_is_that_of_all_terms() {
        for count in [2, 999, 1000, 1001, 50_000] {
            let naive: f64 = (1..=count).map(|rank| (rank as f64).powf(-Zipf::EXPONENT)).sum();
            assert!((weights(count) / naive - 1.0).abs() < 1e-8, "{count}");
        }
    }

    #[test]
    fn ranks_are_drawn_with_their_probabilities() {
        let (zipf, dice, draws) = (Zipf::new(5000), Dice::new(1), 200_000);
        let mut counts = vec![0_u64; 5000];
        (0..draws).for_each(|_| counts[zipf.rank(dice.unit()) as usize] += 1);
        for end in [1, 2, 10, 100, 1000, 5000] {
            let got = counts[..end].iter().sum::<u64>() as f64 / draws as f64;
            let expected = weights(end as u64) / weights(5000);
            assert!((got - expected).abs() < 0.015, "first {end}: {got}, expected {expected}");
        }
    }
}
